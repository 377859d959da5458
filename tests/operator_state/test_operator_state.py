"""Operator state of one subtask: what its lists and maps can do, and how they are asked for."""

from __future__ import annotations

import copy
import datetime
import decimal
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from operator_support import NUMBERS, RULES, HookedStreams, finish, prepare, restored, snapshot

from pyflinkstate import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Row,
    StateDescriptor,
    StateTtlConfig,
    Time,
    TypeInformation,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import MemoryCheckpoint
from pyflinkstate.backends.format.metadata import ByteStreamStateHandle, OperatorStateHandle
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend
from pyflinkstate.backends.snapshots import SnapshotCancelledError
from pyflinkstate.backends.types.migration import OperatorStateMode
from pyflinkstate.errors import (
    ConcurrentModificationError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    StateMigrationError,
    StateRegistrationError,
    StateValueError,
    UnsupportedFeatureError,
)

LIST_OF_LONGS = Types.LIST(Types.LONG())

REQUESTS: dict[str, Callable[[DefaultOperatorStateBackend], Any]] = {
    "list": lambda backend: backend.get_list_state(NUMBERS),
    "union": lambda backend: backend.get_union_list_state(NUMBERS),
    "broadcast": lambda backend: backend.get_broadcast_state(attrs.evolve(RULES, name=NUMBERS.name)),
    "list of another type": lambda backend: backend.get_list_state(
        ListStateDescriptor("numbers", Types.INT())
    ),
    "broadcast with other keys": lambda backend: backend.get_broadcast_state(
        MapStateDescriptor("numbers", Types.LONG(), Types.LONG())
    ),
    "broadcast with other values": lambda backend: backend.get_broadcast_state(
        MapStateDescriptor("numbers", Types.STRING(), Types.STRING())
    ),
}


@pytest.fixture
def store() -> DefaultOperatorStateBackend:
    return DefaultOperatorStateBackend()


@pytest.fixture(params=["list", "union"])
def numbers(request: pytest.FixtureRequest, store: DefaultOperatorStateBackend) -> Any:
    """A list state of longs, of either way of redistribution."""
    return REQUESTS[request.param](store)


@pytest.fixture
def rules(store: DefaultOperatorStateBackend) -> Any:
    return store.get_broadcast_state(RULES)


# --- list state ------------------------------------------------------------------------------------


class TestWhileAListIsIteratedOver:
    """Flink changes the list in place and its iterators fail fast."""

    @staticmethod
    def loop(numbers: Any, change: Callable[[Any, int], Any], limit: int = 10) -> list[int]:
        seen = []
        for element in numbers.get():
            seen.append(element)
            assert len(seen) <= limit
            change(numbers, element)
        return seen

    @pytest.mark.parametrize(
        "change",
        [
            lambda numbers, element: numbers.add(element),
            lambda numbers, element: numbers.add_all([element]),
            lambda numbers, element: numbers.update([7, 8, 9]),
            lambda numbers, element: numbers.update([7, 8]),
            lambda numbers, element: numbers.clear(),
        ],
        ids=["add", "add_all", "update", "update with as many", "clear"],
    )
    def test_a_change_ends_it_with_an_error(self, numbers: Any, change: Callable[[Any, int], Any]) -> None:
        numbers.add_all([1, 2])
        with pytest.raises(ConcurrentModificationError, match="state 'numbers': the list was changed"):
            self.loop(numbers, change)

    def test_at_the_end_nothing_is_checked(self, numbers: Any) -> None:
        """Java's ``hasNext`` compares the position with the size, and only ``next`` looks for changes."""
        numbers.add_all([1, 2, 3])
        at_second = lambda numbers, element: numbers.update([7, 8]) if element == 2 else None  # noqa: E731
        assert self.loop(numbers, at_second) == [1, 2]
        assert list(numbers.get()) == [7, 8]

    def test_a_copy_may_be_iterated_over(self, numbers: Any) -> None:
        numbers.add_all([1, 2])
        for element in list(numbers.get()):
            numbers.add(element)
        assert list(numbers.get()) == [1, 2, 1, 2]

    def test_what_is_handed_out_is_a_plain_list_to_who_keeps_it(self, numbers: Any) -> None:
        numbers.add(1)
        kept = copy.deepcopy(numbers.get())
        assert (type(kept), kept) == (list, [1])


