"""The cold store: a RocksDB in a scratch folder, which belongs to one subtask and lives as long as it.

Nothing in its folder survives its process: there is no log of writes, and a restore fills a new one, or
begins with the files of a native checkpoint. The folder is deleted when the store is closed. If its process
was killed, the next store that begins in the same directory deletes it: the owner of a folder holds a lock on
the file beside it for as long as it lives.

*Freezing.* A checkpoint keeps the files of the store as of the barrier. :meth:`ColdStore.freeze` costs
nothing at the barrier: the thread that writes the checkpoint flushes what is in memory, and links the files.
The owner does not write before that, or does that work itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pyflinkstate.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    PyFlinkStateError,
    SnapshotCancelledError,
    StateStorageError,
)

if TYPE_CHECKING:
    from rocksdict import Options, Rdict, WriteBatch

_PREFIX = "pyflinkstate-rocksdb-"
#: How often a folder is deleted to which RocksDB's own threads may just have added a file.
_TRIES = 10
#: The share of the memory that RocksDB gets for entries that are not in files yet.
_BUFFERS_SHARE = 8
_MOST_BUFFER_BYTES = 64 << 20
#: RocksDB's block cache has no use: what is read goes up, and its neighbours in a block are any others.
_CACHE_BYTES = 1 << 20
_BLOOM_BITS = 10
#: Writes wait while so many files are not compacted, and are never slowed down.
_MOST_FILES = 24
#: So many new files are compacted at a time. With RocksDB's own 4, a compaction takes as long as the reads.
_FILES_A_COMPACTION = 12
#: The error for a write that has to wait, and the time after which it is tried again.
_STALL, _STALL_S = "Write stall", 0.005
#: What is reported of RocksDB, as Flink names it in ``state.backend.rocksdb.metrics.*``. Each takes 0.3 us.
PROPERTIES = (
    "total-sst-files-size",
    "cur-size-all-mem-tables",
    "block-cache-usage",
    "estimate-pending-compaction-bytes",
    "num-running-compactions",
    "num-running-flushes",
    "is-write-stopped",
    "background-errors",
)

#: Puts files into a folder, and returns from where each came, by its name.
Fill = Callable[[Path], dict[str, str]]


class ScratchFolder:
    """A folder that is deleted at the end, or by the next owner of one in the same directory.

    Args:
        directory: where it is made; None for the system's temporary directory.

    Raises:
        StateStorageError: it cannot be made.
    """

    def __init__(self, directory: str | None) -> None:
        self.directory = Path(directory or tempfile.gettempdir())
        self.path = self.directory / f"{_PREFIX}{uuid.uuid4().hex}"
        self._lock_path = self.path.with_suffix(".lock")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._delete_abandoned()
            self._lock = self._new_lock()
            self.path.mkdir()
        except OSError as error:
            with contextlib.suppress(OSError):
                self._lock_path.unlink()
            raise storage_error(self.path, error) from error

    def _new_lock(self) -> int:
        """Create and lock the file, again if another owner deleted it before it was locked."""
        while True:
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink:
                return lock
            os.close(lock)

    def delete(self) -> None:
        """Delete the folder. If files are added to it again and again, that is left to the next owner."""
        for _ in range(_TRIES):
            shutil.rmtree(self.path, ignore_errors=True)
            if not self.path.exists():
                self._lock_path.unlink(missing_ok=True)
                break
        os.close(self._lock)

    def _delete_abandoned(self) -> None:
        for lock_path in self.directory.glob(f"{_PREFIX}*.lock"):
            # An OSError means that its owner lives, or that another one is deleting it.
            with contextlib.suppress(OSError), lock_path.open("r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
                lock_path.unlink(missing_ok=True)


def storage_error(folder: Path, error: Exception) -> StateStorageError:
    """Return the error for a failure of RocksDB or of its folder."""
    with contextlib.suppress(OSError):
        error = OSError(f"{error} ({shutil.disk_usage(folder.parent).free} bytes are free)")
    return StateStorageError(
        f"the state that is not in memory cannot be read or written in {folder}: {error}; give it a writable "
        f"local directory with more space, with 'state.backend.rocksdb.localdir'",
        folder=str(folder),
    )


class Batch(list[tuple[bytes, bytes | None]]):
    """Writes for one step, which can be tried again: one of RocksDB's batches is used up if it is refused."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        self.append((key, value))

    def delete(self, key: bytes) -> None:
        """Remove a key."""
        self.append((key, None))

    def of_rocksdb(self) -> WriteBatch:
        """Return a batch of RocksDB with the same writes."""
        from rocksdict import WriteBatch

        batch = WriteBatch(raw_mode=True)
        for key, value in self:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        return batch


