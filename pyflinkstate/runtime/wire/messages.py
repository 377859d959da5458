"""What driver, Spark tasks and state slots say to each other. Values only."""

from __future__ import annotations

import attrs

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import Record
from pyflinkstate.backends.format import KeyGroupsStateHandle, OperatorSubtaskState, StateAssignment
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.storage import FileSystemCheckpointStorage
from pyflinkstate.runtime.wire.metrics import MetricValues
from pyflinkstate.runtime.wire.transport import Address
from pyflinkstate.runtime.wire.watermarks import NO_WATERMARK


@attrs.frozen
class SlotId:
    """One subtask of one keyed operator."""

    operator_id: str
    subtask: int

    def __str__(self) -> str:
        return f"{self.operator_id}[{self.subtask}]"


# --- to the job master, from its own process ------------------------------------------------------


@attrs.frozen
class CancelJob:
    """Event: somebody wants the job to end."""


@attrs.frozen
class WakeUp:
    """Event: the source has something new."""


# --- task to driver ----------------------------------------------------------------------------


@attrs.frozen
class AcquireSlot:
    """A task needs the address of a slot; the answer is StartSlot, SlotAvailable or SlotUnavailable."""

    attempt: int
    slot: SlotId


@attrs.frozen
class StartSlot:
    """No such slot runs and nobody is starting one: the task shall start it, and wait."""


@attrs.frozen
class SlotAvailable:
    """The slot runs and listens at ``address``."""

    address: Address


@attrs.frozen
class SlotUnavailable:
    """There will be no such slot."""

    error: PyFlinkStateError


@attrs.frozen
class TaskReport:
    """A task tells what it counted, or why it failed."""

    attempt: int
    epoch: int
    task: str
    counts: dict[str, int] = attrs.Factory(dict)
    rejected: tuple[Record, ...] = ()
    error: PyFlinkStateError | None = None
    #: What the task's metrics stood at when it ended.
    metrics: MetricValues = attrs.Factory(dict)
    #: They are all that the task ever counted, not just what it did in this run.
    is_slot: bool = False
    #: When the next timer of a slot is due.
    next_timer_ms: int | None = None
    #: Where watermarks stand now, by the ids of assigners and operators.
    watermarks: dict[str, int] = attrs.Factory(dict)


# --- slot and driver -----------------------------------------------------------------------------


@attrs.frozen
class RegisterSlot:
    """A slot has started; the answer is DeploySlot."""

    attempt: int
    slot: SlotId
    pid: int
    address: Address


@attrs.frozen
class DeploySlot:
    """What a slot shall run, and from which state."""

    name: str
    function: bytes
    key_type: TypeInformation
    key_group_range: KeyGroupRange
    max_parallelism: int
    parallelism: int
    attempt: int
    epoch: int
    storage: FileSystemCheckpointStorage | None
    state_backend: HashMapStateBackend
    restored_checkpoint_id: int | None
    restore_uri: str | None
    state: StateAssignment
    incremental: bool = False
    memory_bytes: int | None = None
    watermark: int = NO_WATERMARK
    #: A slot that hears nothing from the driver for so long ends its process.
    heartbeat_timeout_ms: int = 50_000
    job_parameters: dict[str, str] = attrs.Factory(dict)


@attrs.frozen
class Heartbeat:
    """The driver lives; the slot answers with the same message."""


@attrs.frozen
class SlotReady:
    """The slot has restored its state and opened its function."""


@attrs.frozen
class SlotFailed:
    """The slot could not restore or open; it ends."""

    error: PyFlinkStateError


@attrs.frozen
class SlotOutput:
    """Lines that a slot's user code printed or logged, with their levels."""

    slot: SlotId
    lines: tuple[tuple[int, str], ...]


@attrs.frozen
class CheckpointAck:
    """A slot has written its part of a checkpoint."""

    checkpoint_id: int
    slot: SlotId
    state: OperatorSubtaskState
    sync_ms: float
    async_ms: float
    #: With it, the keyed state is what changed since that checkpoint.
    base_id: int | None = None


@attrs.frozen
class StateMaterialized:
    """A slot has written all of its keyed state, as it was at a checkpoint, in the background."""

    checkpoint_id: int
    slot: SlotId
    handle: KeyGroupsStateHandle


@attrs.frozen
class CheckpointDecline:
    """A slot could not write its part of a checkpoint."""

    checkpoint_id: int
    slot: SlotId
    error: PyFlinkStateError


@attrs.frozen
class NotifyCheckpointComplete:
    """A checkpoint is complete, and with it all before it."""

    checkpoint_id: int


@attrs.frozen
class AbortCheckpoint:
    """The slot shall stop writing this checkpoint, and tell its function (0: none was ever complete)."""

    checkpoint_id: int
    latest_completed_id: int = 0


@attrs.frozen
class CloseSlot:
    """The job is over: close the function and end. The answer is SlotClosed."""


@attrs.frozen
class SlotClosed:
    """The slot has closed its function; ``error`` is what ``close`` raised."""

    error: PyFlinkStateError | None = None


# --- task and slot -------------------------------------------------------------------------------


@attrs.frozen
class CheckpointTrigger:
    """The barrier at an epoch's end: take a snapshot and write it.

    Attributes:
        folder: where, as a URI or path.
        is_incremental: keyed state goes to the job's shared folder, and later checkpoints may build on it.
        base_id: write what changed since that checkpoint; None, or one that the slot does not know: all.
        materialize: after that, write all of it as well.
        savepoint: another snapshot of the same barrier, taken after this one.
    """

    checkpoint_id: int
    timestamp_ms: int
    folder: str
    is_incremental: bool = False
    base_id: int | None = None
    materialize: bool = False
    savepoint: CheckpointTrigger | None = None

    def all(self) -> tuple[CheckpointTrigger, ...]:
        """Return this one, and the savepoint's if there is one."""
        return (self,) if self.savepoint is None else (self, self.savepoint)


@attrs.frozen
class BeginEpoch:
    """A task is about to feed an epoch; the slot must have applied just the epoch before it.

    Attributes:
        is_timed: records have timestamps, and watermarks follow them.
        is_final: nothing comes after the epoch: event time passes.
    """

    attempt: int
    epoch: int
    barrier: CheckpointTrigger | None
    is_timed: bool = False
    is_final: bool = False


@attrs.frozen
class EpochAccepted:
    """Frames may come."""


@attrs.frozen
class EpochRefused:
    """The slot is not where the task expects it to be."""

    error: PyFlinkStateError


@attrs.frozen
class EpochDone:
    """The slot has applied the epoch, and taken its snapshot if there was a barrier."""

    records_in: int
    records_out: int
    metrics: MetricValues = attrs.Factory(dict)
    next_timer_ms: int | None = None
    watermark: int = NO_WATERMARK


@attrs.frozen
class EpochFailed:
    """The epoch failed; the slot's state is no longer of any version."""

    error: PyFlinkStateError
