"""Long lists and dicts that are a state's own are checked where they have changed, and nowhere else."""

from __future__ import annotations

import contextlib
import heapq
import operator
import pickle
from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from functools import partial
from typing import Any

import pytest
from backend_support import entries, make_backend, prepare, restore, state_of, take_snapshot, write
from hypothesis import given, settings, strategies as st

from pyflinkstate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    Duration,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Row,
    StateTtlConfig,
    ValueStateDescriptor,
)
from pyflinkstate.api import ExternalTypeInfo, TypeInformation, Types
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend
from pyflinkstate.backends.types import encode_column, rechecker, table, text_of_type
from pyflinkstate.backends.values import (
    NOTED_FROM,
    CheckedDict,
    CheckedList,
    WatchedDict,
    WatchedList,
    isolated,
)
from pyflinkstate.errors import StateValueError

LONG, STRING = Types.LONG(), Types.STRING()
MANY = 3_000


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


def appended_to_row(accumulator: Row, value: Any) -> Row:
    accumulator["all"].append(value)
    accumulator["n"] += 1
    return accumulator


def appended_to_the_list_of(accumulator: dict[int, list[Any]], value: Any) -> dict[int, list[Any]]:
    accumulator.setdefault(value % 9, []).append(value)
    return accumulator


def put_back(accumulator: dict[int, list[Any]], value: Any) -> dict[int, list[Any]]:
    mine = accumulator.get(value % 9, [])
    mine.append(value)
    accumulator[value % 9] = mine
    return accumulator


def counted_in_the_dict_of(accumulator: dict[int, dict[Any, int]], value: Any) -> dict[int, dict[Any, int]]:
    counted(accumulator.setdefault(value % 9, {}), value)
    return accumulator


def appended_to_the_last(accumulator: list[Any], value: Any) -> list[Any]:
    if value % 1000 == 0:
        accumulator.append([])
    accumulator[-1].append(value)
    return accumulator


def slid(accumulator: list[Any], value: Any) -> list[Any]:
    accumulator.append(Row(value))
    while accumulator[0][0] < value - 500:
        accumulator.pop(0)
    return accumulator


def row_of_list(part: TypeInformation) -> TypeInformation:
    return Types.ROW_NAMED(["n", "all"], [LONG, Types.LIST(part)])


NESTED: list[tuple[Callable[[TypeInformation], TypeInformation], Folded]] = [
    (row_of_list, Folded(lambda: Row(n=0, all=[]), appended_to_row)),
    (row_of_list, Folded(lambda: Row(0, []), lambda row, value: Row(row[0] + 1, appended(row[1], value)))),
    (
        lambda part: Types.LIST(Types.ROW([part])),
        Folded(list, lambda mine, value: appended(mine, Row(value))),
    ),
    (lambda part: Types.LIST(Types.ROW([part])), Folded(list, slid)),
    (
        lambda part: Types.LIST(Types.MAP(part, LONG)),
        Folded(list, lambda mine, value: appended(mine, {value: 1})),
    ),
    (
        lambda part: Types.LIST(Types.TUPLE([LONG, Types.LIST(part)])),
        Folded(list, lambda mine, value: appended(mine, (value, [value]))),
    ),
    (lambda part: Types.LIST(Types.LIST(part)), Folded(list, appended_to_the_last)),
    (lambda part: Types.OBJECT_ARRAY(Types.LIST(part)), Folded(list, appended_to_the_last)),
    (lambda part: Types.MAP(LONG, Types.LIST(part)), Folded(dict, appended_to_the_list_of)),
    (lambda part: Types.MAP(LONG, Types.LIST(part)), Folded(dict, put_back)),
    (lambda part: Types.MAP(LONG, Types.MAP(part, LONG)), Folded(dict, counted_in_the_dict_of)),
    (
        lambda part: Types.MAP(part, Types.ROW([LONG])),
        Folded(dict, lambda mine, value: mine.__ior__({value: Row(1)})),
    ),
]

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
@pytest.mark.parametrize(
    ("of", "function", "async_snapshots", "most"),
    [
        # Each is checked when it comes; while there are few, all of them are each time.
        *((*made, is_async, 2 * MANY + NOTED_FROM**2) for made in FOLDED for is_async in (True, False)),
        # Of ten lists, each is checked as a whole while it is short.
        *((*made, True, 3 * MANY + 10 * NOTED_FROM**2) for made in NESTED),
    ],
)
def test_an_add_checks_what_it_adds(
    of: Callable[[TypeInformation], TypeInformation],
    function: Folded,
    async_snapshots: bool,
    most: int,
    with_ttl: bool,
) -> None:
    part = Counted()
    descriptor = AggregatingStateDescriptor("all", function, of(part.type_info))
    if with_ttl:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_hours(1)).build())
    state = state_of(make_backend(LONG, async_snapshots=async_snapshots), descriptor, 1)
    for value in range(MANY):
        state.add(value)
    assert part.calls <= most


