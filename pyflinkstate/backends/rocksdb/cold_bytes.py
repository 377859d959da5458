"""The bytes of keys and values in the cold store.

The store lives as long as its process, so nothing else reads these bytes, and they need no version. They
follow the class of a value and not its declared type: each value comes back exactly as it was.

*Keys.* Equal keys must have equal bytes: ``1``, ``1.0`` and ``True`` are equal, and their pickles are not.
The bytes of a key of a common class (:func:`exact_bytes`) can be decoded to the same key. Any other key has
the bytes of the common key that it equals, or its hash (:func:`canonical_bytes`). Such bytes do not tell the
key, and several keys may have them. Their record has the keys too: it is *shared*.

*Values.* A tag and the value, which is a pickle unless it is a number, a string, bytes, or a flat tuple.

mypyc compiles this file.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, cast

from pyflinkstate.api import Stored, TimeWindow
from pyflinkstate.backends.types import dump_pickle

if TYPE_CHECKING:
    from mypy_extensions import i64

_LONG: Final = struct.Struct(">q")
_DOUBLE: Final = struct.Struct(">d")
_WINDOW: Final = struct.Struct(">qq")
_SIZE: Final = struct.Struct(">I")
_LEAST_LONG: Final = -(1 << 63)
_GREATEST_LONG: Final = (1 << 63) - 1

_TEXT: Final = ord("s")
_NUMBER: Final = ord("q")
_LARGE_NUMBER: Final = ord("i")
_BYTES: Final = ord("b")
_TUPLE: Final = ord("t")
_TIME_WINDOW: Final = ord("w")
_FLOAT: Final = ord("f")
_NONE: Final = ord("n")
_PICKLE: Final = ord("p")
#: Begins a record of several keys and their values.
SHARED: Final = ord("*")

#: Tuples that are nested more deeply are pickled, or hashed: compiled functions know no recursion limit.
MOST_DEPTH: Final = 8

Pairs = list[tuple[Hashable, Stored]]


def exact_bytes(value: object, depth: int = MOST_DEPTH) -> bytes:
    """Return the bytes of a value of a common class, from which it can be decoded; empty for others."""
    kind = type(value)
    if kind is str:
        return b"s" + cast(str, value).encode("utf-8", "surrogatepass")
    if kind is int:
        return _number_bytes(cast(int, value))
    if kind is bytes:
        return b"b" + cast(bytes, value)
    if kind is tuple and depth > 0:
        parts = [exact_bytes(part, depth - 1) for part in cast(tuple[object, ...], value)]
        return b"" if b"" in parts else _joined(parts)
    if kind is TimeWindow:
        window = cast(TimeWindow, value)
        return b"w" + _WINDOW.pack(window.start, window.end)
    return b"n" if value is None else b""


def canonical_bytes(key: object, depth: int = MOST_DEPTH) -> bytes:
    """Return bytes that equal keys share, and that other keys may share too."""
    exact = exact_bytes(key, depth)
    if exact:
        return exact
    if isinstance(key, str):
        return exact_bytes(str.__str__(key))
    if isinstance(key, bytes):
        return exact_bytes(bytes(memoryview(key)))
    if isinstance(key, tuple):
        if depth > 0:
            return _joined([canonical_bytes(part, depth - 1) for part in key])
        return _hash_bytes(key)
    whole = _whole(key)
    return _hash_bytes(key) if whole is None else _number_bytes(whole)


def _hash_bytes(key: object) -> bytes:
    return b"h" + _LONG.pack(hash(key))


def _whole(number: object) -> int | None:
    """Return the int that equals a key, if any does."""
    try:
        whole = int(number)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
    return whole if whole == number else None


def _number_bytes(number: int) -> bytes:
    if _LEAST_LONG <= number <= _GREATEST_LONG:
        return b"q" + _LONG.pack(number)
    return b"i" + number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _joined(parts: list[bytes]) -> bytes:
    chunks = [b"t"]
    for part in parts:
        chunks.append(_SIZE.pack(len(part)))
        chunks.append(part)
    return b"".join(chunks)


def value_bytes(value: Stored) -> bytes:
    """Return the bytes of a value.

    Raises:
        StateValueError: it cannot be pickled.
    """
    if type(value) is float:
        return b"f" + _DOUBLE.pack(value)
    exact = exact_bytes(value)
    return exact if exact else b"p" + dump_pickle(value)


def decoded(data: bytes, at: int = 0) -> object:
    """Return the value whose bytes begin at ``at`` and end with ``data``."""
    start: i64 = at + 1
    tag = data[at]
    if tag == _TEXT:
        return data[start:].decode("utf-8", "surrogatepass")
    if tag == _NUMBER:
        return _LONG.unpack_from(data, start)[0]
    if tag == _PICKLE:
        return pickle.loads(memoryview(data)[start:])  # noqa: S301 - written by this process
    if tag == _TUPLE:
        return _decoded_tuple(data, start)
    return _decoded_other(data, start, tag)


def _decoded_other(data: bytes, start: i64, tag: int) -> object:
    if tag == _TIME_WINDOW:
        return TimeWindow(*_WINDOW.unpack_from(data, start))
    if tag == _FLOAT:
        return _DOUBLE.unpack_from(data, start)[0]
    if tag == _BYTES:
        return data[start:]
    if tag == _LARGE_NUMBER:
        return int.from_bytes(data[start:], "big", signed=True)
    assert tag == _NONE
    return None


def _decoded_tuple(data: bytes, start: i64) -> object:
    parts: list[object] = []
    end: i64 = len(data)
    while start < end:
        size: i64 = _SIZE.unpack_from(data, start)[0]
        start += 4
        parts.append(decoded(data[start : start + size]))
        start += size
    return tuple(parts)


def shared_bytes(pairs: Pairs) -> bytes:
    """Return the record of several keys and their values."""
    return b"*" + dump_pickle(pairs)


def shared_pairs(record: bytes) -> Pairs:
    """Return the keys and values of a shared record."""
    pairs: Pairs = pickle.loads(memoryview(record)[1:])  # noqa: S301 - as above
    return pairs
