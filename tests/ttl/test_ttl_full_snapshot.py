"""Clean-up in full snapshots: what has expired is not written, and stays in memory (C3)."""

import pytest
from backend_support import entries, prepare, take_snapshot, write
from ttl_contract import CONTEXTS, Arena, ClockedBackend, ttl_config, with_ttl

from pyflinkstate import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.testing import KeyedOneInputOperatorHarness

FULL_SNAPSHOT = ttl_config(
    cleanup=lambda builder: builder.disable_cleanup_in_background().cleanup_full_snapshot()
)


@pytest.fixture(params=[True, False], ids=["copy on write", "nested maps"])
def async_snapshots(request):
    return request.param


@pytest.fixture
def clocked(async_snapshots):
    return ClockedBackend(async_snapshots)


every_context = pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.name)


@every_context
def test_what_has_expired_is_not_restored(async_snapshots, declared, context):
    arena = Arena(context, declared, async_snapshots)
    arena.start(FULL_SNAPSHOT)
    arena.under_key("old").update(context.first)
    arena.at(50).under_key("new").update(context.first)
    arena.at(100).restore(arena.take_snapshot())
    arena.at(60)
    assert arena.under_key("old").is_cleared()
    assert arena.under_key("new").get() == context.read_first
    assert arena.backend.num_key_value_state_entries() == 1


@every_context
def test_state_in_memory_is_not_touched(async_snapshots, declared, context):
    arena = Arena(context, declared, async_snapshots)
    arena.start(FULL_SNAPSHOT)
    arena.under_key("old").update(context.first)
    arena.at(50).under_key("new").update(context.first)
    before = entries(arena.backend, "state")
    arena.at(100).take_snapshot()
    assert entries(arena.backend, "state") == before


@every_context
def test_without_the_strategy_everything_is_written(async_snapshots, declared, context):
    arena = Arena(context, declared, async_snapshots)
    arena.start(ttl_config(cleanup=lambda builder: builder))
    arena.update(context.first)
    arena.at(100).restore(arena.take_snapshot())
    arena.at(99)
    assert arena.get() == context.read_first


def test_lists_lose_their_expired_elements(clocked, declared):
    descriptor = ListStateDescriptor("l", declared(Types.LONG()))
    state = clocked.state(descriptor, FULL_SNAPSHOT)
    for now_ms in (0, 40, 10, 50):
        clocked.at(now_ms)
        state.add(now_ms)
    clocked.at(110)
    restored = clocked.restored(take_snapshot(clocked.backend))
    assert entries(restored, "l") == [("k", [(40, 40), (50, 50)])]
    assert state.get_internal() == [(0, 0), (40, 40), (10, 10), (50, 50)]


def test_maps_lose_their_expired_entries(clocked, declared):
    descriptor = MapStateDescriptor("m", declared(Types.LONG()), declared(Types.STRING()))
    state = clocked.state(descriptor, FULL_SNAPSHOT)
    for now_ms, value in ((0, "a"), (40, None), (10, None), (50, "d")):
        clocked.at(now_ms)
        state.put(now_ms, value)
    clocked.at(110)
    restored = clocked.restored(take_snapshot(clocked.backend))
    assert entries(restored, "m") == [("k", {40: (40, None), 50: (50, "d")})]
    assert state.get_internal() == {0: (0, "a"), 40: (40, None), 10: (10, None), 50: (50, "d")}


def test_the_time_that_counts_is_that_of_the_synchronous_part():
    clocked = ClockedBackend(async_snapshots=True)
    state = clocked.state(ValueStateDescriptor("v"), FULL_SNAPSHOT)
    state.update("lives when the snapshot is taken")
    clocked.at(99)
    resources = prepare(clocked.backend)
    clocked.at(10_000)
    assert len(entries(clocked.restored(write(clocked.backend, resources)), "v")) == 1


