"""Snapshot of a heap backend: a short synchronous prepare, and a detached asynchronous write."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import attrs
import pyarrow as pa

from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.backends.format import (
    END_OF_STREAM,
    CheckpointStreamFactory,
    KeyedStateSnapshot,
    KeyGroupEntries,
    KeyGroupsStateHandle,
    Section,
    SectionWriter,
    StateCodec,
    StateFileHead,
    write_file,
)
from pyflinkstate.backends.heap.backend import HeapKeyedStateBackend
from pyflinkstate.backends.heap.state_table import StateTable
from pyflinkstate.backends.heap.timer_queue import TimerQueue
from pyflinkstate.backends.snapshots import (
    Changes,
    SnapshotExecutionType,
    SnapshotStrategyRunner,
)
from pyflinkstate.backends.types import MISFITS, StateMeta
from pyflinkstate.errors import StateValueError

#: Number of key groups that may wait for the compressor.
MAX_COMPRESSING = 2
#: A key group with fewer entries is compressed where it is: the way to another thread and back costs more.
MIN_ENTRIES_TO_HAND_OVER = 2_000


@attrs.frozen
class HeapSnapshotResources:
    """The resources of the asynchronous part (Flink: ``HeapSnapshotResources``)."""

    head: StateFileHead
    states: tuple[KeyedStateSnapshot, ...]

    def release(self) -> None:
        """Make the backend forget the snapshot. Idempotent."""
        for state in self.states:
            state.release()


@attrs.frozen
class HeapSnapshotStrategy:
    """Takes and writes snapshots of tables and timer queues (Flink: ``HeapSnapshotStrategy``).

    ``compression`` is the codec of Arrow's buffers: ``"zstd"``, ``"lz4"`` or None. With ``changes`` only
    those are written.
    """

    backend: HeapKeyedStateBackend
    compression: str | None = "zstd"
    changes: Changes | None = None

    def sync_prepare_resources(self) -> HeapSnapshotResources:
        """Run the synchronous part: freeze every state. Nothing is serialized or copied deep."""
        backend = self.backend
        states: list[KeyedStateSnapshot] = []
        try:
            for registered in (backend.registered_kv_states, backend.registered_queues):
                states.extend(map(self._frozen, registered.values()))
        except BaseException:
            for state in states:
                state.release()
            raise
        metas = tuple(state.meta for state in states)
        head = StateFileHead(
            backend.key_type,
            backend.key_group_range,
            backend.max_parallelism,
            metas,
            is_increment=self.changes is not None,
        )
        return HeapSnapshotResources(head, tuple(states))

    def _frozen(self, state: StateTable | TimerQueue) -> KeyedStateSnapshot:
        return state.snapshot() if self.changes is None else state.increment(self.changes[state.meta.name])

    def async_snapshot(
        self,
        resources: HeapSnapshotResources,
        streams: CheckpointStreamFactory,
        cancelled: threading.Event,
    ) -> KeyGroupsStateHandle | None:
        """Run the asynchronous part: write and release one key group after another.

        Returns:
            the handle, or None if no state is registered or none has changed; then no file is written.

        Raises:
            SnapshotCancelledError: ``cancelled`` was set.
            CheckpointStorageError: the storage failed.
        """
        try:
            if not resources.states or self._nothing_changed():
                return None
            return write_file(streams, cancelled, lambda writer: self._write(writer, resources))
        finally:
            resources.release()

    def _nothing_changed(self) -> bool:
        return self.changes is not None and not any(map(any, self.changes.values()))

    def _write(self, writer: SectionWriter, resources: HeapSnapshotResources) -> KeyGroupsStateHandle:
        head = resources.head
        writer.append(head.encode())
        # Arrow releases the interpreter lock while it compresses, so the next columns are gathered meanwhile.
        with ThreadPoolExecutor(max_workers=1) as compressor:
            sections = {
                state.meta.name: self._write_state(writer, head, state, compressor)
                for state in resources.states
            }
        return KeyGroupsStateHandle(head.key_group_range, writer.close(), sections)

    def _write_state(
        self,
        writer: SectionWriter,
        head: StateFileHead,
        state: KeyedStateSnapshot,
        compressor: ThreadPoolExecutor,
    ) -> dict[int, Section]:
        codec = StateCodec(head.key_type, state.meta, self.compression, head.is_increment)
        writer.append(codec.schema_message)
        sections: dict[int, Section] = {}
        compressing: deque[tuple[int, Future[bytes]]] = deque()
        for entries in state.key_groups():
            writer.check_cancelled()
            if len(entries):
                message = _compressed(compressor, codec, to_batch(codec, entries))
                compressing.append((entries.key_group, message))
            if len(compressing) > MAX_COMPRESSING:
                key_group, message = compressing.popleft()
                sections[key_group] = writer.append_section(message.result())
        for key_group, message in compressing:
            sections[key_group] = writer.append_section(message.result())
        writer.append(END_OF_STREAM)
        return sections


def _compressed(compressor: ThreadPoolExecutor, codec: StateCodec, batch: pa.RecordBatch) -> Future[bytes]:
    if batch.num_rows >= MIN_ENTRIES_TO_HAND_OVER:
        return compressor.submit(codec.message, batch)
    message: Future[bytes] = Future()
    message.set_result(codec.message(batch))
    return message


def to_batch(codec: StateCodec, entries: KeyGroupEntries) -> pa.RecordBatch:
    """Return the entries as Arrow columns; raise ``StateValueError`` if a value does not fit its type."""
    name = codec.meta.name
    try:
        return codec.to_batch(entries)
    except StateValueError as error:
        raise StateValueError(f"state {name!r}: {error}", state=name) from error
    except MISFITS as error:
        raise _misfit(codec.meta, entries) or error from error


def _misfit(meta: StateMeta, entries: KeyGroupEntries) -> StateValueError | None:
    """Return the error of the first value that does not fit, or None if all do.

    A state checks each value that it is given, but a value can be changed in place afterwards.
    """
    for key, value in zip(entries.keys, entries.values, strict=True):
        try:
            if value is not None:
                meta.stored_type.check(value)
        except ValueError as error:
            return StateValueError(
                f"state {meta.name!r}, key {safe_repr(key)}: {error}; it was changed in place after it was "
                f"checked: call update(), or put(), after changing a value",
                state=meta.name,
                key=safe_repr(key),
            )
    return None


def snapshot_runner(
    backend: HeapKeyedStateBackend, compression: str | None = "zstd", changes: Changes | None = None
) -> SnapshotStrategyRunner[KeyGroupsStateHandle, HeapSnapshotResources]:
    """Return the runner for snapshots of ``backend``, which is asynchronous if its tables allow it."""
    return SnapshotStrategyRunner(
        HeapSnapshotStrategy(backend, compression, changes),
        backend.snapshots,
        SnapshotExecutionType.ASYNCHRONOUS if backend.async_snapshots else SnapshotExecutionType.SYNCHRONOUS,
    )
