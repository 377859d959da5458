"""Snapshots of any backend: how they are run, cancelled and combined, and what an increment contains.

A snapshot has a short synchronous part and a detached asynchronous one. Names are Flink's
(``SnapshotStrategy``, ``SnapshotStrategyRunner``). What Flink calls a ``RunnableFuture<SnapshotResult>`` is a
:class:`SnapshotTask` here.

*Increments.* A map only knows which keys changed since it was last asked. The coordinator chooses the base of
an increment, the last *completed* checkpoint, and the base is known only when the barrier arrives. So the
changes between any two barriers are kept until a later checkpoint is the base. Nothing needs to be undone for
an aborted checkpoint: its changes are simply part of the next increment.

*Raw state* is bytes that a function writes and reads itself, by key group or by partition.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import attrs

from pyflinkstate.api import StateValue
from pyflinkstate.backends.format import (
    RAW_KEYED_STATE,
    CheckpointStreamFactory,
    KeyGroupsStateHandle,
    OperatorStateHandle,
    OperatorSubtaskState,
    RawOperatorStateHandle,
    Section,
    SectionWriter,
    StateReader,
    StreamStateHandle,
    read_section,
    write_file,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import MISFITS, Convert
from pyflinkstate.errors import CheckpointError, SnapshotCancelledError, StateValueError

R = TypeVar("R", bound="SnapshotResources")
H = TypeVar("H", covariant=True)
T = TypeVar("T")


class SnapshotResources(Protocol):
    """The resources that the synchronous part passes to the asynchronous part."""

    def release(self) -> None:
        """Let the backend forget the snapshot. Idempotent, on any thread."""


class SnapshotStrategy(Protocol[H, R]):
    """Takes snapshots of one kind of state.

    ``H`` is the handle; ``R`` is passed from the first part to the second.
    """

    def sync_prepare_resources(self) -> R:
        """Run the synchronous part, between two records, on the owner's thread."""

    def async_snapshot(
        self, resources: R, streams: CheckpointStreamFactory, cancelled: threading.Event
    ) -> H | None:
        """Run the asynchronous part: write, release, and return the handle, or None if there is no state.

        Raises:
            SnapshotCancelledError: ``cancelled`` was set; no file is left.
            CheckpointStorageError: the storage failed; no file is left.
        """


