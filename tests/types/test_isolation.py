"""What is passed on as it is, what is copied, and that a copy shares nothing that can change."""

import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import pickle
import threading
import types
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
from hypothesis import given, strategies as st

from pyflinkstate import Instant, OutputTag, Row, RowKind, TypeInformation, Types
from pyflinkstate.backends.types.internal_types import TtlTypeInfo
from pyflinkstate.backends.types.table import rebuilds
from pyflinkstate.backends.values.isolation import (
    is_immutable,
    isolated,
    isolated_elements,
    isolated_from,
    own_copy,
    take_isolated,
)

PICKLED = Types.PICKLED_BYTE_ARRAY()


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: Any
    y: Any


class Labelled(tuple):
    """A tuple that can have attributes."""


@dataclasses.dataclass(frozen=True)
class Frozen:
    part: Any


@dataclasses.dataclass
class Plain:
    part: Any
    other: Any = None


@attrs.define
class Slotted:
    part: Any


class Counted:
    """Says itself how it is copied."""

    def __init__(self, part: Any) -> None:
        self.part, self.cache = part, {"not": "copied"}

    def __getstate__(self) -> dict[str, Any]:
        return {"part": self.part}


def shared_many_times(depth: int) -> Any:
    """Return a tuple with 2 ** depth ways to its end."""
    value: Any = (1,)
    for _ in range(depth):
        value = (value, value)
    return value


IMMUTABLE = [
    1,
    True,
    1.5,
    "text",
    b"bytes",
    None,
    2j,
    decimal.Decimal(1),
    datetime.datetime(2020, 1, 1),
    datetime.timedelta(1),
    Instant(1, 2),
    OutputTag("late"),
    Colour.RED,
    RowKind.DELETE,
    np.int64(3),
    int,
    len,
    ("a", 1),
    (("a", (1, None)), Colour.RED),
    frozenset({1, ("a",)}),
    Point(1, "a"),
    Frozen(("a", 1)),
    Labelled((1, 2)),
    shared_many_times(60),
]


@pytest.mark.parametrize("value", IMMUTABLE, ids=lambda value: f"{type(value).__name__}")
def test_what_cannot_change_is_passed_on_as_it_is(value):
    assert isolated(value) is value
    assert own_copy(value) is value
    taken = []
    take_isolated(taken, (value,))
    assert taken[0] is value


MUTABLE = [
    [1, "a"],
    {"a": 1},
    {1, 2},
    bytearray(b"a"),
    ("a", [1]),
    [[1], {"a": {2}}],
    Point([1], 2),
    frozenset({Frozen((1,)), Point(1, Row(1))}),
    Row(1, [2]),
    Row(a=1),
    collections.OrderedDict(a=[1]),
    collections.deque([1]),
    collections.Counter("aab"),
    Plain([1]),
    Frozen([1]),
    Slotted([1]),
    np.array([1, 2]),
    types.SimpleNamespace(a=[1]),
]


