"""The checkpoint coordinator: a state machine, events in and instructions out, no I/O and no clock.

A checkpoint goes through these states::

    TRIGGERED --barrier_aligned, all acknowledge--> COMPLETING --completed--> (completed)
        |                                               |
        +------- decline, timeout, abort ---------------+---- not_completed ---> (aborted)

A subtask may acknowledge before the epoch's job is known to have ended (its barrier aligned), and
after: only both together make the checkpoint whole. An event about a checkpoint that is neither pending
nor known changes nothing, except that what a late acknowledgement points at is deleted.

Settings and rules are Flink's (``CheckpointCoordinator``, ``CheckpointFailureManager``): ids count from
1 and are never reused; one checkpoint at a time; a counter of consecutive failures; of the completed
checkpoints the newest ``num_retained`` are kept.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import attrs

from pyflinkstate.errors import (
    CheckpointError,
    CheckpointFailuresExceededError,
    CheckpointStorageError,
    PyFlinkStateError,
)
from pyflinkstate.runtime.messages import CheckpointAck, CheckpointDecline, SlotId


@attrs.frozen
class CheckpointSettings:
    """How often, how long, how many.

    Attributes:
        interval_ms: between two triggers; None takes no checkpoints.
        timeout_ms: after which a checkpoint is aborted, from the alignment of its barrier; the epoch
            before it may take as long as it likes. Flink's default, 10 minutes.
        tolerable_failures: how many checkpoints in a row may fail before the job does.
        num_retained: how many completed checkpoints are kept.
    """

    interval_ms: int | None = None
    timeout_ms: int = 600_000
    tolerable_failures: int = 0
    num_retained: int = attrs.field(default=1, validator=attrs.validators.ge(1))


class _State(enum.Enum):
    TRIGGERED = enum.auto()
    COMPLETING = enum.auto()


@attrs.define
class PendingCheckpoint:
    """A checkpoint that is not yet complete."""

    checkpoint_id: int
    epoch: int
    triggered_ms: int
    missing: set[SlotId]
    state: _State = _State.TRIGGERED
    aligned_ms: int | None = None
    acks: dict[SlotId, CheckpointAck] = attrs.Factory(dict)


@attrs.frozen
class WriteMetadata:
    """Instruction: publish the checkpoint, then say ``completed`` or ``not_completed``."""

    checkpoint: PendingCheckpoint


@attrs.frozen
class AbandonCheckpoint:
    """Instruction: tell the subtasks to stop writing it, and delete its files."""

    checkpoint_id: int
    error: PyFlinkStateError


@attrs.frozen
class DiscardCheckpoint:
    """Instruction: delete a checkpoint that a newer one has subsumed, or files that came too late."""

    checkpoint_id: int


@attrs.frozen
class FailJob:
    """Instruction: more checkpoints failed than the job tolerates."""

    error: PyFlinkStateError


Instruction = WriteMetadata | AbandonCheckpoint | DiscardCheckpoint | FailJob


class CheckpointCoordinator:
    """Decides when checkpoints begin, are complete, fail, and are deleted.

    Args:
        settings: see :class:`CheckpointSettings`.
        last_id: the highest id used so far; the next checkpoint is one higher.
        completed: ids of completed checkpoints that are there to be subsumed, in order.
    """

    def __init__(self, settings: CheckpointSettings, last_id: int = 0, completed: Iterable[int] = ()) -> None:
        self._settings = settings
        self._last_id = last_id
        self._completed = list(completed)
        self._pending: PendingCheckpoint | None = None
        self._last_trigger_ms: int | None = None
        self._failures = 0

    @property
    def last_id(self) -> int:
        """The highest id used so far."""
        return self._last_id

    @property
    def pending(self) -> PendingCheckpoint | None:
        """The checkpoint under way."""
        return self._pending

    def is_due(self, barrier_ms: int) -> bool:
        """Return whether a barrier expected at ``barrier_ms`` should take a checkpoint."""
        if self._settings.interval_ms is None or self._pending is not None:
            return False
        if self._last_trigger_ms is None:
            return True
        return barrier_ms - self._last_trigger_ms >= self._settings.interval_ms

    def trigger(self, now_ms: int, epoch: int, subtasks: Iterable[SlotId]) -> int:
        """Begin a checkpoint at the barrier of ``epoch`` and return its id."""
        if self._pending is not None:
            raise AssertionError(f"checkpoint {self._pending.checkpoint_id} is under way")
        self._last_id += 1
        self._last_trigger_ms = now_ms
        self._pending = PendingCheckpoint(self._last_id, epoch, now_ms, set(subtasks))
        return self._last_id

    def barrier_aligned(self, checkpoint_id: int, now_ms: int) -> list[Instruction]:
        """Every subtask has reached the barrier, and the epoch's output is prepared."""
        pending = self._of(checkpoint_id)
        if pending is None:
            return []
        if pending.aligned_ms is None:
            pending.aligned_ms = self._last_trigger_ms = now_ms
        return self._try_to_complete(pending)

    def acknowledge(self, ack: CheckpointAck) -> list[Instruction]:
        """A subtask has written its part."""
        pending = self._of(ack.checkpoint_id)
        if pending is None:
            known = ack.checkpoint_id in self._completed
            return [] if known else [DiscardCheckpoint(ack.checkpoint_id)]
        if ack.slot in pending.missing:
            pending.missing.remove(ack.slot)
            pending.acks[ack.slot] = ack
        return self._try_to_complete(pending)

    def decline(self, message: CheckpointDecline) -> list[Instruction]:
        """A subtask could not write its part."""
        return self._abort(message.checkpoint_id, message.error)

    def tick(self, now_ms: int) -> list[Instruction]:
        """Time has passed."""
        pending = self._pending
        if pending is None or pending.aligned_ms is None:
            return []
        if now_ms - pending.aligned_ms < self._settings.timeout_ms:
            return []
        missing = ", ".join(sorted(map(str, pending.missing)))
        return self._abort(
            pending.checkpoint_id,
            CheckpointStorageError(
                f"checkpoint {pending.checkpoint_id} expired after {self._settings.timeout_ms} ms, "
                f"waiting for {missing}"
            ),
        )

    def completed(self, checkpoint_id: int) -> list[Instruction]:
        """The metadata is published: older checkpoints are subsumed."""
        assert self._of(checkpoint_id) is not None
        self._pending = None
        self._failures = 0
        self._completed.append(checkpoint_id)
        surplus = self._completed[: -self._settings.num_retained]
        self._completed = self._completed[-self._settings.num_retained :]
        return [DiscardCheckpoint(old) for old in surplus]

    def not_completed(self, checkpoint_id: int, error: PyFlinkStateError) -> list[Instruction]:
        """The metadata could not be published."""
        return self._abort(checkpoint_id, error)

    def abort_pending(self, error: PyFlinkStateError) -> list[Instruction]:
        """The attempt is over; this is no failure of the checkpoint and is not counted."""
        pending, self._pending = self._pending, None
        return [] if pending is None else [AbandonCheckpoint(pending.checkpoint_id, error)]

    def _of(self, checkpoint_id: int) -> PendingCheckpoint | None:
        pending = self._pending
        return pending if pending is not None and pending.checkpoint_id == checkpoint_id else None

    def _try_to_complete(self, pending: PendingCheckpoint) -> list[Instruction]:
        if pending.missing or pending.aligned_ms is None or pending.state is not _State.TRIGGERED:
            return []
        pending.state = _State.COMPLETING
        return [WriteMetadata(pending)]

    def _abort(self, checkpoint_id: int, error: PyFlinkStateError) -> list[Instruction]:
        if self._of(checkpoint_id) is None:
            return []
        self._pending = None
        self._failures += 1
        instructions: list[Instruction] = [AbandonCheckpoint(checkpoint_id, error)]
        if self._failures > self._settings.tolerable_failures:
            instructions.append(FailJob(_too_many(self._failures, self._settings, error)))
            self._failures = 0  # the restarted job counts anew
        return instructions


def _too_many(failures: int, settings: CheckpointSettings, error: PyFlinkStateError) -> CheckpointError:
    return CheckpointFailuresExceededError(
        f"exceeded checkpoint tolerable failure threshold: {failures} in a row failed, tolerated are "
        f"{settings.tolerable_failures}; the last one: {error}"
    )
