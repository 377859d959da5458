"""Prints values of a declared type as Java, and therefore PyFlink, shows them."""

from __future__ import annotations

import datetime
import math
import struct
from decimal import Decimal

import numpy as np

from pyflinkstate.api.row import Row
from pyflinkstate.api.time import Instant

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


_MAX_FLOAT = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


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


def show_bool(value: bool) -> str:
    return "true" if value else "false"


def _fraction(nanos: int, groups: int) -> str:
    """Return a fraction of a second in as few digits as it needs, rounded up to whole groups of digits."""
    digits = f"{nanos:09}"
    while len(digits) > groups and digits.endswith("0" * groups):
        digits = digits[:-groups]
    return digits


def show_timestamp(value: datetime.datetime) -> str:
    return f"{value.date().isoformat()} {value:%H:%M:%S}.{_fraction(value.microsecond * 1000, 1)}"


def show_sql_time(value: datetime.time) -> str:
    return f"{value:%H:%M:%S}"


def show_local_time(value: datetime.time) -> str:
    if value.microsecond:
        return f"{value:%H:%M:%S}.{_fraction(value.microsecond * 1000, 3)}"
    return f"{value:%H:%M:%S}" if value.second else f"{value:%H:%M}"


def show_local_date_time(value: datetime.datetime) -> str:
    return f"{value.date().isoformat()}T{show_local_time(value.time())}"


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


def show_bytes(value: bytes) -> str:
    return f"[{', '.join(str(byte - 256 if byte > 127 else byte) for byte in value)}]"
