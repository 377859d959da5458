"""What is read of a checkpoint: facts about it, and tables of its state, a key group at a time.

Columns hold values without the timestamps of time to live. Pickled keys and values are kept as bytes, told
apart without running code, and loaded only on request. Loading a pickle runs whatever code it names. A pickle
of plain Python values (numbers, strings, bytes, tuples, lists, sets and dicts of these) names none.
:func:`load_plain` loads such a pickle and refuses every other one. So keys without a declared type can be
looked up and compared in a checkpoint that is not trusted.
"""

from __future__ import annotations

import difflib
import importlib
import io
import pickle
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyflinkstate.api import (
    ArrowObject,
    ListTypeInfo,
    MapTypeInfo,
    Offset,
    PickledBytesTypeInfo,
    TypedValue,
    TypeInformation,
    short_repr,
)
from pyflinkstate.backends.format import (
    ArrowRows,
    OperatorState,
    OperatorStateCodec,
    OperatorStateHandle,
    StateReader,
)
from pyflinkstate.backends.operator_state import operator_codecs
from pyflinkstate.backends.types import (
    OperatorStateMode,
    TtlTypeInfo,
    arrow_type,
    common_type,
    decode_column,
    encode_column,
    has_pickles,
    load_pickle,
    sealed,
    type_migration,
    unsealed,
)
from pyflinkstate.errors import (
    IncompatibleCheckpointError,
    PickledStateError,
    StateTableError,
)

Mask = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int64]


@attrs.frozen
class Expiry:
    """Decides which values have expired.

    Attributes:
        now_ms: the present, in ms since 1970.
        ttl_ms: how long a value lives after its timestamp; None if nothing is left out.
    """

    now_ms: int
    ttl_ms: int | None = None

    def alive(self, timestamps: pa.Array) -> Mask:
        """Return which values still live; one written at 0 with a time to live of 100 ms expires at 100."""
        times = timestamps.to_numpy(zero_copy_only=False)
        if self.ttl_ms is None:
            return np.ones(len(times), np.bool_)
        kept: Mask = times > self.now_ms - self.ttl_ms
        return kept


def user_type(stored: TypeInformation) -> TypeInformation:
    """Return the type of a state as the program declares it, without the timestamps of time to live."""
    if isinstance(stored, TtlTypeInfo):
        return stored.value_type
    if isinstance(stored, ListTypeInfo):
        return ListTypeInfo(user_type(stored.element_type))
    if isinstance(stored, MapTypeInfo):
        return MapTypeInfo(stored.key_type_info, user_type(stored.value_type_info))
    return stored


def expires(stored: TypeInformation) -> bool:
    """Return whether the values of a state, or its elements, have timestamps."""
    return user_type(stored) != stored


def user_values(stored: TypeInformation, array: pa.Array, expiry: Expiry) -> tuple[pa.Array, Mask | None]:
    """Return the values as the program knows them, and which rows still live; None stands for all."""
    if isinstance(stored, TtlTypeInfo):
        timestamps, values = array.flatten()
        return values, expiry.alive(timestamps)
    if not expires(stored):
        return array, None
    *keys, items = parts_of(array)
    timestamps, values = items.flatten()
    left, sizes = with_elements(array, [*keys, values], expiry.alive(timestamps))
    # Values that were empty before stay.
    return left, (sizes > 0) | (np.diff(offsets_of(array)) == 0)


def with_elements(array: pa.Array, parts: Sequence[pa.Array], kept: Mask) -> tuple[pa.Array, Offsets]:
    """Return lists or maps with some of their elements, and how many each has left.

    Args:
        array: the lists or maps as they were.
        parts: all of their elements, as :func:`parts_of` returns them.
        kept: which elements are left.
    """
    offsets = np.concatenate(([0], np.cumsum(kept)))[offsets_of(array)]
    return nested(offsets, [part.filter(pa.array(kept)) for part in parts]), np.diff(offsets)


def offsets_of(array: pa.Array) -> Offsets:
    """Return where each list or map begins among :func:`parts_of`, and the end."""
    if not len(array):  # Arrow may have no offsets then
        return np.zeros(1, np.int64)
    offsets = array.offsets.to_numpy().astype(np.int64)
    begins: Offsets = offsets - offsets[0]
    return begins


