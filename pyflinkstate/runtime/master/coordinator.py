"""The checkpoint coordinator: a state machine, events in and instructions out, no I/O and no clock.

Each event is a call of a method, which returns the resulting instructions in order. The times that it is told
are monotonic, so changes of the clock do not matter.

A checkpoint goes through these states::

    TRIGGERED --aligned, all acknowledged--> COMPLETING --published--> (completed)
        |                                        |
        +-- failed, timeout, abort_pending ------+-- the same -------> (aborted)

A subtask may acknowledge before or after the epoch's job is known to have ended (its barrier aligned); the
checkpoint is complete only after both. An event about a checkpoint that is neither pending nor known changes
nothing, except that the files of a late acknowledgement are deleted.

Settings and rules are Flink's (``CheckpointCoordinator``, ``CheckpointRequestDecider``,
``CheckpointFailureManager``, ``CheckpointSubsumeHelper``): ids count from 1 and are never reused; the pause
between two counts from the last completion; consecutive failures are counted; a checkpoint that completes
subsumes older pending ones; the newest ``num_retained`` completed ones are kept. A savepoint is triggered by
a person: no interval and no pause delays it, its failure does not count for the job, and it neither subsumes
nor is subsumed.

A savepoint is taken with an ordinary checkpoint of the same barrier, and completes when that is complete and
the sinks have committed up to the barrier. Otherwise the job could fail, go back to before the savepoint, and
take back output that would be missing after a return to the savepoint. If the checkpoint fails, so does the
savepoint.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from pyflinkstate.errors import (
    CheckpointError,
    CheckpointFailuresExceededError,
    CheckpointStorageError,
    ImpossibleEventError,
    PyFlinkStateError,
)
from pyflinkstate.runtime.settings import CheckpointSettings
from pyflinkstate.runtime.wire import CheckpointAck, SlotId


@attrs.frozen
class SavepointTarget:
    """The purpose of a savepoint.

    Attributes:
        stops_job: whether the job stops with it.
        checkpoint_id: the checkpoint that is taken with it at the same barrier; None if it is taken alone.
    """

    stops_job: bool = False
    checkpoint_id: int | None = None


@attrs.define
class PendingCheckpoint:
    """A checkpoint that is not complete yet.

    ``timestamp_ms`` is the wall-clock time of its trigger, for people and ``_metadata``; other times are
    monotonic. ``is_completing``: it is being published.
    """

    checkpoint_id: int
    epoch: int
    triggered_ms: int
    missing: set[SlotId]
    savepoint: SavepointTarget | None = None
    is_completing: bool = False
    aligned_ms: int | None = None
    timestamp_ms: int = 0
    acks: dict[SlotId, CheckpointAck] = attrs.Factory(dict)
    #: When the first subtask reached the barrier, as far as acknowledgements tell.
    barrier_ms: int | None = None

    @property
    def epoch_ended_ms(self) -> int:
        """The moment of its alignment, or of its trigger if its epoch has not ended."""
        return self.triggered_ms if self.aligned_ms is None else self.aligned_ms

    @property
    def began_ms(self) -> int:
        """The moment when the first subtask reached the barrier."""
        return self.epoch_ended_ms if self.barrier_ms is None else min(self.barrier_ms, self.epoch_ended_ms)


@attrs.frozen
class WriteMetadata:
    """Instruction: publish the checkpoint, then report whether it was published."""

    checkpoint: PendingCheckpoint


@attrs.frozen
class AbandonCheckpoint:
    """Instruction: tell the subtasks to stop writing it, and delete its files.

    ``is_failure``: it could not be written; otherwise it is not needed any more.
    """

    checkpoint: PendingCheckpoint
    error: PyFlinkStateError
    is_failure: bool = attrs.field(default=True, eq=False)


@attrs.frozen
class DiscardCheckpoint:
    """Instruction: delete a completed checkpoint that newer ones have subsumed."""

    checkpoint_id: int


@attrs.frozen
class DiscardState:
    """Instruction: delete the files of an acknowledgement that came too late."""

    ack: CheckpointAck


@attrs.frozen
class NotifyComplete:
    """Instruction: tell the subtasks that a checkpoint is complete."""

    checkpoint_id: int


@attrs.frozen
class FailJob:
    """Instruction: more checkpoints failed than the job tolerates."""

    error: PyFlinkStateError


Instruction = WriteMetadata | AbandonCheckpoint | DiscardCheckpoint | DiscardState | NotifyComplete | FailJob


#: After how long to ask again whether a checkpoint is due, while others are pending.
ASK_AGAIN_MS = 50


class CheckpointCoordinator:
    """Decides when checkpoints begin, are complete, fail, and are deleted.

    Args:
        settings: see :class:`CheckpointSettings`.
        last_id: the highest id used so far; the next checkpoint is one higher.
        completed: ids of the existing completed checkpoints, which later ones subsume, in order.
    """

    def __init__(self, settings: CheckpointSettings, last_id: int = 0, completed: Iterable[int] = ()) -> None:
        self._settings = settings
        #: The highest id used so far.
        self.last_id = last_id
        self._completed = list(completed)
        self._savepoints: set[int] = set()
        self._pending: dict[int, PendingCheckpoint] = {}
        self._last_trigger_ms: int | None = None
        self._last_completion_ms: int | None = None
        self._committed_epoch = 0
        self._failures = 0

    @property
    def latest_completed(self) -> int | None:
        """The id of the newest completed checkpoint, or None."""
        return self._completed[-1] if self._completed else None

    @property
    def retained(self) -> tuple[int, ...]:
        """The ids of the completed checkpoints that are kept, in order."""
        return tuple(self._completed)

    @property
    def pending(self) -> tuple[PendingCheckpoint, ...]:
        """The pending checkpoints and savepoints, in order."""
        return tuple(self._pending.values())

    def is_due(self, barrier_ms: int) -> bool:
        """Return whether a barrier expected at ``barrier_ms`` should take a checkpoint.

        It is asked before an epoch runs, as its slots must know whether a barrier follows, and while the
        source has nothing. So what the epoch will bring is not known yet.
        """
        return self.due_in_ms(barrier_ms) == 0

    def due_in_ms(self, now_ms: int) -> int | None:
        """Return how long it is until a checkpoint is due; None if none is taken periodically.

        While as many are pending as may be, it is a moment after which to ask again.
        """
        settings = self._settings
        if settings.interval_ms is None:
            return None
        if sum(pending.savepoint is None for pending in self.pending) >= settings.max_concurrent:
            return ASK_AGAIN_MS
        left = [0]
        if self._last_trigger_ms is not None:
            left.append(self._last_trigger_ms + max(settings.interval_ms, settings.min_pause_ms) - now_ms)
        if self._last_completion_ms is not None:
            left.append(self._last_completion_ms + settings.min_pause_ms - now_ms)
        return max(left)

    def trigger(
        self,
        now_ms: int,
        epoch: int,
        subtasks: Iterable[SlotId],
        savepoint: SavepointTarget | None = None,
        timestamp_ms: int = 0,
    ) -> PendingCheckpoint:
        """Begin a checkpoint or a savepoint at the barrier of ``epoch``; ``timestamp_ms`` is kept with it."""
        self.last_id += 1
        if savepoint is None:
            self._last_trigger_ms = now_ms
        pending = PendingCheckpoint(self.last_id, epoch, now_ms, set(subtasks), savepoint)
        pending.timestamp_ms = timestamp_ms
        self._pending[self.last_id] = pending
        return pending

    def aligned(self, checkpoint_id: int, now_ms: int) -> list[Instruction]:
        """Every subtask has reached the barrier, and the epoch's output is prepared."""
        pending = self._pending.get(checkpoint_id)
        if pending is None:
            return []
        if pending.aligned_ms is None:
            pending.aligned_ms = now_ms
            if pending.savepoint is None:
                self._last_trigger_ms = now_ms
        return self._try_to_complete(pending)

    def acknowledged(self, ack: CheckpointAck) -> list[Instruction]:
        """A subtask has written its part."""
        pending = self._pending.get(ack.checkpoint_id)
        if pending is None:
            return (
                []
                if ack.checkpoint_id in self._completed or ack.checkpoint_id in self._savepoints
                else [DiscardState(ack)]
            )
        if ack.slot in pending.missing:
            pending.missing.remove(ack.slot)
            pending.acks[ack.slot] = ack
        return self._try_to_complete(pending)

    def time_passed(self, now_ms: int) -> list[Instruction]:
        """Let checkpoints expire whose barrier was aligned too long ago."""
        instructions: list[Instruction] = []
        for pending in self.pending:
            if pending.aligned_ms is None or now_ms - pending.aligned_ms < self._settings.timeout_ms:
                continue
            missing = ", ".join(sorted(map(str, pending.missing))) or "the checkpoint that is taken with it"
            instructions += self.failed(
                pending.checkpoint_id,
                CheckpointStorageError(
                    f"checkpoint {pending.checkpoint_id} expired after {self._settings.timeout_ms} ms, "
                    f"waiting for {missing}"
                ),
            )
        return instructions

    def published(self, checkpoint_id: int, now_ms: int) -> list[Instruction]:
        """The checkpoint exists: it is complete, and subsumes older ones.

        Raises:
            ImpossibleEventError: it is not pending.
        """
        done = self._pending.pop(checkpoint_id, None)
        if done is None:
            raise ImpossibleEventError(f"checkpoint {checkpoint_id} was published, but is not pending")
        self._failures = 0
        self._last_completion_ms = now_ms
        if done.savepoint is not None:
            self._savepoints.add(checkpoint_id)
            return [NotifyComplete(checkpoint_id)] if done.savepoint.stops_job else []
        self._completed.append(checkpoint_id)
        surplus = self.discard_surplus()
        older = [
            pending
            for pending in self.pending
            if pending.checkpoint_id < checkpoint_id and pending.savepoint is None
        ]
        for pending in older:
            del self._pending[pending.checkpoint_id]
        error = CheckpointError(f"checkpoint {checkpoint_id} completed first")
        return [
            *(AbandonCheckpoint(pending, error, is_failure=False) for pending in older),
            *surplus,
            NotifyComplete(checkpoint_id),
        ]

    def committed(self, epoch: int) -> list[Instruction]:
        """The sinks have committed what a completed checkpoint covers, up to ``epoch``."""
        self._committed_epoch = epoch
        instructions: list[Instruction] = []
        for pending in self.pending:
            instructions += self._try_to_complete(pending)
        return instructions

    def discard_surplus(self) -> list[Instruction]:
        """Delete the oldest completed checkpoints beyond the number to be kept."""
        surplus = self._completed[: -self._settings.num_retained]
        self._completed = self._completed[-self._settings.num_retained :]
        return [DiscardCheckpoint(old) for old in surplus]

    def abort_pending(self, error: PyFlinkStateError) -> list[Instruction]:
        """The attempt or the job is over; what is pending does not count as failed."""
        pending, self._pending = self._pending, {}
        return [AbandonCheckpoint(checkpoint, error, False) for checkpoint in pending.values()]

    def _try_to_complete(self, pending: PendingCheckpoint) -> list[Instruction]:
        if pending.missing or pending.aligned_ms is None or pending.is_completing:
            return []
        # A savepoint may complete only when the job cannot go back to before it.
        is_alone = pending.savepoint is None or pending.savepoint.checkpoint_id is None
        if not is_alone and pending.epoch > self._committed_epoch:
            return []
        pending.is_completing = True
        return [WriteMetadata(pending)]

    def failed(self, checkpoint_id: int, error: PyFlinkStateError) -> list[Instruction]:
        """A subtask could not write its part, or the metadata could not be published."""
        pending = self._pending.pop(checkpoint_id, None)
        if pending is None:
            return []
        instructions: list[Instruction] = [AbandonCheckpoint(pending, error)]
        if pending.savepoint is not None:
            return instructions
        for other in self.pending:
            if other.savepoint is not None and other.savepoint.checkpoint_id == checkpoint_id:
                del self._pending[other.checkpoint_id]
                instructions.append(AbandonCheckpoint(other, error))
        self._failures += 1
        if self._failures > self._settings.tolerable_failures:
            instructions.append(
                FailJob(
                    CheckpointFailuresExceededError(
                        f"exceeded checkpoint tolerable failure threshold: {self._failures} in a row failed, "
                        f"tolerated are {self._settings.tolerable_failures}; the last one: {error}"
                    )
                )
            )
            self._failures = 0  # the restarted job counts from 0 again
        return instructions
