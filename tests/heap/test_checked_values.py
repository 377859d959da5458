"""Long lists and dicts that are a state's own are checked where they have changed, and nowhere else."""

from __future__ import annotations

import contextlib
import heapq
import pickle
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from backend_support import entries, make_backend, prepare, restore, state_of, take_snapshot, write
from hypothesis import given, settings
from hypothesis import strategies as st

from pyflinkstate.api.descriptors import (
    AggregatingStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from pyflinkstate.api.functions import AggregateFunction
from pyflinkstate.api.time import Duration
from pyflinkstate.api.ttl import StateTtlConfig
from pyflinkstate.api.types import ExternalTypeInfo, TypeInformation, Types
from pyflinkstate.backends.operator_state.backend import DefaultOperatorStateBackend
from pyflinkstate.backends.values import NOTED_FROM, CheckedDict, CheckedList, isolated
from pyflinkstate.errors import StateValueError

LONG, STRING = Types.LONG(), Types.STRING()
MANY = 8_000


class Counted:
    """A LONG that counts how often a value is checked."""

    def __init__(self) -> None:
        self.type_info, self.calls = Types.LONG(), 0
        check = self.type_info.check

        def counting(value: Any) -> Any:
            self.calls += 1
            return check(value)

        object.__setattr__(self.type_info, "check", counting)


class Folded(AggregateFunction):
    """Folds values into an accumulator with a function that changes it in place."""

    def __init__(self, first: Callable[[], Any], fold: Callable[[Any, Any], Any]) -> None:
        self._first, self._fold = first, fold

    def create_accumulator(self) -> Any:
        return self._first()

    def add(self, value: Any, accumulator: Any) -> Any:
        return self._fold(accumulator, value)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        raise NotImplementedError


def appended(accumulator: list[Any], value: Any) -> list[Any]:
    accumulator.append(value)
    return accumulator


def counted(accumulator: dict[Any, Any], value: Any) -> dict[Any, Any]:
    accumulator[value] = accumulator.get(value, 0) + 1
    return accumulator


def appended_and_counted(accumulator: tuple[list[Any], int], value: Any) -> tuple[list[Any], int]:
    return appended(accumulator[0], value), accumulator[1] + 1


FOLDED: list[tuple[Callable[[TypeInformation], TypeInformation], Folded]] = [
    (Types.LIST, Folded(list, appended)),
    (Types.PRIMITIVE_ARRAY, Folded(list, appended)),
    (Types.OBJECT_ARRAY, Folded(list, appended)),
    (lambda part: ExternalTypeInfo(Types.LIST(part)), Folded(list, appended)),
    (lambda part: Types.MAP(part, LONG), Folded(dict, counted)),
    (lambda part: Types.TUPLE([Types.LIST(part), LONG]), Folded(lambda: ([], 0), appended_and_counted)),
]


# --- how much is checked -----------------------------------------------------------------------------


@pytest.mark.parametrize("with_ttl", [False, True], ids=["without ttl", "with ttl"])
@pytest.mark.parametrize("async_snapshots", [True, False], ids=["copy on write", "nested maps"])
@pytest.mark.parametrize(("of", "function"), FOLDED)
def test_an_add_checks_what_it_adds(
    of: Callable[[TypeInformation], TypeInformation], function: Folded, async_snapshots: bool, with_ttl: bool
) -> None:
    part = Counted()
    descriptor = AggregatingStateDescriptor("all", function, of(part.type_info))
    if with_ttl:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_hours(1)).build())
    state = state_of(make_backend(LONG, async_snapshots=async_snapshots), descriptor, 1)
    for value in range(MANY):
        state.add(value)
    # Each is checked when it comes; while there are few, all of them are each time.
    assert part.calls <= 2 * MANY + NOTED_FROM**2


def test_a_checkpoint_has_a_list_checked_once_more() -> None:
    part, backend = Counted(), make_backend(LONG)
    state = state_of(
        backend, AggregatingStateDescriptor("all", Folded(list, appended), Types.LIST(part.type_info)), 1
    )
    for value in range(MANY):
        state.add(value)
    part.calls = 0
    with_open_snapshot = prepare(backend)
    for value in range(MANY):
        state.add(value)
    with_open_snapshot.release()
    assert part.calls <= 3 * MANY


def test_a_value_that_is_read_changed_and_stored_again() -> None:
    part = Counted()
    state = state_of(make_backend(LONG), ValueStateDescriptor("v", Types.LIST(part.type_info)), 1)
    state.update(list(range(MANY)))
    state.update(state.value())
    part.calls = 0
    for value in range(MANY):
        mine = state.value()
        mine.append(value)
        state.update(mine)
    assert part.calls == MANY


def calls_of_appends(state: Any, part: Counted) -> int:
    """Append one element after the other to a list in a map, and store it each time."""
    state.put("a", list(range(MANY)))
    state.put("a", state.get("a"))
    part.calls = 0
    for value in range(MANY):
        mine = state.get("a")
        mine.append(value)
        state.put("a", mine)
    return part.calls