def parts_of(array: pa.Array) -> list[pa.Array]:
    """Return the elements of all lists, one after another; of maps, their keys and their values."""
    arrays = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    begin, end = (array.offsets[0].as_py(), array.offsets[-1].as_py()) if len(array) else (0, 0)
    return [each[begin:end] for each in arrays]


def nested(offsets: Offsets, parts: Sequence[pa.Array]) -> pa.Array:
    """Return lists of elements, or maps of keys and values: the opposite of :func:`parts_of`."""
    if len(parts) == 1:
        return pa.LargeListArray.from_arrays(pa.array(offsets), parts[0])
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), *parts)


# --- pickles -----------------------------------------------------------------------------------------------

#: Returns the value of a pickle.
Load = Callable[[bytes], TypedValue]


class _PlainUnpickler(pickle.Unpickler):
    """Loads pickles that name no class and no function."""

    def find_class(self, module: str, name: str) -> TypedValue:
        raise PickledStateError(
            f"a pickled value is of {module}.{name}, and loading it runs code: pass allow_pickle=True if you "
            f"trust whoever wrote the checkpoint"
        )


def load_plain(data: bytes) -> TypedValue:
    """Return the value of a pickle of plain Python values.

    Raises:
        PickledStateError: loading it would run code, or the bytes are not a pickle.
    """
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except PickledStateError:
        raise
    except Exception as error:
        raise PickledStateError(
            f"a pickled value cannot be loaded: {type(error).__name__}: {error}"
        ) from error


def loader(allow_pickle: bool) -> Load:
    """Return the function that loads pickles: all of them if allowed, otherwise those of plain values."""
    return load_pickle if allow_pickle else load_plain


def comparable(data: bytes | None) -> Hashable | TypedValue:
    """Return the value by which a pickle is compared: its own if that is plain, otherwise its bytes."""
    try:
        return None if data is None else load_plain(data)
    except PickledStateError:
        return data


def loaded(type_info: TypeInformation, array: pa.Array) -> pa.Array:
    """Return a column with its pickles loaded, in the Arrow types that fit what is in them.

    Raises:
        pa.ArrowException: the values of a column have no common Arrow type.
        StateMigrationError: a pickle cannot be loaded.
    """
    if isinstance(type_info, PickledBytesTypeInfo):
        return pa.array([None if data is None else load_pickle(data) for data in array.to_pylist()])
    if not has_pickles(type_info):
        return array
    parts = type_info.parts()
    if pa.types.is_map(array.type) or pa.types.is_large_list(array.type):
        made = nested(offsets_of(array), list(map(loaded, parts, parts_of(array))))
        if not array.null_count:
            return made
        is_null = array.is_null().to_numpy(zero_copy_only=False)
        return made.take(pa.array(np.arange(len(array)), mask=is_null))
    if pa.types.is_struct(array.type):
        return _loaded_struct(parts, array)
    return loaded(parts[0], array)  # the wrapper of another type


def _loaded_struct(parts: tuple[TypeInformation, ...], array: pa.StructArray) -> pa.Array:
    """Load the fields of parts, which come last in a struct: a row has its kind before them."""
    names = [field.name for field in array.type]
    fields = array.flatten()
    extra = len(fields) - len(parts)
    made = fields[:extra] + [loaded(part, field) for part, field in zip(parts, fields[extra:], strict=True)]
    return pa.StructArray.from_arrays(made, names, mask=array.is_null())


