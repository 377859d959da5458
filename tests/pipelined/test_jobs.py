"""Whole jobs on the pipelined engine without Spark: its tasks are threads, its slots are real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from answered_programs import SEEDS, answers, found_for
from local_environment import local_environment, run_programs_locally
from pyflink_programs import PROGRAMS, run_and_compare
from random_programs import program_of
from support_pipelined import LocalPipelinedRunner
from tiers import cases

pytestmark = pytest.mark.usefixtures("forked_slots")

#: Programs for the quick tier, each of one epoch, and batches of them for the full one and the soak.
QUICK = [[2, 4, 7]]
TOGETHER = 12
BATCHES = [SEEDS[begin : begin + TOGETHER] for begin in range(0, len(SEEDS), TOGETHER)]
FULL = 5
SOAKED = [pytest.param(seeds, marks=pytest.mark.slow) for seeds in BATCHES[FULL:]]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seeds", [*QUICK, *cases(BATCHES[:FULL], quick=()), *SOAKED], ids=str)
def test_programs_give_the_answers_of_pyflink(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seeds: list[int]
) -> None:
    found = found_for(local_environment(monkeypatch, LocalPipelinedRunner), seeds, tmp_path)
    different = {seed: found[seed] for seed in seeds if found[seed] != answers()[seed]}
    assert not different, [(program_of(seed), answers()[seed]) for seed in different]


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name, path in PROGRAMS.items() if path.parent.name != "names"])
def test_a_program_prints_what_it_prints_on_pyflink(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    run_programs_locally(monkeypatch, LocalPipelinedRunner)
    run_and_compare(name, capsys)
