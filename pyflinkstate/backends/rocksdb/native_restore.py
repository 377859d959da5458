"""Reading native checkpoints: as the store of a new backend, or entry by entry.

A backend on disk begins with the files of the subtask that has most of its entries. They are linked if they
are on the same file system, so this takes as long for much state as for little. The key groups of other
subtasks are cut off. Everything else is read by key group: the files of further subtasks, and all files for a
backend on the heap.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import attrs

from pyflinkstate.api import TypeInformation
from pyflinkstate.backends.format import (
    KeyGroupEntries,
    KeyGroupsStateHandle,
    NativeBase,
    NativeFile,
    NativeState,
    StateFileHead,
    StateReader,
)
from pyflinkstate.backends.heap import HeapRestoreOperation
from pyflinkstate.backends.rocksdb.backend import RocksDBKeyedStateBackend
from pyflinkstate.backends.rocksdb.cold_entries import ColdEntries, EntrySizes
from pyflinkstate.backends.rocksdb.cold_store import ColdStore
from pyflinkstate.backends.rocksdb.entry_forms import EntryForms
from pyflinkstate.backends.types import RegisteredStateMeta
from pyflinkstate.errors import CorruptCheckpointError

_CHUNK_BYTES = 8 << 20
#: RocksDB's memory where entries are only read once, in order.
_READER_BYTES = 8 << 20


def native_state(native: NativeBase, name: str, what: str) -> NativeState:
    """Return where a state is; ``what`` names the file with its type in the error if it is nowhere."""
    if name not in native.states:
        raise CorruptCheckpointError(
            f"{what} is damaged: its files of RocksDB lack its state {name!r}", file=what
        )
    return native.states[name]


@attrs.frozen
class KeyedRestoreOperation(HeapRestoreOperation):
    """Fills a new backend of either kind from checkpoints of both."""

    def restore(self, handles: Iterable[KeyGroupsStateHandle | None]) -> None:
        super().restore(sorted(handles, key=self._own_entries, reverse=True))

    def _own_entries(self, handle: KeyGroupsStateHandle | None) -> int:
        """Return how many entries of this backend are in files of RocksDB."""
        owned = self.backend.key_group_range
        states = () if handle is None or handle.native is None else handle.native.states.values()
        return sum(
            count for state in states for key_group, count in state.entries.items() if key_group in owned
        )

    def restore_handle(self, handle: KeyGroupsStateHandle) -> None:
        begun_with = self._may_begin_with(handle)
        super().restore_handle(handle)
        if begun_with is not None and handle.native is not None:
            begun_with.set_totals(handle.native.states)

    def _may_begin_with(self, handle: KeyGroupsStateHandle) -> RocksDBKeyedStateBackend | None:
        """Return the backend if its store may begin with the files of a handle."""
        backend = self.backend
        if not isinstance(backend, RocksDBKeyedStateBackend) or handle.native is None:
            return None
        return None if backend.registered() or self.is_spread_anew(handle) else backend

    def restore_native(self, handle: KeyGroupsStateHandle, head: StateFileHead) -> None:
        native, what = handle.native, self.reader.describe(handle.stream)
        assert native is not None
        metas = [
            (meta, native_state(native, meta.name, what))
            for meta in (self.sealed(meta, what) for meta in head.states)
            if isinstance(meta, RegisteredStateMeta)
        ]
        backend = self._may_begin_with(handle)
        if backend is not None:
            fill = partial(fetch, native, self.reader)
            backend.begin_with(native, [meta for meta, _ in metas], fill)
            return
        wanted = handle.key_group_range
        if not self.is_spread_anew(handle):
            wanted = wanted.intersection(self.backend.key_group_range)
        with native_store(native, self.reader) as store:
            for meta, state in metas:
                entries = native_entries(store, (head.key_type, meta), state, wanted)
                self.load_table(meta, self.own(entries) if self.is_spread_anew(handle) else entries)


@contextmanager
def native_store(native: NativeBase, reader: StateReader) -> Iterator[ColdStore]:
    """Open the files of a native checkpoint for reading, in a scratch folder.

    Raises:
        ConfigurationError: rocksdict is not installed.
        CorruptCheckpointError: a file is missing or damaged.
    """
    store = ColdStore(None, _READER_BYTES)
    try:
        store.begin_with(partial(fetch, native, reader))
        yield store
    finally:
        store.close()


def native_entries(
    store: ColdStore,
    types: tuple[TypeInformation, RegisteredStateMeta],
    state: NativeState,
    key_groups: Iterable[int],
) -> Iterator[KeyGroupEntries]:
    """Iterate over key groups of a state in files of RocksDB.

    Args:
        store: has the files open.
        types: of the keys, and of the state.
        state: where it is.
        key_groups: which key groups to read.
    """
    key_type, meta = types
    forms, sizes = EntryForms.of(key_type, meta), EntrySizes(meta.name)
    for key_group in key_groups:
        cold = ColdEntries(store, state.state_id, key_group, sizes, forms)
        found = list(cold.freeze().entries())
        keys, namespaces = [key for key, _ in found], None
        if meta.is_namespaced:
            keys, namespaces = [key[0] for key in keys], [key[1] for key in keys]  # type: ignore[index]
        yield KeyGroupEntries(key_group, keys, namespaces, [value for _, value in found])


def fetch(native: NativeBase, reader: StateReader, folder: Path) -> dict[str, str]:
    """Put the files of a native checkpoint into a folder; return from where each came.

    Raises:
        CorruptCheckpointError: a file is missing, truncated, or was found to be altered. Files that are
            linked are not read.
    """
    for file in native.files:
        if not _is_linked(file, reader, folder / file.name):
            with (folder / file.name).open("wb") as copy:
                copy.writelines(native_chunks(file, reader))
    return {file.name: reader.describe(file.stream) for file in native.files}


def _is_linked(file: NativeFile, reader: StateReader, target: Path) -> bool:
    """Link a file if it is on the same file system, and if RocksDB never changes it."""
    path, what = reader.local_path(file.stream), reader.describe(file.stream)
    if path is None or not file.name.endswith(".sst"):
        return False
    try:
        size = os.stat(path).st_size
        if size == file.stream.size_bytes:
            os.link(path, target)
            return True
    except FileNotFoundError:
        raise CorruptCheckpointError(f"{what} is missing", file=what) from None
    except OSError:  # it is on another file system, or belongs to another user
        return False
    raise CorruptCheckpointError(
        f"{what} is damaged: it has {size} bytes, and the checkpoint says {file.stream.size_bytes}", file=what
    )


def native_chunks(file: NativeFile, reader: StateReader) -> Iterator[bytes]:
    """Iterate over the bytes of a file.

    Raises:
        CorruptCheckpointError: it is missing or truncated, or its bytes were altered, which is found last.
    """
    checksum, size = 0, file.stream.size_bytes
    for begin in range(0, size, _CHUNK_BYTES):
        data = reader.read(file.stream, begin, min(_CHUNK_BYTES, size - begin))
        checksum = zlib.crc32(data, checksum)
        yield data
    if checksum != file.checksum:
        what = reader.describe(file.stream)
        raise CorruptCheckpointError(f"{what} is damaged: its bytes were altered", file=what)
