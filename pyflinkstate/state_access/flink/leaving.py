"""Makes a canonical savepoint of Flink out of a checkpoint or savepoint of this project.

The head of each file is made first, which refuses what Flink's format cannot say before anything is written.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Collection, Iterator
from functools import partial

import attrs
import numpy as np
import pyarrow as pa

from pyflinkstate.api import PickledBytesTypeInfo, RowKind, TypeInformation, Types
from pyflinkstate.backends.flink_format import (
    Coder,
    FlinkOperatorState,
    KeyedStateHandle,
    KeyedStateHead,
    Operator,
    OperatorStateHandle,
    Savepoint,
    Stream,
    Subtask,
    operator_id,
    serializer_of,
    write_canonical,
    write_metadata,
    write_operator_state,
)
from pyflinkstate.backends.format import (
    ByteStreamStateHandle,
    CheckpointMetadata,
    FileStateHandle,
    KeyGroupEntries,
    SectionWriter,
    StreamStateHandle,
    write_file,
)
from pyflinkstate.backends.key_groups import key_group_of_hash
from pyflinkstate.backends.keys import KeyGroupRange, KeyHasher
from pyflinkstate.backends.types import (
    OperatorStateMode,
    RegisteredOperatorStateMeta,
    RegisteredStateMeta,
    SealedPickles,
    StateMeta,
    decode_column,
    has_pickles,
    java_hash_of_row,
    sealed,
    unsealed,
)
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError
from pyflinkstate.runtime.storage import METADATA, AnyPath, CheckpointFolder, flush_folder, write_whole
from pyflinkstate.state_access.checkpoint import Checkpoint
from pyflinkstate.state_access.flink.arriving import spread
from pyflinkstate.state_access.flink.programs import ProgramOperator, operators_of
from pyflinkstate.state_access.flink.shapes import (
    JAVA,
    PREFIX,
    THREAD,
    Shape,
    each_value,
    load,
    pickles_instead,
    shape_named,
)
from pyflinkstate.state_access.keyed_state import Group, KeyedState, by_group
from pyflinkstate.state_access.tables import OperatorStates
from pyflinkstate.state_access.writing import new_folder, planned


def write_flink_savepoint(
    checkpoint: Checkpoint,
    path: AnyPath,
    to: str = "flink",
    *,
    program: object = None,
    allow_pickle: bool = False,
) -> str:
    """Write the state of a checkpoint as a canonical savepoint of Flink 1.20 to 2.3, and return its URI.

    Keyed state, timers and operator state are written. Positions of sources and watermarks are not: in
    Flink, a source begins where the program says.

    Args:
        checkpoint: the checkpoint.
        path: a folder that does not exist, or is empty.
        to: ``flink`` for a job in Java, ``flink-process`` and ``flink-thread`` for one of PyFlink in process
            or thread mode.
        program: the ``StreamExecutionEnvironment`` in which the program was built here. It is needed if
            windows are over records of a declared type: Flink keeps them in that type, and here they are
            pickled.
        allow_pickle: load pickled keys, which runs code, if they are not plain values.

    Raises:
        ConfigurationError: Flink cannot keep the type of a state, or ``to`` is none of these.
        IncompatibleCheckpointError: a function wrote raw state.
        StateValueError: a value does not fit its serializer.
        CheckpointStorageError: the savepoint cannot be written; nothing of it is left.
    """
    shape = shape_named(to)
    uids = [one.operator_id for one in checkpoint.metadata.operators if not one.is_empty]
    empty, name = attrs.evolve(checkpoint.metadata, operators=()), checkpoint.metadata.job_name
    known = {} if program is None else operators_of(planned(program, name)[0], empty)
    departures = [Departure(uid, shape, known.get(uid), checkpoint, allow_pickle) for uid in uids]
    with new_folder(path) as (folder, uri):
        operators = [one.written(folder) for one in departures]
        data = write_metadata(Savepoint(checkpoint.metadata.checkpoint_id, tuple(operators)))
        flush_folder(folder.file_system, folder.folder)
        write_whole(folder.file_system, f"{folder.folder}/{METADATA}", data)
        flush_folder(folder.file_system, folder.folder)
    return uri


def check_for_flink(program: object, metadata: CheckpointMetadata, to: str) -> None:
    """Refuse what Flink cannot keep of the states for which a program asks when it is opened.

    Args:
        program: the environment in which the program was built, or the plan of its job.
        metadata: an empty checkpoint.
        to: see :func:`write_flink_savepoint`.

    Raises:
        ConfigurationError: Flink cannot keep the type of a state, or ``to`` is not a format.
    """
    shape, plan = shape_named(to), planned(program, metadata.job_name)[0]
    for uid, one in operators_of(plan, metadata).items():
        InFlink(uid, shape, one).head_of(one.key_type, one.states.values())


@attrs.frozen(slots=False)
class InFlink:
    """How Flink sees an operator of a program.

    Attributes:
        uid: its uid.
        shape: what the savepoint is for.
        expected: what the program says of it, if it is known.
    """

    uid: str
    shape: Shape
    expected: ProgramOperator | None

    def head_of(self, key_type: TypeInformation, metas: Collection[StateMeta]) -> KeyedStateHead:
        """Return the head of a file with these states.

        Raises:
            ConfigurationError: Flink cannot keep the type of a state or of the keys.
        """
        if not metas:
            return KeyedStateHead(serializer_of(Types.LONG()), ())
        try:
            key = serializer_of(self.shape.key_type(self.sealed("its keys", key_type)))
            states = [self.shape.state(self.meta(meta), key) for meta in metas]
        except ConfigurationError as error:
            raise ConfigurationError(f"operator {self.uid!r}: {error.message}", operator=self.uid) from error
        return KeyedStateHead(key, tuple(states))

    def sealed(self, name: str, type_info: TypeInformation) -> TypeInformation:
        """Return a type with pickles as bytes; raise ``ConfigurationError`` if they are for Java."""
        if self.shape is JAVA and has_pickles(unsealed(type_info)):
            raise ConfigurationError(
                f"{name!r} has pickles ({unsealed(type_info)}), which a job in Java cannot read: declare a "
                f"type, or convert it for flink-process or flink-thread; for windows, pass program="
            )
        return sealed(type_info)

    def meta(self, meta: StateMeta) -> StateMeta:
        """Return the state of the program in Flink."""
        if not isinstance(meta, RegisteredStateMeta):
            return meta
        flinks = meta if self.expected is None else self.expected.in_flink(meta)
        flinks = flinks if pickles_instead(flinks, meta) else meta
        return attrs.evolve(flinks, stored_type=self.sealed(meta.name, flinks.stored_type))


@attrs.frozen(slots=False)
class Departure(InFlink):
    """An operator of a checkpoint. It becomes one subtask, whose state Flink distributes."""

    checkpoint: Checkpoint
    allow_pickle: bool
    keyed: KeyedState = attrs.field(init=False)
    head: KeyedStateHead = attrs.field(init=False)
    operator_states: list[FlinkOperatorState] = attrs.field(init=False)

    @keyed.default
    def _keyed(self) -> KeyedState:
        operator = self.checkpoint.operator(self.uid)
        if any(subtask.raw_keyed or subtask.raw_operator for subtask in operator.subtasks):
            raise IncompatibleCheckpointError(
                f"operator {self.uid!r} has raw state, which only its function reads: drop it, or move it to "
                f"managed state",
                operator=self.uid,
            )
        return self.checkpoint.keyed_state(self.uid, self.allow_pickle)

    @head.default
    def _head(self) -> KeyedStateHead:
        return self.head_of(self.keyed.key_type, self.keyed.metas.values())

    @operator_states.default
    def _operator_states(self) -> list[FlinkOperatorState]:
        states = OperatorStates(self.keyed.operator, self.keyed.reader)
        return [self._operator_state(states, name) for name in states.written]

    def _operator_state(self, states: OperatorStates, name: str) -> FlinkOperatorState:
        meta: RegisteredOperatorStateMeta = states.written[name][0].codec.meta
        stored_type = self.sealed(name, meta.stored_type)
        batches = list(states.table(name).read())
        columns: list[list[object]] = [
            [value for batch in batches for value in decode_column(part, batch.column(column))]
            for (column, _), part in zip(meta.columns, stored_type.parts(), strict=True)
        ]
        if self.shape is JAVA:
            return FlinkOperatorState.of(attrs.evolve(meta, stored_type=stored_type), columns)
        if self.shape is THREAD or meta.mode is not OperatorStateMode.BROADCAST:
            raise ConfigurationError(
                f"operator {self.uid!r}: PyFlink has operator state as broadcast state in process mode only; "
                f"{name!r} is {meta}",
                state=name,
            )
        coders = [Coder(part) for part in stored_type.parts()]
        parts = (serializer_of(Types.PRIMITIVE_ARRAY(Types.BYTE())),) * 2
        coded = [[*map(coder.encode, column)] for coder, column in zip(coders, columns, strict=True)]
        return FlinkOperatorState(PREFIX + name, meta.mode, parts, tuple(coded))

    def written(self, folder: CheckpointFolder) -> Operator:
        """Write the files, and return the operator for the metadata."""
        most = self.keyed.operator.max_parallelism
        write = partial(write_file, folder, threading.Event())
        of_keys = write(self._write_keyed) if self.head.states else None
        of_subtask = write(self._write_operator_states) if self.operator_states else None
        return Operator(operator_id(self.uid), 1, most, {0: Subtask(of_subtask, None, of_keys)})

    def _write_operator_states(self, writer: SectionWriter) -> OperatorStateHandle:
        states = write_operator_state(self.operator_states, writer.append)
        return OperatorStateHandle(states, _stream(writer.close()))

    def _write_keyed(self, writer: SectionWriter) -> KeyedStateHandle:
        most = self.keyed.operator.max_parallelism
        every = KeyGroupRange(0, most - 1)
        entries = [self._entries(meta) for meta in self.keyed.metas.values()]
        offsets = write_canonical(self.head, entries, every, most, writer.append)
        return KeyedStateHandle(every, offsets, _stream(writer.close()))

    def _entries(self, meta: StateMeta) -> Iterator[KeyGroupEntries]:
        flinks = self.meta(meta)
        groups = self.keyed.groups(meta.name)
        if self.shape.is_pyflink:
            groups = spread(groups, self._split)
        for key_group, batch in groups:
            plain = KeyGroupEntries(
                key_group,
                self._keys(batch),
                decode_column(meta.namespace_type, batch.column("namespace")) if meta.is_namespaced else None,
                decode_column(sealed(meta.stored_type), batch.column("value")),
            )
            if pickles_instead(flinks, meta):
                plain = each_value(meta, plain, load, SealedPickles)
            yield self.shape.leaving(flinks, plain)

    def _keys(self, batch: pa.RecordBatch) -> list[object]:
        if isinstance(self.keyed.key_type, PickledBytesTypeInfo):
            keys = self.keyed.keys.decoded(batch.column("key"))
            return [pickle.dumps(key, protocol=self.shape.key_protocol) for key in keys]
        return decode_column(sealed(self.keyed.key_type), batch.column("key"))

    def _split(self, batch: pa.RecordBatch) -> Iterator[Group]:
        """Yield rows by the key groups that Flink has for them.

        The hash of a row of one field is that of the field plus a constant. To Flink, pickles are bytes.
        """
        hasher = KeyHasher(self.head.key.parts[0].type_info())
        most, of_row = self.keyed.operator.max_parallelism, java_hash_of_row(RowKind.INSERT, [0])
        groups = [key_group_of_hash(of_row + code, most) for code in hasher.hashes(self._keys(batch))]
        return by_group(np.array(groups, np.int64), batch)


def _stream(handle: StreamStateHandle) -> Stream:
    if isinstance(handle, ByteStreamStateHandle):
        return Stream("", len(handle.data), data=handle.data)
    assert isinstance(handle, FileStateHandle)
    return Stream(handle.path, handle.size_bytes, is_relative=True)
