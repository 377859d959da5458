"""The types without parts: numbers, texts, bytes, dates and instants, under their names in checkpoints."""

from __future__ import annotations

import decimal

import pyarrow as pa

from pyflinkstate.api.basic_types import type_of_kind
from pyflinkstate.api.time import Instant
from pyflinkstate.api.types import TypeInformation, Types
from pyflinkstate.api.values import TypedValue
from pyflinkstate.backends.types import hashes, texts
from pyflinkstate.backends.types.codec import Codec, Convert, FromArrow, JavaHash, Show, column_values

#: The Arrow type of ``FLOAT`` numbers in files, where they are not rounded.
WIDE_FLOAT = pa.float64()
#: Their type in state files up to version 3, and in operator state files of version 1.
NARROW_FLOAT = pa.float32()


def _big_int_to_text(value: int) -> str:
    """Return decimal digits, or hexadecimal digits if the number is too long for ``int`` to parse."""
    return str(value) if value.bit_length() <= texts.DECIMAL_BITS else hex(value)


def _atom(
    name: str,
    arrow: pa.DataType,
    java_hash: JavaHash | None = None,
    text: Show = str,
    to_arrow: Convert | None = None,
    from_arrow: Convert | None = None,
    may_become: frozenset[str] = frozenset(),
    may_be_nan: bool = False,
) -> Codec:
    """Return the codec of a type whose values cannot change.

    Args:
        name: the kind of the type.
        arrow: the Arrow type of its columns.
        java_hash: hashes a value; None if values cannot be keys.
        text: prints a value.
        to_arrow: converts a value to one that Arrow takes, if Arrow has no such type.
        from_arrow: converts it back.
        may_become: the kinds of the types that all of its values fit as they are.
        may_be_nan: whether a value may be NaN.
    """
    return Codec(
        name=name,
        arrow=lambda _, parts: arrow,
        to_arrow=lambda _, parts: to_arrow,
        from_arrow=lambda _, parts: column_values if from_arrow is None else _converted(from_arrow),
        copier=lambda parts: None,
        java_hash=lambda _, parts: java_hash,
        text=lambda _, parts: text,
        make=lambda: _made(name),
        may_become=may_become,
        may_be_nan=may_be_nan,
    )


def _converted(convert: Convert) -> FromArrow:
    return lambda array: [None if value is None else convert(value) for value in column_values(array)]


def _made(name: str) -> TypeInformation:
    made = Types.PRIMITIVE_ARRAY(Types.BYTE()) if name == "BYTES" else type_of_kind(name)
    assert made is not None
    return made


def _instant_parts(instant: Instant) -> tuple[int, int]:
    return instant.seconds, instant.nanos


def _instant_of(parts: dict[str, TypedValue]) -> Instant:
    return Instant(**parts)


_TEXT, _MOMENT = pa.large_string(), pa.timestamp("us")
#: Two numbers, as one of 64 bits cannot hold every instant to the nanosecond.
_INSTANT = pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])

#: Integers from the narrowest to the widest.
_INTEGERS = ("BYTE", "SHORT", "INT", "LONG", "BIG_INT")


def _wider(kind: str) -> frozenset[str]:
    return frozenset(_INTEGERS[_INTEGERS.index(kind) + 1 :])


ATOMS: tuple[Codec, ...] = (
    _atom("BOOLEAN", pa.bool_(), hashes.java_hash_of_boolean, texts.show_bool),
    _atom("BYTE", pa.int8(), int, may_become=_wider("BYTE")),
    _atom("SHORT", pa.int16(), int, may_become=_wider("SHORT")),
    _atom("INT", pa.int32(), int, may_become=_wider("INT")),
    _atom("LONG", pa.int64(), hashes.java_hash_of_long, may_become=_wider("LONG")),
    _atom(
        "FLOAT",
        WIDE_FLOAT,
        hashes.java_hash_of_float,
        texts.show_float,
        may_become=frozenset({"DOUBLE"}),
        may_be_nan=True,
    ),
    _atom("DOUBLE", pa.float64(), hashes.java_hash_of_double, texts.show_double, may_be_nan=True),
    _atom("CHAR", _TEXT, ord),
    _atom("STRING", _TEXT, hashes.java_hash_of_string),
    _atom(
        "BIG_INT",
        _TEXT,
        hashes.java_hash_of_big_integer,
        texts.show_big_integer,
        to_arrow=_big_int_to_text,
        from_arrow=lambda text: int(text, 0),
    ),
    _atom(
        "BIG_DEC",
        _TEXT,
        hashes.java_hash_of_big_decimal,
        texts.show_big_decimal,
        to_arrow=str,
        from_arrow=decimal.Decimal,
        may_be_nan=True,
    ),
    _atom("BYTES", pa.large_binary(), hashes.java_hash_of_bytes, texts.show_bytes),
    _atom("SQL_DATE", pa.date32(), hashes.java_hash_of_date),
    _atom("SQL_TIME", pa.time64("us"), hashes.java_hash_of_time, texts.show_sql_time),
    _atom("SQL_TIMESTAMP", _MOMENT, hashes.java_hash_of_timestamp, texts.show_timestamp),
    _atom("LOCAL_DATE", pa.date32()),
    _atom("LOCAL_TIME", pa.time64("us"), text=texts.show_local_time),
    _atom("LOCAL_DATE_TIME", _MOMENT, text=texts.show_local_date_time),
    _atom(
        "INSTANT",
        _INSTANT,
        hashes.java_hash_of_instant,
        texts.show_instant,
        to_arrow=_instant_parts,
        from_arrow=_instant_of,
    ),
)