def test_a_value_of_a_map_that_is_read_changed_and_stored_again() -> None:
    part = Counted()
    state = state_of(make_backend(LONG), MapStateDescriptor("m", STRING, Types.LIST(part.type_info)), 1)
    assert calls_of_appends(state, part) == MANY


def test_a_value_of_a_broadcast_state_that_is_read_changed_and_stored_again() -> None:
    part = Counted()
    descriptor = MapStateDescriptor("b", STRING, Types.LIST(part.type_info))
    state = DefaultOperatorStateBackend().get_broadcast_state(descriptor)
    assert calls_of_appends(state, part) == MANY


def test_a_reducing_state_that_reduces_in_place() -> None:
    part = Counted()

    def extended(mine: list[int], more: list[int]) -> list[int]:
        mine.extend(more)
        return mine

    state = state_of(
        make_backend(LONG), ReducingStateDescriptor("r", extended, Types.LIST(part.type_info)), 1
    )
    for value in range(MANY):
        state.add([value])
    assert part.calls <= 3 * MANY + NOTED_FROM**2


# --- what is found -----------------------------------------------------------------------------------

#: What puts a misfit into a long list of numbers.
MISFITS: dict[str, Callable[[list[Any]], Any]] = {
    "append": lambda mine: mine.append("x"),
    "extend": lambda mine: mine.extend(iter([1, "x"])),
    "+=": lambda mine: mine.__iadd__(["x"]),
    "insert": lambda mine: mine.insert(3, "x"),
    "insert before the last": lambda mine: mine.insert(-1, "x"),
    "item": lambda mine: mine.__setitem__(5, "x"),
    "item from the end": lambda mine: mine.__setitem__(-5, "x"),
    "slice": lambda mine: mine.__setitem__(slice(2, 4), ["x", 1]),
    "overflow": lambda mine: mine.__setitem__(0, 2**63),
    "none": lambda mine: mine.append(None),
    "item, then pop": lambda mine: (mine.__setitem__(5, "x"), mine.pop(0)),
    "append, then pop": lambda mine: (mine.append("x"), mine.pop(0)),
    "append, then reverse": lambda mine: (mine.append("x"), mine.reverse()),
    "append, then sort": lambda mine: (mine.append("x"), mine.sort(key=str)),
    "past the methods": lambda mine: list.append(mine, "x"),
    "by heapq": lambda mine: heapq.heappush(mine, 0.5),
    "by heapq, in the place of another": lambda mine: heapq.heapreplace(mine, 0.5),
    "by heapq, which keeps the greatest": lambda mine: (heapq.heappush(mine, 0.5), heapq.heappop(mine)),
}


@pytest.fixture
def numbers() -> Any:
    """The state of a long list of numbers, which is its own."""
    state = state_of(make_backend(LONG), ValueStateDescriptor("numbers", Types.LIST(LONG)), 1)
    state.update(list(range(NOTED_FROM * 2)))
    state.update(state.value())
    assert type(state.value()) is CheckedList
    return state


@pytest.mark.parametrize("how", MISFITS)
def test_a_misfit_in_the_states_own_list_is_an_error_where_it_comes_in(numbers: Any, how: str) -> None:
    mine = numbers.value()
    MISFITS[how](mine)
    for _ in range(2):  # and again: it has not been checked
        with pytest.raises(StateValueError, match=r"state 'numbers', key 1: "):
            numbers.update(mine)


def test_what_is_converted_is_converted_in_its_place() -> None:
    state = state_of(make_backend(LONG), ValueStateDescriptor("v", Types.LIST(Types.DOUBLE())), 1)
    state.update([0.5] * NOTED_FROM)
    state.update(state.value())
    mine = state.value()
    mine[7] = 1
    mine.append(2)
    state.update(mine)
    assert [type(value) for value in state.value()] == [float] * (NOTED_FROM + 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda mine: mine.__setitem__("1", "x"), "does not fit LONG"),
        (lambda mine: mine.setdefault("new", "x"), "does not fit LONG"),
        (lambda mine: mine.update(new="x"), "does not fit LONG"),
        (lambda mine: mine.__ior__({"new": "x"}), "does not fit LONG"),
        (lambda mine: mine.__setitem__(7, 7), "does not fit STRING"),
    ],
)
def test_a_misfit_in_the_states_own_dict_is_an_error_where_it_comes_in(
    change: Callable[[Any], Any], reason: str
) -> None:
    state = state_of(make_backend(LONG), ValueStateDescriptor("counts", Types.MAP(STRING, LONG)), 1)
    state.update({str(number): number for number in range(NOTED_FROM)})
    state.update(state.value())
    mine = state.value()
    assert type(mine) is CheckedDict
    change(mine)
    for _ in range(2):
        with pytest.raises(StateValueError, match=rf"state 'counts', key 1: .*{reason}"):
            state.update(mine)


