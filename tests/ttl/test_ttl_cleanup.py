"""Incremental clean-up: what has expired is removed although nobody reads it (C1, C2, C4, C5).

It looks at nothing while nothing can have expired, and misses nothing that has.
"""

from copy import deepcopy

import pytest
from backend_support import entries, prepare, write
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from ttl_contract import CONTEXTS, TTL_MS, Arena, ClockedBackend, ttl_config, with_ttl

from pyflinkstate import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.api import StateKind, StateVisibility, UpdateType
from pyflinkstate.backends.ttl.rules import TtlIncrementalCleanup, TtlRules
from pyflinkstate.testing import KeyedOneInputOperatorHarness, ManualClock


def incrementally(size, every_record=False, **config):
    return ttl_config(cleanup=lambda builder: builder.cleanup_incrementally(size, every_record), **config)


DEFAULT = ttl_config(cleanup=lambda builder: builder)
NO_CLEANUP = ttl_config()


@pytest.fixture(params=[True, False], ids=["copy on write", "nested maps"])
def async_snapshots(request):
    return request.param


@pytest.fixture
def clocked(async_snapshots):
    return ClockedBackend(async_snapshots)


every_context = pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.name)


def write_many(clocked, state, keys):
    for key in keys:
        clocked.backend.set_current_key(key)
        state.update(key)


def count(clocked):
    return clocked.backend.num_key_value_state_entries()


# --- incremental: when it runs, and how far ----------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "config"),
    [(5, DEFAULT), *((size, incrementally(size)) for size in (1, 5, 40))],
    ids=["default", "1", "5", "40"],
)
def test_an_access_removes_no_more_entries_than_configured(clocked, size, config):
    """C1 and C4."""
    state = clocked.state(ValueStateDescriptor("v"), config)
    write_many(clocked, state, range(1000))
    clocked.at(100)
    clocked.backend.set_current_key("other")
    removed = []
    while before := count(clocked):
        state.value()
        removed.append(before - count(clocked))
        assert len(removed) < 5000
    assert max(removed) <= size
    assert sum(removed) == 1000


@pytest.mark.parametrize("size", [5, 40])
def test_a_well_filled_state_is_cleaned_up_as_fast_as_configured(async_snapshots, size):
    """C4: in a state with more entries than places, an access finds nearly as many as it may look at."""
    arena = Arena(CONTEXTS[0], lambda type_info: type_info, async_snapshots, key_groups=1)
    arena.start(incrementally(size))
    for key in range(4000):
        arena.under_key(key).update("x")
    arena.at(100).under_key("other")
    accesses = 0
    while arena.backend.num_key_value_state_entries():
        arena.get()
        accesses += 1
        assert accesses <= 4000
    assert accesses <= 3 * 4000 / min(size, 32) + 200


def test_without_background_nothing_is_removed_but_what_is_read(clocked):
    """C2."""
    state = clocked.state(ValueStateDescriptor("v"), NO_CLEANUP)
    write_many(clocked, state, range(100))
    clocked.at(100)
    for _ in range(1000):
        clocked.backend.set_current_key("other")
        state.value()
    clocked.backend.set_current_key(5)
    state.value()
    assert count(clocked) == 99


def test_for_every_record_all_such_states_are_cleaned_up(clocked):
    states = [clocked.state(ValueStateDescriptor(name), incrementally(3, True)) for name in "ab"]
    others = clocked.state(ValueStateDescriptor("c"), DEFAULT)
    for state in (*states, others):
        write_many(clocked, state, range(30))
    clocked.at(100)
    for _ in range(1000):
        clocked.backend.set_current_key("other")
    assert [len(entries(clocked.backend, name)) for name in "abc"] == [0, 0, 30]


@every_context
@pytest.mark.parametrize("use", ["get", "update", "clear"])
def test_every_kind_of_access_cleans_up(async_snapshots, declared, context, use):
    arena = Arena(context, declared, async_snapshots)
    arena.start(DEFAULT)
    for key in range(30):
        arena.under_key(key).update(context.first)
    arena.at(100).under_key("other")
    for _ in range(300):
        if use == "get":
            arena.get()
        elif use == "update":
            arena.update(context.first)
        else:
            arena.state.clear()
    assert arena.backend.num_key_value_state_entries() == (use == "update")


def test_the_operator_is_cleaned_up_for_every_record_without_an_access():
    class Forgets(KeyedProcessFunction):
        def open(self, runtime_context):
            descriptor = with_ttl(ValueStateDescriptor("v"), incrementally(5, True))
            self.state = runtime_context.get_state(descriptor)

        def process_element(self, value, ctx):
            if value != "other":
                self.state.update("x")

    harness = KeyedOneInputOperatorHarness(Forgets(), lambda value: value)
    for key in range(30):
        harness.process_element(key)
    harness.set_processing_time(100)
    for _ in range(1000):
        harness.process_element("other")
    assert harness.num_keyed_state_entries() == 0


# --- incremental: what it removes --------------------------------------------------------------------


