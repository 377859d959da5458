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
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import types as sql

from pyflinkstate.api.time import TimestampAssigner
from pyflinkstate.api.values import Key, Record, SelectKey, SparkObject
from pyflinkstate.runtime.sources import RddEpoch, ReadBatches
from pyflinkstate.runtime.spark.arrow.arrow_columns import reader_of, rows_reader_of
from pyflinkstate.runtime.spark.arrow.arrow_types import arrow_schema
from pyflinkstate.runtime.spark.arrow.empty_arrays import with_offsets
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


class _Rows:
    """What makes rows of a type."""

    def __init__(self, kind: RowType) -> None:
        schema: Any = sql._parse_datatype_json_string(kind.json)
        self.names: list[str] = schema.names
        self.arrow = arrow_schema(schema, kind.is_large)
        #: Flat columns with rows have no empty array in them.
        self.is_nested = any(isinstance(field.dataType, _NESTED) for field in schema.fields)
        self.read = rows_reader_of(schema)
        self.readers = [reader_of(field.dataType) for field in schema.fields]


#: It is made once in a process.
_rows = lru_cache(maxsize=1000)(_Rows)


class RowBatch(ColumnBatch):
    """Rows of a DataFrame."""

    def __init__(self, kind: RowType, batch: pa.RecordBatch) -> None:
        self._kind = kind
        self._batch = batch

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return row_batch, (*attrs.astuple(self._kind), self._batch.serialize().to_pybytes())

    @property
    def size_bytes(self) -> int:
        """See :class:`ColumnBatch`."""
        return int(self._batch.nbytes)

    @cached_property
    def _made(self) -> list[Record]:
        return _rows(self._kind).read(self._batch)

    def rows(self) -> list[Record]:
        """See :class:`ColumnBatch`."""
        return self._made

    def keys(self, select_key: SelectKey) -> list[Key] | None:
        """See :class:`ColumnBatch`: the key is a column, or several."""
        if not isinstance(select_key, ColumnKey):
            return None
        kind = _rows(self._kind)
        places = [kind.names.index(name) for name in select_key.columns]
        columns = [kind.readers[place](self._batch.column(place)) for place in places]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def timestamps(self, assigner: TimestampAssigner) -> list[int] | None:
        """See :class:`ColumnBatch`: the timestamp is a column of a type that counts it."""
        if not isinstance(assigner, ColumnTimestamps):
            return None
        place = _rows(self._kind).names.index(assigner.column)
        return _milliseconds(self._batch.column(place))

    def take(self, order: npt.NDArray[np.int64]) -> RowBatch:
        """See :class:`ColumnBatch`."""
        return RowBatch(self._kind, self._batch.take(pa.array(order)))

    def part(self, start: int, length: int) -> RowBatch:
        """See :class:`ColumnBatch`."""
        return RowBatch(self._kind, self._batch.slice(start, length))


def row_batch(json: str, is_large: bool, data: bytes) -> RowBatch:
    """Return the batch that was pickled, or that Spark wrote."""
    kind = RowType(json, is_large)
    made = _rows(kind)
    batch = pa.ipc.read_record_batch(pa.py_buffer(data), made.arrow)
    return RowBatch(kind, with_offsets(batch) if made.is_nested or not batch.num_rows else batch)


@attrs.frozen
class ColumnKey:
    """Selects the key of a row: the value of a column, or a tuple of those of several."""

    columns: tuple[str, ...]

    def __call__(self, row: Record) -> Key:
        """Return the key."""
        if len(self.columns) == 1:
            key: Key = row[self.columns[0]]
            return key
        return tuple(row[column] for column in self.columns)


@attrs.frozen
class ColumnTimestamps(TimestampAssigner):
    """Takes the timestamp of a row from a column: a moment, a day, or a number of milliseconds since 1970."""

    column: str

    def extract_timestamp(self, value: Record, record_timestamp: int) -> int:
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


def epoch_of(df: SparkObject) -> RddEpoch:
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
