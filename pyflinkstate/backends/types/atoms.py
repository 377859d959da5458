"""The types without parts: numbers, strings, bytes, dates and instants, under their names in checkpoints.

A row is all that a new type needs besides its class in ``pyflinkstate.api``, which has the check.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Mapping
from decimal import Decimal

import numpy as np
import pyarrow as pa

from pyflinkstate.api import Instant, LocalTimeTypeInfo, Row, TypeInformation, Types
from pyflinkstate.backends.key_groups import java_hash_of_string
from pyflinkstate.backends.types import hashes
from pyflinkstate.backends.types.codec import (
    Codec,
    Convert,
    FromArrow,
    JavaHash,
    Show,
    WrittenForm,
    column_values,
    unchanged,
)

# --- how Java, and therefore PyFlink, prints values -----------------------------------------------------

#: Python converts ints of up to 4300 decimal digits; these are surely not more.
DECIMAL_BITS = 14_000

_EPOCH = datetime.datetime(1970, 1, 1)


def show_row(row: Row) -> str:
    fields = [show_big_integer(field) if type(field) is int else str(field) for field in row]
    return f"{row.get_row_kind()}[{','.join(fields)}]"


def show_double(value: float) -> str:
    """Return a 64-bit number as Java's ``Double.toString`` does.

    >>> show_double(1e10), show_double(0.1), show_double(1e-5), show_double(100.0)
    ('1.0E10', '0.1', '1.0E-5', '100.0')
    """
    return _show_number(value, repr(float(value)))


def show_float(value: float) -> str:
    """Return a 32-bit number as Java's ``Float.toString`` does; one with more bits is rounded.

    >>> show_float(110.1), show_float(16777217)
    ('110.1', '1.6777216E7')
    """
    if math.isfinite(value) and abs(value) > _MAX_FLOAT:
        value = math.copysign(math.inf, value)
    return _show_number(value, str(np.float32(value)))


_MAX_FLOAT = float(np.finfo(np.float32).max)


def _show_number(value: float, shortest: str) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(shortest).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    minus = "-" if sign else ""
    if not text:
        return f"{minus}0.0"
    point = len(text) + exponent  # the place of the decimal point, in digits from the left
    text = text.rstrip("0")
    if -3 < point <= 7:
        whole = text[:point].ljust(point, "0") if point > 0 else "0"
        return f"{minus}{whole}.{'0' * -min(point, 0)}{text[max(point, 0) :] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def show_big_integer(value: int) -> str:
    """Return all digits of an integer, also if it is too long for ``str``."""
    return str(value) if value.bit_length() <= DECIMAL_BITS else f"{Decimal(value):f}"


def _fraction(nanos: int, groups: int) -> str:
    """Return a fraction of a second in as few digits as it needs, rounded up to whole groups of digits."""
    digits = f"{nanos:09}"
    while len(digits) > groups and digits.endswith("0" * groups):
        digits = digits[:-groups]
    return digits


def show_timestamp(value: datetime.datetime) -> str:
    return f"{value.date().isoformat()} {value:%H:%M:%S}.{_fraction(value.microsecond * 1000, 1)}"


def show_local_time(value: datetime.time) -> str:
    if value.microsecond:
        return f"{value:%H:%M:%S}.{_fraction(value.microsecond * 1000, 3)}"
    return f"{value:%H:%M:%S}" if value.second else f"{value:%H:%M}"


def show_instant(value: Instant) -> str:
    try:
        second = _EPOCH + datetime.timedelta(seconds=value.seconds)
    except OverflowError:
        return str(value)
    fraction = f".{_fraction(value.nanos, 3)}" if value.nanos else ""
    return f"{second.isoformat()}{fraction}Z"


def show_big_decimal(value: Decimal) -> str:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return str(value)
    return f"{value:f}" if exponent <= 0 and len(digits) + exponent > -6 else str(value)


# --- the rows --------------------------------------------------------------------------------------------

#: The Arrow type of ``FLOAT`` numbers in files, where they are not rounded.
WIDE_FLOAT = pa.float64()
#: Their type in state files up to version 3, and in operator state files of version 1.
NARROW_FLOAT = pa.float32()


def atom(
    type_info: TypeInformation,
    arrow: pa.DataType,
    java_hash: JavaHash | None = None,
    text: Show = str,
    to_arrow: Convert | None = None,
    from_arrow: Convert | None = None,
    may_become: frozenset[str] = frozenset(),
    may_be_nan: bool = False,
    written: WrittenForm | None = None,
    exact: type | None = None,
) -> Codec:
    """Return the codec of a type whose values cannot change.

    Args:
        type_info: the type.
        arrow: the Arrow type of its columns.
        java_hash: hashes a value; None if values cannot be keys.
        text: prints a value.
        to_arrow: converts a value to one that Arrow takes, if Arrow has no such type.
        from_arrow: converts it back, also from the cell of a user's table.
        may_become: the kinds of the types that all of its values fit as they are.
        may_be_nan: whether a value may be NaN.
        written: how a key is written on the command line; None if it is written as JSON.
        exact: the only class that values have, if the check returns each value of that class unchanged.
    """
    return Codec(
        name=type_info.kind,
        arrow=lambda _, parts: arrow,
        to_arrow=lambda _, parts: to_arrow,
        from_arrow=lambda _, parts: column_values if from_arrow is None else _converted(from_arrow),
        copier=lambda parts: None,
        java_hash=lambda _, parts: java_hash,
        text=lambda _, parts: text,
        make=lambda: type_info,
        may_become=may_become,
        may_be_nan=may_be_nan,
        written=written,
        value_of_cell=unchanged if from_arrow is None else _value_of_cell(arrow, from_arrow),
        exact=exact,
    )


def _converted(convert: Convert) -> FromArrow:
    return lambda array: [None if value is None else convert(value) for value in column_values(array)]


def _value_of_cell(arrow: pa.DataType, from_arrow: Convert) -> Convert:
    """Return the conversion of cells that Arrow gives; other cells are left to the check of the type."""
    form = Mapping if pa.types.is_struct(arrow) else str if pa.types.is_large_string(arrow) else bytes
    return lambda cell: from_arrow(cell) if isinstance(cell, form) else cell


def _big_int_to_text(value: int) -> str:
    """Return decimal digits, or hexadecimal digits if the number is too long for ``int`` to parse."""
    return str(value) if value.bit_length() <= DECIMAL_BITS else hex(value)


_INSTANT_TEXT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")
_INSTANT_REPR = re.compile(r"Instant<(-?\d+), (\d+)>")


def _written_instant(text: str) -> Instant:
    printed = _INSTANT_REPR.fullmatch(text)
    if printed is not None:
        return Instant(int(printed[1]), int(printed[2]))
    found = _INSTANT_TEXT.fullmatch(text)
    if found is None:
        raise ValueError("it has another form")
    second = datetime.datetime.fromisoformat(f"{found[1]}+00:00")
    return Instant(int(second.timestamp()), int((found[2] or "0").ljust(9, "0")))


_TEXT, _MOMENT = pa.large_string(), pa.timestamp("us")
#: Two numbers, as one of 64 bits cannot hold every instant to the nanosecond.
_INSTANT = pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])
_FLOAT_FORM = WrittenForm("1.5", float)

#: Integers from the narrowest to the widest.
_INTEGERS = ("BYTE", "SHORT", "INT", "LONG", "BIG_INT")


def _wider(kind: str) -> frozenset[str]:
    return frozenset(_INTEGERS[_INTEGERS.index(kind) + 1 :])


_LOCAL = LocalTimeTypeInfo.TimeType

ATOMS: tuple[Codec, ...] = (
    atom(
        Types.BOOLEAN(),
        pa.bool_(),
        lambda value: 1231 if value else 1237,
        lambda value: "true" if value else "false",
        exact=bool,
    ),
    atom(Types.BYTE(), pa.int8(), int, may_become=_wider("BYTE"), exact=int),
    atom(Types.SHORT(), pa.int16(), int, may_become=_wider("SHORT"), exact=int),
    atom(Types.INT(), pa.int32(), int, may_become=_wider("INT"), exact=int),
    atom(Types.LONG(), pa.int64(), hashes.java_hash_of_long, may_become=_wider("LONG"), exact=int),
    atom(
        Types.FLOAT(),
        WIDE_FLOAT,
        hashes.java_hash_of_float,
        show_float,
        may_become=frozenset({"DOUBLE"}),
        may_be_nan=True,
        written=_FLOAT_FORM,
    ),
    atom(
        Types.DOUBLE(),
        pa.float64(),
        hashes.java_hash_of_double,
        show_double,
        may_be_nan=True,
        written=_FLOAT_FORM,
    ),
    atom(Types.CHAR(), _TEXT, ord, written=WrittenForm("a", str)),
    atom(Types.STRING(), _TEXT, java_hash_of_string, written=WrittenForm("a", str), exact=str),
    atom(
        Types.BIG_INT(),
        _TEXT,
        hashes.java_hash_of_big_integer,
        show_big_integer,
        to_arrow=_big_int_to_text,
        from_arrow=lambda text: int(text, 16 if "x" in text else 10),
        exact=int,
    ),
    atom(
        Types.BIG_DEC(),
        _TEXT,
        hashes.java_hash_of_big_decimal,
        show_big_decimal,
        to_arrow=str,
        from_arrow=decimal.Decimal,
        may_be_nan=True,
        written=WrittenForm("1.50", decimal.Decimal),
    ),
    atom(
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        pa.large_binary(),
        hashes.java_hash_of_bytes,
        lambda value: f"[{', '.join(str(byte - 256 if byte > 127 else byte) for byte in value)}]",
        written=WrittenForm("ff00", bytes.fromhex),
        exact=bytes,
    ),
    atom(
        Types.SQL_DATE(),
        pa.date32(),
        hashes.java_hash_of_date,
        written=WrittenForm("2020-01-02", datetime.date.fromisoformat),
    ),
    atom(
        Types.SQL_TIME(),
        pa.time64("us"),
        hashes.java_hash_of_time,
        lambda value: f"{value:%H:%M:%S}",
        written=WrittenForm("03:04:05.678000", datetime.time.fromisoformat),
    ),
    atom(
        Types.SQL_TIMESTAMP(),
        _MOMENT,
        hashes.java_hash_of_timestamp,
        show_timestamp,
        written=WrittenForm("2020-01-02 03:04:05.678000", datetime.datetime.fromisoformat),
    ),
    atom(LocalTimeTypeInfo(_LOCAL.LOCAL_DATE), pa.date32()),
    atom(LocalTimeTypeInfo(_LOCAL.LOCAL_TIME), pa.time64("us"), text=show_local_time),
    atom(
        LocalTimeTypeInfo(_LOCAL.LOCAL_DATE_TIME),
        _MOMENT,
        text=lambda value: f"{value.date().isoformat()}T{show_local_time(value.time())}",
    ),
    atom(
        Types.INSTANT(),
        _INSTANT,
        hashes.java_hash_of_instant,
        show_instant,
        to_arrow=lambda instant: (instant.seconds, instant.nanos),
        from_arrow=lambda parts: Instant(**parts),
        written=WrittenForm("2020-01-02T03:04:05.678Z", _written_instant),
    ),
)
