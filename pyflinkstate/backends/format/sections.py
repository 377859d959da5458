"""The sections of a snapshot file: how they are written and read.

The byte streams are declared here and implemented in ``runtime.storage``; those in memory are here.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

from pyflinkstate.backends.format.framing import PREFIX_SIZE, check_section, head_size
from pyflinkstate.backends.format.metadata import ByteStreamStateHandle, Section, StreamStateHandle
from pyflinkstate.errors import CorruptCheckpointError, SnapshotCancelledError


class CheckpointStateOutputStream(Protocol):
    """Receives the bytes of one subtask's snapshot."""

    def write(self, data: bytes) -> None:
        """Append ``data``; raise ``CheckpointStorageError`` if it cannot be written."""

    def close_and_get_handle(self) -> StreamStateHandle:
        """Finish the stream, whose bytes count only now; raise ``CheckpointStorageError`` if that fails."""

    def abort(self) -> None:
        """Discard what was written. Idempotent, and never raises."""


class CheckpointStreamFactory(Protocol):
    """Makes the streams of one checkpoint."""

    def create(self) -> CheckpointStateOutputStream:
        """Open a new stream; raise ``CheckpointStorageError`` if that fails."""

    def discard(self, handle: StreamStateHandle) -> None:
        """Delete what a finished stream has written; raise ``CheckpointStorageError`` if that fails."""

    def describe(self, handle: StreamStateHandle) -> str:
        """Return the name of the file for messages, which no other file has."""


class StateReader(Protocol):
    """Reads byte ranges of stored state."""

    def read(self, handle: StreamStateHandle, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``offset``.

        Raises:
            CorruptCheckpointError: the file is missing or too short.
        """

    def describe(self, handle: StreamStateHandle) -> str:
        """Return the name of the file for messages."""

    def local_path(self, handle: StreamStateHandle) -> str | None:
        """Return the path of the file if it is on a local file system, otherwise None."""


T = TypeVar("T")


class SectionWriter:
    """Appends to a checkpoint stream; a snapshot can be cancelled before each section."""

    def __init__(self, stream: CheckpointStateOutputStream, cancelled: threading.Event) -> None:
        self._stream = stream
        self._cancelled = cancelled
        self._position = 0

    def append(self, data: bytes) -> None:
        """Append bytes that belong to no section."""
        self.check_cancelled()
        self._stream.write(data)
        self._position += len(data)

    def append_section(self, data: bytes) -> Section:
        """Append a section and return where it is."""
        section = Section(self._position, len(data), zlib.crc32(data))
        self.append(data)
        return section

    def check_cancelled(self) -> None:
        """Raise ``SnapshotCancelledError`` if the checkpoint was aborted."""
        if self._cancelled.is_set():
            raise SnapshotCancelledError("the checkpoint was aborted")

    def close(self) -> StreamStateHandle:
        """Finish the file."""
        self.check_cancelled()
        return self._stream.close_and_get_handle()


def write_file(
    streams: CheckpointStreamFactory,
    cancelled: threading.Event,
    write: Callable[[SectionWriter], T],
) -> T:
    """Call ``write`` with a new file and return its result; if it raises, the file is deleted."""
    stream = streams.create()
    try:
        return write(SectionWriter(stream, cancelled))
    except BaseException:
        stream.abort()
        raise


#: Adjacent sections are read in one go, up to this size.
READ_BYTES = 8 * 1024 * 1024


def read_head(reader: StateReader, stream: StreamStateHandle, magic: bytes) -> bytes:
    """Return the bytes of a file's head; see :func:`head_size` for the errors."""
    prefix = reader.read(stream, 0, PREFIX_SIZE)
    return reader.read(stream, 0, head_size(prefix, magic, reader.describe(stream)))


def read_section(reader: StateReader, stream: StreamStateHandle, section: Section, what: str) -> bytes:
    """Return the bytes of a section; raise ``CorruptCheckpointError`` if they were altered."""
    data = reader.read(stream, section.offset, section.length)
    check_section(data, section.checksum, what)
    return data


def read_sections(
    reader: StateReader, stream: StreamStateHandle, sections: Mapping[int, Section]
) -> Iterator[tuple[int, memoryview]]:
    """Yield the key groups of ``sections`` in order, each with the bytes of its section, not yet checked."""
    for together in _adjacent(sections):
        begin, last = together[0][1].offset, together[-1][1]
        data = memoryview(reader.read(stream, begin, last.offset + last.length - begin))
        for key_group, section in together:
            start = section.offset - begin
            yield key_group, data[start : start + section.length]


def _adjacent(sections: Mapping[int, Section]) -> Iterator[list[tuple[int, Section]]]:
    """Group key groups whose sections follow each other in the file."""
    together: list[tuple[int, Section]] = []
    for key_group, section in sorted(sections.items()):
        if together:
            last = together[-1][1]
            size = section.offset + section.length - together[0][1].offset
            if last.offset + last.length != section.offset or size > READ_BYTES:
                yield together
                together = []
        together.append((key_group, section))
    if together:
        yield together


class MemoryCheckpoint:
    """A checkpoint whose handles contain what is written: its one stream, and its reader."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def create(self) -> MemoryCheckpoint:
        """Open a stream."""
        return MemoryCheckpoint()

    def write(self, data: bytes) -> None:
        """Append ``data``."""
        self._chunks.append(bytes(data))

    def close_and_get_handle(self) -> StreamStateHandle:
        """Return a handle that contains the bytes."""
        return ByteStreamStateHandle(b"".join(self._chunks))

    def abort(self) -> None:
        """Discard the written bytes."""
        self._chunks.clear()

    def discard(self, handle: StreamStateHandle) -> None:
        """Do nothing: the handle contains the bytes."""

    def read(self, handle: StreamStateHandle, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``."""
        assert isinstance(handle, ByteStreamStateHandle)
        data = handle.data[offset : offset + length]
        if len(data) != length:
            raise CorruptCheckpointError(f"{self.describe(handle)} is truncated")
        return data

    def describe(self, handle: StreamStateHandle) -> str:
        """Return a name for the bytes in messages."""
        return f"checkpoint in memory, {handle.size_bytes} bytes"

    def local_path(self, handle: StreamStateHandle) -> str | None:
        """Return None: there are no files."""
        return None
