"""Which of Spark's types travel as Arrow, and what they are there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
from pyspark.sql import types as sql

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