def test_update_replaces_all_elements_and_clear_removes_them(numbers: Any) -> None:
    assert list(numbers.get()) == []
    numbers.add(1)
    numbers.update([2, 3])
    assert list(numbers.get()) == [2, 3]
    numbers.clear()
    assert list(numbers.get()) == []


@pytest.mark.parametrize("value", [None, "1", 1.5, True, 2**63], ids=repr)
def test_an_element_that_is_not_of_the_type_is_refused(numbers: Any, value: Any) -> None:
    with pytest.raises(StateValueError, match="operator state 'numbers'") as caught:
        numbers.add(value)
    assert caught.value.context["state"] == "numbers"
    assert list(numbers.get()) == []


@pytest.mark.parametrize("values", [[2, None], [2, "x"], None, "12", b"12", 5], ids=repr)
@pytest.mark.parametrize("method", ["add_all", "update"])
def test_a_list_with_one_bad_element_changes_nothing(numbers: Any, method: str, values: Any) -> None:
    numbers.add(1)
    with pytest.raises(StateValueError, match="operator state 'numbers'"):
        getattr(numbers, method)(values)
    assert list(numbers.get()) == [1]


@pytest.mark.parametrize("method", ["get_list_state", "get_union_list_state"])
def test_none_is_no_element_even_where_no_type_is_declared(
    store: DefaultOperatorStateBackend, method: str
) -> None:
    state = getattr(store, method)(ListStateDescriptor("anything"))
    state.add(1)
    for refused in (lambda: state.add(None), lambda: state.add_all([None]), lambda: state.update([2, None])):
        with pytest.raises(StateValueError, match="None cannot be added to a ListState"):
            refused()
    assert list(state.get()) == [1]


def test_elements_are_stored_as_their_type_has_them(store: DefaultOperatorStateBackend) -> None:
    state = store.get_list_state(ListStateDescriptor("pairs", Types.TUPLE([Types.DOUBLE(), LIST_OF_LONGS])))
    state.add([1, (2, 3)])
    assert list(state.get()) == [(1.0, [2, 3])]
    assert type(next(iter(state.get()))[0]) is float


# --- broadcast state -------------------------------------------------------------------------------


def test_a_new_broadcast_state_is_empty(rules: Any) -> None:
    assert rules.is_empty()
    assert [list(rules.items()), list(rules.keys()), list(rules.values()), list(rules)] == [[], [], [], []]
    assert rules.get("a") is None
    assert not rules.contains("a")


def test_entries_of_broadcast_state_are_put_read_and_removed(rules: Any) -> None:
    rules.put("a", 1)
    rules["b"] = 2
    rules.put_all({"c": 3, "a": 4})
    assert dict(rules.items()) == {"a": 4, "b": 2, "c": 3}
    assert (list(rules.keys()), list(rules.values())) == (["a", "b", "c"], [4, 2, 3])
    assert (rules["b"], rules.get("c"), "b" in rules) == (2, 3, True)
    rules.remove("a")
    del rules["b"]
    assert list(rules) == ["c"]
    rules.clear()
    assert rules.is_empty()


NAN = float("nan")
ANYTHING = MapStateDescriptor("anything")
#: Of a descriptor, and why each is refused; NaN would never be found again.
BAD_KEYS = [
    *((RULES, key, "operator state 'rules': key") for key in (1, None, ["a"], ("a", []))),
    (ANYTHING, [], "operator state 'anything': key: unhashable type"),
    *(
        (ANYTHING, key, "operator state 'anything': key: NaN does not equal itself")
        for key in (NAN, ("a", NAN), Row(NAN))
    ),
    (
        MapStateDescriptor("lists", Types.TUPLE([LIST_OF_LONGS]), Types.LONG()),
        ((1,),),
        "operator state 'lists': key: unhashable type: 'list'",
    ),
]


@pytest.mark.parametrize(("descriptor", "key", "message"), BAD_KEYS, ids=repr)
@pytest.mark.parametrize("use", ["get", "contains", "remove", "put"])
def test_bad_keys_are_refused(
    store: DefaultOperatorStateBackend, use: str, descriptor: MapStateDescriptor, key: Any, message: str
) -> None:
    state = store.get_broadcast_state(descriptor)
    arguments = (key, 1) if use == "put" else (key,)
    with pytest.raises(StateValueError, match=message):
        getattr(state, use)(*arguments)
    assert state.is_empty()


