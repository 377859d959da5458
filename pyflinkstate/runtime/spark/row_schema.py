"""Rows on their way into a DataFrame: checked against its schema where they are made.

Spark checks them much later and tells neither the operator nor, of texts, the column; Arrow, which writes the
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
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from math import inf
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
from pyspark.errors import PySparkException
from pyspark.sql import types as sql

from pyflinkstate.api import FieldValue, Record, Reduced, Row, SparkSchema, names_of, safe_repr
from pyflinkstate.errors import ConfigurationError, RowError

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


class _MisfitError(Exception):
    """A value that does not fit; the path leads to it, from the column on."""

    def __init__(self, value: object, needed: str) -> None:
        super().__init__(needed)
        self.value = value
        self.needed = needed
        self.path = ""

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
