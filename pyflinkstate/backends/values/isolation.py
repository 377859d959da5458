"""Keeps records, results and state apart, so that they share no mutable object.

Flink serializes values between operators, so a result stays as it was when it was emitted, and state as it
was when it was stored. Here objects are passed by reference until a frame or a checkpoint pickles them, so
every value that is passed on is *isolated* first: an immutable value is passed as it is, and a mutable one is
copied. Parts that are shared inside a value are shared inside its copy.

A value that neither ``deepcopy`` nor a pickle can copy, such as a generator or a connection, is passed as it
is. It may travel within a chain; a frame or a checkpoint refuses what it cannot pickle.

mypyc compiles this file if a C compiler is available. Compiled functions ignore Python's recursion limit, so
they count their own depth, and leave deeper parts to ``deepcopy``.
"""

from __future__ import annotations

import copy
import copyreg
import datetime
import decimal
import enum
import fractions
import pickle
import uuid
from functools import lru_cache
from types import GeneratorType
from typing import Any, Final

import numpy as np

from pyflinkstate.api import (
    CountWindow,
    GlobalWindow,
    Instant,
    OutputTag,
    Row,
    RowKind,
    StateValue,
    TimeWindow,
    names_of,
    row_of,
)
from pyflinkstate.backends.values.checked import CheckedDict, CheckedList, StateList, WatchedDict, WatchedList
from pyflinkstate.backends.values.results import check_results

#: Values of exactly these types, not of their subclasses, cannot change in place.
IMMUTABLE_TYPES: Final = frozenset(
    {int, float, bool, str, bytes, complex, range, type(None), decimal.Decimal, fractions.Fraction, uuid.UUID}
    | {datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone}
    | {Instant, RowKind, OutputTag, type, TimeWindow, CountWindow, GlobalWindow}
)

#: How deep a value is copied without the help of ``deepcopy``.
MAX_DEPTH: Final = 100
#: How deep a value is searched for mutable parts before it is copied part by part.
LOOK_DEPTH: Final = 8

#: The lists and dicts that a state has made of its own.
_CHECKED: Final = frozenset({CheckedList, CheckedDict, WatchedList, WatchedDict})
_GENERATOR: Final = GeneratorType
_TAG: Final = OutputTag

#: Copies by the ids of originals, as ``deepcopy`` keeps them.
_Memo = dict[int, StateValue]


def is_immutable(value: Any) -> bool:
    """Return whether neither ``value`` nor its parts can change in place; False if that is not known."""
    kind = type(value)
    if kind is str or kind is int:
        return True
    if kind is list or kind is dict:
        return False
    if kind is tuple and _is_flat(value):
        return True
    return _is_immutable(value, LOOK_DEPTH)


def _is_immutable(value: object, depth: int) -> bool:
    kind = type(value)
    if kind in IMMUTABLE_TYPES:
        return True
    if depth == 0 or kind is list or kind is dict:
        return False
    if kind is tuple:
        return _are_immutable(value, depth - 1)
    nature = _nature_of(kind)  # type: ignore[arg-type]  # a class is hashable
    if nature == _ATOM:
        return True
    if nature == _PARTS:
        return _are_immutable(value, depth - 1)
    if nature == _PARTS_AND_ATTRIBUTES:
        return _has_immutable_attributes(value, depth - 1) and _are_immutable(value, depth - 1)
    return nature == _FROZEN and _has_immutable_attributes(value, depth - 1)


def _are_immutable(parts: Any, depth: int) -> bool:
    return all(type(part) in IMMUTABLE_TYPES or _is_immutable(part, depth) for part in parts)


def _has_immutable_attributes(value: StateValue, depth: int) -> bool:
    for name, part in value.__dict__.items():
        # A Spark Row keeps the list of its names there, and lets nobody set it.
        if name != "__fields__" and not _is_immutable(part, depth):
            return False
    return True


def isolated(value: Any) -> StateValue:
    """Return ``value`` if it is immutable, else a copy that shares nothing mutable with it.

    >>> pair, record = ("a", 1), ("a", [1])
    >>> isolated(pair) is pair, isolated(record) is record, isolated(record)
    (True, False, ('a', [1]))
    """
    kind = type(value)
    if kind is str or kind is int:
        return value
    if kind is tuple:
        return value if _is_flat(value) else _isolated_tuple(value)
    return value if kind in IMMUTABLE_TYPES else _isolated_object(value)


