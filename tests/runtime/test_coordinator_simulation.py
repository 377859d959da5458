"""The checkpoint coordinator under thousands of random orders of events.

Each seed is one history: subtasks acknowledge out of order, twice, late and about checkpoints that nobody
knows; some decline; metadata cannot be written; attempts end. After each event the invariants are
checked. A failure names the seed that replays it: ``Simulation(seed).run()``.
"""

from __future__ import annotations

import random

import pytest
from support_runtime import ack, decline

from pyflinkstate.errors import RuntimeFailure
from pyflinkstate.runtime.coordinator import (
    AbandonCheckpoint,
    CheckpointCoordinator,
    CheckpointSettings,
    DiscardCheckpoint,
    FailJob,
    Instruction,
    WriteMetadata,
)
from pyflinkstate.runtime.messages import SlotId

SEEDS_PER_BLOCK = 200
BLOCKS = 20
STEPS = 150


class Simulation:
    """One history, and what a coordinator may have done in it."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.settings = CheckpointSettings(
            interval_ms=rng.choice([0, 10, 50]),
            timeout_ms=rng.choice([5, 100]),
            tolerable_failures=rng.choice([0, 1, 3]),
            num_retained=rng.choice([1, 2, 4]),
        )
        self.retained = list(range(1, rng.randint(1, 4)))
        self.last_id = rng.choice([0, 3]) + len(self.retained)
        self.coordinator = CheckpointCoordinator(self.settings, self.last_id, self.retained)
        self.now = 0
        self.pending: int | None = None
        self.last_barrier: int | None = None
        self.aligned: int | None = None
        self.subtasks: set[SlotId] = set()
        self.acknowledged: set[SlotId] = set()
        self.written: set[int] = set()
        self.completed = set(self.retained)
        self.failures = self.failures_since_the_job_failed = 0

    def run(self) -> None:
        steps = [
            *[self.trigger] * 3,
            *[self.acknowledge] * 12,
            *[self.align] * 4,
            self.decline,
            *[self.tick] * 2,
            self.end_attempt,
        ]
        for _ in range(STEPS):
            self.now += self.rng.choice([0, 1, 5, 40])
            self.rng.choice(steps)()
            self.check()
        assert self.last_id >= len(self.retained)

    def check(self) -> None:
        pending = self.coordinator.pending
        assert (pending and pending.checkpoint_id) == self.pending
        assert self.coordinator.last_id == self.last_id
        assert not self.coordinator.is_due(self.now) or self.pending is None
        if pending is not None:
            assert pending.missing == self.subtasks - self.acknowledged
            assert set(pending.acks) == self.acknowledged

    # --- events ------------------------------------------------------------------------------------

    def some_id(self) -> int:
        """The pending checkpoint most of the time, else an older one or one that never was."""
        if self.pending is not None and self.rng.random() < 0.8:
            return self.pending
        return self.rng.randint(1, self.last_id + 3)

    def trigger(self) -> None:
        subtasks = [SlotId("op", number) for number in range(self.rng.randint(0, 3))]
        if self.pending is not None:
            with pytest.raises(AssertionError):
                self.coordinator.trigger(self.now, 1, subtasks)
            return
        due = self.last_barrier is None or self.now - self.last_barrier >= self.settings.interval_ms
        assert self.coordinator.is_due(self.now) == due
        made = self.coordinator.trigger(self.now, 1, subtasks)
        assert made > self.last_id
        self.last_id = self.pending = made
        self.last_barrier = self.now  # expected; the alignment says when it was
        self.aligned, self.subtasks, self.acknowledged = None, set(subtasks), set()

    def acknowledge(self) -> None:
        checkpoint_id, slot = self.some_id(), SlotId("op", self.rng.randint(0, 3))
        if checkpoint_id == self.pending and slot in self.subtasks:
            self.acknowledged.add(slot)
        late = checkpoint_id != self.pending and checkpoint_id not in self.retained
        self.execute(self.coordinator.acknowledge(ack(checkpoint_id, slot)), late if late else None)

    def align(self) -> None:
        checkpoint_id = self.some_id()
        if checkpoint_id == self.pending:
            if self.aligned is not None:
                return  # an epoch ends once
            self.aligned = self.last_barrier = self.now
        self.execute(self.coordinator.barrier_aligned(checkpoint_id, self.now))

    def decline(self) -> None:
        checkpoint_id = self.some_id()
        expected = checkpoint_id == self.pending
        self.fail(self.coordinator.decline(decline(checkpoint_id, SlotId("op", 0))), expected)

    def tick(self) -> None:
        expected = self.aligned is not None and self.now - self.aligned >= self.settings.timeout_ms
        self.fail(self.coordinator.tick(self.now), expected and self.pending is not None)

    def end_attempt(self) -> None:
        instructions = self.coordinator.abort_pending(RuntimeFailure("restart"))
        assert [type(item) for item in instructions] == [AbandonCheckpoint] * (self.pending is not None)
        self.abandon(instructions)

    # --- instructions ------------------------------------------------------------------------------

    def execute(self, instructions: list[Instruction], late: bool | None = None) -> None:
        """Metadata is written exactly once, and only of a whole checkpoint."""
        whole = self.pending is not None and self.aligned is not None and self.subtasks == self.acknowledged
        assert [type(item) for item in instructions] == (
            [DiscardCheckpoint] if late else [WriteMetadata] * (whole and self.pending not in self.written)
        )
        for instruction in instructions:
            if isinstance(instruction, DiscardCheckpoint):
                assert instruction.checkpoint_id not in (self.pending, *self.retained)
            else:
                self.write(instruction)

    def write(self, instruction: WriteMetadata) -> None:
        checkpoint_id = instruction.checkpoint.checkpoint_id
        assert checkpoint_id == self.pending
        assert instruction.checkpoint.missing == set()
        self.written.add(checkpoint_id)
        if self.rng.random() < 0.2:
            self.fail(self.coordinator.not_completed(checkpoint_id, RuntimeFailure("full")), expected=True)
            return
        discarded = [item.checkpoint_id for item in self.coordinator.completed(checkpoint_id)]
        self.completed.add(checkpoint_id)
        self.retained.append(checkpoint_id)
        assert discarded == self.retained[: -self.settings.num_retained]
        assert all(number in self.completed and number < checkpoint_id for number in discarded)
        self.retained = self.retained[-self.settings.num_retained :]
        self.pending = None
        self.failures = self.failures_since_the_job_failed = 0

    def fail(self, instructions: list[Instruction], expected: bool) -> None:
        """The pending checkpoint is abandoned, and the job fails if that was one too many."""
        assert bool(instructions) == expected
        if not expected:
            return
        self.failures += 1
        self.failures_since_the_job_failed += 1
        fails = len(instructions) == 2
        assert not fails or isinstance(instructions[1], FailJob)
        assert not fails or self.failures > self.settings.tolerable_failures
        assert fails or self.failures_since_the_job_failed <= self.settings.tolerable_failures
        if fails:
            self.failures_since_the_job_failed = 0
        self.abandon(instructions[:1])

    def abandon(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            assert isinstance(instruction, AbandonCheckpoint)
            assert instruction.checkpoint_id == self.pending
            assert instruction.checkpoint_id not in self.completed
        self.pending = None


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_invariants_hold_in_every_order_of_events(block: int) -> None:
    ends: set[bool] = set()
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        ends.add(bool(simulation.written & simulation.completed))
    assert ends == {True, False}, "the histories are too much alike to test anything"
