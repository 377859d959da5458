"""Rows on their way into a DataFrame: checked against its schema, and written as Arrow batches by tasks.

Columns are written as a whole where they are plainly what the schema says. What is not is checked row by row
(:class:`RowCheck`), and becomes what the schema takes, or an error that names operator, row and column. Both
give the same table.

Spark checks rows much later and tells neither the operator nor, of texts, the column; Arrow, which writes the
files behind a streaming DataFrame, goes by other rules. Here both have one rule: a value has the Python type
of its column, or is a number that the column holds without loss (an int in a ``DOUBLE``, a whole float in a
``BIGINT``, numpy's numbers). A field that a dict does not have is null, as in Spark; one that the schema does
not have is refused. So it is with the attributes of other objects, of which private ones and cached
properties do not count. A column may also be a slot, a property or an attribute of the class.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, chain
from math import inf
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, types as sql
from pyspark.sql.pandas.utils import require_minimum_pandas_version

from pyflinkstate.api import (
    FieldValue,
    Record,
    Reduced,
    Reported,
    Row,
    SparkObject,
    SparkSchema,
    names_of,
    safe_repr,
)
from pyflinkstate.errors import ConfigurationError, RowError
from pyflinkstate.runtime.wire import FrameCutter, user_failure

#: Returns a value as its column takes it; raises ``_MisfitError``.
_Fit: TypeAlias = Callable[[Any], Any]

#: Of each type of Spark's what Python type its values have.
_PYTHON_TYPES: Final[dict[type, tuple[type, ...]]] = {
    sql.StringType: (str,),
    sql.CharType: (str,),
    sql.VarcharType: (str,),
    sql.BinaryType: (bytes, bytearray),
    sql.BooleanType: (bool,),
    sql.FloatType: (float,),
    sql.DoubleType: (float,),
    sql.DecimalType: (decimal.Decimal,),
    sql.DateType: (datetime.date,),
    sql.TimestampType: (datetime.datetime,),
    sql.TimestampNTZType: (datetime.datetime,),
    sql.DayTimeIntervalType: (datetime.timedelta,),
}
#: From here on a number is infinite when it is rounded to 32 bits.
_TOO_LARGE_FOR_SINGLE: Final = float(2**128 - 2**103)
#: Columns of these types hold each whole number up to there.
_EXACT_UP_TO: Final[dict[type, int]] = {sql.FloatType: 2**24, sql.DoubleType: 2**53}
#: Maximum length of a schema in messages.
_MAX_SCHEMA: Final = 300
#: Maximum length of a field's name in messages.
_MAX_NAME: Final = 50
#: Number of row classes whose slots are cached.
_MAX_KINDS: Final = 1000
#: Attributes of a class that make no row of its objects. The last is what classes written in C have, such as
#: the year of a date.
_NO_VALUES: Final = (classmethod, staticmethod, GetSetDescriptorType)
_INTEGER_BITS: Final[dict[type, int]] = {
    sql.ByteType: 8,
    sql.ShortType: 16,
    sql.IntegerType: 32,
    sql.LongType: 64,
}


@attrs.define
class _MisfitError(Exception):
    """A value that does not fit; the path leads to it, from the column on."""

    value: object
    needed: str
    path: str = ""

    def within(self, place: str) -> _MisfitError:
        """Return it with another step before its path."""
        dot = "." if self.path and not self.path.startswith("[") else ""
        self.path = f"{place}{dot}{self.path}"
        return self


def schema_of(schema: SparkSchema) -> sql.DataType | None:
    """Return the schema that ``createDataFrame`` makes of one; None if that depends on the rows.

    Raises:
        ConfigurationError: it is none, such as a text with a type that is not there.
    """
    if isinstance(schema, sql.DataType):
        return schema
    if not isinstance(schema, str):
        return None
    try:
        return sql.DataType.fromDDL(schema)
    except PySparkException as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ConfigurationError(
            f"schema {schema!r}: {' '.join(lines[:1])} Write names and types, such as 'user string, n long'"
        ) from error


@attrs.define
class RowCheck:
    """Gives rows as tuples in the order of a schema.

    Args:
        schema: of the DataFrame; one that is no struct is that of the values themselves.
        for_spark: whether ``createDataFrame`` takes the rows. It does not tell the two hours of a clock
            change apart, so a moment without a zone is given as the same one in UTC.
    """

    schema: sql.DataType
    for_spark: bool = False
    _fit: _Fit | None = attrs.field(init=False, default=None, eq=False, repr=False)

    def __call__(self, record: Record) -> Record:
        """Return the row.

        Raises:
            RowError: it does not fit.
        """
        if self._fit is None:
            self._fit = _fit_of(self.schema, not isinstance(self.schema, sql.StructType), self.for_spark)
        try:
            return self._fit(record)
        except _MisfitError as misfit:
            raise self._error(misfit) from None

    def _error(self, misfit: _MisfitError) -> RowError:
        kind, column = type(misfit.value).__name__, misfit.path
        what, schema = f"column {column!r}" if column else "a row", self.schema.simpleString()[:_MAX_SCHEMA]
        return RowError(
            f"{what} takes {misfit.needed}, and is {safe_repr(misfit.value)}, of type {kind}; the schema is "
            f"{schema}. Yield what fits, or change the schema",
            column=column,
            type=kind,
        )

    def __reduce__(self) -> Reduced:
        return RowCheck, (self.schema, self.for_spark)


def _fit_of(kind: sql.DataType, nullable: bool, for_spark: bool) -> _Fit:
    fit = _fit_not_null(kind, for_spark)

    def fit_or_null(value: FieldValue) -> FieldValue:
        if value is not None:
            return fit(value)
        if not nullable:
            raise _MisfitError(None, f"{kind.simpleString()}, never None")
        return None

    return fit_or_null


def _fit_not_null(kind: sql.DataType, for_spark: bool) -> _Fit:
    if isinstance(kind, sql.StructType):
        return _fit_of_struct(kind, for_spark)
    if isinstance(kind, sql.ArrayType):
        return _fit_of_array(kind, for_spark)
    if isinstance(kind, sql.MapType):
        return _fit_of_map(kind, for_spark)
    if type(kind) in _INTEGER_BITS:
        return _fit_of_integer(kind)
    if type(kind) in _PYTHON_TYPES:
        fit = _fit_of_type(kind)
        return _fit_of_moment(fit) if for_spark and isinstance(kind, sql.TimestampType) else fit
    return lambda value: value  # Spark says whether it fits


def _fit_of_type(kind: sql.DataType) -> _Fit:
    wanted = _PYTHON_TYPES[type(kind)]
    needed = _needed(kind, *wanted)

    def fit(value: FieldValue) -> FieldValue:
        if type(value) in wanted:
            return value
        converted = _converted(type(kind), _plain(value))
        if not _is_one_of(converted, wanted):
            raise _MisfitError(value, needed)
        return converted

    if isinstance(kind, sql.FloatType):
        return _fit_of_single(fit, needed)
    return _fit_of_decimal(kind, fit) if isinstance(kind, sql.DecimalType) else fit


def _plain(value: FieldValue) -> Any:
    """Return a number of numpy's as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _is_one_of(value: FieldValue, wanted: tuple[type, ...]) -> bool:
    # A datetime is a date, and a column of dates would lose its time.
    is_cut = isinstance(value, datetime.datetime) and datetime.datetime not in wanted
    return isinstance(value, wanted) and not is_cut