def _isolated_tuple(value: tuple[StateValue, ...]) -> StateValue:
    """Isolate a tuple. A single mutable part is copied directly; several may be the same object."""
    parts: list[StateValue] = []
    copies = 0
    for part in value:
        if type(part) not in IMMUTABLE_TYPES:
            own = _flat_copy(part)
            copies += 1
            if own is None or copies > 1:
                return value if _is_immutable(value, LOOK_DEPTH) else _copy(value, {})
            part = own
        parts.append(part)
    return tuple(parts)


def _isolated_object(value: StateValue) -> StateValue:
    own = _flat_copy(value)
    if own is not None:
        return own
    return value if _is_immutable(value, LOOK_DEPTH) else _copy(value, {})


def _flat_copy(value: StateValue) -> StateValue:
    """Return a copy of a list or dict if its parts cannot change, else None."""
    if type(value) is list:
        return value[:] if _is_flat_list(value) else None
    if type(value) is dict:
        return value.copy() if _is_flat_dict(value) else None
    return None


def _is_flat(value: tuple[StateValue, ...]) -> bool:
    """Return whether all parts are of types that cannot change: most records are such tuples."""
    for part in value:
        kind = type(part)
        if kind is not str and kind is not int and kind not in IMMUTABLE_TYPES:
            return False
    return True


# The next two are the same again: loops over a known list or dict compile to faster code.
def _is_flat_list(value: list[StateValue]) -> bool:
    for part in value:
        kind = type(part)
        if kind is not str and kind is not int and kind not in IMMUTABLE_TYPES:
            return False
    return True


def _is_flat_dict(value: dict[StateValue, StateValue]) -> bool:
    for key, part in value.items():
        if type(key) not in IMMUTABLE_TYPES or type(part) not in IMMUTABLE_TYPES:
            return False
    return True


def take_isolated(taken: list[StateValue], values: Any, given_by: object = None) -> None:
    """Append each of ``values``, isolated as soon as it is produced, before its producer goes on.

    Args:
        taken: the list to append to.
        values: what a function returned: an iterable of results.
        given_by: that function, for messages.

    Raises:
        FunctionResultError: ``values`` is a single record, or cannot be iterated over.
    """
    kind = type(values)
    if kind is tuple:
        if len(values) == 2 and type(values[0]) is _TAG:
            check_results(values, given_by)
    elif kind is not _GENERATOR and kind is not list:
        check_results(values, given_by)
    for value in values:
        taken.append(isolated(value))


class RecordCounter:
    """Counts and isolates records that pass through.

    Attributes:
        number: how many there were.
    """

    def __init__(self) -> None:
        self.number = 0

    def isolated(self, value: StateValue) -> StateValue:
        """Count ``value`` and return it as :func:`isolated` does."""
        self.number += 1
        return isolated(value)

    def as_it_is(self, value: StateValue) -> StateValue:
        """Count ``value`` and return it."""
        self.number += 1
        return value


def own_copy(value: StateValue) -> StateValue:
    """Return ``value`` if it is immutable, else a copy as :func:`isolated` makes it, or raise.

    A snapshot must not share what its owner changes, so what cannot be copied is not passed on as it is.

    Raises:
        Exception: what ``deepcopy`` raised for a value that a pickle cannot copy either.

    >>> pair, record = ("a", 1), ("a", [1])
    >>> own_copy(pair) is pair, own_copy(record) is record, own_copy(record)
    (True, False, ('a', [1]))
    """
    own = _flat_copy(value)
    if own is not None:
        return own
    try:
        return _copied(value, {}, MAX_DEPTH)
    except Exception:
        own = _through_pickle(value)
        if own is value:
            raise
        return own


