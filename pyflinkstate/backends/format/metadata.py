"""Handles, which point to stored state, and ``_metadata``, which makes a folder of state files a checkpoint.

Subtasks and the coordinator exchange handles (Flink: ``StateObject``).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from pyflinkstate.api import Json, JsonObject, Offset, short_repr
from pyflinkstate.backends.format.framing import decode_head, encode_head, making_sense
from pyflinkstate.backends.keys import KEY_HASH_VERSION, UPPER_BOUND_MAX_PARALLELISM, KeyGroupRange
from pyflinkstate.backends.types import OperatorStateMode
from pyflinkstate.errors import IncompatibleCheckpointError


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


#: The version of the keys and values in files of RocksDB.
NATIVE_VERSION = 1


@attrs.frozen
class NativeFile:
    """A file of the RocksDB of a subtask.

    Attributes:
        name: its name there.
        stream: where it is in the checkpoint.
        checksum: the CRC-32 of its bytes.
    """

    name: str
    stream: StreamStateHandle
    checksum: int


@attrs.frozen
class NativeState:
    """Where a state is in a RocksDB.

    Attributes:
        state_id: the number with which its keys begin.
        entries: the number of entries of each key group, with what is written beside the RocksDB.
    """

    state_id: int
    entries: dict[int, int]


@attrs.frozen
class NativeBase:
    """The files of a RocksDB, the states in it by name, and the version of its keys and values."""

    files: tuple[NativeFile, ...]
    states: dict[str, NativeState]
    version: int = NATIVE_VERSION

    def sizes(self) -> Iterator[tuple[str, int, int]]:
        """Yield name, key group and approximate bytes of all states, by their numbers of entries."""
        size_bytes = sum(file.stream.size_bytes for file in self.files)
        total = max(1, sum(sum(state.entries.values()) for state in self.states.values()))
        for name, state in self.states.items():
            for key_group, count in state.entries.items():
                yield name, key_group, size_bytes * count // total


class _Stored:
    """State in ``stream``, or in those of a class that has several."""

    __slots__ = ()
    stream: StreamStateHandle

    def streams(self) -> Iterator[StreamStateHandle]:
        """Iterate over all that is needed, in files or not."""
        yield self.stream

    def files(self) -> Iterator[FileStateHandle]:
        """Iterate over all files that are needed."""
        return (stream for stream in self.streams() if isinstance(stream, FileStateHandle))

    @property
    def size_bytes(self) -> int:
        """The size of the written state in bytes, with all increments."""
        return sum(stream.size_bytes for stream in self.streams())


@attrs.frozen
class KeyGroupsStateHandle(_Stored):
    """The keyed state of one subtask (Flink: ``KeyGroupsStateHandle``).

    ``sections`` maps each state name to a map from key group to section; a key group without entries has
    none.

    In an incremental checkpoint the file may be older than the checkpoint. Then ``increments`` hold what
    changed since, in order, each in a file of its own (Flink: ``IncrementalKeyedStateHandle``).
    ``checkpoint_id`` says at which checkpoint this file was written; only incremental checkpoints have it.
    ``key_hash_version`` says which version of the key hash assigned the key groups.

    With ``native``, most of the state is in files of RocksDB, and this file has what changed since these were
    written, as an increment has.
    """

    key_group_range: KeyGroupRange
    stream: StreamStateHandle
    sections: dict[str, dict[int, Section]]
    increments: tuple[KeyGroupsStateHandle, ...] = ()
    checkpoint_id: int | None = None
    key_hash_version: int = KEY_HASH_VERSION
    native: NativeBase | None = None

    def streams(self) -> Iterator[StreamStateHandle]:
        for handle in (self, *self.increments):
            yield handle.stream
            for file in () if handle.native is None else handle.native.files:
                yield file.stream


@attrs.frozen
class OperatorStateEntry:
    """One operator state in a file. Its elements from ``start`` to before ``stop`` are to be restored."""

    mode: OperatorStateMode
    section: Section
    count: int
    start: int = 0
    stop: int = attrs.field(default=attrs.Factory(lambda self: self.count, takes_self=True))


@attrs.frozen
class OperatorStateHandle(_Stored):
    """The operator state of one subtask, by state name (Flink: ``OperatorStateHandle``)."""

    stream: StreamStateHandle
    states: dict[str, OperatorStateEntry]


@attrs.frozen
class RawOperatorStateHandle(_Stored):
    """Bytes that a function wrote itself, in partitions that a restore distributes over subtasks."""

    stream: StreamStateHandle
    partitions: tuple[Section, ...]


#: The name of the sections of raw keyed state in a :class:`KeyGroupsStateHandle`.
RAW_KEYED_STATE = "raw"


@attrs.frozen
class OperatorSubtaskState(_Stored):
    """All that one subtask wrote for a checkpoint (Flink: ``OperatorSubtaskState``)."""

    managed_keyed: KeyGroupsStateHandle | None = None
    raw_keyed: KeyGroupsStateHandle | None = None
    managed_operator: OperatorStateHandle | None = None
    raw_operator: RawOperatorStateHandle | None = None

    def streams(self) -> Iterator[StreamStateHandle]:
        for handle in (self.managed_keyed, self.raw_keyed, self.managed_operator, self.raw_operator):
            if handle is not None:
                yield from handle.streams()


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


MAGIC = b"PFSCHKPT"
#: How the same file of Flink begins.
FLINKS_MAGIC = bytes.fromhex("4960672d")
VERSION = 5
READABLE_VERSIONS = frozenset({1, 2, 3, 4, VERSION})

#: The version of the key hash if a handle has none.
FIRST_KEY_HASH = 1


@attrs.frozen
class OperatorState:
    """The state of one operator, by subtask (Flink: ``OperatorState``)."""

    operator_id: str
    parallelism: int
    max_parallelism: int
    subtasks: tuple[OperatorSubtaskState, ...] = attrs.field(
        repr=lambda subtasks: f"<{len(subtasks)} subtasks>"
    )

    @property
    def is_empty(self) -> bool:
        """Whether no subtask had any state."""
        return all(subtask == OperatorSubtaskState() for subtask in self.subtasks)


@attrs.frozen
class CheckpointMetadata:
    """A completed checkpoint.

    Attributes:
        checkpoint_id: counts from 1 within a job, and goes on over restarts and restores.
        job_id: 32 hexadecimal digits, the folder's name.
        job_name: the name that the program gave the job.
        epoch: the last epoch whose records are in the state.
        source_position: the position from which the source continues, in the source's own form (JSON).
        counters: record counts up to this epoch.
        timestamp_ms: when the checkpoint was triggered, since 1970.
        operators: their state.
        watermarks: the watermarks by the ids of assigners and operators, in ms since 1970.
        runs: the runs of the job that led here, oldest first, each with its id and the epoch after which it
            began. Empty if the writer did not know about runs.
    """

    checkpoint_id: int
    job_id: str
    job_name: str
    epoch: int
    source_position: Offset = attrs.field(repr=short_repr)
    counters: dict[str, int] = attrs.field(repr=short_repr)
    timestamp_ms: int
    operators: tuple[OperatorState, ...] = attrs.field(repr=short_repr)
    watermarks: dict[str, int] = attrs.field(factory=dict, repr=short_repr)
    runs: tuple[tuple[str, int], ...] = attrs.field(default=(), repr=short_repr)

    def operator(self, operator_id: str) -> OperatorState | None:
        """Return the state of an operator, or None if the checkpoint has none."""
        return next((state for state in self.operators if state.operator_id == operator_id), None)

    def encode(self) -> bytes:
        """Return the bytes of ``_metadata``."""
        content = {
            "checkpoint_id": self.checkpoint_id,
            "job_id": self.job_id,
            "job_name": self.job_name,
            "epoch": self.epoch,
            "source_position": self.source_position,
            "counters": self.counters,
            "timestamp_ms": self.timestamp_ms,
            "watermarks": self.watermarks,
            "operators": [
                {
                    "operator_id": state.operator_id,
                    "parallelism": state.parallelism,
                    "max_parallelism": state.max_parallelism,
                    "subtasks": [_subtask_to_json(subtask) for subtask in state.subtasks],
                }
                for state in self.operators
            ],
        }
        if self.runs:
            content["runs"] = [list(run) for run in self.runs]
        return encode_head(MAGIC, VERSION, content)

    @classmethod
    def decode(cls, data: bytes, what: str) -> CheckpointMetadata:
        """Return the metadata that ``encode`` was called on; ``what`` names the file in errors."""
        if data.startswith(FLINKS_MAGIC):
            raise IncompatibleCheckpointError(
                f"{what} is of Flink: make it a savepoint of this project first, by pyflinkstate convert or "
                f"convert_savepoint()",
                file=what,
            )
        content = decode_head(data, MAGIC, READABLE_VERSIONS, what)
        with making_sense(what):
            operators = tuple(map(_operator_state_from_json, content.pop("operators")))
            runs = tuple((str(run), int(epoch)) for run, epoch in content.pop("runs", ()))
            metadata = cls(operators=operators, runs=runs, **content)
            _check(metadata)
            return metadata


def _check(metadata: CheckpointMetadata) -> None:
    """Refuse what would lead to other folders, and numbers that are absurdly large."""
    if not is_job_id(metadata.job_id):
        raise ValueError(f"{metadata.job_id!r} is not the id of a job")
    for name in ("checkpoint_id", "epoch", "timestamp_ms"):
        _whole(getattr(metadata, name), name)
    for name in ("counters", "watermarks"):
        for value in getattr(metadata, name).values():
            _whole(value, name, -(2**63))
    if not isinstance(metadata.job_name, str):
        raise TypeError(f"{metadata.job_name!r} is not the name of a job")


def _whole(value: Json, name: str, least: int = 0, most: int = 2**63 - 1) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {str(value)[:50]}, and must be a whole number from {least} to {most}")
    return value


def _operator_state_from_json(content: dict[str, Any]) -> OperatorState:
    max_parallelism = _whole(content["max_parallelism"], "max_parallelism", 1, UPPER_BOUND_MAX_PARALLELISM)
    state = OperatorState(
        content["operator_id"],
        _whole(content["parallelism"], "parallelism", 1, max_parallelism),
        max_parallelism,
        _subtasks_from_json(content),
    )
    if not isinstance(state.operator_id, str) or len(state.subtasks) > state.parallelism:
        raise ValueError(f"{len(state.subtasks)} subtasks of operator {str(state.operator_id)[:50]!r}")
    return state


def _subtask_to_json(state: OperatorSubtaskState) -> JsonObject:
    handles = {kind: getattr(state, kind) for kind in _KINDS}
    return {kind: _KINDS[kind][0](handle) for kind, handle in handles.items() if handle is not None}


def _subtasks_from_json(content: dict[str, Any]) -> tuple[OperatorSubtaskState, ...]:
    if "handles" in content:  # version 1 had only managed keyed state
        return tuple(OperatorSubtaskState(_keyed_from_json(handle)) for handle in content["handles"])
    return tuple(
        OperatorSubtaskState(**{kind: _KINDS[kind][1](handle) for kind, handle in subtask.items()})
        for subtask in content["subtasks"]
    )


def _keyed_to_json(handle: KeyGroupsStateHandle) -> JsonObject:
    content: JsonObject = {
        "key_groups": [handle.key_group_range.start, handle.key_group_range.end],
        "stream": _stream_to_json(handle.stream),
        "sections": {
            state: {str(group): list(attrs.astuple(section)) for group, section in sections.items()}
            for state, sections in handle.sections.items()
        },
    }
    if handle.key_hash_version != FIRST_KEY_HASH:
        content["key_hash"] = handle.key_hash_version
    if handle.checkpoint_id is not None:
        content["checkpoint_id"] = handle.checkpoint_id
    if handle.increments:
        content["increments"] = list(map(_keyed_to_json, handle.increments))
    if handle.native is not None:
        content["native"] = _native_to_json(handle.native)
    return content


def _native_to_json(native: NativeBase) -> JsonObject:
    return {
        "version": native.version,
        "files": [[file.name, _stream_to_json(file.stream), file.checksum] for file in native.files],
        "states": {
            name: [state.state_id, {str(group): count for group, count in state.entries.items()}]
            for name, state in native.states.items()
        },
    }


def _keyed_from_json(content: dict[str, Any]) -> KeyGroupsStateHandle:
    checkpoint_id, key_hash = content.get("checkpoint_id"), content.get("key_hash", FIRST_KEY_HASH)
    if _whole(key_hash, "key_hash", FIRST_KEY_HASH) > KEY_HASH_VERSION:
        raise IncompatibleCheckpointError(
            f"the checkpoint has keys placed by version {key_hash} of their hash, and this release knows "
            f"up to {KEY_HASH_VERSION}: restore it with the release that wrote it"
        )
    return KeyGroupsStateHandle(
        _key_groups_from_json(content["key_groups"]),
        _stream_from_json(content["stream"]),
        {
            state: {
                _key_group(int(group)): _section_from_json(section) for group, section in sections.items()
            }
            for state, sections in content["sections"].items()
        },
        tuple(map(_keyed_from_json, content.get("increments", ()))),
        None if checkpoint_id is None else _whole(checkpoint_id, "checkpoint_id"),
        key_hash,
        _native_from_json(**content["native"]) if "native" in content else None,
    )


#: The files without which a RocksDB cannot be opened; no other name is ever written to a folder.
_NATIVE_NAME = re.compile(r"\d{1,19}\.sst|CURRENT|MANIFEST-\d{1,19}")


def is_native_name(name: object) -> bool:
    """Return whether a file of this name belongs to a native checkpoint."""
    return isinstance(name, str) and name.isascii() and _NATIVE_NAME.fullmatch(name) is not None


def _native_from_json(
    version: int, files: list[tuple[str, JsonObject, int]], states: dict[str, tuple[int, dict[str, int]]]
) -> NativeBase:
    if _whole(version, "the version of native state", 1) > NATIVE_VERSION:
        raise IncompatibleCheckpointError(
            f"the checkpoint has files of RocksDB of version {version}, and this release knows "
            f"up to {NATIVE_VERSION}: "
            f"restore it with the release that wrote it"
        )
    found = [
        NativeFile(name, _stream_from_json(stream), _whole(checksum, "a checksum", 0, 2**32 - 1))
        for name, stream, checksum in files
    ]
    if not all(is_native_name(file.name) for file in found):
        raise ValueError("a file of RocksDB has a name that RocksDB does not give")
    placed = {
        name: NativeState(
            _whole(state_id, "the number of a state", 1, 2**32 - 1),
            {_key_group(int(group)): _whole(count, "a count") for group, count in entries.items()},
        )
        for name, (state_id, entries) in states.items()
    }
    return NativeBase(tuple(found), placed, version)


def _key_group(key_group: Json) -> int:
    return _whole(key_group, "a key group", 0, UPPER_BOUND_MAX_PARALLELISM - 1)


def _key_groups_from_json(content: list[Json]) -> KeyGroupRange:
    start, end = content
    return KeyGroupRange(_key_group(start), _whole(end, "a key group", -1, UPPER_BOUND_MAX_PARALLELISM - 1))


def _section_from_json(content: list[Json]) -> Section:
    offset, length, checksum = content
    return Section(
        _whole(offset, "an offset"), _whole(length, "a length"), _whole(checksum, "a checksum", 0, 2**32 - 1)
    )


def _operator_to_json(handle: OperatorStateHandle) -> JsonObject:
    return {
        "stream": _stream_to_json(handle.stream),
        "states": {
            name: {
                "mode": entry.mode.value,
                "section": list(attrs.astuple(entry.section)),
                "count": entry.count,
            }
            for name, entry in handle.states.items()
        },
    }


def _operator_from_json(content: dict[str, Any]) -> OperatorStateHandle:
    states = {
        name: OperatorStateEntry(
            OperatorStateMode(entry["mode"]),
            _section_from_json(entry["section"]),
            _whole(entry["count"], "a count"),
        )
        for name, entry in content["states"].items()
    }
    return OperatorStateHandle(_stream_from_json(content["stream"]), states)


def _raw_operator_to_json(handle: RawOperatorStateHandle) -> JsonObject:
    return {
        "stream": _stream_to_json(handle.stream),
        "partitions": [list(attrs.astuple(section)) for section in handle.partitions],
    }


def _raw_operator_from_json(content: dict[str, Any]) -> RawOperatorStateHandle:
    partitions = tuple(map(_section_from_json, content["partitions"]))
    return RawOperatorStateHandle(_stream_from_json(content["stream"]), partitions)


#: How each kind of state becomes JSON, and back.
_KINDS: dict[str, tuple[Callable[[Any], JsonObject], Callable[[Any], Any]]] = {
    "managed_keyed": (_keyed_to_json, _keyed_from_json),
    "raw_keyed": (_keyed_to_json, _keyed_from_json),
    "managed_operator": (_operator_to_json, _operator_from_json),
    "raw_operator": (_raw_operator_to_json, _raw_operator_from_json),
}


def _stream_to_json(stream: StreamStateHandle) -> JsonObject:
    if isinstance(stream, ByteStreamStateHandle):
        return {"inline": base64.b64encode(stream.data).decode()}
    return {"path": stream.path, "size_bytes": stream.size_bytes}


def _stream_from_json(content: dict[str, Any]) -> StreamStateHandle:
    if "inline" in content:
        return ByteStreamStateHandle(base64.b64decode(content["inline"], validate=True))
    path = content["path"]
    if not is_state_path(path):
        raise ValueError(
            f"the path {str(path)[:100]!r} leads out of the checkpoint, or is not that of a state file: "
            f"nothing is read or deleted there"
        )
    return FileStateHandle(path, _whole(content["size_bytes"], "a size"))
