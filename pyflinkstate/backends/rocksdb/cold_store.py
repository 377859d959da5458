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
import uuid
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
            self._lock = _locked(self._lock_path, os.O_CREAT | os.O_EXCL)
            self.path.mkdir()
        except OSError as error:
            raise storage_error(self.path, error) from error
        self._delete_abandoned()

    def delete(self) -> None:
        """Delete the folder; it can be called once."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock_path.unlink(missing_ok=True)
        os.close(self._lock)

    def _delete_abandoned(self) -> None:
        for lock_path in self.directory.glob(f"{_PREFIX}*.lock"):
            with contextlib.suppress(OSError):  # its owner lives, or another one is deleting it
                lock = _locked(lock_path)
                shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
                lock_path.unlink(missing_ok=True)
                os.close(lock)


def _locked(path: Path, flags: int = 0) -> int:
    """Open and lock a file; raise ``OSError`` if another process has locked it."""
    lock = os.open(path, os.O_RDWR | flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_nlink == 0:
            raise FileNotFoundError(f"{path} was deleted before it was locked")
    except OSError:
        os.close(lock)
        raise
    return lock


def storage_error(folder: Path, error: Exception) -> StateStorageError:
    """Return the error for a failure of RocksDB or of its folder."""
    return StateStorageError(
        f"the state that is not in memory cannot be read or written in {folder}: {error}; give it a writable "
        f"local directory with more space, with 'state.backend.rocksdb.localdir'",
        folder=str(folder),
    )


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
        try:
            self.db.delete_range(begin, end)
        except Exception as error:
            raise self.failure(error) from error

    def new_batch(self) -> WriteBatch:
        """Return an empty batch of writes."""
        from rocksdict import WriteBatch

        return WriteBatch(raw_mode=True)

    def write(self, batch: WriteBatch) -> None:
        """Write a batch, in one step."""
        try:
            self.db.write(batch)
        except Exception as error:
            raise self.failure(error) from error

    def properties(self) -> dict[str, int]:
        """Return the present values of :data:`PROPERTIES`."""
        return {name: int(self.db.property_int_value(f"rocksdb.{name}") or 0) for name in PROPERTIES}

    def failure(self, error: Exception) -> StateStorageError:
        """Return the error for a failure of RocksDB, which has no classes of its own for errors."""
        return storage_error(self._folder.path, error)

    def close(self) -> None:
        """Delete all of it. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
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
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    blocks.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_size(min(max(memory_bytes // _BUFFERS_SHARE // 2, 1 << 16), _MOST_BUFFER_BYTES))
    # Most blocks are read for one entry: to decompress them takes longer than the rest of it.
    options.set_compression_type(DBCompressionType.none())
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(1)
    return options