@pytest.mark.parametrize(
    "entries", [{"a": 1, "b": "x"}, {"a": 1, 2: 2}, {"a": 1, None: 2}, [("a", 1)], None], ids=repr
)
def test_put_all_with_one_bad_entry_changes_nothing(rules: Any, entries: Any) -> None:
    rules.put("a", 0)
    with pytest.raises(StateValueError, match="operator state 'rules'"):
        rules.put_all(entries)
    assert dict(rules.items()) == {"a": 0}


# --- registration ----------------------------------------------------------------------------------


@pytest.mark.parametrize("request_it", REQUESTS.values(), ids=REQUESTS)
def test_the_same_request_gives_the_same_object(
    store: DefaultOperatorStateBackend, request_it: Callable[..., Any]
) -> None:
    assert request_it(store) is request_it(store)


CLASHES = [(first, second) for first in REQUESTS for second in REQUESTS if first != second]


@pytest.mark.parametrize(("first", "second"), CLASHES)
def test_a_name_in_use_with_another_way_or_type_is_refused(
    store: DefaultOperatorStateBackend, first: str, second: str
) -> None:
    state = REQUESTS[first](store)
    with pytest.raises(StateRegistrationError, match="operator state 'numbers' is") as caught:
        REQUESTS[second](store)
    assert not isinstance(caught.value, StateMigrationError)
    assert REQUESTS[first](store) is state


#: Of these the one may become the other.
WIDER = ("list of another type", "list")


@pytest.mark.parametrize(("first", "second"), [clash for clash in CLASHES if clash != WIDER])
def test_a_restored_state_that_is_requested_otherwise_is_refused_and_stays(first: str, second: str) -> None:
    before = DefaultOperatorStateBackend()
    REQUESTS[first](before)
    store = restored([snapshot(before)])
    for _ in range(2):
        with pytest.raises(StateMigrationError, match=r"operator state 'numbers' is .*, and is requested as"):
            REQUESTS[second](store)
    REQUESTS[first](store)
    with pytest.raises(StateRegistrationError) as caught:
        REQUESTS[second](store)
    assert type(caught.value) is StateRegistrationError


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ("get_list_state", RULES),
        ("get_union_list_state", ValueStateDescriptor("numbers", Types.LONG())),
        ("get_union_list_state", ReducingStateDescriptor("numbers", max, Types.LONG())),
        ("get_broadcast_state", NUMBERS),
        ("get_list_state", "numbers"),
        ("get_broadcast_state", None),
    ],
    ids=str,
)
def test_a_descriptor_of_another_kind_is_refused(
    store: DefaultOperatorStateBackend, method: str, wrong: Any
) -> None:
    with pytest.raises(StateRegistrationError, match="StateDescriptor is needed here"):
        getattr(store, method)(wrong)
    assert store.registered_states == {}


@pytest.mark.parametrize("method", ["get_list_state", "get_union_list_state", "get_broadcast_state"])
def test_operator_state_has_no_time_to_live(store: DefaultOperatorStateBackend, method: str) -> None:
    descriptor: StateDescriptor = (
        MapStateDescriptor("s") if "broadcast" in method else ListStateDescriptor("s")
    )
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    with pytest.raises(UnsupportedFeatureError, match="operator state 's' cannot have time to live"):
        getattr(store, method)(descriptor)
    assert store.registered_states == {}


class Shy(dict[Any, Any]):
    """A value whose repr raises."""

    def __repr__(self) -> str:
        raise RuntimeError

    def __hash__(self) -> int:  # type: ignore[override]
        return 1


def test_a_key_that_its_check_makes_hashable_is_taken(store: DefaultOperatorStateBackend) -> None:
    key_type = Types.TUPLE([Types.LONG()])
    state = store.get_broadcast_state(MapStateDescriptor("tuples", key_type, Types.LONG()))
    state.put([1], 2)  # type: ignore[arg-type]
    assert state.get((1,)) == 2


def test_a_refused_value_may_have_any_repr(store: DefaultOperatorStateBackend) -> None:
    numbers = store.get_list_state(NUMBERS)
    entries = store.get_broadcast_state(
        MapStateDescriptor("entries", Types.PICKLED_BYTE_ARRAY(), LIST_OF_LONGS)
    )
    with pytest.raises(StateValueError, match="an int with more digits"):
        numbers.update(10**5_000)  # type: ignore[arg-type]
    with pytest.raises(StateValueError, match="an int with more digits"):
        entries.put_all(10**5_000)  # type: ignore[arg-type]
    with pytest.raises(StateValueError, match=r"entry <Shy, whose repr raised RuntimeError>: 1 \(int\)"):
        entries.put(Shy(), 1)  # type: ignore[arg-type]


