"""Writes one snapshot file and keeps track of where each section is."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from typing import TypeVar

from pyflinkstate.backends.format.state_handles import Section, StreamStateHandle
from pyflinkstate.backends.format.streams import CheckpointStateOutputStream, CheckpointStreamFactory
from pyflinkstate.errors import SnapshotCancelledError

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