class Copied:
    """Counts how often objects of it are copied."""

    copies = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Copied:
        Copied.copies += 1
        return Copied()


@pytest.mark.parametrize(
    ("of", "function"),
    [
        (Types.LIST, Folded(list, appended)),
        (
            lambda part: Types.MAP(LONG, part),
            Folded(dict, lambda mine, value: mine.__ior__({len(mine): value})),
        ),
        (lambda part: Types.TUPLE([Types.LIST(part), LONG]), Folded(lambda: ([], 0), appended_and_counted)),
        (row_of_list, Folded(lambda: Row(n=0, all=[]), appended_to_row)),
    ],
)
def test_an_add_of_an_undeclared_value_copies_no_other(
    of: Callable[[TypeInformation], TypeInformation], function: Folded
) -> None:
    pickled = Types.PICKLED_BYTE_ARRAY()
    state = state_of(make_backend(LONG), AggregatingStateDescriptor("all", function, of(pickled)), 1)
    Copied.copies = 0
    for _ in range(1_000):
        state.add(Copied())
    assert Copied.copies <= 2


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


@pytest.mark.parametrize("kind", ["value", "map", "broadcast"])
def test_a_value_that_is_read_changed_and_stored_again(kind: str) -> None:
    """Appends one element after the other to a list, and stores it each time."""
    part = Counted()
    numbers = Types.LIST(part.type_info)
    if kind == "value":
        state = state_of(make_backend(LONG), ValueStateDescriptor("v", numbers), 1)
        read, store = state.value, state.update
    else:
        descriptor = MapStateDescriptor("m", STRING, numbers)
        of_operator = DefaultOperatorStateBackend().get_broadcast_state(descriptor)
        state = of_operator if kind == "broadcast" else state_of(make_backend(LONG), descriptor, 1)
        read, store = partial(state.get, "a"), partial(state.put, "a")
    store(list(range(MANY)))
    store(read())
    part.calls = 0
    for value in range(MANY):
        mine = read()
        mine.append(value)
        store(mine)
    assert part.calls == MANY


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


