"""The byte streams that snapshots use. They are declared here and implemented in ``runtime.storage``."""

from __future__ import annotations

from typing import Protocol

from pyflinkstate.backends.format.state_handles import StreamStateHandle


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


class StateReader(Protocol):
    """Reads byte ranges of stored state."""

    def read(self, handle: StreamStateHandle, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``offset``.

        Raises:
            CorruptCheckpointError: the file is missing or too short.
        """

    def describe(self, handle: StreamStateHandle) -> str:
        """Return the name of the file for messages."""
