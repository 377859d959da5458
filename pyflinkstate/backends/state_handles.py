"""What points at stored state: passed from a subtask to the coordinator and back (Flink: ``StateObject``)."""

from __future__ import annotations

import attrs

from pyflinkstate.backends.key_groups import KeyGroupRange


@attrs.frozen
class FileStateHandle:
    """A file of a checkpoint, by its name below the checkpoint's directory."""

    path: str
    size_bytes: int


@attrs.frozen
class ByteStreamStateHandle:
    """State so small that it travels inside ``_metadata``."""

    data: bytes = attrs.field(repr=lambda data: f"<{len(data)} bytes>")

    @property
    def size_bytes(self) -> int:
        return len(self.data)


StreamStateHandle = FileStateHandle | ByteStreamStateHandle


@attrs.frozen
class Section:
    """Where one key group of one state lies in a state file."""

    offset: int
    length: int
    checksum: int


@attrs.frozen
class KeyGroupsStateHandle:
    """The keyed state of one subtask (Flink: ``KeyGroupsStateHandle``).

    ``sections`` maps state name to key group to section; a key group without entries has none.
    """

    key_group_range: KeyGroupRange
    stream: StreamStateHandle
    sections: dict[str, dict[int, Section]]

    @property
    def size_bytes(self) -> int:
        """The size of the state, written."""
        return self.stream.size_bytes
