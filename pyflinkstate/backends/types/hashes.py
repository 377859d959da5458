"""Java hash codes of Python values, with or without a declared type.

Two laws must be obeyed: equal keys always meet, and a hash never depends on the process (Python
salts ``hash(str)``). Two ways of hashing obey both:

* with a declared key type, the hash is the one that Java gives the corresponding object, so that key
  groups are Flink's (``String.hashCode``, ``Long.hashCode``, ``Arrays.hashCode`` ...);
* without one, the Python value decides. Numbers that are equal in Python (``1``, ``1.0``, ``True``,
  ``Decimal(1)``, numpy's 1) hash as one Java ``Long``, other numbers as a ``Double``; tuples combine
  the hashes of their parts. A type without such a rule is refused: pickles of equal keys may differ.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import numbers
import struct
import uuid
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from pyflinkstate.api import Instant, Row, RowKind, TypedValue, TypeInformation, fields_to_hash
from pyflinkstate.backends.key_groups import java_hash_of_string
from pyflinkstate.backends.types.codec import JavaHash
from pyflinkstate.backends.values import refuse_nan
from pyflinkstate.errors import ConfigurationError

_MASK = 0xFFFFFFFF
_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1


def _signed(code: int) -> int:
    code &= _MASK
    return code - 0x100000000 if code & 0x80000000 else code


def java_hash_of_long(value: int) -> int:
    """``Long.hashCode``, or ``BigInteger.hashCode`` for an int beyond 64 bits.

    >>> java_hash_of_long(1234567890123), java_hash_of_long(-1)
    (1912276436, 0)
    """
    if _LONG_MIN <= value <= _LONG_MAX:
        return _signed(value ^ ((value & 0xFFFFFFFFFFFFFFFF) >> 32))
    return java_hash_of_big_integer(value)


def java_hash_of_big_integer(value: int) -> int:
    """``BigInteger.hashCode``: over the 32-bit words of the magnitude, with the sign.

    >>> java_hash_of_big_integer(2**32), java_hash_of_big_integer(-1)
    (31, -1)
    """
    magnitude, code = abs(value), 0
    for shift in range((magnitude.bit_length() + 31) // 32 - 1, -1, -1):
        code = (31 * code + ((magnitude >> (32 * shift)) & _MASK)) & _MASK
    return _signed(code if value > 0 else -code)


def java_hash_of_double(value: float) -> int:
    """``Double.hashCode``, but the same for both zeros: they are equal, so they must meet.

    >>> java_hash_of_double(1.5)
    1073217536
    """
    bits: int = struct.unpack(">Q", struct.pack(">d", value + 0.0))[0]
    return _signed(bits ^ (bits >> 32))


def java_hash_of_float(value: float) -> int:
    """``Float.hashCode``, but the same for both zeros."""
    code: int = struct.unpack(">i", struct.pack(">f", value + 0.0))[0]
    return code


def java_hash_of_bytes(value: bytes) -> int:
    """``Arrays.hashCode`` over signed bytes."""
    code = 1
    for byte in value:
        code = (31 * code + byte - ((byte & 0x80) << 1)) & _MASK
    return _signed(code)


def _combine(codes: Sequence[int], code: int = 1) -> int:
    for part in codes:
        code = (31 * code + part) & _MASK
    return _signed(code)


def java_hash_of_tuple(codes: Sequence[int]) -> int:
    """``hashCode`` of Flink's ``Tuple1`` to ``Tuple25``, of the fields' hash codes; 0 for a null.

    >>> java_hash_of_tuple([97, 1])
    3008
    """
    return _combine(codes, 0)


def java_hash_of_row(row_kind: RowKind, codes: Sequence[int | None]) -> int:
    """``Row.hashCode``, of the fields' hash codes in order; None for a field that is None.

    >>> java_hash_of_row(RowKind.INSERT, [97]), java_hash_of_row(RowKind.DELETE, [1])
    (159, 156)
    """
    # Java hashes each field as an array of one element, which starts with 31; null adds 0.
    fields = _combine([0 if code is None else 31 + code for code in codes])
    return _signed(31 * row_kind.value + fields)


def java_hash_of_instant(value: Instant) -> int:
    """``Instant.hashCode``.

    >>> java_hash_of_instant(Instant(1, 2))
    103
    """
    return _signed(java_hash_of_long(value.seconds) + 51 * value.nanos)


#: A number with more trailing zeros than this is hashed by its exponent and not written out.
_MAX_ZEROS = 64


def java_hash_of_big_decimal(value: decimal.Decimal) -> int:
    """``BigDecimal.hashCode`` of the number without trailing zeros after the decimal point.

    To Java ``1.0`` and ``1.00`` are two keys; to Python they are equal, so they must meet.

    >>> java_hash_of_big_decimal(decimal.Decimal("1.50")), java_hash_of_big_decimal(decimal.Decimal("1E+2"))
    (466, 3100)
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not a number that BigDecimal can hold")
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    digits, exponent = digits[: len(digits) - zeros], exponent + zeros
    if not digits:
        return 0
    if 0 < exponent <= _MAX_ZEROS:
        digits, exponent = digits + (0,) * exponent, 0
    unscaled = int(decimal.Decimal((sign, digits, 0)))
    return _signed(31 * java_hash_of_big_integer(unscaled) - exponent)


