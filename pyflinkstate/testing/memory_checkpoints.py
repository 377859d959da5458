"""Checkpoint streams that keep their bytes in memory; the code that writes and reads them is the real one."""

from __future__ import annotations

from pyflinkstate.backends.format import ByteStreamStateHandle, StreamStateHandle
from pyflinkstate.errors import CorruptCheckpointError


class MemoryCheckpointStream:
    """Collects the written bytes."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Append ``data``."""
        self._chunks.append(bytes(data))

    def close_and_get_handle(self) -> StreamStateHandle:
        """Return a handle that contains the bytes."""
        return ByteStreamStateHandle(b"".join(self._chunks))

    def abort(self) -> None:
        """Discard the written bytes."""
        self._chunks.clear()


class MemoryCheckpoint:
    """Makes the streams of one checkpoint, and reads them."""

    def create(self) -> MemoryCheckpointStream:
        """Open a stream."""
        return MemoryCheckpointStream()

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