def test_a_key_that_is_converted_keeps_its_place() -> None:
    state = state_of(make_backend(LONG), ValueStateDescriptor("v", Types.MAP(Types.DOUBLE(), LONG)), 1)
    state.update({number + 0.5: number for number in range(NOTED_FROM)})
    state.update(state.value())
    mine = state.value()
    mine[1] = 1
    mine[2.5] = 9
    state.update(mine)
    assert list(state.value())[-1] == 1.0
    assert {type(key) for key in state.value()} == {float}
    assert state.value()[2.5] == 9


@pytest.mark.parametrize("type_info", [Types.LIST(LONG), Types.LIST(Types.DOUBLE())], ids=str)
def test_what_got_past_every_check_is_found_by_the_snapshot(type_info: TypeInformation) -> None:
    backend = make_backend(LONG)
    state = state_of(backend, ValueStateDescriptor("numbers", type_info), 1)
    state.update(list(range(NOTED_FROM)))
    state.value().append("x")  # and never stored again
    with pytest.raises(StateValueError, match=r"state 'numbers', key 1: 'x' .*changed in place"):
        take_snapshot(backend)


# --- who it belongs to -------------------------------------------------------------------------------


def test_the_list_of_one_key_is_not_that_of_another() -> None:
    backend, descriptor = make_backend(LONG), ValueStateDescriptor("v", Types.LIST(LONG))
    state = state_of(backend, descriptor, 1)
    state.update(list(range(NOTED_FROM)))
    state.update(state.value())
    mine = state.value()
    state_of(backend, descriptor, 2).update(mine)
    mine.append(7)
    assert len(state_of(backend, descriptor, 2).value()) == NOTED_FROM
    assert len(state_of(backend, descriptor, 1).value()) == NOTED_FROM + 1


def test_a_snapshot_does_not_see_what_is_added_later() -> None:
    backend = make_backend(LONG)
    descriptor = AggregatingStateDescriptor("all", Folded(list, appended), Types.LIST(LONG))
    state = state_of(backend, descriptor, 1)
    for value in range(MANY):
        state.add(value)
    resources = prepare(backend)
    state.add(-1)
    restored = restore([write(backend, resources)], LONG)
    state_of(restored, descriptor, 1)
    assert entries(restored, "all") == [(1, list(range(MANY)))]
    assert len(state.get()) == MANY + 1


@pytest.mark.parametrize("copied", [deepcopy, isolated, lambda value: pickle.loads(pickle.dumps(value))])
@pytest.mark.parametrize("value", [CheckedList([1, 2]), CheckedDict({1: 2})], ids=["list", "dict"])
def test_a_copy_is_plain(value: Any, copied: Callable[[Any], Any]) -> None:
    plain = type(value).__mro__[1]
    copy = copied([value])[0]
    assert type(copy) is plain
    assert copy == value
    assert type(value.copy()) is plain


# --- against a model -----------------------------------------------------------------------------------


class Element:
    """Told from any other by what it is."""

    def __lt__(self, other: Element) -> bool:
        return id(self) < id(other)


def new_elements() -> Iterator[Element]:
    while True:
        yield Element()


INDEXES = st.integers(-9, 9)
STEPS = st.sampled_from(
    [
        *("append", "extend", "insert", "set", "set slice", "delete", "delete slice", "pop", "remove"),
        *("clear", "sort", "reverse", "double", "past", "heappush", "check"),
    ]
)


def step(name: str, mine: list[Any], index: int, other: int, new: Iterator[Element]) -> None:
    """Do what is called ``name`` to a list; what cannot be done to it leaves it as it was."""
    steps: dict[str, Callable[[], Any]] = {
        "append": lambda: mine.append(next(new)),
        "extend": lambda: mine.extend([next(new), next(new)]),
        "insert": lambda: mine.insert(index, next(new)),
        "set": lambda: mine.__setitem__(index, next(new)),
        "set slice": lambda: mine.__setitem__(slice(index, other), [next(new)]),
        "delete": lambda: mine.__delitem__(index),
        "delete slice": lambda: mine.__delitem__(slice(index, other)),
        "pop": lambda: mine.pop(index),
        "remove": lambda: mine.remove(mine[index]),
        "clear": mine.clear,
        "sort": mine.sort,
        "reverse": mine.reverse,
        "double": lambda: mine.__imul__(2),
        "past": lambda: list.append(mine, next(new)),
        "heappush": lambda: heapq.heappush(mine, next(new)),
    }
    with contextlib.suppress(IndexError):
        steps[name]()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(STEPS, INDEXES, INDEXES), max_size=20))
def test_what_is_not_to_be_checked_has_been_checked(steps: list[tuple[str, int, int]]) -> None:
    new = new_elements()
    first = [next(new) for _ in range(6)]
    mine, model, checked = CheckedList(first), list(first), set(first)
    for name, index, other in steps:
        if name == "check":
            checked.update(mine)
            mine.note_checked()
            continue
        made = [next(new), next(new)]
        step(name, mine, index, other, iter(made))
        step(name, model, index, other, iter(made))
        assert mine == model
        unchecked = set(mine.unchecked())
        assert unchecked <= set(range(len(mine)))
        assert all(element in checked for at, element in enumerate(mine) if at not in unchecked)