class SnapshotTask(Generic[T]):
    """The asynchronous part of one snapshot, which is run once, on any thread, or cancelled."""

    def __init__(self, write: Callable[[threading.Event], T | None], release: Callable[[], None]) -> None:
        self._write = write
        self._release = release
        self._cancelled = threading.Event()
        #: Acquired once, by who writes or cancels the task first, and never released.
        self._turn = threading.Lock()
        self._done = threading.Event()
        #: The handle of what was written, if anything was.
        self.handle: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Write the snapshot, unless it is already written or cancelled."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            self.handle = self._write(self._cancelled)
        except BaseException as error:  # noqa: BLE001 - kept for result()
            self._error = error
        finally:
            self._done.set()

    def finish(self) -> T | None:
        """Write the snapshot and return the handle, or raise the error."""
        self.run()
        return self.result()

    def cancel(self) -> None:
        """Stop writing at the next key group, or do not start; release the snapshot. Idempotent."""
        self._cancelled.set()
        if self._turn.acquire(blocking=False):
            self._error = SnapshotCancelledError("the checkpoint was aborted before it was written")
            self._release()
            self._done.set()

    def result(self) -> T | None:
        """Wait for the end and return the handle, or raise the error."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self.handle

    @property
    def is_done(self) -> bool:
        """Whether the task has ended, successfully or not."""
        return self._done.is_set()


class RunningSnapshots:
    """The tasks of a backend that have not ended (Flink: ``CloseableRegistry``)."""

    def __init__(self) -> None:
        self._tasks: set[SnapshotTask[object]] = set()
        self._closed = False
        self._lock = threading.Lock()

    def add(self, task: SnapshotTask[Any]) -> None:
        """Keep ``task`` until it has ended; raise ``SnapshotCancelledError`` after :meth:`close`."""
        with self._lock:
            if not self._closed:
                self._tasks = {kept for kept in self._tasks if not kept.is_done} | {task}
                return
        task.cancel()
        raise SnapshotCancelledError("the backend is closed")

    def close(self) -> None:
        """Cancel all tasks. Idempotent."""
        with self._lock:
            self._closed = True
            tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()


@attrs.frozen
class SnapshotStrategyRunner(Generic[T, R]):
    """Runs the synchronous part of a strategy and returns the asynchronous part as a task.

    If it is not asynchronous, the task has already run when it is returned.
    """

    strategy: SnapshotStrategy[T, R]
    running: RunningSnapshots
    is_async: bool

    def snapshot(self, streams: CheckpointStreamFactory) -> SnapshotTask[T]:
        """Take a snapshot, whose bytes go to a stream from ``streams``."""
        resources = self.strategy.sync_prepare_resources()
        task: SnapshotTask[T] = SnapshotTask(
            lambda cancelled: self.strategy.async_snapshot(resources, streams, cancelled), resources.release
        )
        self.running.add(task)
        if not self.is_async:
            task.run()
        return task


@attrs.frozen
class OperatorSnapshotFutures:
    """The parts of one snapshot that are still to be written (Flink: ``OperatorSnapshotFutures``)."""

    streams: CheckpointStreamFactory
    managed_keyed: SnapshotTask[KeyGroupsStateHandle]
    raw_keyed: SnapshotTask[KeyGroupsStateHandle]
    managed_operator: SnapshotTask[OperatorStateHandle]
    raw_operator: SnapshotTask[RawOperatorStateHandle]
    #: The streams for managed keyed state, if they differ from ``streams``.
    keyed_streams: CheckpointStreamFactory | None = None

    def cancel(self) -> None:
        """Stop all four. Idempotent, on any thread."""
        for task in self._tasks():
            task.cancel()

    def finish(self) -> OperatorSubtaskState:
        """Write all four and return them as one (Flink: ``OperatorSnapshotFinalizer``).

        If one fails, the others are cancelled, the files are deleted, and the error is raised.
        """
        try:
            return OperatorSubtaskState(
                self.managed_keyed.finish(),
                self.raw_keyed.finish(),
                self.managed_operator.finish(),
                self.raw_operator.finish(),
            )
        except BaseException:
            self.cancel()
            self._discard()
            raise

    def _discard(self) -> None:
        for task in self._tasks():
            handle = task.handle
            if handle is not None:
                own = self.keyed_streams if task is self.managed_keyed else None
                for stream in handle.streams():
                    with contextlib.suppress(CheckpointError):
                        (own or self.streams).discard(stream)

    def _tasks(self) -> tuple[SnapshotTask[Any], ...]:
        return self.managed_keyed, self.raw_keyed, self.managed_operator, self.raw_operator


#: For each state and each of its key groups, the set of entry keys that changed (or the timers, in order).
Changes = dict[str, list[Any]]


class TracksChanges(Protocol):
    """A backend that can write increments."""

    def track_changes(self) -> None:
        """From now on, record what changes."""

    def take_changes(self) -> Changes:
        """Return the changes since the last call, and start again."""


class ChangeHistory:
    """The changes of a backend, kept separately for each interval between two barriers."""

    def __init__(self, backend: TracksChanges) -> None:
        self._backend = backend
        #: By checkpoint, in order: what changed between the previous barrier and its own.
        self._cuts: dict[int, Changes] = {}
        self._base_id: int | None = None
        backend.track_changes()

    def cut(self, checkpoint_id: int, base_id: int | None) -> Changes | None:
        """Return the changes since checkpoint ``base_id``, or None if everything must be written.

        Changes before the base are forgotten: no later increment may have an earlier base.
        """
        self._cuts[checkpoint_id] = self._backend.take_changes()
        if base_id is None or (base_id not in self._cuts and base_id != self._base_id):
            return None
        self._base_id = base_id
        self._cuts = {cut: changes for cut, changes in self._cuts.items() if cut > base_id}
        return _united(self._cuts.values())


def _united(cuts: Any) -> Changes:
    united: Changes = {}
    for changes in cuts:
        for name, groups in changes.items():
            united[name] = list(map(_union, united[name], groups)) if name in united else groups
    return united


def _union(mine: Any, later: Any) -> object:
    """Return the union; of timers, a change in both has the later place, and its later result."""
    if isinstance(mine, set):
        return mine | later
    return {change: exists for change, exists in mine.items() if change not in later} | later


#: A value after its place and the context of an error there.
Placed = tuple[str, dict[str, str], StateValue]


@contextlib.contextmanager
def naming_misfits(state: str, name: str, check: Convert, values: Iterable[Placed]) -> Iterator[None]:
    """Name the state in the errors of its encoding, and the place of the first value that does not fit.

    A state checks each value that it is given, but a value can be changed in place afterwards.

    Args:
        state: the beginning of the messages.
        name: the name of the state.
        check: the check of its type.
        values: its values.

    Raises:
        StateValueError: a value does not fit.
    """
    try:
        yield
    except StateValueError as error:
        raise StateValueError(f"{state}: {error}", state=name) from error
    except MISFITS as error:
        for where, context, value in values:
            try:
                if value is not None:
                    check(value)
            except ValueError as reason:
                raise StateValueError(
                    f"{state}, {where}: {reason}; it was changed in place after it was checked: call "
                    f"update(), or put(), after changing a value",
                    state=name,
                    **context,
                ) from error
        raise


class RawKeyedStateBuffer:
    """Collects raw keyed state (Flink: ``KeyedStateCheckpointOutputStream``)."""

    def __init__(self, key_group_range: KeyGroupRange) -> None:
        self.key_group_range = key_group_range
        self.key_groups: dict[int, bytearray] = {}
        self._current: bytearray | None = None

    def start_new_key_group(self, key_group: int) -> None:
        """Start to write a key group."""
        if key_group not in self.key_group_range:
            raise CheckpointError(
                f"raw keyed state: key group {key_group} is not in the subtask's range {self.key_group_range}"
            )
        if key_group in self.key_groups:
            raise CheckpointError(f"raw keyed state: key group {key_group} was started before")
        self._current = self.key_groups[key_group] = bytearray()

    def write(self, data: bytes) -> None:
        """Append to the key group that was started last."""
        if self._current is None:
            raise CheckpointError("raw keyed state: call start_new_key_group() before write()")
        self._current += data

    def snapshot(self) -> RawStateSnapshot[KeyGroupsStateHandle]:
        """Return a snapshot of what was written so far; later bytes belong to no snapshot."""
        return RawStateSnapshot(
            {group: bytes(data) for group, data in self.key_groups.items()},
            lambda stream, pieces: KeyGroupsStateHandle(
                self.key_group_range, stream, {RAW_KEYED_STATE: pieces}
            ),
        )


class RawOperatorStateBuffer:
    """Collects raw operator state (Flink: ``OperatorStateCheckpointOutputStream``)."""

    def __init__(self) -> None:
        self.partitions: list[bytearray] = []

    def start_new_partition(self) -> None:
        """Start a partition."""
        self.partitions.append(bytearray())

    def write(self, data: bytes) -> None:
        """Append to the partition that was started last."""
        if not self.partitions:
            self.start_new_partition()
        self.partitions[-1] += data

    def snapshot(self) -> RawStateSnapshot[RawOperatorStateHandle]:
        """Return a snapshot of what was written so far; later bytes belong to no snapshot."""
        return RawStateSnapshot(
            dict(enumerate(map(bytes, self.partitions))),
            lambda stream, pieces: RawOperatorStateHandle(stream, tuple(pieces.values())),
        )


@attrs.frozen
class RawStateSnapshot(Generic[T]):
    """Writes the raw state of one snapshot, piece by piece; the result is None if the function wrote none."""

    pieces: dict[int, bytes]
    handle_of: Callable[[StreamStateHandle, dict[int, Section]], T]

    def write(self, streams: CheckpointStreamFactory, cancelled: threading.Event) -> T | None:
        """Write the file and return its handle."""
        if not self.pieces:
            return None

        def write_pieces(writer: SectionWriter) -> T:
            sections = {number: writer.append_section(data) for number, data in self.pieces.items()}
            return self.handle_of(writer.close(), sections)

        return write_file(streams, cancelled, write_pieces)


def read_raw_keyed_state(
    handles: Iterable[KeyGroupsStateHandle], owned: KeyGroupRange, reader: StateReader
) -> Iterator[tuple[int, bytes]]:
    """Iterate over the key groups in ``owned`` and their bytes."""
    for handle in handles:
        for key_group, section in handle.sections.get(RAW_KEYED_STATE, {}).items():
            if key_group in owned:
                yield key_group, _read(reader, handle.stream, section)


def read_raw_operator_state(
    handles: Iterable[RawOperatorStateHandle], reader: StateReader
) -> Iterator[bytes]:
    """Iterate over the partitions of ``handles``."""
    for handle in handles:
        for section in handle.partitions:
            yield _read(reader, handle.stream, section)


def _read(reader: StateReader, stream: StreamStateHandle, section: Section) -> bytes:
    return read_section(reader, stream, section, f"{reader.describe(stream)}, raw state,")
