"""The checkpoint coordinator under thousands of random orders of events.

Each seed is one history: several checkpoints and savepoints are under way; subtasks acknowledge out of order,
twice, late and about checkpoints that nobody knows; some decline; metadata is written at once or while other
things happen, or cannot be; attempts end. Each instruction is compared with what a model of a few
sets expects, and the invariants are checked after each event. A failure names the seed that replays it:
``Simulation(seed).run()``.
"""

from __future__ import annotations

from collections import Counter

import attrs
import pytest
from drawn_settings import drawn_settings
from simulation_draws import Draws
from support_runtime import ack
from tiers import cases

from pyflinkstate.errors import RuntimeFailure
from pyflinkstate.runtime.master.coordinator import (
    AbandonCheckpoint,
    CheckpointCoordinator,
    DiscardCheckpoint,
    DiscardState,
    FailJob,
    Instruction,
    NotifyComplete,
    PendingCheckpoint,
    SavepointTarget,
    WriteMetadata,
)
from pyflinkstate.runtime.settings.checkpoint_settings import CheckpointSettings
from pyflinkstate.runtime.wire.messages import SlotId

SEEDS_PER_BLOCK = 150
BLOCKS = 20
STEPS = 150

#: What must have happened somewhere in a block of histories, or they are too much alike to test anything.
REMARKABLE = {
    "several pending",
    "beyond the maximum",
    "only the pause forbids",
    "only the maximum forbids",
    "completed",
    "discarded",
    "subsumed",
    "aborted while its metadata was written",
    "older savepoint stays",
    "savepoint completed",
    "savepoint stopped the job",
    "savepoint failed",
    "late acknowledgement",
    "acknowledgement of a retained one",
    "several expired",
    "failed",
    "job failed",
}
#: About six of it happen in a block, so there may be none.
RARE = "subsumed while its metadata was written"
#: In so many blocks there would be sixty.
BLOCKS_WITH_RARE = 10
BROKEN = RuntimeFailure("broken")


@attrs.define
class Expected:
    """What the model knows of a pending checkpoint."""

    subtasks: set[SlotId]
    savepoint: SavepointTarget | None
    acknowledged: set[SlotId] = attrs.Factory(set)
    aligned_ms: int | None = None
    is_writing: bool = False

    @property
    def is_whole(self) -> bool:
        return self.aligned_ms is not None and self.subtasks == self.acknowledged


