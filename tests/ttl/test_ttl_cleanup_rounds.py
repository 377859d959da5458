"""Incremental clean-up looks at nothing while nothing can have expired, and misses nothing that has."""

from copy import deepcopy

import pytest
from backend_support import entries
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from ttl_contract import CONTEXTS, TTL_MS, Arena, ClockedBackend, ttl_config

from pyflinkstate.api.state import StateKind, ValueStateDescriptor
from pyflinkstate.api.ttl import UpdateType
from pyflinkstate.backends.ttl.rules import TtlIncrementalCleanup, TtlRules
from pyflinkstate.testing import ManualClock

CLEANUP_SIZE = 5
DEFAULT = ttl_config(cleanup=lambda builder: builder)
#: More accesses than two rounds take in any of these tests.
MANY = 200


@pytest.fixture(params=[True, False], ids=["copy on write", "nested maps"])
def clocked(request):
    return ClockedBackend(request.param)


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


def test_what_cannot_have_expired_is_looked_at_once():
    cleaned = Cleaned()
    for key in range(20):
        cleaned.put_at(10 + key, key, "x")
    assert cleaned.access_at(50) == 1
    assert cleaned.access_at(109) == 0
    assert len(cleaned.state.stored) == 20


def test_what_expires_first_ends_the_rest():
    cleaned = Cleaned()
    for key in range(20):
        cleaned.put_at(10 + key, key, "x")
    cleaned.access_at(50)
    cleaned.access_at(112)
    assert list(cleaned.state.stored) == list(range(3, 20))
    assert cleaned.access_at(112) == 0
    cleaned.access_at(129)
    assert not cleaned.state.stored


def test_what_is_written_after_the_clock_was_set_back_is_found():
    cleaned = Cleaned()
    cleaned.put_at(1000, "late", "x")
    cleaned.access_at(1000)
    cleaned.put_at(500, "early", "x")
    assert cleaned.access_at(599) == 0
    cleaned.access_at(600)
    assert list(cleaned.state.stored) == ["late"]


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


def test_what_was_restored_is_looked_at():
    cleaned = Cleaned()
    cleaned.state.stored = {"old": (0, "x"), "new": (60, "y")}
    cleaned.access_at(100)
    assert cleaned.state.stored == {"new": (60, "y")}


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


merging = pytest.mark.parametrize("context", [c for c in CONTEXTS if c.merging], ids=lambda c: c.name)


@merging
def test_what_a_merge_moves_behind_the_clean_up_is_found(context):
    """The source may lie before the place that is cleaned up, the target behind it."""
    arena = Arena(context, lambda type_info: type_info, True, key_groups=1)
    arena.start(DEFAULT)
    for number in range(100):
        arena.under_key(number).in_namespace("source").update(context.first)
    arena.at(50).under_key("other").in_namespace("n")
    for _ in range(10):
        arena.get()  # amid a round
    for number in range(100):
        arena.under_key(number).state.merge_namespaces("target", ["source"])
    arena.at(100).under_key("other")
    for _ in range(MANY):
        arena.get()
    assert arena.backend.num_key_value_state_entries() == 0


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
TestCleanUpFindsAll.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