def clean_up_all(clocked, state):
    """Access another key until every entry was looked at, whatever the clock says."""
    clocked.backend.set_current_key("other")
    for _ in range(1000):
        state.clear()
    clocked.backend.set_current_key("k")


@every_context
def test_what_lives_is_left_as_it_is(async_snapshots, declared, context):
    arena = Arena(context, declared, async_snapshots)
    arena.start(incrementally(50, True))
    arena.under_key("k").update(context.first)
    before = arena.state.get_internal()
    arena.at(99)
    for number in range(300):
        arena.under_key(number)
    assert arena.under_key("k").state.get_internal() is before


def test_what_was_cleaned_up_is_not_returned(clocked):
    """Expired values are returned if they are not cleaned up, and no longer."""
    relaxed = StateVisibility.ReturnExpiredIfNotCleanedUp
    state = clocked.state(ValueStateDescriptor("v"), incrementally(5, visibility=relaxed))
    state.update(1)
    clocked.at(100)
    clean_up_all(clocked, state)
    assert state.value() is None


def test_a_map_that_is_cleaned_up_while_it_is_iterated_over_gives_what_lives(clocked, declared):
    descriptor = MapStateDescriptor("m", declared(Types.LONG()), declared(Types.LONG()))
    state = clocked.state(descriptor, incrementally(50))
    for number in range(100):
        clocked.at(number % 2)
        state.put(number, number)
    clocked.at(100)
    seen = []
    for key, _ in state.items():
        seen.append(key)
        for _ in range(5):
            assert state.get(key) == key
    assert seen == list(range(1, 100, 2))


def test_an_iterators_remove_is_not_lost_when_the_map_is_cleaned_up_meanwhile(clocked, declared):
    descriptor = MapStateDescriptor("m", declared(Types.LONG()), declared(Types.LONG()))
    state = clocked.state(descriptor, incrementally(50))
    for number in range(100):
        clocked.at(1 if number < 50 else 0)
        state.put(number, number)
    clocked.at(100)  # those that have expired come after those that live
    iterator = iter(state.keys())
    for key in iterator:
        for _ in range(100):
            state.contains(-1)
        if key % 2:
            iterator.remove()
    assert sorted(state.keys()) == list(range(0, 50, 2))


# --- incremental: beside a snapshot, and how often it looks -----------------------------------------


@pytest.mark.parametrize(
    ("descriptor", "store", "read", "stored"),
    [
        (
            ListStateDescriptor("s"),
            lambda state, name, value: state.add(value),
            lambda state: next(iter(state.get())),
            [(0, ["expired"]), (50, ["alive"])],
        ),
        (
            MapStateDescriptor("s"),
            lambda state, name, value: state.put(name, value),
            lambda state: state.get("b"),
            {"a": (0, ["expired"]), "b": (50, ["alive"])},
        ),
    ],
    ids=["list", "map"],
)
def test_what_clean_up_leaves_is_not_shared_with_an_open_snapshot(descriptor, store, read, stored):
    clocked = ClockedBackend(async_snapshots=True)
    state = clocked.state(descriptor, DEFAULT)
    store(state, "a", ["expired"])
    clocked.at(50)
    store(state, "b", ["alive"])
    clocked.at(100)
    resources = prepare(clocked.backend)
    clean_up_all(clocked, state)
    read(state).append("changed in place")
    assert entries(clocked.restored(write(clocked.backend, resources)), "s") == [("k", stored)]


CLEANUP_SIZE = 5
#: More accesses than two rounds take in any of these tests.
MANY = 200


class CountingState:
    """What clean-up uses of a backend's state. All entries are in one place; ``visits`` counts its reads."""

    def __init__(self):
        self.stored = {}
        self.visits = 0

    def visitor(self, max_positions):
        return self

    @property
    def state_map(self):
        return self

    def has_next(self):
        return False

    def restart(self):
        pass

    def next_columns(self):
        self.visits += 1
        return list(self.stored), list(self.stored.values())

    def peek(self, key):
        return self.stored.get(key)

    get = peek

    def put(self, key, value):
        self.stored[key] = value

    def remove(self, key):
        del self.stored[key]


class Cleaned:
    """A clean-up beside the state that it cleans."""

    def __init__(self, kind=StateKind.VALUE):
        self.clock = ManualClock()
        self.rules = TtlRules(self.clock, TTL_MS, False, False)
        self.state = CountingState()
        self.cleanup = TtlIncrementalCleanup(self.state, kind, self.rules, CLEANUP_SIZE)

    def access_at(self, now_ms, times=MANY):
        """Access the state, and return how often a place was looked at."""
        self.clock.now_ms, before = now_ms, self.state.visits
        for _ in range(times):
            self.cleanup.run(self.rules.now())
        return self.state.visits - before

    def put_at(self, now_ms, key, value):
        self.clock.now_ms = now_ms
        self.state.put(key, (self.rules.now(), value))


def test_what_cannot_have_expired_is_looked_at_once_and_what_expires_first_ends_the_rest():
    cleaned = Cleaned()
    for key in range(20):
        cleaned.put_at(10 + key, key, "x")
    assert cleaned.access_at(50) == 1
    assert cleaned.access_at(109) == 0
    assert len(cleaned.state.stored) == 20
    cleaned.access_at(112)
    assert list(cleaned.state.stored) == list(range(3, 20))
    assert cleaned.access_at(112) == 0
    cleaned.access_at(129)
    assert not cleaned.state.stored