PICKLED = Types.PICKLED_BYTE_ARRAY()


# --- snapshots -------------------------------------------------------------------------------------


class Point:
    """A class of the user's, known by its content."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    def __hash__(self) -> int:
        return self.x


LISTS: dict[str, tuple[TypeInformation, list[Any]]] = {
    "LONG": (Types.LONG(), [1, -(2**63), 2**63 - 1]),
    "STRING": (Types.STRING(), ["", "é", "\U0001f600" * 1_000]),
    "BIG_INT": (Types.BIG_INT(), [10**5_000, -1]),
    "BIG_DEC": (Types.BIG_DEC(), [decimal.Decimal("1.10")]),
    "BYTES": (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"", b"\x00\xff"]),
    "SQL_DATE": (Types.SQL_DATE(), [datetime.date(1969, 12, 31)]),
    "TUPLE": (Types.TUPLE([Types.STRING(), Types.DOUBLE()]), [("a", None), (None, 1.5)]),
    "LIST": (Types.LIST(LIST_OF_LONGS), [[[]], [], [[1, 2], [3]]]),
    "MAP": (Types.MAP(Types.STRING(), LIST_OF_LONGS), [{}, {"a": [1], "b": None}]),
    "PICKLED": (PICKLED, [Point(1), {"a": Point(2)}, (), 10**100]),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("method", ["get_list_state", "get_union_list_state"])
def test_list_state_of_every_type_is_restored_as_it_was(
    store: DefaultOperatorStateBackend, name: str, method: str
) -> None:
    element_type, elements = LISTS[name]
    descriptor = ListStateDescriptor("elements", element_type)
    getattr(store, method)(descriptor).update(elements)
    again = getattr(restored([snapshot(store)]), method)(descriptor)
    assert list(again.get()) == elements
    again.add(elements[0])
    assert list(again.get()) == [*elements, elements[0]]


MAPS: dict[str, tuple[TypeInformation, TypeInformation, dict[Any, Any]]] = {
    "declared": (Types.STRING(), Types.LONG(), {"a": 1, "": None, "é": -1}),
    "nested": (Types.TUPLE([Types.LONG(), Types.STRING()]), LIST_OF_LONGS, {(1, "a"): [1], (2, None): None}),
    "undeclared": (PICKLED, PICKLED, {Point(1): [Point(2)], "a": None, None: 1, (1, 2): {}}),
}


@pytest.mark.parametrize("name", MAPS)
def test_broadcast_state_of_every_type_is_restored_as_it_was(
    store: DefaultOperatorStateBackend, name: str
) -> None:
    key_type, value_type, entries = MAPS[name]
    descriptor = MapStateDescriptor("entries", key_type, value_type)
    store.get_broadcast_state(descriptor).put_all(entries)
    again = restored([snapshot(store)]).get_broadcast_state(descriptor)
    assert dict(again.items()) == entries
    assert list(again) == list(entries)


def test_without_operator_state_there_is_no_handle_and_no_stream(store: DefaultOperatorStateBackend) -> None:
    assert finish(prepare(store, streams=object())) is None


def test_the_handle_says_of_each_state_how_it_is_redistributed_and_how_many_elements_it_has(
    store: DefaultOperatorStateBackend,
) -> None:
    store.get_list_state(NUMBERS).update([1, 2, 3])
    store.get_union_list_state(ListStateDescriptor("all", Types.LONG())).add(1)
    store.get_broadcast_state(RULES)
    states = snapshot(store).states
    assert {name: (entry.mode, entry.count, entry.start, entry.stop) for name, entry in states.items()} == {
        "numbers": (OperatorStateMode.SPLIT_DISTRIBUTE, 3, 0, 3),
        "all": (OperatorStateMode.UNION, 1, 0, 1),
        "rules": (OperatorStateMode.BROADCAST, 0, 0, 0),
    }


def test_a_value_that_cannot_be_pickled_fails_the_asynchronous_part(
    store: DefaultOperatorStateBackend,
) -> None:
    state = store.get_list_state(ListStateDescriptor("functions"))
    state.add(lambda: 0)
    with pytest.raises(StateValueError, match="cannot be stored"):
        finish(prepare(store))


def test_restored_state_that_is_never_requested_is_in_the_next_snapshot(
    store: DefaultOperatorStateBackend,
) -> None:
    store.get_list_state(NUMBERS).update([1, 2])
    store.get_union_list_state(ListStateDescriptor("all")).update(["a"])
    store.get_broadcast_state(RULES).put("a", 1)
    second = restored([snapshot(store)])
    second.get_list_state(ListStateDescriptor("new", Types.LONG())).add(1)
    third = restored([snapshot(second)])
    assert list(third.get_list_state(NUMBERS).get()) == [1, 2]
    assert list(third.get_union_list_state(ListStateDescriptor("all")).get()) == ["a"]
    assert dict(third.get_broadcast_state(RULES).items()) == {"a": 1}


# --- what cannot be restored -----------------------------------------------------------------------


def numbers_handle(*values: int, element_type: TypeInformation | None = None) -> OperatorStateHandle:
    store = DefaultOperatorStateBackend()
    store.get_union_list_state(ListStateDescriptor("numbers", element_type or Types.LONG())).update(
        list(values)
    )
    return snapshot(store)


def altered(handle: OperatorStateHandle, change: Callable[[bytearray], None]) -> OperatorStateHandle:
    data = bytearray(handle.stream.data)
    change(data)
    return attrs.evolve(handle, stream=ByteStreamStateHandle(bytes(data)))


def test_elements_that_were_altered_are_a_corrupt_checkpoint() -> None:
    handle = numbers_handle(1, 2, 3)
    section = handle.states["numbers"].section
    for position in range(section.offset, section.offset + section.length, 5):
        damaged = altered(handle, lambda data, at=position: data.__setitem__(at, data[at] ^ 1))
        with pytest.raises(CorruptCheckpointError, match="operator state 'numbers' is damaged"):
            restored([damaged])


def test_a_file_cut_short_is_a_corrupt_checkpoint() -> None:
    handle = numbers_handle(1, 2, 3)
    section = handle.states["numbers"].section
    for size in range(0, section.offset + section.length, 7):
        with pytest.raises(CorruptCheckpointError, match="truncated"):
            restored([altered(handle, lambda data, size=size: data.__delitem__(slice(size, None)))])


def test_a_head_that_was_altered_is_refused() -> None:
    handle = numbers_handle(1, 2, 3)
    head = handle.stream.data.index(b'{"states"')
    for position in (*range(head), head + 20):
        damaged = altered(handle, lambda data, at=position: data.__setitem__(at, data[at] ^ 1))
        with pytest.raises((CorruptCheckpointError, IncompatibleCheckpointError)):
            restored([damaged])


def test_files_that_do_not_agree_on_a_type_are_incompatible() -> None:
    with pytest.raises(IncompatibleCheckpointError, match=r"operator state 'numbers' is .* in another's"):
        restored([numbers_handle(1), numbers_handle(element_type=Types.STRING())])


def test_state_of_several_files_comes_in_their_order() -> None:
    store = restored([numbers_handle(3, 1), numbers_handle(), numbers_handle(2)])
    assert list(store.get_union_list_state(NUMBERS).get()) == [3, 1, 2]


def test_a_cancelled_snapshot_stops_before_its_next_write(store: DefaultOperatorStateBackend) -> None:
    store.get_list_state(NUMBERS).add(1)
    streams = HookedStreams(MemoryCheckpoint(), lambda _: task.cancel())
    task = prepare(store, streams=streams)
    with pytest.raises(SnapshotCancelledError, match="the checkpoint was aborted"):
        finish(task)
    assert streams.writes == 1


# --- what was changed in place ---------------------------------------------------------------------


@pytest.mark.parametrize("method", ["get_list_state", "get_union_list_state", "get_broadcast_state"])
def test_what_was_changed_in_place_is_named(store: DefaultOperatorStateBackend, method: str) -> None:
    if method == "get_broadcast_state":
        entries = store.get_broadcast_state(MapStateDescriptor("lists", Types.STRING(), LIST_OF_LONGS))
        entries.put_all({"a": [1], "none": None, "b": [2]})
        entries.get("b").append("x")
    else:
        elements = getattr(store, method)(ListStateDescriptor("lists", LIST_OF_LONGS))
        elements.update([[1], [2]])
        list(elements.get())[1].append("x")
    place = "entry 'b'" if method == "get_broadcast_state" else "element 1"
    with pytest.raises(
        StateValueError, match=f"operator state 'lists', {place}: 'x' .*changed in place"
    ) as caught:
        snapshot(store)
    assert caught.value.context == {"state": "lists"}