class Simulation:
    """One history, and what a coordinator may have done in it."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = Draws(seed)
        self.settings = CheckpointSettings(**drawn_settings(draw))
        if draw("no checkpoints").random() < 0.2:
            self.settings = attrs.evolve(self.settings, interval_ms=None)
        self.retained = list(range(1, draw("retained").randint(1, 4)))
        self.saved: set[int] = set()
        self.last_id = draw("first id").choice([0, 3]) + len(self.retained)
        self.coordinator = CheckpointCoordinator(self.settings, self.last_id, self.retained)
        self.now = 0
        self.pending: dict[int, Expected] = {}
        self.publishing: list[int] = []
        self.last_barrier: int | None = None
        self.last_completion: int | None = None
        self.ended: set[int] = set()
        self.failures = 0
        self.seen: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        steps = [
            *[self.trigger] * 5,
            self.trigger_savepoint,
            *[self.acknowledge] * 14,
            *[self.align] * 6,
            *[self.publish] * 3,
            self.decline,
            *[self.tick] * 2,
        ]
        for _ in range(STEPS):
            self.now += self.draw("time").choice([0, 1, 5, 40])
            (self.draw("step").choice(steps) if self.draw("goes on").random() < 0.97 else self.end_attempt)()
            self.check()
        return self.seen

    def check(self) -> None:
        coordinator = self.coordinator
        pending = {item.checkpoint_id: item for item in coordinator.pending}
        assert list(pending) == sorted(self.pending), "in order"
        for checkpoint_id, expected in self.pending.items():
            item = pending[checkpoint_id]
            assert item.missing == expected.subtasks - expected.acknowledged
            assert {slot: made.slot for slot, made in item.acks.items()} == {
                slot: slot for slot in expected.acknowledged
            }
            assert {made.checkpoint_id for made in item.acks.values()} <= {checkpoint_id}
            assert (item.savepoint, item.aligned_ms) == (expected.savepoint, expected.aligned_ms)
        assert coordinator.last_id == self.last_id
        assert coordinator.retained == tuple(self.retained)
        assert coordinator.latest_completed == (self.retained[-1] if self.retained else None)
        for later_ms in (0, 30):
            assert coordinator.is_due(self.now + later_ms) == self.is_due(self.now + later_ms)
        self.seen["several pending"] += len(self.checkpoints()) > 1

    def is_due(self, barrier_ms: int) -> bool:
        settings = self.settings
        if settings.interval_ms is None:
            return False
        has_room = len(self.checkpoints()) < settings.max_concurrent
        since_barrier = barrier_ms - (-1000 if self.last_barrier is None else self.last_barrier)
        since_completion = barrier_ms - (-1000 if self.last_completion is None else self.last_completion)
        is_time = since_barrier >= settings.interval_ms and since_barrier >= settings.min_pause_ms
        has_paused = since_completion >= settings.min_pause_ms
        self.seen["only the pause forbids"] += has_room and is_time and not has_paused
        self.seen["only the maximum forbids"] += is_time and has_paused and not has_room
        return has_room and is_time and has_paused

    def checkpoints(self) -> list[int]:
        """Those pending that are no savepoints."""
        return [number for number, expected in self.pending.items() if expected.savepoint is None]

    # --- events ------------------------------------------------------------------------------------

    def some_id(self) -> int:
        """A pending checkpoint most of the time, else an older one or one that never was."""
        if self.pending and self.draw("pending").random() < 0.8:
            return self.draw("which pending").choice(list(self.pending))
        return self.draw("any id").randint(1, self.last_id + 3)

    def trigger(self) -> None:
        """As the job does: when one is due, and now and then in any case, as at the source's end."""
        if self.coordinator.is_due(self.now) or self.draw("in any case").random() < 0.1:
            self.seen["beyond the maximum"] += len(self.checkpoints()) >= self.settings.max_concurrent
            self.begin(None)
            self.last_barrier = self.now  # expected; the alignment says when it was

    def trigger_savepoint(self) -> None:
        self.begin(SavepointTarget(self.draw("stops").random() < 0.5))

    def begin(self, savepoint: SavepointTarget | None) -> None:
        subtasks = [SlotId("op", number) for number in range(self.draw("subtasks").randint(0, 3))]
        made = self.coordinator.trigger(self.now, self.last_id + 7, subtasks, savepoint)
        self.last_id += 1
        assert (made.checkpoint_id, made.epoch) == (self.last_id, self.last_id + 6)
        assert made.triggered_ms == self.now
        self.pending[self.last_id] = Expected(set(subtasks), savepoint)

    def acknowledge(self) -> None:
        message = ack(self.some_id(), SlotId("op", self.draw("acknowledges").randint(0, 3)))
        expected = self.pending.get(message.checkpoint_id)
        instructions = self.coordinator.acknowledged(message)
        if expected is None:
            is_retained = message.checkpoint_id in self.retained
            is_known = is_retained or message.checkpoint_id in self.saved
            assert instructions == ([] if is_known else [DiscardState(message)])
            self.seen["acknowledgement of a retained one"] += is_retained
            self.seen["late acknowledgement"] += message.checkpoint_id in self.ended
            return
        expected.acknowledged |= {message.slot} & expected.subtasks
        self.write_if_whole(message.checkpoint_id, instructions)

    def align(self) -> None:
        checkpoint_id = self.some_id()
        expected = self.pending.get(checkpoint_id)
        instructions = self.coordinator.aligned(checkpoint_id, self.now)
        if expected is None:
            assert instructions == []
            return
        if expected.aligned_ms is None:
            expected.aligned_ms = self.now
            if expected.savepoint is None:
                self.last_barrier = self.now
        self.write_if_whole(checkpoint_id, instructions)

    def decline(self) -> None:
        checkpoint_id = self.some_id()
        failing = [checkpoint_id] if checkpoint_id in self.pending else []
        self.fail(self.coordinator.failed(checkpoint_id, BROKEN), failing)

    def tick(self) -> None:
        failing = [
            checkpoint_id
            for checkpoint_id, expected in self.pending.items()
            if expected.aligned_ms is not None and self.now - expected.aligned_ms >= self.settings.timeout_ms
        ]
        self.seen["several expired"] += len(failing) > 1
        self.fail(self.coordinator.time_passed(self.now), failing)

    def end_attempt(self) -> None:
        self.abandon(self.coordinator.abort_pending(BROKEN), list(self.pending))

    def publish(self) -> None:
        """What was being written is written, or is not."""
        if self.publishing:
            self.finish(self.publishing.pop(self.draw("which is published").randrange(len(self.publishing))))

    # --- instructions ------------------------------------------------------------------------------

    def write_if_whole(self, checkpoint_id: int, instructions: list[Instruction]) -> None:
        """Metadata is written exactly once, and only of a whole checkpoint."""
        expected = self.pending[checkpoint_id]
        if not expected.is_whole or expected.is_writing:
            assert instructions == []
            return
        (instruction,) = instructions
        assert isinstance(instruction, WriteMetadata)
        assert instruction.checkpoint in self.coordinator.pending
        assert instruction.checkpoint.checkpoint_id == checkpoint_id
        expected.is_writing = True
        if self.draw("is published at once").random() < 0.5:
            self.finish(checkpoint_id)
        else:
            self.publishing.append(checkpoint_id)

    def finish(self, checkpoint_id: int) -> None:
        if checkpoint_id not in self.pending:
            self.seen["aborted while its metadata was written"] += 1
            assert self.coordinator.failed(checkpoint_id, BROKEN) == []
        elif self.draw("is not published").random() < 0.2:
            self.fail(self.coordinator.failed(checkpoint_id, BROKEN), [checkpoint_id])
        else:
            self.complete(checkpoint_id)

    def complete(self, checkpoint_id: int) -> None:
        instructions = self.coordinator.published(checkpoint_id, self.now)
        done = self.pending.pop(checkpoint_id)
        self.failures = 0
        self.last_completion = self.now
        if done.savepoint is not None:
            self.saved.add(checkpoint_id)
            self.ended.add(checkpoint_id)
            self.seen["savepoint completed"] += 1
            self.seen["savepoint stopped the job"] += done.savepoint.stops_job
            assert instructions == [NotifyComplete(checkpoint_id)] * done.savepoint.stops_job
            return
        self.seen["completed"] += 1
        assert instructions.pop() == NotifyComplete(checkpoint_id)
        self.subsume(checkpoint_id, instructions)

    def subsume(self, checkpoint_id: int, instructions: list[Instruction]) -> None:
        """The older ones that are pending end, and the oldest of the completed ones are deleted."""
        older = [number for number in self.checkpoints() if number < checkpoint_id]
        self.seen["older savepoint stays"] += any(
            number < checkpoint_id and number not in older for number in self.pending
        )
        self.seen["subsumed"] += len(older)
        self.seen[RARE] += any(self.pending[number].is_writing for number in older)
        discarded = [item for item in instructions if isinstance(item, DiscardCheckpoint)]
        self.abandon([item for item in instructions if item not in discarded], older)
        self.retained.append(checkpoint_id)
        surplus = self.retained[: -self.settings.num_retained]
        assert [item.checkpoint_id for item in discarded] == surplus
        self.retained = self.retained[-self.settings.num_retained :]
        self.ended |= set(surplus)
        self.seen["discarded"] += len(surplus)

    def fail(self, instructions: list[Instruction], failing: list[int]) -> None:
        """Each is abandoned, and the job fails with the one that was one too many."""
        kinds: list[type] = []
        for checkpoint_id in failing:
            kinds.append(AbandonCheckpoint)
            if self.pending[checkpoint_id].savepoint is not None:
                self.seen["savepoint failed"] += 1
                continue
            self.seen["failed"] += 1
            self.failures += 1
            if self.failures > self.settings.tolerable_failures:
                kinds.append(FailJob)
                self.failures = 0
                self.seen["job failed"] += 1
        assert [type(item) for item in instructions] == kinds
        self.abandon([item for item in instructions if not isinstance(item, FailJob)], failing)

    def abandon(self, instructions: list[Instruction], expected: list[int]) -> None:
        abandoned: list[PendingCheckpoint] = []
        for instruction in instructions:
            assert isinstance(instruction, AbandonCheckpoint)
            abandoned.append(instruction.checkpoint)
        assert [item.checkpoint_id for item in abandoned] == expected
        for item in abandoned:
            assert set(item.acks) == self.pending.pop(item.checkpoint_id).acknowledged
            self.ended.add(item.checkpoint_id)


def seen_in(seeds: range) -> Counter[str]:
    """Run a history for each seed, and return what has happened."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        simulation = Simulation(seed)
        try:
            seen += simulation.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return seen


@pytest.mark.parametrize("block", cases(range(BLOCKS), quick=range(2)))
def test_the_invariants_hold_in_every_order_of_events(block: int) -> None:
    seen = seen_in(range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK))
    assert set(seen) - {RARE} == REMARKABLE, "the histories are too much alike to test anything"


@pytest.mark.full
def test_what_is_rare_happens_in_some_history() -> None:
    assert seen_in(range(BLOCKS_WITH_RARE * SEEDS_PER_BLOCK))[RARE]
