"""Native checkpoints: RocksDB's own files, and beside them what was only in memory at the barrier.

The synchronous part freezes the store and the dirty keys, both in O(1) for each map. The asynchronous part
links the files of the store and writes those that the checkpoint directory does not have yet. The entries of
the dirty keys, and all timers, go to a file in the heap's format, as an increment over the files: the
*overlay*. Increments of later checkpoints follow it as they follow a full file.

*Files that are there already.* RocksDB never changes a table file, and never gives its name to another one. A
new base refers to the files of an older one, if these are kept at least until the new one is known:

* as long as no checkpoint of the attempt has completed, those of the base that was restored, if it is of the
  same job;
* then those of the latest base that was written in the background: the driver keeps it until it is replaced;
* until there is one, those of the base with which the only full checkpoint began. If there are several, it is
  not known which of them completed.
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import cast

import attrs

from pyflinkstate.backends.format import (
    CheckpointStreamFactory,
    KeyedStateSnapshot,
    KeyGroupEntries,
    KeyGroupsStateHandle,
    NativeBase,
    NativeFile,
    NativeState,
    SectionWriter,
    is_native_name,
    write_file,
)
from pyflinkstate.backends.heap import (
    HeapKeyedStateBackend,
    HeapSnapshotResources,
    HeapSnapshotStrategy,
    StateTable,
    TimerQueue,
)
from pyflinkstate.backends.rocksdb.cold_store import ColdStore, FrozenStore
from pyflinkstate.backends.rocksdb.tiered_state_map import TieredStateMap
from pyflinkstate.backends.types import StateMeta
from pyflinkstate.errors import CheckpointError, CheckpointStorageError

_CHUNK_BYTES = 1 << 20


class WrittenFiles:
    """The table files that the checkpoint directory has of one store, by name."""

    def __init__(self) -> None:
        #: Held while a base is written: which files the next one may refer to is known then.
        self.lock = threading.Lock()
        self._restored: dict[str, NativeFile] = {}
        self._origins: Mapping[str, str] = {}
        self._first: list[dict[str, NativeFile]] = []
        self._later: dict[str, NativeFile] = {}

    def reusable(self, is_later: bool, streams: CheckpointStreamFactory) -> Mapping[str, NativeFile]:
        """Return the files that a new base may refer to, in the checkpoint of ``streams``."""
        if not is_later:
            return {
                name: file
                for name, file in self._restored.items()
                if streams.describe(file.stream) == self._origins[name]
            }
        return self._first[0] if not self._later and len(self._first) == 1 else self._later

    def note(self, files: Iterable[NativeFile], is_later: bool) -> None:
        """Remember the files of a base that was written."""
        if is_later:
            self._later = _tables(files)
        else:
            self._first.append(_tables(files))

    def note_restored(self, files: Iterable[NativeFile], origins: Mapping[str, str]) -> None:
        """Remember the files with which the store began, and from where each came, by its name."""
        self._restored, self._origins = _tables(files), origins


def _tables(files: Iterable[NativeFile]) -> dict[str, NativeFile]:
    return {file.name: file for file in files if file.name.endswith(".sst")}


@attrs.frozen
class NativeSnapshotResources:
    """The resources of the asynchronous part."""

    overlay: HeapSnapshotResources
    frozen: FrozenStore

    def release(self) -> None:
        """Release the snapshots of maps, and delete the links to files. Idempotent."""
        self.overlay.release()
        self.frozen.release()


@attrs.frozen
class _AllTimers:
    """The timers of a queue, as an increment over none."""

    timers: KeyedStateSnapshot

    @property
    def meta(self) -> StateMeta:
        return self.timers.meta

    def key_groups(self) -> Iterator[KeyGroupEntries]:
        """Iterate over the timers of each key group."""
        return (attrs.evolve(group, removed=[False] * len(group)) for group in self.timers.key_groups())

    def release(self) -> None:
        """Release the snapshot of the queue."""
        self.timers.release()


@attrs.frozen
class _Overlay(HeapSnapshotStrategy):
    """Writes the entries that differ from those in the store, and all timers."""

    def frozen(self, state: StateTable | TimerQueue) -> KeyedStateSnapshot:
        if isinstance(state, TimerQueue):
            return _AllTimers(state.snapshot())
        maps = cast(list[TieredStateMap], state.maps)
        return state.increment([state_map.freeze_dirty() for state_map in maps], with_expired=True)


def overlay_strategy(backend: HeapKeyedStateBackend, compression: str | None) -> HeapSnapshotStrategy:
    """Return the strategy that writes what a store does not have."""
    return _Overlay(backend, compression, changes={})


@attrs.frozen
class NativeSnapshotStrategy:
    """Takes and writes native snapshots (Flink: ``RocksIncrementalSnapshotStrategy``).

    Attributes:
        overlay: writes what is only in memory.
        store: the store of the backend.
        states: where the states are in it, now.
        written: the files that the checkpoint directory has.
        is_later: whether the snapshot replaces the increments of a completed checkpoint.
    """

    overlay: HeapSnapshotStrategy
    store: ColdStore
    states: dict[str, NativeState]
    written: WrittenFiles
    is_later: bool

    def sync_prepare_resources(self) -> NativeSnapshotResources:
        """Run the synchronous part: freeze the store and the dirty entries."""
        return NativeSnapshotResources(self.overlay.sync_prepare_resources(), self.store.freeze())

    def async_snapshot(
        self, resources: NativeSnapshotResources, streams: CheckpointStreamFactory, cancelled: threading.Event
    ) -> KeyGroupsStateHandle:
        """Run the asynchronous part; if it fails, no new file is left.

        Raises:
            SnapshotCancelledError: ``cancelled`` was set.
            CheckpointStorageError: the storage failed.
            StateStorageError: RocksDB failed.
        """
        new: list[NativeFile] = []
        try:
            folder = resources.frozen.link_files()
            with self.written.lock:
                files = tuple(self._files(folder, streams, cancelled, new))
                handle = write_file(
                    streams, cancelled, lambda writer: self.overlay.write(writer, resources.overlay)
                )
                self.written.note(files, self.is_later)
            return attrs.evolve(handle, native=NativeBase(files, self.states))
        except BaseException:
            for file in new:
                with contextlib.suppress(CheckpointError):
                    streams.discard(file.stream)
            raise
        finally:
            resources.release()

    def _files(
        self,
        folder: Path,
        streams: CheckpointStreamFactory,
        cancelled: threading.Event,
        new: list[NativeFile],
    ) -> Iterator[NativeFile]:
        """Yield the files of the snapshot; those that had to be written are added to ``new``."""
        known = self.written.reusable(self.is_later, streams)
        for path in sorted(folder.iterdir()):
            if path.name in known:
                yield known[path.name]
            elif is_native_name(path.name):
                new.append(write_file(streams, cancelled, partial(_written, path)))
                yield new[-1]


def _written(path: Path, writer: SectionWriter) -> NativeFile:
    """Write a file of a store, and return where it is."""
    checksum = 0
    try:
        with path.open("rb") as file:
            while data := file.read(_CHUNK_BYTES):
                checksum = zlib.crc32(data, checksum)
                writer.append(data)
    except OSError as error:
        raise CheckpointStorageError(f"checkpoint storage: cannot read {path}: {error}") from error
    return NativeFile(path.name, writer.close(), checksum)
