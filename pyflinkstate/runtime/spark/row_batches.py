"""Rows of a DataFrame, read as Arrow: the JVM writes batches, and Python makes rows of columns.

``df.rdd`` has the JVM pickle each row, and Python makes a ``Row`` of it, pickles that for the state slot, and
the slot makes it once more. Here a task of the source reads the batches that Spark's own conversion to Arrow
makes, distributes them by the key's column, and the slot makes the rows.

Spark has no public method that gives the batches of each partition; ``toArrow()`` and ``toPandas()`` use the
one that is used here. Where a release does not have it, or a column has a type that does not travel as Arrow,
rows are read as ``df.rdd`` gives them.
"""

from __future__ import annotations

import datetime
import math
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, Row, types as sql

from pyflinkstate.api import Key, Record, SelectKey, SparkObject, TimestampAssigner
from pyflinkstate.runtime.sources import RddEpoch, ReadBatches
from pyflinkstate.runtime.spark.row_columns import arrow_schema
from pyflinkstate.runtime.wire import ColumnBatch

_LARGE_OFFSETS = "spark.sql.execution.arrow.useLargeVarTypes"
_NESTED = (sql.ArrayType, sql.MapType, sql.StructType)


@attrs.frozen
class RowType:
    """The schema of rows.

    Attributes:
        json: the schema, as Spark writes it.
        is_large: see :func:`arrow_schema`.
    """

    json: str
    is_large: bool = False


class _RowReader:
    """Makes rows, and columns, of the batches of a type."""

    def __init__(self, kind: RowType) -> None:
        schema: Any = sql._parse_datatype_json_string(kind.json)
        self.names: list[str] = schema.names
        self.arrow = arrow_schema(schema, kind.is_large)
        #: Flat columns with rows have no empty array in them.
        self.is_nested = any(isinstance(field.dataType, _NESTED) for field in schema.fields)
        self.readers = [reader_of(field.dataType) for field in schema.fields]
        self._make = row_maker(tuple(schema.names))

    def read(self, batch: pa.RecordBatch) -> list[Record]:
        """Return the rows of a batch."""
        return _rows(
            [read(column) for read, column in zip(self.readers, batch.columns, strict=True)],
            batch.num_rows,
            self._make,
        )


#: It is made once in a process.
_reader_of_rows = lru_cache(maxsize=1000)(_RowReader)


class RowBatch(ColumnBatch):
    """Rows of a DataFrame."""

    def __init__(self, kind: RowType, batch: pa.RecordBatch) -> None:
        self._kind = kind
        self._batch = batch

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def __reduce__(self) -> tuple[object, ...]:
        return row_batch, (*attrs.astuple(self._kind), self._batch.serialize().to_pybytes())

    @property
    def size_bytes(self) -> int:
        """See :class:`ColumnBatch`."""
        return int(self._batch.nbytes)

    @cached_property
    def _made(self) -> list[Record]:
        return _reader_of_rows(self._kind).read(self._batch)

    def rows(self) -> list[Record]:
        """See :class:`ColumnBatch`."""
        return self._made

    def keys(self, select_key: SelectKey) -> list[Key] | None:
        """See :class:`ColumnBatch`: the key is a column, or several."""
        if not isinstance(select_key, ColumnKey):
            return None
        kind = _reader_of_rows(self._kind)
        places = [kind.names.index(name) for name in select_key.columns]
        columns = [kind.readers[place](self._batch.column(place)) for place in places]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def timestamps(self, assigner: TimestampAssigner) -> list[int] | None:
        """See :class:`ColumnBatch`: the timestamp is a column of a type that counts it."""
        if not isinstance(assigner, ColumnTimestamps):
            return None
        return _milliseconds(self._batch.column(_reader_of_rows(self._kind).names.index(assigner.column)))

    def take(self, order: npt.NDArray[np.int64]) -> RowBatch:
        """See :class:`ColumnBatch`."""
        return RowBatch(self._kind, self._batch.take(pa.array(order)))

    def part(self, start: int, length: int) -> RowBatch:
        """See :class:`ColumnBatch`."""
        return RowBatch(self._kind, self._batch.slice(start, length))


def row_batch(json: str, is_large: bool, data: bytes) -> RowBatch:
    """Return the batch that was pickled, or that Spark wrote."""
    kind = RowType(json, is_large)
    made = _reader_of_rows(kind)
    batch = pa.ipc.read_record_batch(pa.py_buffer(data), made.arrow)
    return RowBatch(kind, with_offsets(batch) if made.is_nested or not batch.num_rows else batch)


@attrs.frozen
class ColumnKey:
    """Selects the key of a row: the value of a column, or a tuple of those of several."""

    columns: tuple[str, ...]

    def __call__(self, row: Any) -> Key:
        """Return the key."""
        if len(self.columns) == 1:
            key: Key = row[self.columns[0]]
            return key
        return tuple(row[column] for column in self.columns)


