"""Snapshot of a heap backend: a short synchronous prepare, and a detached asynchronous write."""

from __future__ import annotations

import threading
import zlib

import attrs

from pyflinkstate.backends.format.state_file import END_OF_STREAM, StateCodec, StateFileHead
from pyflinkstate.backends.heap.backend import HeapKeyedStateBackend
from pyflinkstate.backends.heap.state_table import CopyOnWriteStateTableSnapshot
from pyflinkstate.backends.state_handles import KeyGroupsStateHandle, Section
from pyflinkstate.backends.streams import CheckpointOutputStream, CheckpointStreamFactory
from pyflinkstate.errors import CheckpointError


class SnapshotCancelledError(CheckpointError):
    """The checkpoint was aborted while this snapshot was being written; nothing is left of it."""


@attrs.frozen
class SnapshotResources:
    """What the synchronous part hands to the asynchronous one. Must be released."""

    head: StateFileHead
    tables: tuple[CopyOnWriteStateTableSnapshot, ...]

    def release(self) -> None:
        """Let the backend forget the snapshot. Idempotent."""
        for table in self.tables:
            table.release()


@attrs.frozen
class HeapSnapshotStrategy:
    """Takes and writes snapshots (Flink: ``HeapSnapshotStrategy``)."""

    backend: HeapKeyedStateBackend
    compression: str | None = "zstd"

    def sync_prepare_resources(self) -> SnapshotResources:
        """The synchronous part: freeze every table. Nothing is serialized or copied deep."""
        backend = self.backend
        tables = backend.registered_kv_states.values()
        head = StateFileHead(
            backend.key_type,
            backend.key_group_range,
            backend.max_parallelism,
            tuple(table.meta for table in tables),
        )
        return SnapshotResources(head, tuple(table.snapshot() for table in tables))

    def async_snapshot(
        self,
        resources: SnapshotResources,
        streams: CheckpointStreamFactory,
        cancelled: threading.Event,
    ) -> KeyGroupsStateHandle:
        """The asynchronous part, for a thread of its own: write, and release key group by key group.

        Raises:
            SnapshotCancelledError: ``cancelled`` was set.
            CheckpointStorageError: storage refused.
        """
        try:
            stream = streams.create()
            try:
                return _Writer(stream, resources, self.compression, cancelled).write()
            except BaseException:
                stream.abort()
                raise
        finally:
            resources.release()


class _Writer:
    """Writes one state file, keeping track of where each section lies."""

    def __init__(
        self,
        stream: CheckpointOutputStream,
        resources: SnapshotResources,
        compression: str | None,
        cancelled: threading.Event,
    ) -> None:
        self._stream = stream
        self._resources = resources
        self._compression = compression
        self._cancelled = cancelled
        self._position = 0

    def write(self) -> KeyGroupsStateHandle:
        head = self._resources.head
        self._append(head.encode())
        sections = {table.meta.name: self._write_state(table) for table in self._resources.tables}
        stream_handle = self._stream.close_and_get_handle()
        return KeyGroupsStateHandle(head.key_group_range, stream_handle, sections)

    def _write_state(self, table: CopyOnWriteStateTableSnapshot) -> dict[int, Section]:
        codec = StateCodec(self._resources.head.key_type, table.meta.stored_type, self._compression)
        self._append(codec.schema_message)
        sections: dict[int, Section] = {}
        for key_group, snapshot in table.key_groups():
            if self._cancelled.is_set():
                raise SnapshotCancelledError("the checkpoint was aborted")
            if len(snapshot):
                data = codec.encode(*snapshot.columns())
                sections[key_group] = Section(self._position, len(data), zlib.crc32(data))
                self._append(data)
        self._append(END_OF_STREAM)
        return sections

    def _append(self, data: bytes) -> None:
        self._stream.write(data)
        self._position += len(data)
