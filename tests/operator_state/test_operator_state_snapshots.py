"""Snapshots of operator state: what is in them, what of them is restored, and what is refused."""

from __future__ import annotations

import datetime
import decimal
import zlib
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from operator_support import NUMBERS, RULES, HookedStreams, finish, prepare, restored, snapshot

from pyflinkstate import ListStateDescriptor, MapStateDescriptor, TypeInformation, Types
from pyflinkstate.backends.format.framing import PREFIX_SIZE
from pyflinkstate.backends.format.state_handles import ByteStreamStateHandle, OperatorStateHandle
from pyflinkstate.backends.operator_state.backend import DefaultOperatorStateBackend
from pyflinkstate.backends.snapshots import SnapshotCancelledError
from pyflinkstate.backends.types.state_meta import OperatorStateMode
from pyflinkstate.errors import CorruptCheckpointError, IncompatibleCheckpointError, StateValueError
from pyflinkstate.testing.harness import MemoryCheckpoint

PICKLED = Types.PICKLED_BYTE_ARRAY()
LIST_OF_LONGS = Types.LIST(Types.LONG())


@pytest.fixture
def store() -> DefaultOperatorStateBackend:
    return DefaultOperatorStateBackend()


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


@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
def test_every_compression_is_restored(store: DefaultOperatorStateBackend, compression: str | None) -> None:
    store.get_list_state(NUMBERS).update([7] * 10_000)
    store.get_broadcast_state(RULES).put("a", 1)
    handle = snapshot(store, compression)
    assert (handle.stream.size_bytes < 40_000) is (compression is not None)
    again = restored([handle])
    assert list(again.get_list_state(NUMBERS).get()) == [7] * 10_000
    assert dict(again.get_broadcast_state(RULES).items()) == {"a": 1}


@pytest.mark.parametrize("element_type", [LIST_OF_LONGS, PICKLED], ids=str)
def test_a_list_element_changed_after_the_synchronous_part_is_not_in_the_snapshot(
    store: DefaultOperatorStateBackend, element_type: TypeInformation
) -> None:
    descriptor = ListStateDescriptor("lists", element_type)
    state = store.get_list_state(descriptor)
    state.add([1])
    task = prepare(store)
    next(iter(state.get())).append(2)
    state.add([3])
    assert list(restored([finish(task)]).get_list_state(descriptor).get()) == [[1]]
    assert list(state.get()) == [[1, 2], [3]]


def test_the_synchronous_part_copies_deep(store: DefaultOperatorStateBackend) -> None:
    descriptor = ListStateDescriptor("nested", Types.LIST(Types.MAP(Types.STRING(), LIST_OF_LONGS)))
    state = store.get_list_state(descriptor)
    state.add([{"a": [1]}])
    task = prepare(store)
    next(iter(state.get()))[0]["a"].append(2)
    assert list(restored([finish(task)]).get_list_state(descriptor).get()) == [[{"a": [1]}]]


@pytest.mark.parametrize("value_type", [LIST_OF_LONGS, PICKLED], ids=str)
def test_a_broadcast_value_changed_after_the_synchronous_part_is_not_in_the_snapshot(
    store: DefaultOperatorStateBackend, value_type: TypeInformation
) -> None:
    descriptor = MapStateDescriptor("lists", Types.STRING(), value_type)
    state = store.get_broadcast_state(descriptor)
    state.put("a", [1])
    task = prepare(store)
    state.get("a").append(2)
    state.put("b", [3])
    assert dict(restored([finish(task)]).get_broadcast_state(descriptor).items()) == {"a": [1]}
    assert dict(state.items()) == {"a": [1, 2], "b": [3]}


def test_what_is_cleared_after_the_synchronous_part_is_in_the_snapshot(
    store: DefaultOperatorStateBackend,
) -> None:
    store.get_list_state(NUMBERS).update([1, 2])
    store.get_broadcast_state(RULES).put("a", 1)
    task = prepare(store)
    store.get_list_state(NUMBERS).clear()
    store.get_broadcast_state(RULES).clear()
    again = restored([finish(task)])
    assert list(again.get_list_state(NUMBERS).get()) == [1, 2]
    assert dict(again.get_broadcast_state(RULES).items()) == {"a": 1}


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


def test_a_file_of_a_later_format_version_is_incompatible() -> None:
    def of_version_99(data: bytearray) -> None:
        end = PREFIX_SIZE + int.from_bytes(data[10:14], "big")
        data[8:10] = b"\x00\x63"
        data[end : end + 4] = zlib.crc32(data[:end]).to_bytes(4, "big")

    with pytest.raises(IncompatibleCheckpointError, match="format version 99"):
        restored([altered(numbers_handle(1), of_version_99)])


def test_a_file_whose_format_version_was_altered_is_damaged() -> None:
    damaged = altered(numbers_handle(1), lambda data: data.__setitem__(slice(8, 10), b"\x00\x63"))
    with pytest.raises(CorruptCheckpointError, match="format version 99"):
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


@pytest.mark.parametrize("method", ["get_list_state", "get_union_list_state"])
def test_an_element_that_was_changed_in_place_is_named(
    store: DefaultOperatorStateBackend, method: str
) -> None:
    state = getattr(store, method)(ListStateDescriptor("lists", LIST_OF_LONGS))
    state.update([[1], [2]])
    list(state.get())[1].append("x")
    with pytest.raises(
        StateValueError, match=r"operator state 'lists', element 1: 'x' .*changed in place"
    ) as caught:
        snapshot(store)
    assert caught.value.context == {"state": "lists"}


def test_an_entry_that_was_changed_in_place_is_named(store: DefaultOperatorStateBackend) -> None:
    state = store.get_broadcast_state(MapStateDescriptor("lists", Types.STRING(), LIST_OF_LONGS))
    state.put_all({"a": [1], "none": None, "b": [2]})
    state.get("b").append("x")
    with pytest.raises(
        StateValueError, match=r"operator state 'lists', entry 'b': 'x' .*changed in place"
    ) as caught:
        snapshot(store)
    assert caught.value.context == {"state": "lists"}