@pytest.mark.parametrize("value", MUTABLE, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("copier", [isolated, own_copy])
def test_what_can_change_is_copied_with_all_that_can_change_in_it(value, copier):
    copied = copier(value)
    assert copied is not value
    assert type(copied) is type(value)
    assert pickle.dumps(copied) == pickle.dumps(copy.deepcopy(value))
    assert not set(changeable_walk(copied)) & set(changeable_walk(value))


def test_a_tuple_with_attributes_is_copied_with_them():
    value = Labelled((1, 2))
    value.label = ["a"]
    copied = isolated(value)
    assert copied == value
    assert copied.label == ["a"]
    assert copied.label is not value.label


def test_parts_that_cannot_change_are_not_copied():
    unchanged, text = ("a", (1, 2)), "text" * 2
    copied = isolated(["x", unchanged, {text: unchanged}])
    assert copied[1] is copied[2][text] is unchanged


@pytest.mark.parametrize("wrap", [lambda part: [part], lambda part: (part,), lambda part: {"next": part}])
@pytest.mark.parametrize("depth", [50, 150, 450])
@pytest.mark.parametrize("copier", [isolated, own_copy])
def test_a_deep_value_is_copied(wrap, depth, copier):
    innermost: list[int] = [1]
    value: Any = innermost
    for _ in range(depth):
        value = wrap(value)
    copied = copier(value)
    for _ in range(depth):
        (copied,) = copied.values() if isinstance(copied, dict) else copied
    assert copied == innermost
    assert copied is not innermost


@pytest.mark.parametrize("wrap", [lambda part: [part], lambda part: (part,), lambda part: Plain(part)])
def test_a_value_too_deep_for_any_pickle_is_passed_on(wrap):
    value: Any = [1]
    for _ in range(50_000):
        value = wrap(value)
    assert isolated(value) is value
    assert isolated_from(value, (1,)) is value
    while not isinstance(value, list) or isinstance(value[0], list):
        # Taken apart by hand: freeing it at once goes as deep as it is.
        value = value.part if isinstance(value, Plain) else value[0]


@pytest.mark.parametrize("make", [threading.Lock, lambda: (n for n in [1])])
def test_what_cannot_be_copied_is_passed_on(make):
    """A chain may pass it from one function to the next; a frame refuses it."""
    value = make()
    assert isolated(value) is value
    parts = [value, [1]]
    assert isolated(parts) is parts
    for one in (value, parts):
        with pytest.raises(TypeError, match="cannot pickle"):
            own_copy(one)


def test_a_class_that_says_how_it_is_copied_is_asked():
    value = Counted([1])
    for copied in (isolated(value), own_copy(value)):
        assert copied.part == [1]
        assert copied.part is not value.part
        assert not hasattr(copied, "cache")


def test_a_copy_that_fails_half_way_leaves_nothing_half_made():
    class Stubborn:
        def __init__(self) -> None:
            self.part = [1]
            self.lock = threading.Lock()

    value = Stubborn()
    assert isolated([value, value]) == [value, value]


# --- what is stored already ------------------------------------------------------------------------


def test_what_is_stored_is_kept_when_it_is_stored_again():
    stored = [[1], [2]]
    assert isolated_from(stored, stored) is stored
    part = [1]
    pair = isolated_from((2, part, [3]), (1, part, [4]))
    assert pair == (2, part, [3])
    assert pair[1] is part


def test_what_is_stored_elsewhere_is_copied():
    stored = [1]
    assert isolated_from(stored, None) is not stored
    assert isolated_from(stored, [1]) is not stored
    assert isolated_from([stored], stored)[0] is not stored
    assert isolated_from((1, stored), stored)[1] is not stored


def test_elements_that_are_stored_are_kept_once():
    first, second, stamped = [1], [2], [3]
    stored = [first, second, (0, stamped), "text"]
    new = [second, second, (9, stamped), [4], "text", stamped]
    elements = isolated_elements(new, stored)
    assert elements == new
    assert elements[0] is second
    assert elements[1] is not second
    assert elements[2][1] is stamped
    assert elements[3] is not new[3]
    assert elements[5] is not stamped


# --- against deepcopy ------------------------------------------------------------------------------

ATOMS = st.one_of(st.integers(), st.text(max_size=3), st.none(), st.floats(allow_nan=False))


@st.composite
def values_that_share(draw):
    """A value whose parts are drawn from a pool, so that they are shared in any way."""
    pool: list[Any] = [draw(ATOMS), [draw(ATOMS)]]
    for _ in range(draw(st.integers(1, 8))):
        parts = draw(st.lists(st.sampled_from(pool), max_size=3))
        make = draw(st.sampled_from([list, tuple, lambda parts: dict(enumerate(parts)), Plain, Slotted]))
        pool.append(make(parts))
        holders = [value for value in pool if type(value) is list]
        draw(st.sampled_from(holders)).append(draw(st.sampled_from(pool)))
    return pool[-1]


@given(values_that_share())
def test_a_copy_is_shaped_as_deepcopy_shapes_it(value):
    for copied in (isolated(value), own_copy(value)):
        assert shape_of(copied) == shape_of(copy.deepcopy(value))
        assert not set(changeable_walk(copied)) & set(changeable_walk(value))


def changeable_walk(value: Any) -> dict[int, Any]:
    """Return all below ``value`` that can change, by their ids."""
    seen: dict[int, Any] = {}
    todo = [value]
    while todo:
        part = todo.pop()
        if id(part) not in seen:
            seen[id(part)] = part
            todo.extend(children_of(part))
    return {key: part for key, part in seen.items() if not is_immutable(part)}


def children_of(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, (list, tuple, set, frozenset, Row, collections.deque)):
        return list(value)
    return [value.part] if isinstance(value, Slotted) else list(getattr(value, "__dict__", {}).values())


def shape_of(value: Any) -> list[Any]:
    """Return types, atoms and what is shared, as a list that can be compared."""
    numbers: dict[int, int] = {}
    shape: list[Any] = []
    todo = [value]
    while todo:
        part = todo.pop()
        children = children_of(part)
        is_atom = not isinstance(part, (list, tuple, dict, Plain, Slotted))
        known = id(part) in numbers
        # Whether a tuple that cannot change is one object or two makes no difference.
        number = None if is_atom or is_immutable(part) else numbers.setdefault(id(part), len(numbers))
        shape.append((type(part).__name__, part if is_atom else len(children), number))
        if not known or number is None:
            todo.extend(children)
    return shape


# --- types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_info", "expected"),
    [
        (Types.LONG(), True),
        (Types.STRING(), True),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), True),
        (Types.LIST(Types.LONG()), True),
        (Types.LIST(Types.LIST(Types.STRING())), True),
        (Types.MAP(Types.STRING(), Types.LIST(Types.LONG())), True),
        (Types.TUPLE([Types.LONG(), Types.LIST(Types.LONG())]), True),
        (Types.ROW([Types.LONG()]), True),
        (Types.OBJECT_ARRAY(Types.LONG()), True),
        (TtlTypeInfo(Types.LIST(Types.LONG())), True),
        (PICKLED, False),
        (Types.LIST(PICKLED), False),
        (Types.MAP(Types.STRING(), PICKLED), False),
        (Types.TUPLE([Types.LONG(), PICKLED]), False),
        (TtlTypeInfo(PICKLED), False),
        (TypeInformation(), False),
    ],
    ids=str,
)
def test_which_types_make_new_values(type_info, expected):
    assert rebuilds(type_info) is expected
