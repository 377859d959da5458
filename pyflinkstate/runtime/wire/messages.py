"""The messages between driver, Spark tasks and state slots: plain values."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from functools import cache

import attrs

from pyflinkstate.api import NO_WATERMARK, Key, Namespace, Position, Record, TypeInformation
from pyflinkstate.backends.compiled import is_compiled
from pyflinkstate.backends.format import KeyGroupsStateHandle, OperatorSubtaskState, StateAssignment
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.heap import DiskStatus
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import RegisteredStateMeta
from pyflinkstate.errors import ConfigurationError, PyFlinkStateError
from pyflinkstate.runtime.storage import FileSystemCheckpointStorage
from pyflinkstate.runtime.wire.metrics import MetricValues
from pyflinkstate.runtime.wire.transport import Address


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
    """Event: the job is to be cancelled, ``by`` a signal if that is not empty."""

    by: str = ""


@attrs.frozen
class WakeUp:
    """Event: the source has new input."""


# --- task to driver ----------------------------------------------------------------------------


@attrs.frozen
class AcquireSlot:
    """A task needs the address of a slot; the answer is StartSlot, SlotAvailable or SlotUnavailable."""

    attempt: int
    slot: SlotId


@attrs.frozen
class StartSlot:
    """The slot does not run and no task is starting it: the task must start it, and wait."""


@attrs.frozen
class SlotAvailable:
    """The slot runs and listens at ``address``."""

    address: Address


@attrs.frozen
class SlotUnavailable:
    """The slot could not start or is lost, for the reason in ``error``."""

    error: PyFlinkStateError


@attrs.frozen
class SubtaskStatus:
    """The report of a slot, or of a source task of the pipelined engine, about itself at an epoch's end.

    Attributes:
        busy_ns: how long it has processed since the end of the epoch before, in ns.
        idle_ns: how long it has waited for input since then; with the other two this is all of the time.
        back_pressured_ns: how long it took to hand over its output, which waits if it is not taken.
        memory_bytes: the memory of its process; 0 if the system does not tell.
        memory_limit_bytes: how much it may have; None if only its host limits it.
        timers: how many timers are pending.
        disk: what its backend measures of state on disk; None if it keeps none there.
    """

    busy_ns: int
    idle_ns: int
    back_pressured_ns: int
    memory_bytes: int
    memory_limit_bytes: int | None
    timers: int
    disk: DiskStatus | None = None


@attrs.frozen
class PackageCopy:
    """The copy of this package that a process runs; ``host`` is where the process runs."""

    host: str
    folder: str
    is_compiled: bool

    @classmethod
    @cache
    def here(cls) -> PackageCopy:
        """Return the copy of this process."""
        folder = os.path.dirname(os.path.dirname(os.path.realpath(str(sys.modules["pyflinkstate"].__file__))))
        return cls(socket.gethostname(), folder, is_compiled())

    def difference(self, program: PackageCopy) -> str:
        """Return why a worker or a slot should not run this copy; empty if it may.

        The folder counts on the program's host alone, and not if it is a zip file that was shipped there.
        """
        if program.is_compiled and not self.is_compiled:
            return "runs it interpreted, at about half the speed of the program's compiled copy"
        is_other = self.host == program.host and self.folder != program.folder
        return "runs another copy than the program" if is_other and not self.folder.endswith(".zip") else ""


@attrs.frozen
class SlotReport:
    """What a slot tells of itself at the end of an epoch, and when its next timer is due."""

    status: SubtaskStatus | None = None
    next_timer_ms: int | None = None


@attrs.frozen
class VertexReport:
    """What a vertex of the pipelined engine has measured in an epoch.

    Attributes:
        status: where the time of a source task or exchange went; a slot says that itself.
        latencies_ms: by the id of a source, how long its markers were on their way to the vertex.
    """

    status: SubtaskStatus | None = None
    latencies_ms: dict[str, list[float]] = attrs.Factory(dict)


@attrs.frozen
class TaskReport:
    """A task reports its counts, or why it failed."""

    attempt: int
    epoch: int
    task: str
    counts: dict[str, int] = attrs.Factory(dict)
    rejected: tuple[Record, ...] = ()
    error: PyFlinkStateError | None = None
    #: The values of the task's metrics at its end.
    metrics: MetricValues = attrs.Factory(dict)
    #: Whether they are totals over all runs of the task, not only of this run.
    are_totals: bool = False
    #: The present watermarks, by the ids of assigners and operators.
    watermarks: dict[str, int] = attrs.Factory(dict)
    #: The task must not end again in the same epoch, because a second run may give other results.
    is_only_run: bool = False
    #: What a slot tells of itself.
    slot: SlotReport | None = None
    #: What a vertex of the pipelined engine has measured.
    vertex: VertexReport | None = None
    #: A few records as texts, by the ids of streams that somebody looks at.
    samples: dict[str, list[str]] = attrs.Factory(dict)
    #: What the task has read of sources that are read live: a position by source and partition.
    reached: dict[str, dict[int, Position]] = attrs.Factory(dict)
    package: PackageCopy = attrs.Factory(PackageCopy.here)


# --- slot and driver -----------------------------------------------------------------------------


@attrs.frozen
class RegisterSlot:
    """A slot has started; the answer is DeploySlot."""

    attempt: int
    slot: SlotId
    pid: int
    address: Address
    package: PackageCopy = attrs.Factory(PackageCopy.here)


@attrs.frozen
class DeploySlot:
    """The function that a slot runs, and the state that it restores."""

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
    #: The time without a message from the driver after which the slot ends its process.
    heartbeat_timeout_ms: int = 50_000
    job_parameters: dict[str, str] = attrs.Factory(dict)


@attrs.frozen
class HeartbeatSettings:
    """Flink's ``heartbeat.interval`` and ``heartbeat.timeout``, with its defaults.

    Attributes:
        interval_ms: the time between two heartbeats from the driver, which each slot answers.
        timeout_ms: the time without a message after which the driver counts a slot as lost, and a slot ends
            its process.
    """

    interval_ms: int = 10_000
    timeout_ms: int = 50_000

    def __attrs_post_init__(self) -> None:
        if not 0 < self.interval_ms <= self.timeout_ms:
            raise ConfigurationError(
                f"heartbeat.interval is {self.interval_ms} ms and heartbeat.timeout {self.timeout_ms} ms: "
                f"the interval must be positive, and the timeout must not be less than the interval"
            )


@attrs.frozen
class Heartbeat:
    """The driver is alive; the slot answers with the same message."""


@attrs.frozen
class DumpThreads:
    """The slot answers with the stacks of its threads, as lines of its output."""


@attrs.frozen
class SlotReady:
    """The slot has restored its state and opened its function."""


@attrs.frozen
class SlotFailed:
    """The slot cannot be used: it could not restore or open, or its function raised when it was notified.

    The driver cuts it off, and it ends.
    """

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
    #: If set, the keyed state is an increment since that checkpoint.
    base_id: int | None = None


@attrs.frozen
class StateMaterialized:
    """A slot has written all of its keyed state as of a checkpoint, in the background."""

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
    """A checkpoint is complete, which also stands for all earlier ones."""

    checkpoint_id: int


@attrs.frozen
class AbortCheckpoint:
    """The slot must stop writing this checkpoint, and notify its function."""

    checkpoint_id: int


@attrs.frozen
class CloseSlot:
    """The job is over: the slot must close its function and end. The answer is SlotClosed."""


@attrs.frozen
class SlotClosed:
    """The slot has closed its function; ``error`` is the error that ``close`` raised, if any."""

    error: PyFlinkStateError | None = None


# --- task and slot -------------------------------------------------------------------------------


@attrs.frozen
class CheckpointTrigger:
    """The barrier at the end of an epoch: take a snapshot and write it.

    Attributes:
        folder: the URI or path to write to.
        is_incremental: whether keyed state goes to the job's shared folder, for later checkpoints to extend.
        base_id: write only what changed since that checkpoint; write everything if it is None or unknown.
        materialize: whether to write all keyed state as well, after that.
        savepoint: another snapshot for the same barrier, taken after this one.
        writer: the digits with which the names of new files begin, so that the driver knows them as its own.
    """

    checkpoint_id: int
    timestamp_ms: int
    folder: str
    is_incremental: bool = False
    base_id: int | None = None
    materialize: bool = False
    savepoint: CheckpointTrigger | None = None
    writer: str = ""

    def all(self) -> tuple[CheckpointTrigger, ...]:
        """Return this trigger, and that of the savepoint if there is one."""
        return (self,) if self.savepoint is None else (self, self.savepoint)


@attrs.frozen
class BeginEpoch:
    """A task is about to feed an epoch; the epoch before it must be the last one that the slot applied.

    Attributes:
        is_timed: whether records have timestamps, and watermarks follow them.
        is_final: whether this is the last epoch, after which the watermark passes all timestamps.
    """

    attempt: int
    epoch: int
    barrier: CheckpointTrigger | None
    is_timed: bool = False
    is_final: bool = False


@attrs.frozen
class EpochAccepted:
    """The slot accepts the epoch: the task may send frames."""


@attrs.frozen
class EpochRefused:
    """The slot refuses the epoch.

    Attributes:
        error: the reason; a ``SlotBusyError`` if another task is feeding the slot.
        is_applied: whether the slot has applied this very epoch, because another task has fed it.
    """

    error: PyFlinkStateError
    is_applied: bool = False


@attrs.frozen
class EpochDone:
    """The slot has applied the epoch, and taken its snapshot if there was a barrier."""

    records_in: int
    records_out: int
    metrics: MetricValues = attrs.Factory(dict)
    next_timer_ms: int | None = None
    watermark: int = NO_WATERMARK
    status: SubtaskStatus | None = None
    #: The records of each side output, by the ids of tags.
    side_out: dict[str, int] = attrs.Factory(dict)


@attrs.frozen
class EpochFailed:
    """The epoch failed; the slot's state no longer has a version."""

    error: PyFlinkStateError


# --- driver and slot, about live state -------------------------------------------------------------


@attrs.frozen
class AskState:
    """A question about one state; the answer is StateFrozen or QuestionRefused.

    Attributes:
        epoch: the epoch after which the state is meant. The slot answers at its end, and at no other.
        state: the name of the state.
        keys: the wanted keys by their key groups, which belong to the slot; None for all keys.
        namespace: the wanted namespace alone; empty for all.
    """

    epoch: int
    state: str
    keys: Mapping[int, tuple[Key, ...]] | None = None
    namespace: tuple[Namespace, ...] = ()


@attrs.frozen
class StateFrozen:
    """The slot has frozen the state; its entries follow as record batches, then nothing, then AnswerEnded.

    Attributes:
        meta: describes the state; None if the slot has no such state, and no entries.
        known: the names of the states that the slot has.
    """

    meta: RegisteredStateMeta | None
    known: tuple[str, ...]


@attrs.frozen
class QuestionRefused:
    """The slot does not answer, for the reason in ``error``; ``is_late``: not after that epoch any more."""

    error: PyFlinkStateError
    is_late: bool = False


@attrs.frozen
class AnswerEnded:
    """The slot has sent all entries, or could not, for the reason in ``error``."""

    error: PyFlinkStateError | None = None