def test_what_was_written_again_after_it_was_fetched_stays():
    cleaned = Cleaned()
    last = CLEANUP_SIZE
    for key in range(last + 1):
        cleaned.put_at(0, key, "x")
    cleaned.access_at(100, times=1)
    cleaned.put_at(100, last, "y")
    cleaned.access_at(100)
    assert cleaned.state.stored == {last: (100, "y")}
    assert cleaned.access_at(199) == 0
    cleaned.access_at(200)
    assert not cleaned.state.stored


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        (StateKind.LIST, [(0, "a"), (60, "b")], [(60, "b")]),
        (StateKind.MAP, {1: (60, "b"), 2: (0, "a")}, {1: (60, "b")}),
    ],
)
def test_the_oldest_part_of_a_value_counts(kind, before, after):
    cleaned = Cleaned(kind)
    cleaned.state.stored = {"k": before}
    cleaned.access_at(60)
    assert cleaned.access_at(99) == 0
    assert cleaned.state.stored == {"k": before}
    cleaned.access_at(100)
    assert cleaned.state.stored == {"k": after}
    assert cleaned.access_at(159) == 0
    cleaned.access_at(160)
    assert not cleaned.state.stored


def test_what_grew_since_the_last_round_is_looked_at_from_its_beginning(clocked):
    state = clocked.state(ValueStateDescriptor("v"), DEFAULT)
    for key in range(4000):
        clocked.backend.set_current_key(key)
        state.update(key)
    clocked.at(TTL_MS)
    clocked.backend.set_current_key("other")
    for _ in range(4000):
        state.value()
    assert clocked.backend.num_key_value_state_entries() == 0


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.name)
def test_a_value_that_is_stored_with_an_old_timestamp_is_found(context):
    arena = Arena(context, lambda type_info: type_info, True)
    arena.start(DEFAULT)
    arena.update(context.first)
    old = arena.state.get_internal()
    arena.state.clear()
    arena.at(90).under_key("other")
    for _ in range(MANY):
        arena.get()
    arena.under_key("key").state.update_internal(old)
    arena.at(100).under_key("other")
    for _ in range(MANY):
        arena.get()
    assert arena.backend.num_key_value_state_entries() == 0


class CleanUpFindsAll(RuleBasedStateMachine):
    """However the clock goes, and whatever is written, merged and restored: after enough accesses, exactly
    what lives is left."""

    @initialize(context=st.sampled_from(CONTEXTS), async_snapshots=st.booleans(), on_read=st.booleans())
    def start(self, context, async_snapshots, on_read):
        self.arena = Arena(context, lambda type_info: type_info, async_snapshots, key_groups=2)
        update_type = UpdateType.OnReadAndWrite if on_read else UpdateType.OnCreateAndWrite
        self.arena.start(ttl_config(update_type=update_type, cleanup=lambda builder: builder))

    @rule(key=st.integers(0, 40), namespace=st.sampled_from("ab"), second=st.booleans())
    def write(self, key, namespace, second):
        self.arena.under_key(key).in_namespace(namespace)
        self.arena.update(self.arena.context.second if second else self.arena.context.first)

    @rule(key=st.integers(0, 40), namespace=st.sampled_from("ab"))
    def read(self, key, namespace):
        self.arena.under_key(key).in_namespace(namespace).get()

    @rule(milliseconds=st.sampled_from([TTL_MS, TTL_MS - 1, TTL_MS // 2, 1, -50]) | st.integers(-150, 160))
    def wait(self, milliseconds):
        self.arena.clock.now_ms += milliseconds

    @precondition(lambda self: self.arena.context.merging)
    @rule(key=st.integers(0, 40))
    def merge(self, key):
        self.arena.under_key(key).state.merge_namespaces("a", ["b"])

    @rule()
    def restore(self):
        self.arena.restore(self.arena.take_snapshot())

    @rule(times=st.integers(1, 30))
    def access_a_little(self, times):
        self.arena.under_key("other").in_namespace("a")
        for _ in range(times):
            self.arena.state.clear()

    @rule()
    def access_enough(self):
        before = dict(entries(self.arena.backend, "state"))
        self.access_a_little(MANY)
        living = {place: self.living(stored) for place, stored in deepcopy(before).items()}
        left = dict(entries(self.arena.backend, "state"))
        assert left == {place: stored for place, stored in living.items() if stored}

    def living(self, stored):
        """Return what of a stored value has not expired."""
        if isinstance(stored, list):
            return [element for element in stored if self.lives(element)]
        if isinstance(stored, dict):
            return {key: entry for key, entry in stored.items() if self.lives(entry)}
        return stored if self.lives(stored) else None

    def lives(self, stamped):
        return stamped[0] + TTL_MS > self.arena.clock.now_ms


TestCleanUpFindsAll = CleanUpFindsAll.TestCase
TestCleanUpFindsAll.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
