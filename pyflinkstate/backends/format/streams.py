"""The byte streams that snapshots go through. Declared here, implemented by ``runtime.storage``."""

from __future__ import annotations

from typing import Protocol

from pyflinkstate.backends.format.state_handles import StreamStateHandle


class CheckpointStateOutputStream(Protocol):
    """Takes the bytes of one subtask's snapshot."""

    def write(self, data: bytes) -> None:
        """Append ``data``; raises ``CheckpointStorageError``."""

    def close_and_get_handle(self) -> StreamStateHandle:
        """Finish the stream; only now may its bytes count. Raises ``CheckpointStorageError``."""

    def abort(self) -> None:
        """Throw away what was written. Idempotent, never raises."""


class CheckpointStreamFactory(Protocol):
    """Makes the streams of one checkpoint."""

    def create(self) -> CheckpointStateOutputStream:
        """Open a new stream; raises ``CheckpointStorageError``."""

    def discard(self, handle: StreamStateHandle) -> None:
        """Delete what a finished stream has written; raises ``CheckpointStorageError``."""


class StateReader(Protocol):
    """Reads byte ranges of stored state."""

    def read(self, handle: StreamStateHandle, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``offset``.

        Raises:
            CorruptCheckpointError: the file is missing or too short.
        """

    def describe(self, handle: StreamStateHandle) -> str:
        """Return what a message calls the file."""