def java_hash_of_date(value: datetime.date) -> int:
    """``java.sql.Date.hashCode`` of a JVM whose time zone is UTC."""
    return java_hash_of_long((value.toordinal() - _EPOCH.toordinal()) * 86_400_000)


def java_hash_of_time(value: datetime.time) -> int:
    """``java.sql.Time.hashCode`` of a JVM whose time zone is UTC; its unit is the millisecond."""
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return java_hash_of_long(seconds * 1000 + value.microsecond // 1000)


def java_hash_of_timestamp(value: datetime.datetime) -> int:
    """``java.sql.Timestamp.hashCode`` of a JVM whose time zone is UTC: the hash of the milliseconds."""
    return java_hash_of_long((value - _EPOCH) // datetime.timedelta(milliseconds=1))


_EPOCH = datetime.datetime(1970, 1, 1)


# --- without a declared type -------------------------------------------------------------------


def _hash_number(value: Any) -> int:
    refuse_nan(value)
    if isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real):
        raise ValueError("complex numbers have no stable hash")
    try:
        as_int = int(value)
    except OverflowError:  # an infinity
        return java_hash_of_double(float(value))
    return java_hash_of_long(as_int) if as_int == value else java_hash_of_double(float(value))


def _hash_datetime(value: datetime.datetime) -> int:
    if value.tzinfo is not None and value.utcoffset() is not None:
        # Equality within one time zone ignores the fold, so the hash must ignore it too.
        value = value.replace(fold=0)
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
        return java_hash_of_long((value - epoch) // datetime.timedelta(microseconds=1))
    return java_hash_of_string(value.replace(tzinfo=None, fold=0).isoformat())


def _hash_tuple(value: tuple[TypedValue, ...]) -> int:
    return _combine([0 if item is None else java_hash(item) for item in value])


def _hash_row(value: Row) -> int:
    codes = [None if item is None else java_hash(item) for item in fields_to_hash(value)]
    return java_hash_of_row(value.get_row_kind(), codes)


#: In order: a str Enum is a str, a bool is a number, a datetime is a date.
_RULES: tuple[tuple[type | tuple[type, ...], JavaHash], ...] = (
    (str, lambda value: java_hash_of_string(str.__str__(value))),
    (bytes, java_hash_of_bytes),
    ((numbers.Number, np.bool_), _hash_number),
    (tuple, _hash_tuple),
    (Row, _hash_row),
    (Instant, java_hash_of_instant),
    (datetime.datetime, _hash_datetime),
    (datetime.date, lambda value: java_hash_of_long(value.toordinal())),
    (uuid.UUID, lambda value: java_hash_of_long(value.int)),
    (enum.Enum, lambda value: java_hash_of_string(f"{type(value).__qualname__}.{value.name}")),
)


def java_hash(value: TypedValue) -> int:
    """Return the hash of a key without a declared type.

    Raises:
        ValueError: the key is NaN, or its type has no rule; the message says which.
    """
    for types, rule in _RULES:
        if isinstance(value, types):
            return rule(value)
    if _is_frozen_record(value):
        return _combine([java_hash_of_string(type(value).__qualname__), _hash_tuple(_compared_fields(value))])
    raise ValueError(
        f"keys of type {type(value).__name__} have no stable hash; use str, int, float, bytes, "
        f"date, datetime, Instant, UUID, Enum, a tuple or Row of these, or a frozen dataclass"
    )


def _compared_fields(value: Any) -> tuple[TypedValue, ...]:
    """Return the fields by which records of a class are equal, in the form in which they are compared."""
    if attrs.has(type(value)):
        fields = [field for field in attrs.fields(type(value)) if field.eq]
        found = [(field.eq_key, getattr(value, field.name)) for field in fields]
        return tuple([item if eq_key is None else eq_key(item) for eq_key, item in found])
    return tuple(
        [getattr(value, name) for name, field in value.__dataclass_fields__.items() if field.compare]
    )


def _is_frozen_record(value: object) -> bool:
    params = getattr(type(value), "__dataclass_params__", None)
    if params is not None:
        return bool(params.frozen and params.eq)
    return attrs.has(type(value)) and any("__eq__" in vars(base) for base in type(value).__mro__[:-1])


def cannot_be_key(type_info: TypeInformation) -> ConfigurationError:
    """Return the error for a type whose values cannot be keys."""
    return ConfigurationError(
        f"{type_info} cannot be a key type: choose a number, STRING, CHAR, BOOLEAN, INSTANT, SQL_DATE, "
        f"SQL_TIME, SQL_TIMESTAMP, bytes (PRIMITIVE_ARRAY(BYTE)), or a TUPLE or ROW of them"
    )