class FrozenStore:
    """The files of a store at one moment.

    Args:
        store: the store.
        path: the folder for links to its files.
    """

    def __init__(self, store: ColdStore, path: Path) -> None:
        self._store = store
        self._path = path
        self._lock = threading.Lock()
        self._error: PyFlinkStateError | None = None
        #: Whether the store may be written to: the files are linked, or nobody needs them.
        self.is_done = False

    def link_files(self) -> Path:
        """Flush the store and link its files, unless that was done; return their folder. On any thread.

        Raises:
            SnapshotCancelledError: nobody needs them any more.
            StateStorageError: RocksDB failed.
        """
        with self._lock:
            if not self.is_done:
                try:
                    self._store.link_files(self._path)
                except StateStorageError as error:
                    self._error = error
                self.is_done = True
            if self._error is not None:
                raise self._error
        return self._path

    def release(self) -> None:
        """Delete the links. Idempotent, on any thread."""
        with self._lock:
            self.is_done = True
            self._error = SnapshotCancelledError("the checkpoint was aborted")
            shutil.rmtree(self._path, ignore_errors=True)


class ColdStore:
    """One RocksDB for all states of a subtask.

    Args:
        directory: where its scratch folder is made; None for the system's temporary directory.
        memory_bytes: the memory of the backend, of which RocksDB takes an eighth.

    Raises:
        ConfigurationError: rocksdict is not installed.
        StateStorageError: the folder cannot be made or written to.
    """

    def __init__(self, directory: str | None, memory_bytes: int) -> None:
        check_installed()
        self._memory_bytes = memory_bytes
        self._folder = ScratchFolder(directory)
        self._states = 0
        self._links = 0
        self._frozen: list[FrozenStore] = []
        self._is_closed = False
        #: From where the files came with which the store began, by their names.
        self.origins: dict[str, str] = {}
        #: Whether other processes find all keys under their bytes.
        self.is_portable = True
        try:
            self.db = self._opened()
        except BaseException:
            self._folder.delete()
            raise

    def _opened(self, fill: Fill = lambda _: {}) -> Rdict:
        from rocksdict import Rdict, ReadOptions, WriteOptions

        path = self._folder.path / "db"
        writing = WriteOptions()
        writing.disable_wal = True
        # RocksDB would wait with the interpreter lock, and for ever if its disk is full.
        writing.no_slowdown = True
        reading = ReadOptions()
        reading.fill_cache(False)
        try:
            path.mkdir()
            self.origins = fill(path)
            db = Rdict(str(path), _options(self._memory_bytes))
            db.set_write_options(writing)
            db.set_read_options(reading)
        except PyFlinkStateError:
            raise
        except Exception as error:
            raise self.failure(error) from error
        return db

    def begin_with(self, fill: Fill, state_ids: Iterable[int] = ()) -> None:
        """Begin again with the files of another store; there must be no states yet.

        Args:
            fill: puts the files into a folder.
            state_ids: the numbers of the states in them.

        Raises:
            CorruptCheckpointError: RocksDB cannot open them.
        """
        self.db.close()
        shutil.rmtree(self._folder.path / "db")
        self.db = self._opened(fill)
        self._states = max(state_ids, default=0)

    def new_state_id(self) -> int:
        """Return a number for the entries of a state."""
        self._states += 1
        return self._states

    def freeze(self) -> FrozenStore:
        """Return the files as they are now. O(1)."""
        self._links += 1
        frozen = FrozenStore(self, self._folder.path / f"frozen-{self._links}")
        self._frozen = [kept for kept in self._frozen if not kept.is_done] + [frozen]
        return frozen

    @property
    def is_frozen(self) -> bool:
        """Whether a write has to wait for files to be linked."""
        return any(not frozen.is_done for frozen in self._frozen)

    def link_files(self, path: Path) -> None:
        """Flush what is in memory, and make a folder with links to all files."""
        from rocksdict import Checkpoint

        try:
            self.db.flush()  # unlike the checkpoint, it does not hold the interpreter lock
            Checkpoint(self.db).create_checkpoint(str(path))
        except Exception as error:
            raise self.failure(error) from error

    def _thaw(self) -> None:
        """Link the files that are frozen: the store is about to change."""
        for frozen in self._frozen:
            with contextlib.suppress(StateStorageError, SnapshotCancelledError):  # it ends the checkpoint
                frozen.link_files()
        self._frozen = []

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """Delete the entries from the key ``begin`` to before the key ``end``."""
        self._change(lambda: self.db.delete_range(begin, end))

    def new_batch(self) -> Batch:
        """Return an empty batch of writes."""
        return Batch()

    def write(self, batch: Batch) -> None:
        """Write a batch, in one step."""
        self._change(lambda: self.db.write(batch.of_rocksdb()))

    def _change(self, change: Callable[[], None]) -> None:
        """Call ``change``, again and again while RocksDB refuses it because it is behind with its files."""
        self._thaw()
        while True:
            try:
                return change()
            except Exception as error:
                if _STALL not in str(error):
                    raise self.failure(error) from error
            if self.properties()["background-errors"]:
                raise self.failure(OSError("RocksDB cannot write its files"))
            time.sleep(_STALL_S)

    def properties(self) -> dict[str, int]:
        """Return the present values of :data:`PROPERTIES`."""
        return {name: int(self.db.property_int_value(f"rocksdb.{name}") or 0) for name in PROPERTIES}

    def failure(self, error: Exception) -> StateStorageError | CorruptCheckpointError:
        """Return the error for a failure of RocksDB, which has no classes of its own for errors."""
        named = re.search(r"\d+\.sst|MANIFEST-\d+", str(error))
        origin = None if named is None else self.origins.get(named[0])
        if origin is not None and "orruption" in str(error):
            return CorruptCheckpointError(f"{origin} is damaged: {error}", file=origin)
        return storage_error(self._folder.path, error)

    def close(self, is_in_use: bool = False) -> None:
        """Delete all of it; only its files if it is in use by another thread. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            for frozen in self._frozen:
                frozen.release()
            if not is_in_use:
                with contextlib.suppress(Exception):  # closed already, or no room for the entries it writes
                    self.db.close()
            self._folder.delete()


def check_installed() -> None:
    """Raise ``ConfigurationError`` if rocksdict is not installed."""
    try:
        import rocksdict  # noqa: F401 - RocksDB itself, in a wheel
    except ImportError as error:
        raise ConfigurationError(
            "EmbeddedRocksDBStateBackend and its checkpoints need the package rocksdict: "
            "pip install 'pyflinkstate[rocksdb]', in the environment of the driver and of the workers",
            package="rocksdict",
        ) from error


def _options(memory_bytes: int) -> Options:
    from rocksdict import BlockBasedOptions, Cache, DataBlockIndexType, DBCompressionType, Options

    blocks = BlockBasedOptions()
    blocks.set_block_cache(Cache(_CACHE_BYTES))
    # The index of a file is larger than a shard of the cache: in there, it would be read again for each get.
    blocks.set_cache_index_and_filter_blocks(False)
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    blocks.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_size(min(max(memory_bytes // _BUFFERS_SHARE // 2, 1 << 16), _MOST_BUFFER_BYTES))
    # Most blocks are read for one entry: to decompress them takes longer than the rest of it.
    options.set_compression_type(DBCompressionType.none())
    options.set_max_background_jobs(2)
    options.set_level_zero_file_num_compaction_trigger(_FILES_A_COMPACTION)
    options.set_level_zero_slowdown_writes_trigger(_MOST_FILES)
    options.set_level_zero_stop_writes_trigger(_MOST_FILES)
    options.set_keep_log_file_num(1)
    return options