#: What puts a misfit into a value of the state's own, by the type of the value.
NESTED_MISFITS: dict[str, tuple[TypeInformation, Any, Callable[[Any], Any]]] = {
    "list in a row": (row_of_list(LONG), Row(0, [1]), lambda row: row["all"].append("x")),
    "long list in a row": (row_of_list(LONG), Row(0, [1] * NOTED_FROM), lambda row: row["all"].append("x")),
    "field of a row": (row_of_list(LONG), Row(0, [1]), lambda row: row.__setitem__("n", "x")),
    "another list of a row": (row_of_list(LONG), Row(0, [1]), lambda row: row.__setitem__("all", ["x"])),
    "list of another type": (
        row_of_list(LONG),
        Row(0, [1]),
        lambda row: row.__setitem__("all", CheckedList(["x"] * NOTED_FROM)),
    ),
    "number of names": (row_of_list(LONG), Row(0, [1]), lambda row: row.set_field_names(["all", "n"])),
    "row in a list": (Types.LIST(Types.ROW([LONG])), [Row(1)] * 99, lambda mine: mine[7].__setitem__(0, "x")),
    "rows of a list": (
        Types.LIST(Types.ROW([LONG])),
        [Row(1)] * 99,
        lambda mine: [row.__setitem__(0, "x") for row in mine],
    ),
    "row of a reversed list": (
        Types.LIST(Types.ROW([LONG])),
        [Row(1)] * 99,
        lambda mine: next(reversed(mine)).__setitem__(0, "x"),
    ),
    "row of a slice": (
        Types.LIST(Types.ROW([LONG])),
        [Row(1)] * 99,
        lambda mine: mine[3:4][0].__setitem__(0, "x"),
    ),
    "row of a sum": (
        Types.LIST(Types.ROW([LONG])),
        [Row(1)] * 99,
        lambda mine: mine.__add__([])[3].__setitem__(0, "x"),
    ),
    "row of a sum with another list": (
        Types.LIST(Types.ROW([LONG])),
        [Row(1)] * 99,
        lambda mine: (mine[0], operator.add([], mine)[3].__setitem__(0, "x")),
    ),
    "row of a shallow copy": (
        Types.LIST(Types.ROW([LONG])),
        [Row(1)] * 99,
        lambda mine: copy(mine)[3].__setitem__(0, "x"),
    ),
    "list in a list": (Types.LIST(Types.LIST(LONG)), [[1], [2]], lambda mine: mine[1].append("x")),
    "None in a list": (Types.LIST(Types.LIST(LONG)), [[1], [2]], lambda mine: mine.append(None)),
    "list in a dict": (Types.MAP(LONG, Types.LIST(LONG)), {1: [1]}, lambda mine: mine[1].append("x")),
    "list that get() returns": (
        Types.MAP(LONG, Types.LIST(LONG)),
        {1: [1]},
        lambda mine: mine.get(1).append("x"),
    ),
    "list that setdefault() returns": (
        Types.MAP(LONG, Types.LIST(LONG)),
        {1: [1]},
        lambda mine: mine.setdefault(1, []).append("x"),
    ),
    "values of a dict": (
        Types.MAP(LONG, Types.LIST(LONG)),
        {1: [1]},
        lambda mine: next(iter(mine.values())).append("x"),
    ),
    "items of a dict": (
        Types.MAP(LONG, Types.LIST(LONG)),
        {1: [1]},
        lambda mine: next(iter(mine.items()))[1].append("x"),
    ),
    "list of a copied dict": (
        Types.MAP(LONG, Types.LIST(LONG)),
        {1: [1]},
        lambda mine: mine.copy()[1].append("x"),
    ),
    "list of a shallow copy of a dict": (
        Types.MAP(LONG, Types.LIST(LONG)),
        {1: [1]},
        lambda mine: copy(mine)[1].append("x"),
    ),
    "list of dict()": (
        Types.MAP(LONG, Types.LIST(LONG)),
        {1: [1]},
        lambda mine: dict(mine)[1].append("x"),
    ),
    "list of an unpacked dict": (
        Types.MAP(LONG, Types.LIST(LONG)),
        {1: [1]},
        lambda mine: {**mine}[1].append("x"),
    ),
    "list of a union": (
        Types.MAP(LONG, Types.LIST(LONG)),
        {1: [1]},
        lambda mine: (mine | {})[1].append("x"),
    ),
    "dict in a dict": (
        Types.MAP(LONG, Types.MAP(STRING, LONG)),
        {1: {}},
        lambda mine: mine[1].__setitem__("a", "x"),
    ),
    "key of a dict in a dict": (
        Types.MAP(LONG, Types.MAP(STRING, LONG)),
        {1: {}},
        lambda mine: mine[1].__setitem__(1, 1),
    ),
    "list in a tuple in a list": (
        Types.LIST(Types.TUPLE([LONG, Types.LIST(LONG)])),
        [(1, [1])],
        lambda mine: mine[0][1].append("x"),
    ),
}


def with_its_own(type_info: TypeInformation, value: Any) -> Any:
    """Return a state that has checked a value of its own more than once."""
    state = state_of(make_backend(LONG), ValueStateDescriptor("nested", type_info), 1)
    state.update(value)
    for _ in range(2):
        state.update(state.value())
    return state