@attrs.frozen
class ColumnTimestamps(TimestampAssigner):
    """Takes the timestamp of a row from a column: a moment, a day, or a number of milliseconds since 1970."""

    column: str

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """See :class:`TimestampAssigner`."""
        found: int = as_milliseconds(value[self.column])
        return found


def as_milliseconds(value: Any) -> Any:
    """Return a moment or a day in milliseconds since 1970; what is neither, such as a number, as it is."""
    if isinstance(value, datetime.datetime):
        return math.floor(value.replace(microsecond=0).timestamp()) * 1000 + value.microsecond // 1000
    if isinstance(value, datetime.date):
        return as_milliseconds(datetime.datetime.combine(value, datetime.time()))
    return value


def _milliseconds(column: pa.Array) -> list[int] | None:
    """Return a column of moments with a zone, or of numbers, as milliseconds; None for another column."""
    if column.null_count:
        return None
    if pa.types.is_integer(column.type):
        return column.to_numpy().tolist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return (column.view(pa.int64()).to_numpy() // 1000).tolist()  # type: ignore[no-any-return]
    return None


@attrs.frozen
class _ReadRows:
    """Makes batches of what the JVM wrote."""

    kind: RowType

    def __call__(self, data: bytes) -> Iterator[RowBatch]:
        yield row_batch(self.kind.json, self.kind.is_large, data)


def epoch_of(df: DataFrame) -> RddEpoch:
    """Return an epoch of the rows of a DataFrame."""
    rdd, read = rows_of(df)
    return RddEpoch(rdd, is_fresh=True, read=read)


def rows_of(df: SparkObject) -> tuple[RDD[Any], ReadBatches | None]:
    """Return the rows of a DataFrame: an RDD, and what makes batches of its items if they are no rows."""
    is_large = df.sparkSession.conf.get(_LARGE_OFFSETS, "false").strip().lower() == "true"
    if not df.columns or arrow_schema(df.schema, is_large) is None:
        return df.rdd, None
    try:
        batches = df._jdf.toArrowBatchRdd().toJavaRDD()
    except (Py4JError, TypeError):  # this release has no such method
        return df.rdd, None
    rdd: RDD[Any] = RDD(batches, df.sparkSession.sparkContext, NoOpSerializer())
    return rdd, _ReadRows(RowType(df.schema.json(), is_large))


# --- rows ------------------------------------------------------------------------------------------

#: Makes a row of its values.
MakeRow = Callable[[Iterable[Any]], Record]


@lru_cache(maxsize=1000)
def row_maker(names: tuple[str, ...]) -> MakeRow:
    """Return what makes rows like Spark's with these names, which are several times as fast.

    Spark keeps the list of names in each row, and looks a name up in it at each access. Here a row is a tuple
    with a descriptor for each name, like that of a ``namedtuple``. In all else it is the same: names that a
    tuple has already, such as ``count``, stay methods, and a pickle or a copy is a plain ``Row``. If a name
    occurs twice, it is that of the first field.

    >>> row = row_maker(("user", "n"))(("ann", 1))
    >>> row, row.user, row["n"], row[1], isinstance(row, Row)
    (Row(user='ann', n=1), 'ann', 1, 1, True)
    """
    positions = _positions(len(names))
    getters = vars(positions)  # they are empty as soon as garbage is collected and nobody holds the class
    places = {name: place for place, name in reversed(list(enumerate(names)))}
    fields = {name: getters[f"at_{place}"] for name, place in places.items() if _is_free(name)}
    made = type("Row", (Row,), {**fields, "__fields__": list(names), "__module__": Row.__module__})
    return partial(tuple.__new__, made)


def _positions(count: int) -> type:
    return namedtuple("_Positions", [f"at_{place}" for place in range(count)])


def _is_free(name: str) -> bool:
    return not name.startswith("__") and not hasattr(Row, name)


# --- columns ---------------------------------------------------------------------------------------

#: Returns the values of a column; what it gives for null does not matter if the column says that it has some.
_Read: TypeAlias = Callable[[pa.Array], list[Any]]


def reader_of(kind: sql.DataType) -> _Read:
    """Return the function that converts a column of this type to Python values; null becomes None."""
    read = _reader_of(kind)

    def with_nulls(array: pa.Array) -> list[Any]:
        if not array.null_count:
            return read(array)
        if array.null_count == len(array):
            return [None] * len(array)
        valid = array.is_valid().to_numpy(zero_copy_only=False).tolist()
        return [value if there else None for value, there in zip(read(array), valid, strict=True)]

    return with_nulls


def _rows(columns: list[list[object]], number: int, make: MakeRow) -> list[Record]:
    return list(map(make, zip(*columns, strict=True))) if columns else [make(()) for _ in range(number)]


def _reader_of(kind: sql.DataType) -> _Read:
    if isinstance(kind, sql.ArrayType):
        return _array_reader(kind)
    if isinstance(kind, sql.MapType):
        return _map_reader(kind)
    if isinstance(kind, sql.StructType):
        return _struct_reader(kind)
    return _READERS.get(type(kind), _numbers)


def _numbers(array: pa.Array) -> list[Any]:
    if array.null_count:
        array = array.fill_null(False if pa.types.is_boolean(array.type) else 0)
    return _objects(array)


def _objects(array: pa.Array) -> list[object]:
    values: list[object] = array.to_numpy(zero_copy_only=False).tolist()
    return values


def _counts(array: pa.Array, bits: int = 64) -> list[int]:
    """Return the unit of dates and times: days, or microseconds."""
    return _numbers(array.view(pa.int64() if bits == 64 else pa.int32()))


_EPOCH_DAY: Final = datetime.date(1970, 1, 1).toordinal()


def _each(convert: Callable[[int], object], bits: int = 64) -> _Read:
    """Return the function that reads a column of counts, and converts each."""
    return lambda array: list(map(convert, _counts(array, bits)))


_READERS: Final[dict[type, _Read]] = {
    sql.NullType: pa.Array.to_pylist,
    sql.StringType: _objects,
    sql.BinaryType: _objects,
    sql.DecimalType: pa.Array.to_pylist,
    sql.DateType: _each(lambda day: datetime.date.fromordinal(day + _EPOCH_DAY), 32),
    sql.TimestampType: _each(sql.TimestampType().fromInternal),
    sql.TimestampNTZType: _each(sql.TimestampNTZType().fromInternal),
    sql.DayTimeIntervalType: _each(lambda count: datetime.timedelta(microseconds=count)),
}


def _bounds(array: pa.Array) -> tuple[int, int, list[int]]:
    """Return where the elements of a list or map array begin, their number, and where each list begins."""
    offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    start, end = int(offsets[0]), int(offsets[-1])
    return start, end - start, (offsets - start).tolist()


def _array_reader(kind: sql.ArrayType) -> _Read:
    read = reader_of(kind.elementType)

    def read_lists(array: pa.Array) -> list[object]:
        start, length, cuts = _bounds(array)
        elements = read(array.values.slice(start, length))
        return [elements[begin:end] for begin, end in pairwise(cuts)]

    return read_lists


def _map_reader(kind: sql.MapType) -> _Read:
    read_keys, read_items = reader_of(kind.keyType), reader_of(kind.valueType)

    def read_maps(array: pa.Array) -> list[object]:
        start, length, cuts = _bounds(array)
        keys, items = read_keys(array.keys.slice(start, length)), read_items(array.items.slice(start, length))
        return [dict(zip(keys[begin:end], items[begin:end], strict=True)) for begin, end in pairwise(cuts)]

    return read_maps


def _struct_reader(kind: sql.StructType) -> _Read:
    readers = [reader_of(field.dataType) for field in kind.fields]
    make = row_maker(tuple(kind.names))

    def read_rows(array: pa.Array) -> list[Record]:
        return _rows([read(array.field(place)) for place, read in enumerate(readers)], len(array), make)

    return read_rows


# --- empty arrays ----------------------------------------------------------------------------------


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose empty arrays are sound; it is the same one if no array in it is empty.

    The offsets of lists, maps, texts and bytes say where each value begins, and the last one where they end,
    so an empty array has one offset. The Arrow of the JVM writes none. Arrow in Python trusts that it is
    there, and reads whatever lies in memory at that place: lists begin anywhere, and the size of a batch is
    any number.

    Args:
        batch: as it was read from bytes: its arrays begin with the first value of their buffers.
    """
    columns: list[pa.Array] = batch.columns
    sound = [_sound(column) for column in columns]
    return batch if _are_same(columns, sound) else pa.RecordBatch.from_arrays(sound, schema=batch.schema)


def _sound(array: pa.Array) -> pa.Array:
    if not len(array):
        return pa.nulls(0, array.type)
    children = _children(array)
    sound = [_sound(child) for child in children]
    if _are_same(children, sound):
        return array
    own = array.buffers()[: 1 if pa.types.is_struct(array.type) else 2]
    return pa.Array.from_buffers(array.type, len(array), own, array.null_count, children=sound)


def _children(array: pa.Array) -> list[pa.Array]:
    if pa.types.is_struct(array.type):
        return [array.field(place) for place in range(array.type.num_fields)]
    return [array.values] if pa.types.is_nested(array.type) else []


def _are_same(some: Sequence[pa.Array], others: Sequence[pa.Array]) -> bool:
    return all(one is other for one, other in zip(some, others, strict=True))
