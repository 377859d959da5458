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
#: The share of the memory that RocksDB gets for its block cache, and for entries that are not in files yet.
_CACHE_SHARE, _BUFFERS_SHARE = 8, 8
_LEAST_CACHE_BYTES, _MOST_BUFFER_BYTES = 1 << 20, 64 << 20
_BLOOM_BITS = 10

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
        memory_bytes: the memory of the backend, of which RocksDB takes a quarter.

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
        from rocksdict import Rdict, WriteOptions

        path = self._folder.path / "db"
        writing = WriteOptions()
        writing.disable_wal = True
        try:
            path.mkdir()
            self.origins = fill(path)
            db = Rdict(str(path), _options(self._memory_bytes))
            db.set_write_options(writing)
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
        self._thaw()
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
        self._thaw()
        try:
            self.db.write(batch)
        except Exception as error:
            raise self.failure(error) from error

    def failure(self, error: Exception) -> StateStorageError | CorruptCheckpointError:
        """Return the error for a failure of RocksDB, which has no classes of its own for errors."""
        named = re.search(r"\d+\.sst|MANIFEST-\d+", str(error))
        origin = None if named is None else self.origins.get(named[0])
        if origin is not None and "orruption" in str(error):
            return CorruptCheckpointError(f"{origin} is damaged: {error}", file=origin)
        return storage_error(self._folder.path, error)

    def close(self) -> None:
        """Delete all of it. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            for frozen in self._frozen:
                frozen.release()
            with contextlib.suppress(Exception):  # it is closed already if it could not begin again
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
