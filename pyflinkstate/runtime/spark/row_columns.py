"""Rows on their way into a DataFrame: tasks write Arrow batches, which Spark reads as they are.

Columns are written as a whole where they are plainly what the schema says. What is not is checked row by row
(:mod:`row_schema`), and becomes what the schema takes, or an error that names operator, row and column. Both
give the same table.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, types as sql
from pyspark.sql.pandas.utils import require_minimum_pandas_version

from pyflinkstate.api import Record, Reported, SparkObject
from pyflinkstate.errors import RowError
from pyflinkstate.runtime.spark.row_schema import RowCheck, is_too_large_for_single, seconds_of
from pyflinkstate.runtime.wire import FrameCutter, user_failure

#: Spark counts the time of a ``TimestampType`` in UTC, whatever the name of the zone that goes with it.
ZONE: Final = "UTC"

_PLAIN: Final[dict[type, pa.DataType]] = {
    sql.NullType: pa.null(),
    sql.BooleanType: pa.bool_(),
    sql.ByteType: pa.int8(),
    sql.ShortType: pa.int16(),
    sql.IntegerType: pa.int32(),
    sql.LongType: pa.int64(),
    sql.FloatType: pa.float32(),
    sql.DoubleType: pa.float64(),
    sql.StringType: pa.string(),
    sql.BinaryType: pa.binary(),
    sql.DateType: pa.date32(),
    sql.TimestampType: pa.timestamp("us", ZONE),
    sql.TimestampNTZType: pa.timestamp("us"),
    sql.DayTimeIntervalType: pa.duration("us"),
}
_LARGE: Final = {sql.StringType: pa.large_string(), sql.BinaryType: pa.large_binary()}


def arrow_type(kind: sql.DataType, is_large: bool = False) -> pa.DataType | None:
    """Return the type in which Spark and Arrow exchange values; None if they do not travel as Arrow here.

    Args:
        kind: the type in Spark.
        is_large: whether texts and bytes have offsets of 64 bits
            (``spark.sql.execution.arrow.useLargeVarTypes``).
    """
    if isinstance(kind, sql.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, sql.ArrayType):
        element = _field("element", kind.elementType, kind.containsNull, is_large)
        return None if element is None else pa.list_(element)
    if isinstance(kind, sql.MapType):
        key = _field("key", kind.keyType, False, is_large)
        value = _field("value", kind.valueType, kind.valueContainsNull, is_large)
        return None if key is None or value is None else pa.map_(key, value)
    if isinstance(kind, sql.StructType):
        fields = _fields(kind, is_large)
        return None if fields is None else pa.struct(fields)
    return (_LARGE if is_large else {}).get(type(kind)) or _PLAIN.get(type(kind))


def arrow_schema(schema: sql.StructType, is_large: bool = False) -> pa.Schema | None:
    """Return the schema of a DataFrame in Arrow; None if a column does not travel as Arrow here."""
    fields = _fields(schema, is_large)
    return None if fields is None else pa.schema(fields)


def _fields(kind: sql.StructType, is_large: bool) -> list[pa.Field] | None:
    return _all(_field(each.name, each.dataType, each.nullable, is_large) for each in kind.fields)


def _all(fields: Iterable[pa.Field | None]) -> list[pa.Field] | None:
    found = list(fields)
    return None if any(field is None for field in found) else found


def _field(name: str, kind: sql.DataType, nullable: bool, is_large: bool) -> pa.Field | None:
    arrow = arrow_type(kind, is_large)
    return None if arrow is None else pa.field(name, arrow, nullable)


#: Makes a column of values that fit its type.
_Build: TypeAlias = Callable[[Sequence[Any]], pa.Array]

#: Values of exactly these types need no check by themselves.
_EXACT: Final[dict[type, set[type]]] = {
    sql.BooleanType: {bool},
    sql.ByteType: {int},
    sql.ShortType: {int},
    sql.IntegerType: {int},
    sql.LongType: {int},
    sql.FloatType: {float},
    sql.DoubleType: {float},
    sql.StringType: {str},
    sql.BinaryType: {bytes, bytearray},
    sql.DecimalType: {decimal.Decimal},
    sql.DateType: {datetime.date},
    sql.TimestampType: {datetime.datetime},
    sql.TimestampNTZType: {datetime.datetime},
    sql.DayTimeIntervalType: {datetime.timedelta},
}
_ERRORS: Final = (pa.ArrowException, ArithmeticError, TypeError, ValueError)
_SPARKS_COUNT: Final[Callable[[datetime.datetime], int]] = sql.TimestampType().toInternal
_ROUNDING: Final = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)


@attrs.define
class RowColumns:
    """Makes Arrow batches of rows.

    Args:
        schema: of the DataFrame.
        is_value: whether a record is the value of the one column, and no row.
        operator: whose results the rows are, for messages.
    """

    schema: sql.StructType
    is_value: bool
    operator: str
    _columns: list[_Column] = attrs.field(init=False, eq=False, repr=False)
    _check: RowCheck = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._columns = [_Column(field) for field in self.schema.fields]
        self._check = RowCheck(self.schema.fields[0].dataType if self.is_value else self.schema)

    @classmethod
    def of(cls, kind: sql.DataType, operator: str) -> RowColumns | None:
        """Return the function that makes batches of this type; None if they do not travel as Arrow."""
        is_value = not isinstance(kind, sql.StructType)
        schema = sql.StructType([sql.StructField("value", kind)]) if is_value else kind
        assert isinstance(schema, sql.StructType)
        has_twice = len(set(schema.names)) < len(schema.names)
        travels = schema.fields and not has_twice and arrow_schema(schema) is not None
        return cls(schema, is_value, operator) if travels else None

    @property
    def arrow(self) -> pa.Schema:
        """The schema of the batches."""
        return arrow_schema(self.schema)

    def batch(self, rows: Sequence[Record]) -> pa.RecordBatch:
        """Return the rows as a batch.

        Raises:
            RowError: a row does not fit.
        """
        columns = self._plain_columns(rows)
        try:
            if columns is not None and all(map(_Column.is_plain, self._columns, columns)):
                return self._made(columns)
        except _ERRORS:
            pass  # one of the rows does not fit: the check says which
        return self._checked_batch(rows)

    def _plain_columns(self, rows: Sequence[Any]) -> list[Sequence[object]] | None:
        """Return the columns of rows that are tuples of the right length, otherwise None."""
        if self.is_value:
            return [rows]
        if not rows or set(map(type, rows)) != {tuple} or set(map(len, rows)) != {len(self._columns)}:
            return None
        return list(zip(*rows, strict=True))

    def _made(self, columns: Iterable[Sequence[object]]) -> pa.RecordBatch:
        arrays = [column.build(values) for column, values in zip(self._columns, columns, strict=True)]
        return pa.record_batch(arrays, schema=self.arrow)

    def _checked_batch(self, rows: Sequence[Record]) -> pa.RecordBatch:
        fitting = [self._fitting(row) for row in rows]
        columns: list[Sequence[object]] = [fitting] if self.is_value else list(zip(*fitting, strict=True))
        try:
            return self._made(columns or [()] * len(self._columns))
        except _ERRORS as error:
            raise self._misfit(rows, fitting, error) from error

    def _fitting(self, row: Record) -> object:
        try:
            return self._check(row)
        except Exception as error:
            raise user_failure(error, self.operator, row) from error

    def _misfit(self, rows: Sequence[Record], fitting: Sequence[Any], error: Exception) -> Exception:
        """Return the error that names the first row and column that Arrow refuses after the check."""
        for row, fit in zip(rows, fitting, strict=True):
            for column, value in zip(self._columns, (fit,) if self.is_value else fit, strict=True):
                try:
                    column.build([value])
                except _ERRORS as reason:
                    return user_failure(column.misfit(reason), self.operator, row)
        return error

    def __reduce__(self) -> tuple[object, ...]:
        return RowColumns, (self.schema, self.is_value, self.operator)


class _Column:
    def __init__(self, field: sql.StructField) -> None:
        self._field = field
        exact = _EXACT.get(type(field.dataType))
        self._exact = exact if exact is None or not field.nullable else exact | {type(None)}
        self.build = _builder_of(field.dataType)

    def is_plain(self, values: Sequence[object]) -> bool:
        """Return whether the values need no check by themselves."""
        return self._exact is not None and set(map(type, values)) <= self._exact

    def misfit(self, reason: Exception) -> RowError:
        name, kind = self._field.name, self._field.dataType.simpleString()
        return RowError(f"column {name!r} takes {kind}, and the value does not fit: {reason}", column=name)


def _builder_of(kind: sql.DataType) -> _Build:
    arrow = arrow_type(kind)
    if isinstance(kind, sql.ArrayType):
        return _array_builder(kind, arrow)
    if isinstance(kind, sql.MapType):
        return _map_builder(kind, arrow)
    if isinstance(kind, sql.StructType):
        return _struct_builder(kind, arrow)
    if isinstance(kind, sql.DecimalType):
        unit = decimal.Decimal(1).scaleb(-kind.scale)
        return lambda values: pa.array([_rounded(value, unit) for value in values], arrow)
    if isinstance(kind, (sql.TimestampType, sql.TimestampNTZType)):
        count = _microseconds if isinstance(kind, sql.TimestampType) else kind.toInternal
        return lambda values: pa.array(list(map(count, values)), pa.int64()).view(arrow)
    if isinstance(kind, sql.FloatType):
        return _singles
    return lambda values: pa.array(values, arrow)


def _microseconds(moment: datetime.datetime | None) -> int | None:
    """Return the microseconds since 1970; PySpark does not tell the two hours of a clock change apart."""
    if moment is None:
        return None
    try:
        return seconds_of(moment) * 10**6 + moment.microsecond
    except (ValueError, OverflowError):
        return _SPARKS_COUNT(moment)


def _singles(values: Sequence[Any]) -> pa.Array:
    made = pa.array(values, pa.float32())
    # Arrow makes what is too large infinite. Few columns have such values, so only then each is looked at.
    if pc.any(pc.is_inf(made)).as_py():
        wrong = next(
            (value for value in values if value is not None and is_too_large_for_single(value)), None
        )
        if wrong is not None:
            raise ValueError(f"{wrong} is too large for 32 bits")
    return made


def _rounded(value: decimal.Decimal | None, unit: decimal.Decimal) -> decimal.Decimal | None:
    if value is None:
        return None
    if not value.is_finite():
        raise ValueError(f"{value} is no number")
    return value.quantize(unit, context=_ROUNDING)


def _nested(
    arrow: pa.DataType, values: Sequence[object], offsets: pa.Buffer | None, children: list[pa.Array]
) -> pa.Array:
    """Return a column of lists, maps or rows, which is null where a value is None."""
    is_there = [value is not None for value in values]
    validity = None if all(is_there) else pa.array(is_there).buffers()[1]
    buffers = [validity] if offsets is None else [validity, offsets]
    return pa.Array.from_buffers(arrow, len(values), buffers, children=children)


def _offsets(values: Sequence[Any]) -> pa.Buffer:
    lengths = (0 if value is None else len(value) for value in values)
    return pa.py_buffer(np.fromiter(accumulate(lengths, initial=0), np.int32, len(values) + 1))


def _array_builder(kind: sql.ArrayType, arrow: pa.DataType) -> _Build:
    build = _builder_of(kind.elementType)

    def arrays(values: Sequence[Any]) -> pa.Array:
        elements = build(list(chain.from_iterable(value or () for value in values)))
        return _nested(arrow, values, _offsets(values), [elements])

    return arrays


def _map_builder(kind: sql.MapType, arrow: pa.DataType) -> _Build:
    build_keys, build_items = _builder_of(kind.keyType), _builder_of(kind.valueType)

    def maps(values: Sequence[Any]) -> pa.Array:
        there = [value or {} for value in values]
        keys = build_keys(list(chain.from_iterable(there)))
        items = build_items(list(chain.from_iterable(value.values() for value in there)))
        entries = pa.StructArray.from_arrays([keys, items], fields=[arrow.key_field, arrow.item_field])
        return _nested(arrow, values, _offsets(values), [entries])

    return maps


def _struct_builder(kind: sql.StructType, arrow: pa.DataType) -> _Build:
    builders = [_builder_of(field.dataType) for field in kind.fields]
    nothing = (None,) * len(builders)

    def structs(values: Sequence[object]) -> pa.Array:
        rows = [nothing if value is None else value for value in values]
        columns = list(zip(*rows, strict=True)) or [()] * len(builders)
        return _nested(
            arrow, values, None, [build(column) for build, column in zip(builders, columns, strict=True)]
        )

    return structs


# --- DataFrames of batches -------------------------------------------------------------------------

#: As many rows as Spark puts into a batch.
ROWS_PER_BATCH = 10_000


@attrs.frozen
class ArrowWriter:
    """Writes rows as Arrow batches; see :class:`~pyflinkstate.runtime.sinks.sinks.SinkWriter`."""

    columns: RowColumns

    def write(self, partition: int, records: Iterator[Record]) -> Iterator[Reported]:
        """See ``SinkWriter``."""
        cutter = FrameCutter(ROWS_PER_BATCH)
        while rows := cutter.take(records):
            data = self.columns.batch(rows).serialize().to_pybytes()
            cutter.encoded(len(data))
            yield data


@attrs.frozen
class _Decode:
    columns: RowColumns

    def __call__(self, frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.columns.arrow
        yield from (
            pa.ipc.read_record_batch(data.as_buffer(), schema)
            for data in chain.from_iterable(frame.column(0) for frame in frames)
        )


def can_make_dataframes() -> bool:
    """Return whether Spark would take the batches: ``mapInArrow`` asks for pandas, without using it."""
    try:
        require_minimum_pandas_version()
    except ImportError:
        return False
    return True


def dataframe_of(spark: SparkSession, batches: list[SparkObject], columns: RowColumns) -> DataFrame:
    """Return the rows of RDDs of batches that :class:`ArrowWriter` wrote."""
    if not batches:
        return spark.createDataFrame([], columns.schema)
    packed = spark.createDataFrame(
        spark.sparkContext.union(batches).map(_in_a_row), "batch binary", verifySchema=False
    )
    return packed.mapInArrow(_Decode(columns), columns.schema)


def _in_a_row(data: bytes) -> tuple[bytes]:
    return (data,)
