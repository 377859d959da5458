"""Which subtask restores what, after a change of parallelism and without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st
from operator_support import NUMBERS, RULES, Handles, rescale, snapshot

from pyflinkstate import ListStateDescriptor, Types
from pyflinkstate.backends.format.metadata import (
    ByteStreamStateHandle,
    KeyGroupsStateHandle,
    OperatorSubtaskState,
    RawOperatorStateHandle,
    Section,
    StateAssignment,
)
from pyflinkstate.backends.keys import KeyGroupRange, key_group_range
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend, assign_state, deal_out

COUNTS = st.lists(st.integers(0, 9), min_size=1, max_size=6)
PARALLELISM = st.integers(1, 7)


def holding(numbers: Sequence[int], name: str = "numbers", union: bool = False) -> Any:
    """Return the handle of a subtask with one list state."""
    store = DefaultOperatorStateBackend()
    request = store.get_union_list_state if union else store.get_list_state
    request(ListStateDescriptor(name, Types.LONG())).update(list(numbers))
    return snapshot(store)


def numbers_of(store: DefaultOperatorStateBackend, name: str = "numbers") -> list[int]:
    return list(store.get_list_state(ListStateDescriptor(name, Types.LONG())).get())


def union_of(store: DefaultOperatorStateBackend) -> list[int]:
    return list(store.get_union_list_state(NUMBERS).get())


def dealt(lists: Sequence[Sequence[int]], parallelism: int) -> list[list[int]]:
    """Return what each new subtask gets of list state."""
    return [numbers_of(store) for store in rescale([holding(numbers) for numbers in lists], parallelism)]


# --- dealing out -----------------------------------------------------------------------------------


def flinks_round_robin(
    lists: Sequence[Sequence[Any]], parallelism: int, start: int
) -> tuple[list[list[Any]], int]:
    """``RoundRobinOperatorStateRepartitioner.repartitionSplitState``, element by element."""
    elements = list(chain.from_iterable(lists))
    base, remainder = divmod(len(elements), parallelism)
    shares: list[list[Any]] = [[] for _ in range(parallelism)]
    new_start = start
    for step in range(parallelism):
        subtask = (step + start) % parallelism
        number = base
        if remainder > 0:
            number += 1
            remainder -= 1
        elif remainder == 0:
            new_start = subtask
            remainder -= 1
        shares[subtask] = [elements.pop(0) for _ in range(number)]
    assert not elements
    return shares, new_start


@given(COUNTS, PARALLELISM, st.data())
def test_elements_are_dealt_out_as_flink_does(
    counts: list[int], parallelism: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, parallelism - 1))
    lists = [[(old, index) for index in range(count)] for old, count in enumerate(counts)]
    slices, next_first = deal_out(counts, parallelism, first)
    shares = [
        [element for elements, part in zip(lists, parts, strict=True) for element in elements[part]]
        for parts in slices
    ]
    assert (shares, next_first) == flinks_round_robin(lists, parallelism, first)


@pytest.mark.parametrize(
    ("lists", "parallelism", "expected"),
    [
        ([[1, 2, 3, 4, 5]], 3, [[1, 2], [3, 4], [5]]),
        ([[1, 2], [3], [], [4, 5, 6, 7]], 2, [[1, 2, 3, 4], [5, 6, 7]]),
        ([[1, 2, 3], [4, 5, 6]], 1, [[1, 2, 3, 4, 5, 6]]),
        ([[1], [2]], 4, [[1], [2], [], []]),
        ([[], []], 3, [[], [], []]),
        ([[2, 1], [4, 3]], 3, [[2, 1], [4], [3]]),
    ],
    ids=str,
)
def test_list_state_is_dealt_out_in_contiguous_runs(
    lists: list[list[int]], parallelism: int, expected: list[list[int]]
) -> None:
    assert dealt(lists, parallelism) == expected


@given(st.lists(st.lists(st.integers(0, 99), max_size=4), min_size=1, max_size=5))
def test_at_the_same_parallelism_list_state_stays_where_it_is(lists: list[list[int]]) -> None:
    assert dealt(lists, len(lists)) == lists


def test_left_over_elements_of_several_states_go_to_different_subtasks() -> None:
    store = DefaultOperatorStateBackend()
    for name in ("a", "b", "c", "d"):
        store.get_list_state(ListStateDescriptor(name, Types.LONG())).add(1)
    stores = rescale([snapshot(store)], 3)
    found = [[name for name in "abcd" if numbers_of(each, name)] for each in stores]
    assert found == [["a", "d"], ["b"], ["c"]]


def test_a_state_that_only_some_subtasks_had_is_dealt_out_among_all() -> None:
    handles = [holding([1, 2], "a"), None, holding([3, 4], "b")]
    stores = rescale(handles, 2)
    assert [numbers_of(store, "a") for store in stores] == [[1], [2]]
    assert [numbers_of(store, "b") for store in stores] == [[3], [4]]


def test_at_the_same_parallelism_a_state_that_only_some_subtasks_had_stays_with_them() -> None:
    stores = rescale([None, holding([1, 2], "a"), holding([3], "b")], 3)
    assert [numbers_of(store, "a") for store in stores] == [[], [1, 2], []]
    assert [numbers_of(store, "b") for store in stores] == [[], [], [3]]


# --- union and broadcast ---------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_of_union_state_every_subtask_gets_all_elements_in_order(parallelism: int) -> None:
    handles = [holding([2, 1], union=True), holding([], union=True), holding([3], union=True)]
    assert [union_of(store) for store in rescale(handles, parallelism)] == [[2, 1, 3]] * parallelism


def broadcasting(number: int) -> Any:
    store = DefaultOperatorStateBackend()
    store.get_broadcast_state(RULES).put("from", number)
    return snapshot(store)


@pytest.mark.parametrize(
    ("parallelism", "sources"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (7, [0, 1, 2, 0, 1, 2, 0])]
)
def test_of_broadcast_state_every_subtask_gets_one_copy_its_own_if_it_had_one(
    parallelism: int, sources: list[int]
) -> None:
    handles: Handles = [broadcasting(number) for number in range(3)]
    found = [store.get_broadcast_state(RULES).get("from") for store in rescale(handles, parallelism)]
    assert found == sources


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_broadcast_state_that_one_subtask_had_reaches_all(parallelism: int) -> None:
    stores = rescale([None, broadcasting(5)], parallelism)
    assert [store.get_broadcast_state(RULES).get("from") for store in stores] == [5] * parallelism


# --- there and back --------------------------------------------------------------------------------


def expand(stores: list[DefaultOperatorStateBackend], parallelism: int) -> list[DefaultOperatorStateBackend]:
    return rescale([snapshot(store) for store in stores], parallelism)


ROUTE = (3, 2, 4, 4, 1)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 9), max_size=20), st.lists(st.integers(10, 19), max_size=5))
def test_over_many_changes_of_parallelism_no_list_element_is_lost_or_doubled(
    first: list[int], added: list[int]
) -> None:
    store = DefaultOperatorStateBackend()
    store.get_list_state(NUMBERS).update(first)
    stores, expected = [store], Counter(first)
    for parallelism in ROUTE:
        for index, number in enumerate(added):
            stores[index % len(stores)].get_list_state(NUMBERS).add(number)
            expected[number] += 1
        before, stores = len(stores), expand(stores, parallelism)
        assert Counter(chain.from_iterable(map(numbers_of, stores))) == expected
        sizes = [len(numbers_of(each)) for each in stores]
        assert parallelism == before or max(sizes) - min(sizes) <= 1, "dealt out evenly"


@settings(max_examples=40)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_union_state_of_which_each_keeps_its_share_is_neither_lost_nor_doubled(numbers: list[int]) -> None:
    store = DefaultOperatorStateBackend()
    store.get_union_list_state(NUMBERS).update(numbers)
    stores = [store]
    for parallelism in ROUTE:
        stores = expand(stores, parallelism)
        for index, each in enumerate(stores):
            found = union_of(each)
            assert Counter(found) == Counter(numbers)
            each.get_union_list_state(NUMBERS).update(sorted(found)[index::parallelism])


@settings(max_examples=40)
@given(st.dictionaries(st.text(max_size=3), st.none() | st.integers(0, 99), max_size=6))
def test_broadcast_state_is_the_same_everywhere_at_every_parallelism(rules: dict[str, int | None]) -> None:
    store = DefaultOperatorStateBackend()
    store.get_broadcast_state(RULES).put_all(rules)
    stores = [store]
    for parallelism in ROUTE:
        stores = expand(stores, parallelism)
        assert [dict(each.get_broadcast_state(RULES).items()) for each in stores] == [rules] * parallelism


# --- raw state and keyed state ---------------------------------------------------------------------


def partitions(name: str, count: int) -> RawOperatorStateHandle:
    """Return a handle of ``count`` partitions, told apart by their offset."""
    sections = tuple(Section(10 * index, 10, 0) for index in range(count))
    return RawOperatorStateHandle(ByteStreamStateHandle(name.encode()), sections)


def raw_dealt(handles: Sequence[RawOperatorStateHandle | None], parallelism: int) -> list[list[str]]:
    """Return the partitions that each new subtask gets."""
    subtasks = [OperatorSubtaskState(raw_operator=handle) for handle in handles]
    return [
        [
            f"{handle.stream.data.decode()}{section.offset // 10}"
            for handle in assignment.raw_operator
            for section in handle.partitions
        ]
        for assignment in assign_state(subtasks, parallelism, 128)
    ]


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [
        (1, [["a0", "a1", "a2", "b0", "b1"]]),
        (2, [["a0", "a1", "a2"], ["b0", "b1"]]),
        (3, [["a0", "a1", "a2"], [], ["b0", "b1"]]),
        (4, [["a0", "a1"], ["a2"], ["b0"], ["b1"]]),
        (6, [["a0"], ["a1"], ["a2"], ["b0"], ["b1"], []]),
    ],
)
def test_raw_partitions_are_dealt_out_and_stay_at_the_same_parallelism(
    parallelism: int, expected: list[list[str]]
) -> None:
    assert raw_dealt([partitions("a", 3), None, partitions("b", 2)], parallelism) == expected


def keyed(parallelism: int) -> list[KeyGroupsStateHandle]:
    stream = ByteStreamStateHandle(b"")
    return [
        KeyGroupsStateHandle(key_group_range(128, parallelism, index), stream, {})
        for index in range(parallelism)
    ]


def test_keyed_state_goes_to_all_whose_key_groups_it_holds() -> None:
    thirds = keyed(3)
    subtasks = [OperatorSubtaskState(handle, attrs.evolve(handle)) for handle in thirds]
    lower, upper = assign_state(subtasks, 2, 128)
    assert (lower.managed_keyed, upper.managed_keyed) == (tuple(thirds[:2]), tuple(thirds[1:]))
    assert (lower.raw_keyed, upper.raw_keyed) == (tuple(thirds[:2]), tuple(thirds[1:]))
    assert (lower.managed_operator, lower.raw_operator) == ((), ())


@given(PARALLELISM, PARALLELISM, st.integers(7, 200))
def test_every_key_group_is_assigned_to_its_owner(before: int, after: int, max_parallelism: int) -> None:
    subtasks = [
        OperatorSubtaskState(
            KeyGroupsStateHandle(
                key_group_range(max_parallelism, before, index), ByteStreamStateHandle(b""), {}
            )
        )
        for index in range(before)
    ]
    for index, assignment in enumerate(assign_state(subtasks, after, max_parallelism)):
        owned = key_group_range(max_parallelism, after, index)
        covered = {group for handle in assignment.managed_keyed for group in handle.key_group_range}
        assert covered >= set(owned)
        for handle in assignment.managed_keyed:
            assert set(handle.key_group_range) & set(owned), "nothing is assigned in vain"


@pytest.mark.parametrize(("subtasks", "parallelism"), [(0, 2), (3, 1), (3, 3)])
def test_where_there_is_no_state_nothing_is_assigned(subtasks: int, parallelism: int) -> None:
    assert (
        assign_state([OperatorSubtaskState()] * subtasks, parallelism, 128)
        == [StateAssignment()] * parallelism
    )


def test_keyed_state_of_some_subtasks_is_assigned_without_the_others() -> None:
    handle = KeyGroupsStateHandle(KeyGroupRange(64, 127), ByteStreamStateHandle(b""), {})
    lower, upper = assign_state([OperatorSubtaskState(), OperatorSubtaskState(handle)], 2, 128)
    assert (lower, upper) == (StateAssignment(), StateAssignment(managed_keyed=(handle,)))
