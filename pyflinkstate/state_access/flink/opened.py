"""Opens a savepoint of Flink: its ``_metadata``, and the files of its operators.

Files are only read in the savepoint's own folder, whatever path the metadata says: Flink writes them there,
and a savepoint that was moved still has them there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

import attrs
import pyarrow as pa
from pyarrow import fs

from pyflinkstate.backends.flink_format import (
    FlinkOperatorState,
    KeyedStateFile,
    Operator,
    Savepoint,
    Stream,
    operator_id,
    read_metadata,
    read_operator_state,
)
from pyflinkstate.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    UnknownOperatorError,
)
from pyflinkstate.runtime.storage import AnyPath, absolute, open_file_system
from pyflinkstate.state_access.tables import nearest

MAGIC = bytes.fromhex("4960672d")
METADATA = "_metadata"
#: The largest ``_metadata`` that is read.
MOST_METADATA_BYTES = 1 << 28


def _folder(path: AnyPath) -> tuple[fs.FileSystem, str, str]:
    """Return the file system, the folder in it, and its URI."""
    uri = absolute(path).rstrip("/").removesuffix(f"/{METADATA}")
    return *open_file_system(uri), uri


def is_flink_savepoint(path: AnyPath) -> bool:
    """Return whether a folder has the ``_metadata`` of a savepoint or checkpoint of Flink."""
    try:
        file_system, folder, _ = _folder(path)
        with file_system.open_input_file(f"{folder}/{METADATA}") as file:
            return bool(file.read(len(MAGIC)) == MAGIC)
    except (OSError, pa.ArrowException):
        return False


@attrs.frozen
class FlinkOperatorInfo:
    """An operator of a savepoint of Flink.

    Attributes:
        uid: its uid, from Flink 2.0 on; empty if it has none.
        id: the hash of its uid, as 32 hexadecimal digits.
        name: its name, from Flink 2.0 on.
        parallelism: how many subtasks it had.
        max_parallelism: how many key groups it has.
        size_bytes: the size of its state.
    """

    uid: str
    id: str
    name: str
    parallelism: int
    max_parallelism: int
    size_bytes: int


@attrs.frozen
class FlinkStateInfo:
    """A state of an operator of a savepoint of Flink.

    Attributes:
        name: its name in Flink.
        kind: the kind of state.
        serializer: Flink's serializer of its values.
        value_type: the type of its values here.
        namespace_type: the type of its windows here, if it has any.
        entries: how many there are; None for operator state.
    """

    name: str
    kind: str
    serializer: str
    value_type: str
    namespace_type: str | None
    entries: int | None


@attrs.frozen
class FlinkSavepoint:
    """A savepoint of Flink.

    Attributes:
        uri: the URI of its folder.
        content: the content of ``_metadata``.
    """

    uri: str
    content: Savepoint
    _file_system: fs.FileSystem
    _folder: str

    @staticmethod
    def open(path: AnyPath) -> FlinkSavepoint:
        """Read ``_metadata``.

        Raises:
            CheckpointNotFoundError: there is none.
            CorruptCheckpointError: it makes no sense.
            IncompatibleCheckpointError: only Flink reads such state; the message says how to get another.
        """
        file_system, folder, uri = _folder(path)
        try:
            with file_system.open_input_file(f"{folder}/{METADATA}") as file:
                data = file.read(MOST_METADATA_BYTES)
        except (OSError, pa.ArrowException) as error:
            raise CheckpointNotFoundError(f"{uri} has no {METADATA}: {error}", path=uri) from error
        return FlinkSavepoint(uri, read_metadata(data, f"{uri}/{METADATA}"), file_system, folder)

    def operators(self) -> list[FlinkOperatorInfo]:
        """Return all operators."""
        return [
            FlinkOperatorInfo(
                one.uid, one.id.hex(), one.name, one.parallelism, one.max_parallelism, _size_bytes(one)
            )
            for one in self.content.operators
        ]

    def states(self, uid: str) -> list[FlinkStateInfo]:
        """Return the states of an operator; the entries of keyed state are read and counted.

        Args:
            uid: its uid or its id.

        Raises:
            UnknownOperatorError: there is no such operator.
            CorruptCheckpointError, IncompatibleCheckpointError: a file cannot be read.
        """
        found = [one for one in self.content.operators if one.id in (operator_id(uid), _id_of(uid))]
        if not found:
            known = [one.uid or one.id.hex() for one in self.content.operators]
            raise UnknownOperatorError(f"{self.uri} has no operator {uid!r}; it has {nearest(uid, known)}")
        infos: dict[str, FlinkStateInfo] = {}
        for file in self.keyed_files(found[0]):
            counts = Counter({state.name: 0 for state in file.head.states})
            for state, entries in file.key_groups(file.handle.key_groups):
                counts[state.name] += len(entries)
            for state, meta in zip(file.head.states, file.metas, strict=True):
                before = infos[state.name].entries if state.name in infos else 0
                infos[state.name] = FlinkStateInfo(
                    state.name,
                    "TIMERS" if state.kind is None else state.kind.value,
                    str(state.value),
                    str(meta.stored_type),
                    str(meta.namespace_type) if meta.is_namespaced else None,
                    (before or 0) + counts[state.name],
                )
        for states in self.operator_states(found[0]):
            for one in states:
                parts, stored = ", ".join(map(str, one.parts)), str(one.meta.stored_type)
                infos[one.name] = FlinkStateInfo(one.name, one.mode.value, parts, stored, None, None)
        return list(infos.values())

    def uids(self, given: Mapping[str, str]) -> dict[bytes, str]:
        """Return the uid here for the id of each operator whose uid is known.

        Args:
            given: the uids in the program here, by a uid or an id (32 hexadecimal digits) in Flink.
        """
        known = {one.id: one.uid for one in self.content.operators if one.uid}
        ids = {operator.id.hex() for operator in self.content.operators}
        told = {bytes.fromhex(key) if key in ids else operator_id(key): uid for key, uid in given.items()}
        return {**known, **{key: uid for key, uid in told.items() if key.hex() in ids}}

    def keyed_files(self, operator: Operator) -> list[KeyedStateFile]:
        """Open the keyed state of each subtask, in the order of their key groups.

        Raises:
            CorruptCheckpointError: a file is missing or makes no sense.
            IncompatibleCheckpointError: there is raw keyed state, or a serializer is not known.
        """
        if any(subtask.raw_keyed_state for subtask in operator.subtasks.values()):
            raise IncompatibleCheckpointError(
                f"{self.uri}: {operator} has raw keyed state, which only its function reads; timers are such "
                f"state if state.backend.rocksdb.timer-service.factory is heap: take the savepoint with "
                f"another setting",
                operator=operator.id.hex(),
            )
        handles = [sub.keyed_state for sub in operator.subtasks.values() if sub.keyed_state is not None]
        where = f"{self.uri}: keyed state of {operator}"
        return [
            KeyedStateFile.open(handle, partial(self._read, handle.stream), where, operator.max_parallelism)
            for handle in sorted(handles, key=lambda handle: handle.key_groups.start)
        ]

    def operator_states(self, operator: Operator) -> Iterator[list[FlinkOperatorState]]:
        """Yield the operator states of each subtask that has some; errors are those of keyed state."""
        where = f"{self.uri}: operator state of {operator}"
        for subtask in operator.subtasks.values():
            if (handle := subtask.operator_state) is not None:
                yield read_operator_state(handle, partial(self._read, handle.stream), where)

    def _read(self, stream: Stream, offset: int, length: int) -> bytes:
        if not stream.path:
            return stream.data[offset : offset + length]
        name = stream.path.rsplit("/", 1)[-1]
        try:
            with self._file_system.open_input_file(f"{self._folder}/{name}") as file:
                return bytes(file.read_at(length, stream.begin + offset))
        except (OSError, pa.ArrowException) as error:
            raise CorruptCheckpointError(
                f"{self.uri}: its file {name} cannot be read, and no file elsewhere is: {error}", file=name
            ) from error


def _size_bytes(operator: Operator) -> int:
    handles = [
        handle
        for sub in operator.subtasks.values()
        for handle in (sub.keyed_state, sub.raw_keyed_state, sub.operator_state, sub.raw_operator_state)
    ]
    return sum(handle.stream.size_bytes for handle in handles if handle is not None)


def _id_of(text: str) -> bytes:
    """Return the id of an operator; empty if the text is not one."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
