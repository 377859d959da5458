"""The runtime with the pipelined engine under simulated failures; see ``simulation_pipelined``."""

from __future__ import annotations

import logging
from collections import Counter

import pytest
from simulation import RATES, PipelinedSimulation
from tiers import cases

SEEDS_PER_BLOCK = 100
BLOCKS = 20
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


def run(seeds: range) -> tuple[Counter[str], Counter[str]]:
    """Run histories; returns what has happened and what has struck. What goes wrong in one names its seed."""
    notes: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    for seed in seeds:
        simulation = PipelinedSimulation(seed)
        try:
            simulation.run()
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        notes += simulation.notes
        struck += simulation.chaos.struck
    return notes, struck


def test_the_output_of_a_few_is_that_of_an_undisturbed_run() -> None:
    run(range(1_000_000, 1_000_015))


@pytest.mark.parametrize("block", cases(range(BLOCKS), quick=()))
def test_the_output_is_that_of_an_undisturbed_run_and_every_checkpoint_restores(block: int) -> None:
    notes, struck = run(range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK))
    assert set(notes) >= REMARKABLE
    assert set(struck) >= set(RATES) - {"copy a task"}
