"""The bytes of keys and values in the cold store.

Native checkpoints keep them: if they change, ``NATIVE_VERSION`` does.

They follow the class of a value and not its declared type: each value comes back exactly as it was.

*Keys.* Equal keys must have equal bytes: ``1``, ``1.0`` and ``True`` are equal, and their pickles are not.
The bytes of a key of a common class (:func:`exact_bytes`) can be decoded to the same key. Any other key has
the bytes of the common key that it equals, or its hash (:func:`canonical_bytes`). Such bytes do not tell the
key, and several keys may have them. Their record has the keys too: it is *shared*. Hashes of other classes
than numbers are different in each process, so a checkpoint cannot keep such bytes (:func:`is_portable`).

*Values.* A tag and the value. What has no tag is pickled; a value whose type is pickled as a whole is not
taken apart for that. Pickles are loaded, kept as bytes or refused, as the reader says: a forged checkpoint
must not make a state be unpickled for which the program declares a type.

mypyc compiles this file.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import struct
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, cast

from pyflinkstate.api import CountWindow, GlobalWindow, Instant, Row, RowKind, Stored, TimeWindow, row_of
from pyflinkstate.backends.types import Convert, Enclosed, dump_pickle, load_pickle
from pyflinkstate.backends.values.checked import (
    CheckedDict,
    CheckedList,
    StateList,
    WatchedDict,
    WatchedList,
)
from pyflinkstate.errors import PickledStateError, StateValueError

if TYPE_CHECKING:
    from mypy_extensions import i64

_LONG: Final = struct.Struct(">q")
_DOUBLE: Final = struct.Struct(">d")
_PAIR: Final = struct.Struct(">qq")
_SIZE: Final = struct.Struct(">I")
_LEAST_LONG: Final = -(1 << 63)
_GREATEST_LONG: Final = (1 << 63) - 1

_TEXT: Final = ord("s")
_NUMBER: Final = ord("q")
_BYTES: Final = ord("b")
_TUPLE: Final = ord("t")
_LIST: Final = ord("l")
_DICT: Final = ord("d")
_ROW: Final = ord("r")
_TIME_WINDOW: Final = ord("w")
_FLOAT: Final = ord("f")
_NONE: Final = ord("n")
_PICKLE: Final = ord("p")
#: Begins a record of several keys and their values.
SHARED: Final = ord("*")

#: Tuples that are nested more deeply are pickled, or hashed: compiled functions know no recursion limit.
MOST_DEPTH: Final = 8

#: What a reader does with pickles: refuses them, loads them, or returns them as :class:`Enclosed`.
REFUSE: Final = 0
LOAD: Final = 1
ENCLOSE: Final = 2

_ROW_KINDS: Final = tuple(RowKind)
#: Keys of these classes are equal if their texts are.
_WITH_TEXT: Final = (datetime.date, datetime.time, Instant, CountWindow, GlobalWindow)
#: The lists and dicts of the library, and those that states hand out: their copies are plain.
_LISTS: Final = frozenset({list, StateList, CheckedList, WatchedList})
_DICTS: Final = frozenset({dict, CheckedDict, WatchedDict})

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
        return b"" if b"" in parts else _joined(b"t", parts)
    if kind is TimeWindow:
        window = cast(TimeWindow, value)
        return b"w" + _PAIR.pack(window.start, window.end)
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
            return _joined(b"t", [canonical_bytes(part, depth - 1) for part in key])
        return _hash_bytes(key)
    if _has_text(key):
        return b"m" + str(key).encode()
    whole = _whole(key)
    return _hash_bytes(key) if whole is None else _number_bytes(whole)


def _has_text(key: object) -> bool:
    """Return whether equal keys of this class, or of another one, have equal texts."""
    return isinstance(key, _WITH_TEXT) and getattr(key, "tzinfo", None) is None


def is_portable(key: object, depth: int = MOST_DEPTH) -> bool:
    """Return whether the canonical bytes of a key are the same in every process."""
    if isinstance(key, tuple) and depth > 0:
        return all(is_portable(part, depth - 1) for part in key)
    if isinstance(key, (str, bytes, float, complex, decimal.Decimal, fractions.Fraction)):
        return bool(key == key)
    return bool(exact_bytes(key, 0)) or _has_text(key) or _whole(key) is not None


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


def _joined(tag: bytes, parts: list[bytes]) -> bytes:
    chunks = [tag]
    for part in parts:
        chunks.append(_SIZE.pack(len(part)))
        chunks.append(part)
    return b"".join(chunks)


def value_bytes(value: Stored, levels: int = 0, pickles: int = LOAD) -> bytes:
    """Return the bytes of a value.

    Args:
        value: the value.
        levels: how many levels of lists, dicts, tuples and rows are taken apart rather than pickled.
        pickles: :data:`REFUSE` if nothing may be pickled.

    Raises:
        StateValueError: it cannot be pickled, or may not be.
    """
    kind = type(value)
    if kind is float:
        return b"f" + _DOUBLE.pack(value)
    if levels > 0:
        if kind in _LISTS:
            return _list_bytes(list.copy(cast(list[object], value)), levels - 1, pickles)
        if kind is tuple:
            return _joined(b"t", _bytes_of(list(cast(tuple[object, ...], value)), levels - 1, pickles))
        if kind in _DICTS:
            parts: list[object] = []
            for item in dict.copy(cast(dict[object, object], value)).items():
                parts.extend(item)
            return _joined(b"d", _bytes_of(parts, levels - 1, pickles))
        if kind is Row:
            fields, *of_row = cast(tuple[object, ...], cast(Row, value).__reduce__()[1])
            of_row.extend(cast(tuple[object, ...], fields))
            return _joined(b"r", _bytes_of(of_row, levels - 1, pickles))
    exact = exact_bytes(value)
    return exact if exact else _other_bytes(value, pickles)


def _list_bytes(values: list[object], levels: int, pickles: int) -> bytes:
    """Return the bytes of a list; numbers of one class are packed."""
    kinds = set(map(type, values))
    try:
        if kinds == {int}:
            return b"Q" + struct.pack(f">{len(values)}q", *values)
        if kinds == {float}:
            return b"E" + struct.pack(f">{len(values)}d", *values)
    except struct.error:
        pass  # an int has more than 64 bits
    return _joined(b"l", _bytes_of(values, levels, pickles))


def _bytes_of(parts: list[object], levels: int, pickles: int) -> list[bytes]:
    return [value_bytes(part, levels, pickles) for part in parts]


def _other_bytes(value: object, pickles: int) -> bytes:
    kind = type(value)
    encode = _ENCODERS.get(kind)
    encoded: bytes = b"" if encode is None else encode(value)
    if encoded:
        return encoded
    if pickles == REFUSE:
        raise StateValueError(
            f"a value of {kind.__module__}.{kind.__qualname__} does not fit the declared type; if it was "
            f"changed in place, call update(), or put(), after changing a value"
        )
    return b"p" + dump_pickle(value)


def _bytes_of_time(tag: bytes, time: datetime.datetime | datetime.time) -> bytes:
    """Return the bytes of a time; empty if it has more than its text."""
    return b"" if time.fold or time.tzinfo is not None else tag + time.isoformat().encode()


#: The bytes of the rarer classes that are not keys of their own; empty if the value has to be pickled.
_ENCODERS: Final[dict[type, Convert]] = {
    Enclosed: lambda value: b"p" + value.data,
    bool: lambda value: b"T" if value else b"F",
    decimal.Decimal: lambda value: b"c" + str(value).encode(),
    datetime.date: lambda value: b"D" + value.isoformat().encode(),
    datetime.time: lambda value: _bytes_of_time(b"M", value),
    datetime.datetime: lambda value: _bytes_of_time(b"S", value),
    Instant: lambda value: b"I" + _PAIR.pack(value.seconds, value.nanos),
    CountWindow: lambda value: b"C" + _number_bytes(value.id),
    GlobalWindow: lambda _: b"G",
}


def decoded(data: bytes, at: int = 0, pickles: int = LOAD) -> object:
    """Return the value whose bytes begin at ``at`` and end with ``data``.

    Args:
        data: the bytes.
        at: where they begin.
        pickles: what becomes of pickles: :data:`REFUSE`, :data:`LOAD` or :data:`ENCLOSE`.

    Raises:
        PickledStateError: there is a pickle where none may be.
        StateMigrationError: a pickle cannot be loaded.
    """
    start: i64 = at + 1
    tag = data[at]
    if tag == _TEXT:
        return data[start:].decode("utf-8", "surrogatepass")
    if tag == _NUMBER:
        return _LONG.unpack_from(data, start)[0]
    if tag == _PICKLE:
        return _of_pickle(data[start:], pickles)
    if tag == _TUPLE:
        return tuple(_decoded_parts(data, start, pickles))
    if tag == _FLOAT:
        return _DOUBLE.unpack_from(data, start)[0]
    if tag == _LIST:
        return _decoded_parts(data, start, pickles)
    if tag == _DICT:
        parts = _decoded_parts(data, start, pickles)
        return dict(zip(parts[::2], parts[1::2]))  # noqa: B905 - mypyc knows no strict
    return _decoded_other(data, start, tag, pickles)


def _of_pickle(data: bytes, pickles: int) -> object:
    if pickles == LOAD:
        return load_pickle(data)
    if pickles == ENCLOSE:
        return Enclosed(data)
    raise PickledStateError("it has a pickle where the state has a declared type, and loading it runs code")


def _decoded_other(data: bytes, start: i64, tag: int, pickles: int) -> object:
    if tag == _TIME_WINDOW:
        return TimeWindow(*_PAIR.unpack_from(data, start))
    if tag == _NONE:
        return None
    if tag == _BYTES:
        return data[start:]
    if tag == _ROW:
        names, row_kind, *values = _decoded_parts(data, start, pickles)
        return row_of(values, cast(tuple[str, ...], names), _ROW_KINDS[cast(int, row_kind)])
    return _DECODERS[tag](data[start:])


#: The rarer classes: what makes a value of the bytes after the tag.
_DECODERS: Final[dict[int, Callable[[bytes], object]]] = {
    ord("T"): lambda _: True,
    ord("F"): lambda _: False,
    ord("i"): lambda data: int.from_bytes(data, "big", signed=True),
    ord("Q"): lambda data: list(struct.unpack(f">{len(data) // 8}q", data)),
    ord("E"): lambda data: list(struct.unpack(f">{len(data) // 8}d", data)),
    ord("c"): lambda data: decimal.Decimal(data.decode()),
    ord("D"): lambda data: datetime.date.fromisoformat(data.decode()),
    ord("M"): lambda data: datetime.time.fromisoformat(data.decode()),
    ord("S"): lambda data: datetime.datetime.fromisoformat(data.decode()),
    ord("I"): lambda data: Instant(*_PAIR.unpack(data)),
    ord("C"): lambda data: CountWindow(cast(int, decoded(data))),
    ord("G"): lambda _: GlobalWindow.get(),
}


def _decoded_parts(data: bytes, start: i64, pickles: int) -> list[object]:
    return [decoded(part, 0, pickles) for part in _parts(data, start)]


def _parts(data: bytes, start: i64) -> list[bytes]:
    parts: list[bytes] = []
    end: i64 = len(data)
    while start < end:
        size: i64 = _SIZE.unpack_from(data, start)[0]
        start += 4
        parts.append(data[start : start + size])
        start += size
    return parts


def shared_bytes(keys_and_values: list[bytes]) -> bytes:
    """Return the record of several keys, each followed by its value."""
    return _joined(b"*", keys_and_values)


def shared_parts(record: bytes) -> list[bytes]:
    """Return the bytes of the keys in a shared record, each followed by those of its value."""
    return _parts(record, 1)
