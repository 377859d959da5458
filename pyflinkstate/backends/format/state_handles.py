"""Handles point to stored state; subtasks and the coordinator exchange them (Flink: ``StateObject``)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs

from pyflinkstate.backends.keys import KEY_HASH_VERSION, KeyGroupRange
from pyflinkstate.backends.types import OperatorStateMode


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
    """Where one key group of one state is in a state file."""

    offset: int
    length: int
    checksum: int


@attrs.frozen
class KeyGroupsStateHandle:
    """The keyed state of one subtask (Flink: ``KeyGroupsStateHandle``).

    ``sections`` maps each state name to a map from key group to section; a key group without entries has
    none.

    In an incremental checkpoint the file may be older than the checkpoint. Then ``increments`` hold what
    changed since, in order, each in a file of its own (Flink: ``IncrementalKeyedStateHandle``).
    ``checkpoint_id`` says at which checkpoint this file was written; only incremental checkpoints have it.
    ``key_hash_version`` says which version of the key hash assigned the key groups.
    """

    key_group_range: KeyGroupRange
    stream: StreamStateHandle
    sections: dict[str, dict[int, Section]]
    increments: tuple[KeyGroupsStateHandle, ...] = ()
    checkpoint_id: int | None = None
    key_hash_version: int = KEY_HASH_VERSION

    @property
    def size_bytes(self) -> int:
        """The size of the written state in bytes, with all increments."""
        return self.stream.size_bytes + sum(increment.size_bytes for increment in self.increments)

    def files(self) -> Iterator[FileStateHandle]:
        """Iterate over all files that are needed."""
        for handle in (self, *self.increments):
            if isinstance(handle.stream, FileStateHandle):
                yield handle.stream


@attrs.frozen
class OperatorStateEntry:
    """One operator state in a file. Its elements from ``start`` to before ``stop`` are to be restored."""

    mode: OperatorStateMode
    section: Section
    count: int
    start: int = 0
    stop: int = attrs.field(default=attrs.Factory(lambda self: self.count, takes_self=True))


@attrs.frozen
class OperatorStateHandle:
    """The operator state of one subtask, by state name (Flink: ``OperatorStateHandle``)."""

    stream: StreamStateHandle
    states: dict[str, OperatorStateEntry]

    @property
    def size_bytes(self) -> int:
        return self.stream.size_bytes


@attrs.frozen
class RawOperatorStateHandle:
    """Bytes that a function wrote itself, in partitions that a restore distributes over subtasks."""

    stream: StreamStateHandle
    partitions: tuple[Section, ...]

    @property
    def size_bytes(self) -> int:
        return self.stream.size_bytes


#: The name of the sections of raw keyed state in a :class:`KeyGroupsStateHandle`.
RAW_KEYED_STATE = "raw"


@attrs.frozen
class OperatorSubtaskState:
    """All that one subtask wrote for a checkpoint (Flink: ``OperatorSubtaskState``)."""

    managed_keyed: KeyGroupsStateHandle | None = None
    raw_keyed: KeyGroupsStateHandle | None = None
    managed_operator: OperatorStateHandle | None = None
    raw_operator: RawOperatorStateHandle | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the written state in bytes."""
        handles = (self.managed_keyed, self.raw_keyed, self.managed_operator, self.raw_operator)
        return sum(handle.size_bytes for handle in handles if handle is not None)

    def files(self) -> Iterator[FileStateHandle]:
        """Iterate over all files that are needed."""
        if self.managed_keyed is not None:
            yield from self.managed_keyed.files()
        for handle in (self.raw_keyed, self.managed_operator, self.raw_operator):
            if handle is not None and isinstance(handle.stream, FileStateHandle):
                yield handle.stream


@attrs.frozen
class StateAssignment:
    """All that one subtask restores, from any number of files."""

    managed_keyed: tuple[KeyGroupsStateHandle, ...] = ()
    raw_keyed: tuple[KeyGroupsStateHandle, ...] = ()
    managed_operator: tuple[OperatorStateHandle, ...] = ()
    raw_operator: tuple[RawOperatorStateHandle, ...] = ()


#: The beginning of the path to a file in the job's ``shared`` folder, from the folder of its checkpoint.
SHARED_PREFIX = "../shared/"

#: Number of digits in a state file's name that identify its writer; the others are random.
_WRITER_DIGITS = 8

_JOB_ID = re.compile(r"[0-9a-f]{32}")
_FILE_NAME = re.compile(r"(\d{1,19}-)?[0-9a-f]{32}")


def is_job_id(name: object) -> bool:
    """Return whether ``name`` can be the id of a job, which is also the name of its folder."""
    return isinstance(name, str) and _JOB_ID.fullmatch(name) is not None


def is_file_name(name: object) -> bool:
    """Return whether ``name`` can be the name of a state file."""
    return isinstance(name, str) and name.isascii() and _FILE_NAME.fullmatch(name) is not None


def is_state_path(path: object) -> bool:
    """Return whether ``path`` can lead from the folder of a checkpoint to a state file.

    State files are in that folder or in the job's shared one: nothing else is ever read or deleted.

    >>> name = 32 * "0"
    >>> is_state_path(name), is_state_path("../shared/7-" + name), is_state_path("../../" + name)
    (True, True, False)
    """
    return isinstance(path, str) and is_file_name(path.removeprefix(SHARED_PREFIX))


def state_file_name(writer: str, digits: str) -> str:
    """Return the name of a new state file.

    Args:
        writer: what :func:`written_by` is to return, or empty.
        digits: 32 random hexadecimal digits.
    """
    return writer + digits[len(writer) :]


def written_by(path: str) -> str:
    """Return the digits that the driver had whose subtasks wrote a state file.

    >>> written_by("../shared/7-" + 8 * "a" + 24 * "0"), written_by(8 * "b" + 24 * "0")
    ('aaaaaaaa', 'bbbbbbbb')
    """
    return path.rpartition("-")[2][:_WRITER_DIGITS]


def written_at(path: str) -> int:
    """Return at which checkpoint a shared file was written, or 0 if its name does not tell.

    >>> written_at("../shared/7-" + 32 * "0"), written_at("../shared/" + 32 * "0")
    (7, 0)
    """
    number, dash, _ = path.removeprefix(SHARED_PREFIX).partition("-")
    return int(number) if dash else 0