@pytest.mark.parametrize("how", NESTED_MISFITS)
def test_a_misfit_within_the_states_own_value_is_an_error_where_it_comes_in(how: str) -> None:
    type_info, first, change = NESTED_MISFITS[how]
    state = with_its_own(type_info, first)
    mine = state.value()
    change(mine)
    for _ in range(2):
        with pytest.raises(StateValueError, match=r"state 'nested', key 1: "):
            state.update(mine)


@pytest.mark.parametrize("first", [Row(0, [1]), Row(0, [1] * NOTED_FROM)], ids=["short", "long"])
def test_the_error_of_a_field_names_it(first: Row) -> None:
    state = with_its_own(Types.LIST(row_of_list(LONG)), [first])
    state.value()[0]["all"].append("x")
    with pytest.raises(StateValueError, match=r"key 1: field 'all': 'x' \(str\) does not fit LONG"):
        state.update(state.value())


def test_reading_by_another_key_that_is_equal_is_no_misfit() -> None:
    state = with_its_own(Types.MAP(LONG, Types.LIST(LONG)), {1: [1]})
    mine = state.value()
    mine[True].append(2)
    state.update(mine)
    assert [(type(key), value) for key, value in state.value().items()] == [(int, [1, 2])]


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


def test_a_list_of_another_place_is_not_taken_for_its_own() -> None:
    two_lists = Types.ROW_NAMED(["a", "b"], [Types.LIST(LONG), Types.LIST(LONG)])
    state = with_its_own(two_lists, Row([1] * NOTED_FROM, [2] * NOTED_FROM))
    mine = state.value()
    mine["a"] = mine["b"]
    state.update(mine)
    mine["a"].append(3)
    state.update(mine)
    assert state.value() == Row(a=[2] * NOTED_FROM + [3], b=[2] * NOTED_FROM)


@pytest.mark.parametrize("first", [{"a": [1], "b": [2]}, {"a": [1] * NOTED_FROM, "b": [2] * NOTED_FROM}])
def test_one_list_under_two_keys_becomes_two(first: dict[str, list[int]]) -> None:
    state = with_its_own(Types.MAP(STRING, Types.LIST(LONG)), first)
    mine = state.value()
    mine["a"] = mine["b"]
    state.update(mine)
    mine = state.value()
    mine["a"].append(3)
    state.update(mine)
    assert state.value() == {"a": [*first["b"], 3], "b": first["b"]}


def test_what_stands_for_the_states_list_is_no_longer_kept() -> None:
    state = with_its_own(Types.LIST(Types.PICKLED_BYTE_ARRAY()), [[1]] * NOTED_FROM)
    assert state.value().stands_for is None
    assert with_its_own(Types.LIST(Types.ROW([LONG])), [Row(1)] * NOTED_FROM).value().stands_for is None


@pytest.mark.parametrize("copied", [deepcopy, isolated, lambda value: pickle.loads(pickle.dumps(value))])
@pytest.mark.parametrize(
    "value",
    [CheckedList([1, 2]), CheckedDict({1: 2}), WatchedList([1, 2]), WatchedDict({1: 2})],
    ids=["list", "dict", "watched list", "watched dict"],
)
def test_a_copy_is_plain(value: Any, copied: Callable[[Any], Any]) -> None:
    plain = list if isinstance(value, list) else dict
    made = copied([value])[0]
    assert type(made) is plain
    assert made == value
    assert type(value.copy()) is plain


@pytest.mark.parametrize(
    ("type_info", "value"),
    [
        (Types.LIST(Types.LIST(Types.ROW([LONG]))), [[Row(1)]]),
        (Types.MAP(LONG, Types.LIST(LONG)), {1: [1], 2: [2]}),
    ],
    ids=["list", "dict"],
)
def test_a_snapshot_and_a_print_hand_nothing_out(type_info: TypeInformation, value: Any) -> None:
    mine = with_its_own(type_info, value).value()
    assert isinstance(mine, (WatchedList, WatchedDict))
    assert encode_column(type_info, [mine]).to_pylist()
    assert text_of_type(type_info)(mine)
    assert not mine._given


