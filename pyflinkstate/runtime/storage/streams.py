"""The user's settings for checkpoint storage, and the streams that write and read one checkpoint's files."""

from __future__ import annotations

import os
import posixpath
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar

import attrs
import pyarrow as pa
from pyarrow import fs

from pyflinkstate.api import ArrowObject, CheckpointStorage, at_least, positive
from pyflinkstate.backends.format import (
    ByteStreamStateHandle,
    FileStateHandle,
    StreamStateHandle,
    is_state_path,
    state_file_name,
)
from pyflinkstate.errors import (
    CheckpointStorageError,
    ConfigurationError,
    CorruptCheckpointError,
    PyFlinkStateError,
)
from pyflinkstate.runtime.storage.file_systems import (
    ForeignFileError,
    absolute,
    below,
    flush_file,
    is_local,
    open_file_system,
    reason_of,
)

#: Flink's defaults for ``data-inline-threshold`` and ``write-buffer-size``, and the first one's maximum.
INLINE_THRESHOLD_BYTES = 20 * 1024
WRITE_BUFFER_BYTES = 4096
MAX_INLINE_THRESHOLD_BYTES = 1024 * 1024
#: Flink's default of the greatest state that its job manager keeps in memory.
MAX_STATE_BYTES = 5 * 1024 * 1024


def _inline_threshold(size_bytes: int | None) -> int:
    if size_bytes is None or size_bytes == -1:
        return INLINE_THRESHOLD_BYTES
    return at_least("file_state_size_threshold", size_bytes, 0)


def _state_size(size_bytes: int | None) -> int:
    return MAX_STATE_BYTES if size_bytes is None else positive("max_state_size", size_bytes)


def _buffer_size(size_bytes: int) -> int:
    return WRITE_BUFFER_BYTES if size_bytes == -1 else at_least("write_buffer_size", size_bytes, 0)


@attrs.frozen
class FileSystemCheckpointStorage(CheckpointStorage):
    """A directory for checkpoints (``pyflink.datastream.checkpoint_storage.FileSystemCheckpointStorage``).

    Args:
        checkpoint_path: a path or URI that driver and executors can reach.
        file_state_size_threshold: a subtask's file of up to this many bytes is stored inside ``_metadata``
            (Flink: ``data-inline-threshold``), at most 1 MiB. None and -1 stand for the default, 20 KiB.
        write_buffer_size: the bytes that are collected before a file is written (``write-buffer-size``). -1
            stands for the default, 4096.

    Raises:
        ConfigurationError: a size is out of bounds.
    """

    #: The greatest ``file_state_size_threshold``.
    MAX_FILE_STATE_THRESHOLD: ClassVar[int] = MAX_INLINE_THRESHOLD_BYTES

    checkpoint_path: str = attrs.field(converter=absolute)
    file_state_size_threshold: int = attrs.field(default=None, converter=_inline_threshold)
    write_buffer_size: int = attrs.field(default=-1, converter=_buffer_size)

    @file_state_size_threshold.validator
    def _check_threshold(self, _: object, value: int) -> None:
        if value > MAX_INLINE_THRESHOLD_BYTES:
            raise ConfigurationError(
                f"file_state_size_threshold must be 0 to {MAX_INLINE_THRESHOLD_BYTES} bytes, not {value!r}"
            )

    def get_checkpoint_path(self) -> str:
        """Return the directory of checkpoints."""
        return self.checkpoint_path

    def get_min_file_size_threshold(self) -> int:
        """Return up to how many bytes a file is stored inside ``_metadata``."""
        return self.file_state_size_threshold

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are collected before a file is written."""
        return self.write_buffer_size

    def get_savepoint_path(self) -> str | None:
        """Return None: savepoints go where the environment's ``set_default_savepoint_directory()`` says."""
        return None


@attrs.frozen
class JobManagerCheckpointStorage(CheckpointStorage):
    """Checkpoints for a run that need not outlive it.

    In Flink they are in the job manager's memory. Here they are in ``checkpoint_path``, or in a directory
    that is gone with the program, which takes a local Spark: the driver's memory is no place for state.

    Args:
        checkpoint_path: a path or URI that driver and executors reach; None for a temporary directory.
        max_state_size: how many bytes a state may have in Flink; kept, and no bound here. None: 5 MiB.

    Raises:
        ConfigurationError: the size is no number of bytes.
    """

    #: Flink's default of ``max_state_size``: 5 MiB.
    DEFAULT_MAX_STATE_SIZE: ClassVar[int] = MAX_STATE_BYTES

    checkpoint_path: str | None = attrs.field(default=None, converter=attrs.converters.optional(absolute))
    max_state_size: int = attrs.field(default=None, converter=_state_size)

    def get_checkpoint_path(self) -> str | None:
        """Return where checkpoints go; None for a temporary directory."""
        return self.checkpoint_path

    def get_max_state_size(self) -> int:
        """Return the setting."""
        return self.max_state_size

    def get_savepoint_path(self) -> str | None:
        """Return None: savepoints go where the environment's ``set_default_savepoint_directory()`` says."""
        return None


#: The file that makes a folder a checkpoint; it also holds small state.
METADATA = "_metadata"


@contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Turn errors of the file system into ``CheckpointStorageError``."""
    try:
        yield
    except PyFlinkStateError:
        raise
    except ForeignFileError as error:
        raise CorruptCheckpointError(f"cannot {what}: {error}", what=what) from error
    except (OSError, pa.ArrowException) as error:
        raise CheckpointStorageError(
            f"checkpoint storage: cannot {what}: {reason_of(error)}", what=what
        ) from error


def open_folder(uri: str) -> CheckpointFolder:
    """Return the folder that reads the checkpoint at a URI or path."""
    with storage_errors(f"open {uri}"):
        file_system, folder = open_file_system(uri)
    # The folder may be a link that the user made. The files beside it, in ``shared``, are those of its job.
    folder = os.path.realpath(folder) if is_local(file_system) else folder
    return CheckpointFolder(below(file_system, posixpath.dirname(folder)), folder)


@attrs.frozen
class CheckpointFolder:
    """The files of one checkpoint: makes streams, and reads ranges of finished ones."""

    file_system: fs.FileSystem
    folder: str
    inline_threshold_bytes: int = INLINE_THRESHOLD_BYTES
    write_buffer_bytes: int = WRITE_BUFFER_BYTES
    #: The prefix for names of new files; it may lead out of the folder.
    prefix: str = ""
    #: The digits of the driver, with which the names of new files begin after the prefix.
    writer: str = ""

    def create(self) -> FsCheckpointStateOutputStream:
        """Open a stream; no file is created until the inline threshold is passed."""
        name = self.prefix + state_file_name(self.writer, uuid.uuid4().hex)
        return FsCheckpointStateOutputStream(
            self.file_system,
            self._path_of(name),
            name,
            self.inline_threshold_bytes,
            self.write_buffer_bytes,
        )

    def discard(self, handle: StreamStateHandle) -> None:
        """Delete a file that a stream of this factory wrote; inline state has none."""
        if isinstance(handle, FileStateHandle) and handle.path.startswith(self.prefix + self.writer):
            with storage_errors(f"delete {self.describe(handle)}"):
                self.file_system.delete_file(self._checked_path_of(handle.path))

    def _path_of(self, name: str) -> str:
        return posixpath.normpath(f"{self.folder}/{name}")

    def _checked_path_of(self, name: str) -> str:
        """Return the path of a state file, which must be the checkpoint's own or shared in its job."""
        path = self._path_of(name)
        if not is_state_path(name):
            raise CorruptCheckpointError(
                f"{path} is not a file of the checkpoint in {self.folder}", file=path
            )
        return path

    def read(self, handle: StreamStateHandle, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``; see ``backends.format.StateReader``."""
        what = self.describe(handle)
        if isinstance(handle, ByteStreamStateHandle):
            data = handle.data[offset : offset + length]
        else:
            data = self._read_file(handle, offset, length, what)
        if len(data) != length:
            raise CorruptCheckpointError(
                f"{what} is damaged: it is truncated, {length} bytes are missing at {offset}", file=what
            )
        return data

    def _read_file(self, handle: FileStateHandle, offset: int, length: int, what: str) -> bytes:
        try:
            with self.file_system.open_input_file(self._checked_path_of(handle.path)) as file:
                # Arrow allocates as many bytes as it is asked for, even if the file is shorter.
                length = max(0, min(length, file.size() - offset))
                return bytes(file.read_at(length, offset)) if length else b""
        except FileNotFoundError:
            raise CorruptCheckpointError(f"{what} is missing", file=what) from None
        except ForeignFileError as error:
            raise CorruptCheckpointError(f"{what} cannot be read: {error}", file=what) from error
        except OSError as error:
            reason = reason_of(error)
            raise CheckpointStorageError(f"checkpoint storage: cannot read {what}: {reason}") from error

    def describe(self, handle: StreamStateHandle) -> str:
        """Return the path, for messages."""
        if isinstance(handle, ByteStreamStateHandle):
            return f"{self.folder}/{METADATA}"
        return self._path_of(handle.path)

    def local_path(self, handle: StreamStateHandle) -> str | None:
        """Return the path of a file that this process can open as such."""
        if isinstance(handle, FileStateHandle) and is_local(self.file_system):
            return self._checked_path_of(handle.path)
        return None


class FsCheckpointStateOutputStream:
    """Keeps small state in memory and writes larger state to a file, through a buffer.

    Flink: ``FsCheckpointStateOutputStream``. The size of the buffer is the inline threshold or
    ``write_buffer_bytes``, whichever is greater. No file is created before it overflows.
    """

    def __init__(
        self,
        file_system: fs.FileSystem,
        path: str,
        name: str,
        inline_threshold_bytes: int,
        write_buffer_bytes: int,
    ) -> None:
        self._fs = file_system
        self._path = path
        self._name = name
        self._inline_threshold_bytes = inline_threshold_bytes
        self._buffer_bytes = max(inline_threshold_bytes, write_buffer_bytes)
        self._buffer = bytearray()
        self._file: ArrowObject = None
        self._size = 0

    def write(self, data: bytes) -> None:
        """Append ``data``."""
        self._size += len(data)
        with storage_errors(f"write {self._name}"):
            if len(self._buffer) + len(data) <= self._buffer_bytes:
                self._buffer += data
                return
            self._flush()
            if len(data) > self._buffer_bytes:
                self._file.write(data)
            else:
                self._buffer += data

    def _flush(self) -> None:
        if self._file is None:
            self._file = self._fs.open_output_stream(self._path)
        if self._buffer:
            self._file.write(bytes(self._buffer))
            self._buffer.clear()

    def close_and_get_handle(self) -> StreamStateHandle:
        """Finish the stream and return the handle; the bytes survive a power cut."""
        if self._file is None and self._size <= self._inline_threshold_bytes:
            return ByteStreamStateHandle(bytes(self._buffer))
        with storage_errors(f"close {self._name}"):
            self._flush()
            self._file.close()
            flush_file(self._fs, self._path)
        return FileStateHandle(self._name, self._size)

    def abort(self) -> None:
        """Discard what was written."""
        if self._file is not None:
            with suppress(OSError, pa.ArrowException):
                self._file.close()
            with suppress(OSError, pa.ArrowException):
                self._fs.delete_file(self._path)