def _is_int(value: FieldValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _converted(kind: type, value: Any) -> FieldValue:
    """Return a whole number in the type of its column, if that holds it exactly."""
    if not _is_int(value):
        return value
    if kind is sql.DecimalType:
        return decimal.Decimal(value)
    return float(value) if abs(value) <= _EXACT_UP_TO.get(kind, -1) else value


def is_too_large_for_single(number: float) -> bool:
    """Return whether a finite number would be infinite in a ``FLOAT``; others are rounded."""
    return _TOO_LARGE_FOR_SINGLE <= abs(number) < inf


def _fit_of_single(fit: _Fit, needed: str) -> _Fit:
    def fit_single(value: FieldValue) -> FieldValue:
        number = fit(value)
        if is_too_large_for_single(number):
            raise _MisfitError(value, f"{needed} below 3.5e38")
        return number

    return fit_single


def _fit_of_decimal(kind: sql.DecimalType, fit: _Fit) -> _Fit:
    def fit_digits(value: FieldValue) -> FieldValue:
        number = fit(value)
        if not number.is_finite() or (number and number.adjusted() >= kind.precision - kind.scale):
            raise _MisfitError(value, _needed(kind, decimal.Decimal))
        return number

    return fit_digits


def seconds_of(moment: datetime.datetime) -> int:
    """Return the whole seconds since 1970 of a moment, which is one of local time if it has no zone.

    Raises:
        ValueError, OverflowError: it is so near to the first or the last moment that Python cannot count it.
    """
    # The method of pandas' moments takes one without a zone for one in UTC.
    return math.floor(datetime.datetime.timestamp(moment.replace(microsecond=0)))


def _fit_of_moment(fit: _Fit) -> _Fit:
    def fit_moment(value: FieldValue) -> FieldValue:
        moment = fit(value)
        if moment.tzinfo is not None:
            return moment
        try:
            in_utc = datetime.datetime.fromtimestamp(seconds_of(moment), datetime.timezone.utc)
        except (ValueError, OverflowError):
            return moment  # Spark counts it, and no clock was changed then
        return in_utc.replace(microsecond=moment.microsecond)

    return fit_moment


def _fit_of_integer(kind: sql.DataType) -> _Fit:
    bits = _INTEGER_BITS[type(kind)]
    bound, needed = 1 << (bits - 1), f"{_needed(kind, int)} of {bits} bits"

    def fit(value: FieldValue) -> FieldValue:
        whole = value if type(value) is int else _as_whole(value)
        if whole is None or not -bound <= whole < bound:
            raise _MisfitError(value, needed)
        return whole

    return fit


def _as_whole(value: FieldValue) -> int | None:
    number = _plain(value)
    return int(number) if _is_int(number) or (isinstance(number, float) and number.is_integer()) else None


def _fit_of_array(kind: sql.ArrayType, for_spark: bool) -> _Fit:
    fit_element = _fit_of(kind.elementType, kind.containsNull, for_spark)

    def fit(value: FieldValue) -> FieldValue:
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise _MisfitError(value, _needed(kind, list))
        fitting: list[FieldValue] = []
        try:
            fitting.extend(map(fit_element, value))
        except _MisfitError as misfit:
            raise misfit.within(f"[{len(fitting)}]") from None
        return fitting

    return fit


def _fit_of_map(kind: sql.MapType, for_spark: bool) -> _Fit:
    fit_key = _fit_of(kind.keyType, False, for_spark)
    fit_value = _fit_of(kind.valueType, kind.valueContainsNull, for_spark)

    def fit(value: FieldValue) -> FieldValue:
        if not isinstance(value, Mapping):
            raise _MisfitError(value, _needed(kind, dict))
        fitting = {}
        for key, part in value.items():
            try:
                fitting[fit_key(key)] = fit_value(part)
            except _MisfitError as misfit:
                raise misfit.within(f"[{safe_repr(key)}]") from None
        return fitting

    return fit


def _fit_of_struct(kind: sql.StructType, for_spark: bool) -> _Fit:
    names = [field.name for field in kind.fields]
    fits = [_fit_of(field.dataType, field.nullable, for_spark) for field in kind.fields]
    needed = f"tuples, dicts or rows of {len(names)} fields ({', '.join(names)})"

    def fit(value: FieldValue) -> FieldValue:
        parts = value if type(value) is tuple else _parts(value, names)
        if parts is None or len(parts) != len(fits):
            raise _MisfitError(value, needed + _told_unknown(value, names))
        fitting: list[FieldValue] = []
        try:
            for fit_field, part in zip(fits, parts, strict=True):
                fitting.append(fit_field(part))
        except _MisfitError as misfit:
            raise misfit.within(names[len(fitting)]) from None
        return tuple(fitting)

    return fit


def _parts(value: FieldValue, names: list[str]) -> Sequence[FieldValue] | None:
    """Return the fields of a row in order, None for a missing field. None if the value is not such a row."""
    if isinstance(value, sql.Row):
        return _of_spark(value, names)
    fields = _by_name(value, names)
    if fields is not None:
        return [fields.get(name) for name in names] if fields.keys() <= set(names) else None
    return tuple(value) if isinstance(value, (Row, tuple, list)) else None


def _by_name(value: FieldValue, names: list[str]) -> Mapping[Any, FieldValue] | None:
    """Return the fields of what has them by name; None of what has them by position, or has none."""
    if isinstance(value, Row):
        return value.as_dict() if names_of(value) else None
    if isinstance(value, Mapping):
        return value
    return None if isinstance(value, (tuple, list)) else _attributes(value, names) or None


def _told_unknown(value: FieldValue, names: list[str]) -> str:
    """Return what an error says of a field that the schema does not have."""
    unknown = [name for name in _by_name(value, names) or () if name not in names]
    return f", none of which is {safe_repr(unknown[0], _MAX_NAME)}" if unknown else ""


def _of_spark(row: sql.Row, names: list[str]) -> Sequence[FieldValue]:
    """Return the fields by name if they have all the names; otherwise by position, as Spark takes them."""
    fields = getattr(row, "__fields__", None) or ()
    is_by_name = len(fields) == len(row) == len(names) == len(set(names)) and set(fields) == set(names)
    return [row[fields.index(name)] for name in names] if is_by_name else row


def _attributes(value: FieldValue, names: list[str]) -> dict[str, FieldValue]:
    """Return the attributes of an object that match its columns, and near misses for the error message."""
    kind: type = type(value)
    given = getattr(value, "__dict__", {})
    slots = _slots_of(kind)
    own = {name: given[name] for name in given if name in names or _is_public(kind, name)}
    for name in slots:
        if (name in names or _is_public(kind, name)) and hasattr(value, name):
            own[name] = getattr(value, name)
    of_class = [name for name in names if name not in own and name not in slots and _has_value(kind, name)]
    # What has no attribute of its own is a row only if its class has all of the columns: many classes have a
    # property such as ``name``.
    is_row = own or len(of_class) == len(names)
    return own | {name: getattr(value, name) for name in of_class} if is_row else {}


def _is_public(kind: type, name: str) -> bool:
    return not (name.startswith("_") or isinstance(getattr(kind, name, None), cached_property))


@lru_cache(_MAX_KINDS)
def _slots_of(kind: type) -> tuple[str, ...]:
    """Return the names of the slots of a class; of a class of attrs', only those of its fields."""
    fields = attrs.fields_dict(kind) if attrs.has(kind) else None
    return tuple(
        name
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for name, attribute in vars(base).items()
        if isinstance(attribute, MemberDescriptorType) and (fields is None or name in fields)
    )


def _has_value(kind: type, name: str) -> bool:
    """Return whether a class has an attribute that stands for a value: a property, say, and no method."""
    for base in kind.__mro__:
        if name in vars(base):
            return not (callable(vars(base)[name]) or isinstance(vars(base)[name], _NO_VALUES))
    return False


def _needed(kind: sql.DataType, *types: type) -> str:
    return f"{kind.simpleString()}, in Python {' or '.join(one.__name__ for one in types)}"


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


def arrow_type(kind: sql.DataType, is_large: bool = False) -> pa.DataType:
    """Return the type in which Spark and Arrow exchange values.

    Args:
        kind: the type in Spark.
        is_large: whether texts and bytes have offsets of 64 bits
            (``spark.sql.execution.arrow.useLargeVarTypes``).

    Raises:
        KeyError: the type, or one in it, does not travel as Arrow here.
    """
    if isinstance(kind, sql.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, sql.ArrayType):
        return pa.list_(_field("element", kind.elementType, kind.containsNull, is_large))
    if isinstance(kind, sql.MapType):
        key = _field("key", kind.keyType, False, is_large)
        value = _field("value", kind.valueType, kind.valueContainsNull, is_large)
        return pa.map_(key, value)
    if isinstance(kind, sql.StructType):
        return pa.struct(_fields(kind, is_large))
    return _LARGE[type(kind)] if is_large and type(kind) in _LARGE else _PLAIN[type(kind)]


def arrow_schema(schema: sql.StructType, is_large: bool = False) -> pa.Schema | None:
    """Return the schema of a DataFrame in Arrow; None if a column does not travel as Arrow here."""
    try:
        return pa.schema(_fields(schema, is_large))
    except KeyError:
        return None


def _fields(kind: sql.StructType, is_large: bool) -> list[pa.Field]:
    return [_field(each.name, each.dataType, each.nullable, is_large) for each in kind.fields]


def _field(name: str, kind: sql.DataType, nullable: bool, is_large: bool) -> pa.Field:
    return pa.field(name, arrow_type(kind, is_large), nullable)


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

    @cached_property
    def _columns(self) -> list[_Column]:
        return [_Column(field) for field in self.schema.fields]

    @cached_property
    def _check(self) -> RowCheck:
        return RowCheck(self.schema.fields[0].dataType if self.is_value else self.schema)

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