def isolated_from(value: Any, stored: StateValue) -> StateValue:
    """Return ``value`` as :func:`isolated` does, but keep the parts that are already stored.

    So a list that is read, appended to and stored again is not copied, alone or as a field of a tuple.

    Args:
        value: the value to be stored.
        stored: the value that it replaces, if no snapshot shares it; otherwise None.

    >>> stored = (1, ["a"])
    >>> isolated_from(stored, stored) is stored, isolated_from((2, stored[1]), stored)[1] is stored[1]
    (True, True)
    """
    if value is stored or is_immutable(value):
        return value
    if type(value) in _CHECKED and value.stands_for is stored:
        value.stands_for = None
        return value
    if type(value) is not tuple or type(stored) is not tuple:
        return isolated(value)
    kept: _Memo = {}
    _note_parts(stored, kept, MAX_DEPTH)
    return _copy(value, kept)


def isolated_elements(values: list[StateValue], stored: list[StateValue]) -> list[StateValue]:
    """Return each of ``values`` as :func:`isolated` does, but keep elements of ``stored``, each once.

    So a list that is stored again after elements were removed is not copied deep.
    """
    noted: _Memo | None = None
    elements: list[StateValue] = []
    for value in values:
        if type(value) in IMMUTABLE_TYPES or is_immutable(value):
            elements.append(value)
            continue
        if noted is None:
            noted = {}
            _note_parts(tuple(stored), noted, MAX_DEPTH)
        kept: _Memo = {}
        _move_parts((value,), noted, kept, MAX_DEPTH)
        elements.append(_copy(value, kept))
    return elements


def _note_parts(value: tuple[StateValue, ...], noted: _Memo, depth: int) -> None:
    """Record the mutable parts, including those of inner tuples, as copies of themselves."""
    for part in value:
        if type(part) is not tuple:
            if type(part) not in IMMUTABLE_TYPES:
                noted[id(part)] = part
        elif depth > 0:
            _note_parts(part, noted, depth - 1)


def _move_parts(value: tuple[StateValue, ...], noted: _Memo, kept: _Memo, depth: int) -> None:
    """Move the recorded parts, including those of inner tuples, to ``kept``."""
    for part in value:
        if type(part) is not tuple:
            if id(part) in noted:
                kept[id(part)] = noted.pop(id(part))
        elif depth > 0:
            _move_parts(part, noted, kept, depth - 1)


def _copy(value: StateValue, memo: _Memo) -> StateValue:
    try:
        return _copied(value, memo, MAX_DEPTH)
    except Exception:  # noqa: BLE001 - a value's own code may raise anything
        return _through_pickle(value)


def _copied(value: Any, memo: _Memo, depth: int) -> StateValue:
    kind = type(value)
    if kind in IMMUTABLE_TYPES:
        return value
    known = memo.get(id(value))
    if known is not None:
        return known
    if depth == 0:
        return copy.deepcopy(value, memo)
    if kind is dict:
        return _copied_dict(value, memo, depth - 1)
    if kind is list or kind is StateList:
        return _copied_list(value, memo, depth - 1)
    if kind is tuple:
        return _copied_tuple(value, memo, depth - 1)
    return _copied_object(value, memo, depth - 1)


def _copied_dict(value: dict[object, StateValue], memo: _Memo, depth: int) -> dict[object, StateValue]:
    copied: dict[StateValue, StateValue] = {}
    memo[id(value)] = copied
    for key, part in value.items():
        if type(key) not in IMMUTABLE_TYPES:
            key = _copied(key, memo, depth)
        if type(part) not in IMMUTABLE_TYPES:
            part = _copied(part, memo, depth)
        copied[key] = part
    return copied


def _copied_list(value: list[StateValue], memo: _Memo, depth: int) -> list[StateValue]:
    copied: list[StateValue] = []
    memo[id(value)] = copied
    for part in value:
        copied.append(part if type(part) in IMMUTABLE_TYPES else _copied(part, memo, depth))
    return copied


def _copied_tuple(value: tuple[StateValue, ...], memo: _Memo, depth: int) -> StateValue:
    parts = _copied_parts(value, memo, depth)
    is_same = all(part is copied for part, copied in zip(value, parts))  # noqa: B905 - mypyc knows no strict
    # A part may contain the tuple itself, which then already has its copy.
    return memo.setdefault(id(value), value if is_same else tuple(parts))


