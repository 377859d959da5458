"""What is read of a checkpoint: facts about it, and tables of its state, a key group at a time."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, TypeAlias

import attrs
import pyarrow as pa

from pyflinkstate.api import ArrowObject, Offset, TypeInformation, short_repr
from pyflinkstate.backends.format import (
    OPERATOR_FILE_MAGIC,
    OperatorState,
    OperatorStateCodec,
    OperatorStateHandle,
    StateReader,
    decode_metas,
    float_type_of,
    read_head,
)
from pyflinkstate.backends.types import (
    OperatorStateMode,
    RegisteredOperatorStateMeta,
    arrow_type,
    common_type,
    decode_column,
    encode_column,
    sealed,
    type_migration,
    unsealed,
)
from pyflinkstate.errors import CorruptCheckpointError, IncompatibleCheckpointError, StateTableError
from pyflinkstate.state_access.columns import common_schema, has_pickles, loaded, no_common_type


@attrs.frozen
class OperatorInfo:
    """An operator in a checkpoint.

    Attributes:
        uid: the uid that the program set, or the name that it got without one.
        parallelism: the number of subtasks that wrote the checkpoint.
        max_parallelism: the number of key groups.
        size_bytes: the size of its state, with all files that it needs.
    """

    uid: str
    parallelism: int
    max_parallelism: int
    size_bytes: int


@attrs.frozen
class StateInfo:
    """A state of an operator.

    Attributes:
        name: its name; for timers the name of their service.
        kind: ``VALUE``, ``LIST``, ``MAP``, ``REDUCING`` or ``AGGREGATING`` for keyed state; ``TIMERS``;
            ``SPLIT_DISTRIBUTE``, ``UNION`` or ``BROADCAST`` for operator state; ``RAW_KEYED`` or
            ``RAW_OPERATOR``.
        value_type: the declared type of what is stored; ``PICKLED_BYTE_ARRAY`` if none was declared.
        key_type: the declared type of keys; None if it has no keys.
        namespace_type: the type of namespaces, such as windows; None if there are none.
        expires: whether it has time to live.
        ttl_ms: how long its values live, in ms; None if they do not expire, or the file does not say.
        size_bytes: the size of its sections in all files, compressed.
    """

    name: str
    kind: str
    value_type: str = attrs.field(repr=short_repr)
    key_type: str | None = attrs.field(default=None, repr=short_repr)
    namespace_type: str | None = None
    expires: bool = False
    ttl_ms: int | None = None
    size_bytes: int = 0


@attrs.frozen
class CheckpointOffsets:
    """Where the job was when the checkpoint was taken.

    Attributes:
        checkpoint_id: the number of the checkpoint.
        job_id: the id of the job.
        job_name: its name.
        epoch: the last epoch whose records are in the state.
        timestamp_ms: when the checkpoint was triggered, in ms since 1970.
        source_position: the source's position, in its own form.
        watermarks: by assigner or operator, in ms since 1970.
        counters: counts of records up to this epoch.
        operators: parallelism and sizes.
        size_bytes: the size of all state.
    """

    checkpoint_id: int
    job_id: str
    job_name: str
    epoch: int
    timestamp_ms: int
    source_position: Offset = attrs.field(repr=short_repr)
    watermarks: dict[str, int] = attrs.field(repr=short_repr)
    counters: dict[str, int] = attrs.field(repr=short_repr)
    operators: tuple[OperatorInfo, ...] = attrs.field(repr=short_repr)

    @property
    def size_bytes(self) -> int:
        return sum(operator.size_bytes for operator in self.operators)


def nearest(name: str | None, known: list[str]) -> str:
    """Return the existing names, the most similar to ``name`` first.

    >>> nearest("cuont", ["total", "count"])
    "'count', 'total'"
    """
    likeness = difflib.SequenceMatcher(b=name or "")

    def unlikeness(other: str) -> float:
        likeness.set_seq1(other)
        return -likeness.ratio()

    return ", ".join(map(repr, sorted(known, key=unlikeness))) or "none"


#: Reads batches.
Read: TypeAlias = Callable[[], Iterator[pa.RecordBatch]]


@attrs.frozen
class Column:
    """A column of a state table.

    Attributes:
        name: its name.
        arrow: its Arrow type, in which pickles are bytes.
        type_info: the declared type of its values; None if the Arrow type is enough.
    """

    name: str
    arrow: pa.DataType
    type_info: TypeInformation | None = None

    @property
    def is_pickled(self) -> bool:
        """Whether there are pickles in its values."""
        return self.type_info is not None and has_pickles(self.type_info)


def typed_column(name: str, type_info: TypeInformation) -> Column:
    """Return a column of values of a type, in which pickles are bytes."""
    return Column(name, arrow_type(sealed(type_info)), unsealed(type_info))


def schema_of(columns: Iterable[Column]) -> pa.Schema:
    """Return the schema of batches with some columns."""
    return pa.schema([(column.name, column.arrow) for column in columns])


def _names_and_types(columns: tuple[Column, ...]) -> str:
    return short_repr({column.name: str(column.arrow) for column in columns})


@attrs.frozen
class StateTable:
    """A table of a checkpoint's state. Each call reads the checkpoint again; nothing is kept.

    Values of declared types are Arrow columns. Others are a column of pickles, as bytes, unless the
    table was asked for with ``allow_pickle=True``: then they are loaded, in the Arrow type that fits all of
    them.

    Attributes:
        columns: names and types.
        read: reads the batches, pickles as bytes.
        allow_pickle: whether pickles are loaded.
        split: returns readers for the given number of parts, or for a number that suits its size; None if it
            is read as one.
    """

    columns: tuple[Column, ...] = attrs.field(repr=_names_and_types)
    read: Read = attrs.field(repr=False)
    allow_pickle: bool = False
    split: Callable[[int | None], list[Read]] | None = attrs.field(default=None, repr=False)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches. If pickles are loaded, all of them are read to find it."""
        return self._loaded_schema() if self.loads_pickles else schema_of(self.columns)

    @property
    def loads_pickles(self) -> bool:
        """Whether there are pickles in it that are loaded."""
        return self.allow_pickle and any(column.is_pickled for column in self.columns)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches, one for each key group that has rows.

        Raises:
            CorruptCheckpointError: a file is missing, truncated or altered.
        """
        if not self.loads_pickles:
            return self.read()
        schema = self._loaded_schema()
        return (_cast(self._loaded(batch), schema) for batch in self.read())

    def to_reader(self) -> pa.RecordBatchReader:
        """Return Arrow's reader of the same batches, which other libraries take."""
        schema = self.schema
        return pa.RecordBatchReader.from_batches(schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""
        return self.to_reader().read_all()

    def to_pandas(self) -> ArrowObject:
        """Return all rows as a pandas ``DataFrame``; whole numbers with gaps stay whole numbers."""
        return self.to_arrow().to_pandas(integer_object_nulls=True)

    def to_duckdb(self, connection: ArrowObject, name: str | None = None) -> ArrowObject:
        """Return a DuckDB relation of all rows.

        Args:
            connection: a connection of ``duckdb.connect()``.
            name: also register the rows under this name, for SQL.
        """
        table = self.to_arrow()
        if name is not None:
            connection.register(name, table)
        return connection.from_arrow(table)

    def parts(self, number: int | None = None) -> list[StateTable]:
        """Return tables that have the rows of this one between them, to be read in several processes.

        Each has the rows of a range of key groups; of operator state, those of some subtasks. They can be
        pickled, with cloudpickle if the clock of the checkpoint is a function of the program.

        Args:
            number: the most parts. There is at most one for each key group, and none for key groups in which
                no wanted key is. Default: one for each subtask that wrote the state, or one for each 32 MiB
                of it if these are more.

        Raises:
            StateTableError: the number is less than 1.
        """
        if number is not None and number < 1:
            raise StateTableError(f"a table is read in at least 1 part, not in {number}")
        if self.split is None:
            return [self]
        return [attrs.evolve(self, read=read, split=None) for read in self.split(number)]

    def to_spark(self, spark: object, partitions: int | None = None) -> ArrowObject:
        """Return all rows as a Spark ``DataFrame``, with a partition for each range of key groups.

        Executors read the checkpoint when the ``DataFrame`` is evaluated; nothing is collected in the
        driver. They need this package, and a path that leads to the checkpoint from where they are. Columns
        have Spark's types for those of :attr:`schema`: strings are ``STRING``, lists ``ARRAY``, timestamps
        ``TIMESTAMP_NTZ``.

        Args:
            spark: a session, classic or Spark Connect.
            partitions: the most partitions; see :meth:`parts`.

        Raises:
            StateTableError: Spark has no such type, or the number is less than 1.
        """
        # By its name: that file needs PySpark, and this one.
        room = importlib.import_module("pyflinkstate.state_access.spark")
        return room.dataframe(spark, self.parts(partitions))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict of Python values, as the program that wrote them knows them.

        Pickles are bytes unless they may be loaded.
        """
        for batch in self.read():
            yield from self.rows_of(batch)

    def rows_of(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        """Yield the rows of a batch that :attr:`read` gave, as :meth:`rows` does."""
        values = [self._decoded(column, batch.column(column.name)) for column in self.columns]
        names = [column.name for column in self.columns]
        yield from (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))

    def _decoded(self, column: Column, array: pa.Array) -> object:
        if column.type_info is None:
            return array.to_pylist()
        type_info = column.type_info if self.allow_pickle else sealed(column.type_info)
        return decode_column(type_info, array)

    # --- loaded pickles ------------------------------------------------------------------------------

    def _loaded_schema(self) -> pa.Schema:
        schemas = [self._loaded(batch).schema for batch in self.read()]
        return common_schema(schemas or [schema_of(self.columns)])

    def _loaded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            arrays = [
                loaded(column.type_info, array) if column.type_info is not None else array
                for column, array in zip(self.columns, batch.columns, strict=True)
            ]
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise no_common_type(error) from error
        return pa.record_batch(arrays, [column.name for column in self.columns])


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [array.cast(field.type) for array, field in zip(batch.columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


@attrs.frozen
class WrittenState:
    """One operator state in the file of one subtask; ``codec`` reads it with pickles sealed."""

    subtask: int
    handle: OperatorStateHandle
    meta: RegisteredOperatorStateMeta
    codec: OperatorStateCodec


@attrs.define(slots=False)
class OperatorStates:
    """All operator state of one operator."""

    operator: OperatorState
    reader: StateReader
    allow_pickle: bool = False

    @cached_property
    def written(self) -> dict[str, list[WrittenState]]:
        """The parts of each state by subtask, in order; of broadcast state only one, as all are the same."""
        found: dict[str, list[WrittenState]] = {}
        for subtask, state in enumerate(self.operator.subtasks):
            handle = state.managed_operator
            for written in () if handle is None else self._of_file(subtask, handle):
                parts = found.setdefault(written.meta.name, [])
                if not parts or written.meta.mode is not OperatorStateMode.BROADCAST:
                    parts.append(written)
        return found

    def _of_file(self, subtask: int, handle: OperatorStateHandle) -> Iterator[WrittenState]:
        what = self.reader.describe(handle.stream)
        head = read_head(self.reader, handle.stream, OPERATOR_FILE_MAGIC)
        metas = {meta.name: meta for meta in decode_metas(head, what)}
        for name in handle.states:
            if name not in metas:
                raise CorruptCheckpointError(
                    f"{what} is damaged: it lacks operator state {name!r}", file=what
                )
            meta = metas[name]
            bare = attrs.evolve(meta, stored_type=sealed(meta.stored_type))
            yield WrittenState(
                subtask, handle, meta, OperatorStateCodec(bare, float_type=float_type_of(head))
            )

    def table(self, name: str) -> StateTable:
        """Return a row for each element or entry of a state."""
        parts = self.written[name]
        types = {column: self._common(name, n) for n, (column, _) in enumerate(parts[0].meta.columns)}
        values = [typed_column(column, type_info) for column, type_info in types.items()]
        columns = (Column("subtask", pa.int32()), Column("position", pa.int64()), *values)
        read = partial(OperatorStates._batches, self, columns=columns)
        return StateTable(columns, partial(read, parts), self.allow_pickle, partial(_split, read, parts))

    def _common(self, name: str, column: int) -> TypeInformation:
        """Return the type that holds the values of all subtasks."""
        types = [part.meta.columns[column][1] for part in self.written[name]]
        found: TypeInformation | None = types[0]
        for type_info in types:
            found = None if found is None else common_type(found, type_info)
        if found is None:
            raise IncompatibleCheckpointError(
                f"operator state {name!r} is of {' and '.join(sorted(set(map(str, types))))} in the files of "
                f"the subtasks",
                state=name,
            )
        return found

    def _batches(self, parts: list[WrittenState], columns: tuple[Column, ...]) -> Iterator[pa.RecordBatch]:
        schema = schema_of(columns)
        for part in parts:
            batch = self._read(part)
            if batch.num_rows:
                values = [_as(part, column, batch) for column in columns[2:]]
                subtask = pa.repeat(pa.scalar(part.subtask, pa.int32()), batch.num_rows)
                positions = pa.array(range(batch.num_rows), pa.int64())
                yield pa.record_batch([subtask, positions, *values], schema=schema)

    def _read(self, part: WrittenState) -> pa.RecordBatch:
        section = part.handle.states[part.meta.name].section
        what = f"{self.reader.describe(part.handle.stream)}, operator state {part.meta.name!r}"
        data = self.reader.read(part.handle.stream, section.offset, section.length)
        return part.codec.read(data, section.checksum, what)


def _split(
    read: Callable[[list[WrittenState]], Iterator[pa.RecordBatch]],
    parts: list[WrittenState],
    number: int | None,
) -> list[Read]:
    """Return readers, each of the state of some subtasks."""
    count = min(number or len(parts), len(parts))
    ends = [len(parts) * n // count for n in range(count + 1)]
    return [partial(read, parts[begin:end]) for begin, end in pairwise(ends)]


def _as(part: WrittenState, column: Column, batch: pa.RecordBatch) -> pa.Array:
    """Return a column of a file in the type that it has in the table."""
    was, array = dict(part.codec.meta.columns)[column.name], batch.column(column.name)
    assert column.type_info is not None
    now = sealed(column.type_info)
    if was == now:
        return array.cast(column.arrow)
    convert = type_migration(was, now, lambda: 0, is_key=column.name == "key").convert
    return encode_column(now, [convert(value) for value in decode_column(was, array)])
