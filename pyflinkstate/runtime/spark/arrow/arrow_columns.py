"""Columns of a DataFrame as Python values, the same as ``df.rdd`` gives, made a column at a time."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import types as sql

from pyflinkstate.api.values import Record
from pyflinkstate.runtime.spark.arrow.row_classes import row_maker

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


def rows_reader_of(schema: sql.StructType) -> Callable[[pa.RecordBatch], list[Record]]:
    """Return the function that makes the rows of a batch."""
    readers = [reader_of(field.dataType) for field in schema.fields]
    make = row_maker(tuple(schema.names))

    def rows(batch: pa.RecordBatch) -> list[Record]:
        columns = [read(column) for read, column in zip(readers, batch.columns, strict=True)]
        return _rows(columns, batch.num_rows, make)

    return rows


def _rows(columns: list[list[Any]], number: int, make: Callable[[Any], Record]) -> list[Record]:
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
    filled = array.fill_null(False if pa.types.is_boolean(array.type) else 0) if array.null_count else array
    values: list[Any] = filled.to_numpy(zero_copy_only=False).tolist()
    return values


def _objects(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
    return values


def _counts(array: pa.Array, bits: int = 64) -> list[int]:
    """Return the unit of dates and times: days, or microseconds."""
    return _numbers(array.view(pa.int64() if bits == 64 else pa.int32()))


_EPOCH_DAY: Final = datetime.date(1970, 1, 1).toordinal()
_from_day = datetime.date.fromordinal
_from_timestamp = sql.TimestampType().fromInternal
_from_timestamp_ntz = sql.TimestampNTZType().fromInternal


def _dates(array: pa.Array) -> list[Any]:
    return [_from_day(day + _EPOCH_DAY) for day in _counts(array, 32)]


def _timestamps(array: pa.Array) -> list[Any]:
    return list(map(_from_timestamp, _counts(array)))


def _timestamps_ntz(array: pa.Array) -> list[Any]:
    return list(map(_from_timestamp_ntz, _counts(array)))


def _durations(array: pa.Array) -> list[Any]:
    return [datetime.timedelta(microseconds=count) for count in _counts(array)]


def _plainly(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values


_READERS: Final[dict[type, _Read]] = {
    sql.NullType: _plainly,
    sql.StringType: _objects,
    sql.BinaryType: _objects,
    sql.DecimalType: _plainly,
    sql.DateType: _dates,
    sql.TimestampType: _timestamps,
    sql.TimestampNTZType: _timestamps_ntz,
    sql.DayTimeIntervalType: _durations,
}


def _bounds(array: pa.Array) -> tuple[int, int, list[int]]:
    """Return where the elements of a list or map array begin, their number, and where each list begins."""
    offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    start, end = int(offsets[0]), int(offsets[-1])
    return start, end - start, (offsets - start).tolist()


def _array_reader(kind: sql.ArrayType) -> _Read:
    read = reader_of(kind.elementType)

    def read_lists(array: pa.Array) -> list[Any]:
        start, length, cuts = _bounds(array)
        elements = read(array.values.slice(start, length))
        return [elements[begin:end] for begin, end in pairwise(cuts)]

    return read_lists


def _map_reader(kind: sql.MapType) -> _Read:
    read_keys, read_items = reader_of(kind.keyType), reader_of(kind.valueType)

    def read_maps(array: pa.Array) -> list[Any]:
        start, length, cuts = _bounds(array)
        keys, items = read_keys(array.keys.slice(start, length)), read_items(array.items.slice(start, length))
        return [dict(zip(keys[begin:end], items[begin:end], strict=True)) for begin, end in pairwise(cuts)]

    return read_maps


def _struct_reader(kind: sql.StructType) -> _Read:
    readers = [reader_of(field.dataType) for field in kind.fields]
    make = row_maker(tuple(kind.names))

    def read_rows(array: pa.Array) -> list[Any]:
        columns = [read(array.field(place)) for place, read in enumerate(readers)]
        return _rows(columns, len(array), make)

    return read_rows
