"""The whole runtime under simulated failures: 2,000 histories, each told by its seed; see ``simulation``."""

from __future__ import annotations

from collections import Counter

import pytest
from simulation import Simulation

SEEDS_PER_BLOCK = 100
BLOCKS = 20

#: What must have happened in each block, or its histories are too much alike to test anything.
REMARKABLE = {
    "cancelled",
    "failed checkpoints",
    "increments",
    "killed",
    "restarts",
    "restored",
    "savepoints",
    "stopped",
}
STRUCK = {
    "copy a task",
    "crash a slot",
    "disk error",
    "fill the disk",
    "kill a task",
    "kill at the disk",
    "kill the driver",
    "late disk error",
    "stall",
}


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_output_is_that_of_an_undisturbed_run_and_every_checkpoint_restores(block: int) -> None:
    notes: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        notes += simulation.notes
        struck += simulation.chaos.struck
    assert set(notes) >= REMARKABLE
    assert set(struck) >= STRUCK
