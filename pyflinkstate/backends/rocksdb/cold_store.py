"""The cold store: a RocksDB in a scratch folder, which belongs to one subtask and lives as long as it.

Nothing in it survives its process: there is no log of writes, and a restore fills a new one. The folder is
deleted when the store is closed. If its process was killed, the next store that begins in the same directory
deletes it: the owner of a folder holds a lock on the file beside it for as long as it lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyflinkstate.errors import ConfigurationError, StateStorageError

if TYPE_CHECKING:
    from rocksdict import Options, Rdict, WriteBatch

_PREFIX = "pyflinkstate-rocksdb-"
#: The share of the memory that RocksDB gets for its block cache, and for entries that are not in files yet.
_CACHE_SHARE, _BUFFERS_SHARE = 8, 8
_LEAST_CACHE_BYTES, _MOST_BUFFER_BYTES = 1 << 20, 64 << 20
_BLOOM_BITS = 10
#: Writes wait while so many files are not compacted, and are never slowed down.
_MOST_FILES = 24
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
        """Delete the folder, once. If files are being added to it, that is left to the next owner."""
        shutil.rmtree(self.path, ignore_errors=True)
        if not self.path.exists():
            self._lock_path.unlink(missing_ok=True)
        os.close(self._lock)

    def _delete_abandoned(self) -> None:
        for lock_path in self.directory.glob(f"{_PREFIX}*.lock"):
            with contextlib.suppress(OSError):  # its owner lives, or another one is deleting it
                lock = _locked(lock_path)
                shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
                lock_path.unlink(missing_ok=True)
                os.close(lock)


def _locked(path: Path) -> int:
    """Open and lock a file; raise ``OSError`` if another process has locked it."""
    lock = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


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


class ColdStore:
    """One RocksDB for all states of a subtask.

    Args:
        directory: where its scratch folder is made; None for the system's temporary directory.
        memory_bytes: the memory of the backend, of which RocksDB takes a quarter.

    Raises:
        ConfigurationError: rocksdict is not installed.
        StateStorageError: the folder cannot be made or written to.
    """

    def __init__(self, directory: str | None, memory_bytes: int) -> None:
        check_installed()
        from rocksdict import Rdict, WriteOptions

        self._folder = ScratchFolder(directory)
        writing = WriteOptions()
        writing.disable_wal = True
        # RocksDB would wait with the interpreter lock, and for ever if its disk is full.
        writing.no_slowdown = True
        try:
            self.db: Rdict = Rdict(str(self._folder.path), _options(memory_bytes))
            self.db.set_write_options(writing)
        except Exception as error:
            self._folder.delete()
            raise self.failure(error) from error
        self._states = 0
        self._is_closed = False

    def new_state_id(self) -> int:
        """Return a number for the entries of a state."""
        self._states += 1
        return self._states

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

    def failure(self, error: Exception) -> StateStorageError:
        """Return the error for a failure of RocksDB, which has no classes of its own for errors."""
        return storage_error(self._folder.path, error)

    def close(self, is_in_use: bool = False) -> None:
        """Delete all of it; only its files if it is in use by another thread. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            if not is_in_use:
                with contextlib.suppress(Exception):  # it writes its entries, for which there may be no room
                    self.db.close()
            self._folder.delete()


def check_installed() -> None:
    """Raise ``ConfigurationError`` if rocksdict is not installed."""
    try:
        import rocksdict  # noqa: F401 - RocksDB itself, in a wheel
    except ImportError as error:
        raise ConfigurationError(
            "EmbeddedRocksDBStateBackend needs the package rocksdict: pip install 'pyflinkstate[rocksdb]', "
            "in the environment of the driver and of the workers",
            package="rocksdict",
        ) from error


def _options(memory_bytes: int) -> Options:
    from rocksdict import BlockBasedOptions, Cache, DataBlockIndexType, DBCompressionType, Options

    blocks = BlockBasedOptions()
    blocks.set_block_cache(Cache(max(memory_bytes // _CACHE_SHARE, _LEAST_CACHE_BYTES)))
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
    options.set_level_zero_slowdown_writes_trigger(_MOST_FILES)
    options.set_level_zero_stop_writes_trigger(_MOST_FILES)
    options.set_keep_log_file_num(1)
    return options
