"""Opens a savepoint of Flink: its ``_metadata``, and the files of its operators.

Files are only read in the savepoint's own folder, whatever path the metadata says: Flink writes them there,
and a savepoint that was moved still has them there.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import cast

import attrs
import pyarrow as pa
from pyarrow import fs

from pyflinkstate.api import JsonObject
from pyflinkstate.backends.flink_format import (
    READER_STATE,
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
from pyflinkstate.runtime.storage import METADATA, AnyPath, absolute, open_file_system
from pyflinkstate.state_access.tables import nearest

#: The largest ``_metadata`` that is read.
MOST_METADATA_BYTES = 1 << 28


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
        uri = absolute(path).rstrip("/").removesuffix(f"/{METADATA}")
        file_system, folder = open_file_system(uri)
        try:
            with file_system.open_input_file(f"{folder}/{METADATA}") as file:
                data = file.read(MOST_METADATA_BYTES)
        except (OSError, pa.ArrowException) as error:
            raise CheckpointNotFoundError(f"{uri} has no {METADATA}: {error}", path=uri) from error
        return FlinkSavepoint(uri, read_metadata(data, f"{uri}/{METADATA}"), file_system, folder)

    def operators(self) -> list[JsonObject]:
        """Return all operators as rows of a table."""
        return [
            {
                "uid": one.uid,
                "id": one.id.hex(),
                "name": one.name,
                "parallelism": one.parallelism,
                "max_parallelism": one.max_parallelism,
                "size_bytes": one.size_bytes,
            }
            for one in self.content.operators
        ]

    def states(self, uid: str) -> list[JsonObject]:
        """Return the states of an operator as rows of a table; the entries of keyed state are counted.

        Args:
            uid: its uid or its id.

        Raises:
            UnknownOperatorError: there is no such operator.
            CorruptCheckpointError, IncompatibleCheckpointError: a file cannot be read.
        """
        found = [one for one in self.content.operators if uid == one.id.hex() or operator_id(uid) == one.id]
        if not found:
            known = [one.uid or one.id.hex() for one in self.content.operators]
            raise UnknownOperatorError(f"{self.uri} has no operator {uid!r}; it has {nearest(uid, known)}")
        files, counts = self.keyed_files(found[0]), Counter[str]()
        for file in files:
            for state, entries in file.key_groups(file.handle.key_groups):
                counts[state.name] += len(entries)
        keyed = {state.name: state for file in files for state in file.head.states}.values()
        plain = {one.name: one for states in self.operator_states(found[0]) for one in states}.values()
        rows: list[JsonObject] = [
            {
                "name": one.name,
                "kind": "TIMERS" if one.kind is None else one.kind.value,
                "serializer": str(one.value),
                "value_type": str(one.meta.stored_type),
                "namespace_type": str(one.meta.namespace_type) if one.meta.is_namespaced else None,
                "entries": counts[one.name],
            }
            for one in keyed
        ]
        rows += [
            {
                "name": one.name,
                "kind": one.mode.value,
                "serializer": ", ".join(map(str, one.parts)),
                "value_type": str(one.meta.stored_type),
                "namespace_type": None,
                "entries": None,
            }
            for one in plain
        ]
        return rows

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
            IncompatibleCheckpointError: there is raw state, or a serializer is not known.
        """
        if any(one.raw_keyed_state or one.raw_operator_state for one in operator.subtasks.values()):
            raise IncompatibleCheckpointError(
                f"{self.uri}: {operator} has raw state, which only its function reads; timers are such "
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

    def splits(self, operator: Operator) -> list[bytes]:
        """Return the splits of a source; errors are those of keyed state."""
        states = itertools.chain.from_iterable(self.operator_states(operator))
        return [cast(bytes, item) for one in states if one.name == READER_STATE for item in one.columns[0]]

    def _read(self, stream: Stream, offset: int, length: int) -> bytes:
        if not stream.path:
            return stream.data[offset : offset + length]
        name = stream.path.rsplit("/", 1)[-1]
        try:
            with self._file_system.open_input_file(f"{self._folder}/{name}") as file:
                size = max(0, min(length, file.size() - offset))  # the length may lie
                return bytes(file.read_at(size, offset))
        except (OSError, pa.ArrowException) as error:
            raise CorruptCheckpointError(
                f"{self.uri}: its file {name} cannot be read, and no file elsewhere is: {error}", file=name
            ) from error