def common_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return the schema that holds loaded values of all batches.

    Raises:
        StateTableError: the values of a column have no Arrow type in common.
    """
    try:
        return pa.unify_schemas(list(dict.fromkeys(schemas)), promote_options="permissive")
    except pa.ArrowException as error:
        raise no_common_type(error) from error


def no_common_type(error: Exception) -> StateTableError:
    """Return the error for pickled values that do not fit into one column."""
    return StateTableError(
        f"the pickled values have no Arrow type in common ({error}): read them with rows(), or leave them "
        f"pickled"
    )


# --- equality ----------------------------------------------------------------------------------------------


def equal_rows(type_info: TypeInformation, old: pa.Array, new: pa.Array) -> Mask:
    """Return for each row whether the two columns of ``type_info``, equally long, have equal values there.

    NaN equals NaN. Maps are equal if they have the same entries in any order. Pickled values are equal if
    their bytes are, or if both are plain values and these are.
    """
    same = _written_alike(old, new)
    rows = np.flatnonzero(~same)
    if len(rows) and _may_be_written_differently(old.type):
        picked = pa.array(rows)
        pairs = zip(
            decode_column(sealed(type_info), old.take(picked)),
            decode_column(sealed(type_info), new.take(picked)),
            strict=True,
        )
        same[rows] = [_plain(one) == _plain(other) for one, other in pairs]
    return same


def _may_be_written_differently(arrow: pa.DataType) -> bool:
    """Return whether equal values may differ as they are written: lists and maps, and bytes as pickles."""
    if pa.types.is_map(arrow) or pa.types.is_large_list(arrow) or pa.types.is_large_binary(arrow):
        return True
    return any(_may_be_written_differently(arrow.field(i).type) for i in range(arrow.num_fields))


def _plain(value: TypedValue) -> TypedValue:
    """Return a value with the plain pickles in it loaded."""
    if isinstance(value, bytes):
        return comparable(value)
    if isinstance(value, dict):
        return {_plain_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _plain_key(key: TypedValue) -> TypedValue:
    loaded = _plain(key)
    return loaded if loaded.__hash__ is not None and not isinstance(loaded, list) else key


def _written_alike(old: pa.Array, new: pa.Array) -> Mask:
    if pa.types.is_struct(old.type):
        return _structs_alike(old, new)
    if pa.types.is_map(old.type) or pa.types.is_large_list(old.type):
        pairs = zip(old.to_pylist(), new.to_pylist(), strict=True)
        return np.array([repr(one) == repr(other) for one, other in pairs], np.bool_)
    nulls = _mask(old.is_null()) & _mask(new.is_null())
    same = _mask(pc.fill_null(pc.equal(old, new), False))
    if pa.types.is_floating(old.type):
        same |= _mask(pc.fill_null(pc.and_(pc.is_nan(old), pc.is_nan(new)), False))
    return np.logical_or(same, nulls)


def _structs_alike(old: pa.StructArray, new: pa.StructArray) -> Mask:
    same = np.array(_mask(old.is_null()) == _mask(new.is_null()), np.bool_)
    for one, other in zip(old.flatten(), new.flatten(), strict=True):
        np.logical_and(same, _written_alike(one, other), out=same)
    return same


def _mask(array: pa.Array) -> Mask:
    return np.array(array.to_numpy(zero_copy_only=False), dtype=np.bool_)


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

    def likeness(other: str) -> float:
        return difflib.SequenceMatcher(None, other, name or "").ratio()

    return ", ".join(map(repr, sorted(known, key=likeness, reverse=True))) or "none"


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
class StateTable(ArrowRows):
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
            if handle is None:
                continue
            codecs = operator_codecs(handle, self.reader)
            for name in handle.states:
                parts = found.setdefault(name, [])
                if not parts or codecs[name].meta.mode is not OperatorStateMode.BROADCAST:
                    parts.append(WrittenState(subtask, handle, codecs[name]))
        return found

    def table(self, name: str) -> StateTable:
        """Return a row for each element or entry of a state."""
        parts = self.written[name]
        types = {column: self._common(name, n) for n, (column, _) in enumerate(parts[0].codec.meta.columns)}
        values = [typed_column(column, type_info) for column, type_info in types.items()]
        columns = (Column("subtask", pa.int32()), Column("position", pa.int64()), *values)
        read = partial(OperatorStates._batches, self, columns=columns)
        return StateTable(columns, partial(read, parts), self.allow_pickle, partial(_split, read, parts))

    def _common(self, name: str, column: int) -> TypeInformation:
        """Return the type that holds the values of all subtasks."""
        types = [part.codec.meta.columns[column][1] for part in self.written[name]]
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
        section = part.handle.states[part.codec.meta.name].section
        what = f"{self.reader.describe(part.handle.stream)}, operator state {part.codec.meta.name!r}"
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
