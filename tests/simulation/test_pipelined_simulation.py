"""The runtime with the pipelined engine under simulated failures; see ``simulation_pipelined``."""

from __future__ import annotations

import logging
from collections import Counter

import pytest
from simulation import PIPELINED_RATES
from simulation_focuses import EVERYTHING_PIPELINED, PIPELINED_FOCUSES, make_history
from tiers import cases

SEEDS_PER_BLOCK = 100
BLOCKS = 20
#: The seeds of histories that went wrong once.
FOUND = (369, 521717561290, 17223019088, 17223301688, 615787250647)
#: How many histories there are of one kind of trouble.
HISTORIES = 25
#: What must have happened in each block, or its histories are too much alike to test anything.
REMARKABLE = {
    "aligned",
    "cancelled",
    "failed checkpoints",
    "increments",
    "killed",
    "live",
    "read ahead",
    "restarts",
    "restored",
    "savepoints",
    "second drivers",
    "stopped",
}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What all the failures have logged is no help, and takes its time."""
    caplog.set_level(logging.CRITICAL, "pyflinkstate")


def run(seeds: range, name: str = EVERYTHING_PIPELINED) -> tuple[Counter[str], Counter[str]]:
    """Run histories; returns what has happened and what has struck. What goes wrong in one names its seed."""
    notes: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    for seed in seeds:
        simulation = make_history(name, seed)
        try:
            simulation.run()
        except BaseException as error:
            raise AssertionError(f"{name}, seed {seed}: {type(error).__name__}: {error}") from error
        notes += simulation.notes
        struck += simulation.chaos.struck
    return notes, struck


def test_the_output_of_a_few_is_that_of_an_undisturbed_run() -> None:
    run(range(1_000_000, 1_000_015))
    for seed in FOUND:
        run(range(seed, seed + 1))


@pytest.mark.parametrize("block", cases(range(BLOCKS), quick=()))
def test_the_output_is_that_of_an_undisturbed_run_and_every_checkpoint_restores(block: int) -> None:
    notes, struck = run(range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK))
    assert set(notes) >= REMARKABLE
    assert set(struck) >= set(PIPELINED_RATES)


@pytest.mark.parametrize("name", cases(PIPELINED_FOCUSES, quick=()))
def test_one_kind_of_trouble_is_survived(name: str) -> None:
    focus = PIPELINED_FOCUSES[name]
    notes, struck = run(range(focus.first_seed, focus.first_seed + HISTORIES), name)
    assert set(notes + struck) >= focus.comes_of_it