def test_the_last_element_is_popped_without_a_look_at_the_others() -> None:
    mine = CheckedList(range(99))
    mine[:] = range(99)
    mine.note_checked()
    for position in range(99):
        mine[position] = -1
    recorded = mine._replaced
    assert [mine.pop() for _ in range(9)] == [-1] * 9
    assert mine._replaced is recorded
    assert sorted(mine.unchecked()) == list(range(90))


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


#: Steps for a list of lists or a dict of lists, told apart by what ``at`` returns: a place that is there.
NUMBERS = st.one_of(st.integers(0, 3), st.just("x"))


def at(mine: Any, index: int) -> Any:
    return list(range(len(mine)) if isinstance(mine, list) else dict.keys(mine))[index % len(mine)]


def set_one(mine: Any, index: int, new: list[Any]) -> None:
    mine[at(mine, index)] = new


def change_one(mine: Any, index: int, new: list[Any]) -> None:
    mine[at(mine, index)].extend(new)


def put_one_back(mine: Any, index: int, new: list[Any]) -> None:
    mine[at(mine, index)] += new


def put_one_elsewhere(mine: Any, index: int, new: list[Any]) -> None:
    mine[at(mine, index + 1)] = mine[at(mine, index)]


def swap(mine: Any, index: int, new: list[Any]) -> None:
    one, other = at(mine, index), at(mine, index + 1)
    mine[one], mine[other] = mine[other], mine[one]


def delete(mine: Any, index: int, new: list[Any]) -> None:
    del mine[at(mine, index)]


def change_all(mine: Any, index: int, new: list[Any]) -> None:
    for element in mine if isinstance(mine, list) else mine.values():
        element.extend(new)


def add(mine: Any, index: int, new: list[Any]) -> None:
    if isinstance(mine, list):
        mine.insert(index, new)
    else:
        mine[index] = new


def pop_and_add(mine: Any, index: int, new: list[Any]) -> None:
    place = at(mine, index)
    element = mine.pop(place)
    element.extend(new)
    add(mine, index, element)


def turn(mine: Any, index: int, new: list[Any]) -> None:
    if isinstance(mine, list):
        mine.reverse()
    else:
        mine.update({index: new})


NESTED_STEPS = [
    *(set_one, change_one, put_one_back, put_one_elsewhere, swap, delete, change_all, add, pop_and_add, turn),
]


@pytest.mark.parametrize("noted_from", [1, NOTED_FROM])
@pytest.mark.parametrize(
    "type_info", [Types.LIST(Types.LIST(LONG)), Types.MAP(LONG, Types.LIST(LONG))], ids=["list", "dict"]
)
@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.one_of(st.sampled_from(NESTED_STEPS), st.none()),
            st.integers(0, 5),
            st.lists(NUMBERS, max_size=2),
        ),
        max_size=15,
    )
)
def test_a_recheck_finds_what_a_check_finds(
    noted_from: int, type_info: TypeInformation, steps: list[tuple[Any, int, list[Any]]]
) -> None:
    """None among the steps is a check; after one that succeeds, nothing is shared that was given."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "NOTED_FROM", noted_from)
        recheck = rechecker(type_info)
        assert recheck is not None
        first = type_info.check([[0], [1], [2]] if type_info.name.startswith("LIST") else {0: [0], 1: [1]})
        mine, model = recheck(first, first), deepcopy(first)
        given_lists: list[list[Any]] = []
        for step_of, index, new in [*steps, (None, 0, [])]:
            if step_of is not None:
                if len(model):
                    given_lists.append([*new])
                    step_of(mine, index, given_lists[-1])
                    step_of(model, index, [*new])
                continue
            try:
                model = type_info.check(model)
            except ValueError:
                with pytest.raises(ValueError, match="does not fit"):
                    recheck(mine, mine)
                continue
            mine = recheck(mine, mine)
            assert mine == model
            held = list(mine) if isinstance(mine, list) else list(mine.values())
            assert len({id(element) for element in held}) == len(held)
            assert not {id(element) for element in held} & {id(element) for element in given_lists}