def test_each_snapshot_has_a_time_of_its_own():
    clocked = ClockedBackend(async_snapshots=True)
    state = clocked.state(ValueStateDescriptor("v"), FULL_SNAPSHOT)
    prepared = []
    for number in range(4):
        clocked.at(40 * number)
        clocked.backend.set_current_key(number)
        state.update(number)
        prepared.append(prepare(clocked.backend))
    restored = {}
    for number in (2, 0, 3, 1):  # the order in which they are written does not count
        handle = write(clocked.backend, prepared[number])
        restored[number] = sorted(key for key, _ in entries(clocked.restored(handle), "v"))
    assert restored == {0: [0], 1: [0, 1], 2: [0, 1, 2], 3: [1, 2, 3]}


def test_only_the_state_that_says_so_is_filtered(clocked):
    filtered = clocked.state(ValueStateDescriptor("filtered"), FULL_SNAPSHOT)
    kept = clocked.state(ValueStateDescriptor("kept"))
    plain = clocked.backend.get_partitioned_state(ValueStateDescriptor("plain"))
    for state in (filtered, kept, plain):
        state.update(1)
    clocked.at(100)
    restored = clocked.restored(take_snapshot(clocked.backend))
    assert [len(entries(restored, name)) for name in ("filtered", "kept", "plain")] == [0, 1, 1]


def test_a_key_group_of_which_nothing_is_left_is_not_written(clocked):
    state = clocked.state(ValueStateDescriptor("v"), FULL_SNAPSHOT)
    state.update(1)
    clocked.at(100)
    handle = take_snapshot(clocked.backend)
    assert handle.sections == {"v": {}}


def test_a_restored_state_that_is_not_asked_for_is_written_as_it_is(clocked):
    """G13: its configuration is not known."""
    state = clocked.state(ValueStateDescriptor("v"), FULL_SNAPSHOT)
    state.update(1)
    restored = clocked.restored(take_snapshot(clocked.backend))
    clocked.at(100)
    assert entries(clocked.restored(take_snapshot(restored)), "v") == [("k", (0, 1))]


def test_a_restored_state_is_filtered_once_it_is_asked_for(clocked):
    descriptor = with_ttl(ValueStateDescriptor("v"), FULL_SNAPSHOT)
    clocked.backend.get_partitioned_state(descriptor).update(1)
    restored = clocked.restored(take_snapshot(clocked.backend))
    restored.get_partitioned_state(descriptor)
    clocked.at(100)
    assert entries(clocked.restored(take_snapshot(restored)), "v") == []


def test_state_migrated_from_plain_is_filtered(clocked):
    clocked.backend.get_partitioned_state(ValueStateDescriptor("v")).update(1)
    restored = clocked.restored(take_snapshot(clocked.backend))
    restored.get_partitioned_state(with_ttl(ValueStateDescriptor("v"), FULL_SNAPSHOT))
    clocked.at(99)
    assert entries(clocked.restored(take_snapshot(restored)), "v") == [("k", (0, 1))]
    clocked.at(100)
    assert entries(clocked.restored(take_snapshot(restored)), "v") == []


def test_filtered_entries_keep_their_timestamps(clocked):
    """T17."""
    state = clocked.state(ValueStateDescriptor("v", Types.LONG()), FULL_SNAPSHOT)
    for now_ms in (0, 33, 66):
        clocked.at(now_ms)
        clocked.backend.set_current_key(now_ms)
        state.update(now_ms)
    clocked.at(120)
    restored = clocked.restored(take_snapshot(clocked.backend))
    assert sorted(entries(restored, "v")) == [(33, (33, 33)), (66, (66, 66))]


def test_an_operators_snapshots_are_filtered():
    class Last(KeyedProcessFunction):
        def open(self, runtime_context):
            descriptor = with_ttl(ValueStateDescriptor("last"), FULL_SNAPSHOT)
            self.last = runtime_context.get_state(descriptor)

        def process_element(self, value, ctx):
            self.last.update(value)

    harness = KeyedOneInputOperatorHarness(Last(), lambda value: value)
    harness.process_element("old")
    harness.set_processing_time(50)
    harness.process_element("new")
    harness.set_processing_time(100)
    snapshot = harness.snapshot()
    restored = KeyedOneInputOperatorHarness(
        Last(), lambda value: value, clock=harness.clock, restore=[snapshot]
    )
    assert list(restored.backend.get_keys("last")) == ["new"]
    assert sorted(harness.backend.get_keys("last")) == ["new", "old"]
