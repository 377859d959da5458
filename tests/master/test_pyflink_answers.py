"""Random programs give the results of PyFlink 2.3, recorded by ``scripts/record_pyflink_answers.py``."""

from __future__ import annotations

from pathlib import Path

import pytest
from answered_programs import SEEDS, answers, found_for
from local_environment import local_environment
from random_programs import program_of
from tiers import cases

TOGETHER = 10
#: Programs for the quick tier, each of one epoch.
QUICK = [[2, 4, 7]]
#: The first batches are run by the full tier, and the others by the soak.
BATCHES = [SEEDS[begin : begin + TOGETHER] for begin in range(0, len(SEEDS), TOGETHER)]
FULL = 10
SOAKED = [pytest.param(seeds, marks=pytest.mark.slow) for seeds in BATCHES[FULL:]]
ALL = [*cases(BATCHES[:FULL], quick=()), *SOAKED]


@pytest.mark.parametrize("seeds", [*QUICK, *ALL], ids=str)
def test_programs_give_the_answers_of_pyflink(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seeds: list[int]
) -> None:
    found = found_for(local_environment(monkeypatch), seeds, tmp_path)
    different = {seed: found[seed] for seed in seeds if found[seed] != answers()[seed]}
    assert not different, [(program_of(seed), answers()[seed]) for seed in different]