def _copied_parts(value: Any, memo: _Memo, depth: int) -> list[Any]:
    parts: list[object] = []
    for part in value:
        parts.append(part if type(part) in IMMUTABLE_TYPES else _copied(part, memo, depth))
    return parts


def _copied_object(value: Any, memo: _Memo, depth: int) -> StateValue:
    kind = type(value)
    if kind in _CHECKED:
        return _copied_checked(value, memo, depth)
    if kind is set or kind is bytearray:
        return memo.setdefault(id(value), kind(_copied_parts(value, memo, depth)))
    if kind is Row:
        row = row_of((), names_of(value), value.get_row_kind())
        memo[id(value)] = row
        row._values.extend(_copied_parts(value, memo, depth))
        return row
    if _is_immutable(value, min(depth, LOOK_DEPTH)):
        return value
    is_plain = _is_plain(kind)  # type: ignore[arg-type]  # a class is hashable
    return _copied_plain(value, memo, depth) if is_plain else copy.deepcopy(value, memo)


def _copied_checked(value: Any, memo: _Memo, depth: int) -> StateValue:
    """Return a plain copy, or the value itself if it stands for an object that is kept."""
    stands_for = value.stands_for
    if stands_for is not None and memo.get(id(stands_for)) is stands_for:
        value.stands_for = None
        return value
    is_list = isinstance(value, list)
    return _copied_list(value, memo, depth) if is_list else _copied_dict(value, memo, depth)


def _copied_plain(value: Any, memo: _Memo, depth: int) -> StateValue:
    """Return the same as ``deepcopy`` for an object that consists only of its attributes."""
    copied = object.__new__(type(value))
    memo[id(value)] = copied
    copied.__dict__.update(_copied_dict(value.__dict__, memo, depth))
    return copied


def _through_pickle(value: StateValue) -> StateValue:
    """Return a copy through a pickle, which reaches deeper than ``deepcopy``, or ``value`` if that fails."""
    try:
        return pickle.loads(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))  # noqa: S301 - its own pickle
    except Exception:  # noqa: BLE001 - a value's own code may raise anything
        return value


# --- what is known about a class ----------------------------------------------------------------------

#: Objects that cannot change: members of enumerations, numpy's scalars.
_ATOM: Final = 1
#: Objects that cannot change if their parts cannot: frozen sets and named tuples.
_PARTS: Final = 2
#: The same, but with attributes: Spark's rows, and other subclasses of tuple.
_PARTS_AND_ATTRIBUTES: Final = 3
#: Objects that cannot change if their attributes cannot: frozen dataclasses.
_FROZEN: Final = 4
_OTHER: Final = 5

#: How many classes are remembered.
_MAX_CLASSES: Final = 1000


@lru_cache(_MAX_CLASSES)
def _nature_of(kind: type) -> int:
    if issubclass(kind, enum.Enum) or (issubclass(kind, np.generic) and not issubclass(kind, np.void)):
        return _ATOM
    if issubclass(kind, (tuple, frozenset)):
        return _PARTS_AND_ATTRIBUTES if kind.__dictoffset__ else _PARTS
    params = getattr(kind, "__dataclass_params__", None)
    is_frozen = params is not None and params.frozen and kind.__dictoffset__ and _has_no_slots(kind)
    return _FROZEN if is_frozen else _OTHER


@lru_cache(_MAX_CLASSES)
def _is_plain(kind: type) -> bool:
    """Return whether an object consists only of its attributes and does not define how to copy it."""
    own = ("__deepcopy__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
    if kind in copyreg.dispatch_table or any(hasattr(kind, name) for name in own):
        return False
    inherited = ("__new__", "__reduce__", "__reduce_ex__", "__getstate__")
    if any(getattr(kind, name, None) is not getattr(object, name, None) for name in inherited):
        return False
    return bool(kind.__dictoffset__) and _has_no_slots(kind)


def _has_no_slots(kind: type) -> bool:
    """Return whether all base classes of ``kind`` are written in Python, and none has slots."""
    bases = kind.__mro__[:-1]
    return all(base.__flags__ & _HEAP_TYPE and not base.__dict__.get("__slots__") for base in bases)


#: The flag of classes that are created at run time.
_HEAP_TYPE: Final = 1 << 9
