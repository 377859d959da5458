"""Each kind of state with time to live against a dict, under clock jumps, open snapshots and restores.

The model stores what the state should: timestamps with values. Without clean-up the two must hold the very
same, whatever the rules of update and visibility, and whichever way the clock jumps. With clean-up, what has
expired may be gone, so only what lives is compared, and the clock goes forward.
"""

from copy import deepcopy
from itertools import chain, islice

import pytest
from backend_support import MemoryReader, entries, make_backend, prepare, write
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support_windows import Listing
from tiers import cases, runs_of
from ttl_contract import CONTEXTS, MAX_LONG, TTL_MS, Arena, ttl_config, with_ttl

from pyflinkstate import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.api import StateTtlConfigBuilder, StateVisibility, UpdateType
from pyflinkstate.backends.heap.backend import HeapRestoreOperation
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.testing import ManualClock

MAX_OPEN_SNAPSHOTS = 3
KEY_GROUPS = 2
NAMESPACES = "abc"

#: A key and a namespace; few, and one more often than the others, so that operations meet.
places = st.just(("k", "a")) | st.tuples(st.sampled_from(["k", "other"]), st.sampled_from(NAMESPACES))
#: Often just as long as a value lives, or half of that.
times = st.sampled_from([TTL_MS, TTL_MS - 1, TTL_MS // 2, 1, -50]) | st.integers(-60, 160)
#: Changed in place, now and then.
values = st.lists(st.integers(0, 9), max_size=2)


class TtlComparison(RuleBasedStateMachine):
    """What the five share. ``self.model`` is ``{(key, namespace): what is stored}``."""

    def __init__(self):
        super().__init__()
        self.clock = ManualClock()
        self.model = {}
        self.open = []

    @initialize(
        update_type=st.sampled_from([UpdateType.OnCreateAndWrite, UpdateType.OnReadAndWrite]),
        visibility=st.sampled_from(StateVisibility),
        async_snapshots=st.booleans(),
        declared=st.booleans(),
        cleanup_size=st.sampled_from([0, 0, 1, 5]),
        every_record=st.booleans(),
    )
    def start(self, update_type, visibility, async_snapshots, declared, cleanup_size, every_record):
        self.async_snapshots = async_snapshots
        self.type = Types.LIST(Types.LONG()) if declared else Types.PICKLED_BYTE_ARRAY()
        self.on_read = update_type is UpdateType.OnReadAndWrite
        self.cleans_up = cleanup_size > 0
        if self.cleans_up:
            visibility = StateVisibility.NeverReturnExpired
        self.relaxed = visibility is StateVisibility.ReturnExpiredIfNotCleanedUp
        self.config = ttl_config(TTL_MS, update_type, visibility)
        if self.cleans_up:
            self.config = ttl_config(
                TTL_MS,
                update_type,
                cleanup=lambda b: b.cleanup_incrementally(cleanup_size, every_record).cleanup_full_snapshot(),
            )
        self.use(self.backend_of(None))

    def descriptor(self):
        raise NotImplementedError

    def alive(self, stored):
        """Return what of ``stored`` has not expired, or None."""
        return None if self.expired(stored) else stored

    # --- the backend and its clock -----------------------------------------------------------------

    def backend_of(self, handle):
        backend = make_backend(
            own=KeyGroupRange(0, KEY_GROUPS - 1),
            max_parallelism=KEY_GROUPS,
            async_snapshots=self.async_snapshots,
            clock=self.clock,
        )
        HeapRestoreOperation(backend, MemoryReader()).restore([handle])
        return backend

    def use(self, backend):
        self.backend = backend
        descriptor = with_ttl(self.descriptor(), self.config)
        self.state = backend.get_or_create_keyed_state(descriptor, Types.STRING())

    def bind(self, place):
        key, namespace = place
        self.backend.set_current_key(key)
        self.state.set_current_namespace(namespace)

    def expired(self, stamped):
        return stamped[0] + TTL_MS <= self.clock.now_ms

    def stamped(self, value):
        return self.clock.now_ms, deepcopy(value)

    def all_alive(self, model):
        kept = {place: self.alive(stored) for place, stored in model.items()}
        return {place: stored for place, stored in kept.items() if stored is not None}

    @rule(milliseconds=times)
    def wait(self, milliseconds):
        self.clock.now_ms += abs(milliseconds) if self.cleans_up else milliseconds

    @rule(place=places)
    def clear(self, place):
        self.bind(place)
        self.state.clear()
        self.model.pop(place, None)

    # --- snapshots ---------------------------------------------------------------------------------

    @precondition(lambda self: len(self.open) < MAX_OPEN_SNAPSHOTS)
    @rule()
    def take_snapshot(self):
        expected = deepcopy(self.all_alive(self.model) if self.cleans_up else self.model)
        resources, backend = prepare(self.backend), self.backend
        if self.async_snapshots:
            self.open.append((resources.release, lambda: write(backend, resources), expected))
        else:
            handle = write(backend, resources)
            self.open.append((resources.release, lambda: handle, expected))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), go_back=st.booleans())
    def write_snapshot(self, data, go_back):
        _, write_it, expected = self.open.pop(data.draw(st.integers(0, len(self.open) - 1), "which"))
        restored = self.backend_of(write_it())
        assert dict(entries(restored, "s")) == expected
        if go_back:
            self.release_all()
            self.use(restored)
            self.model = expected

    def release_all(self):
        for release, _, _ in self.open:
            release()
        self.open.clear()

    @invariant()
    def the_state_holds_what_the_model_holds(self):
        stored = dict(entries(self.backend, "s"))
        if self.cleans_up:
            assert self.all_alive(stored) == self.all_alive(self.model)
            assert stored.keys() <= self.model.keys()
        else:
            assert stored == self.model

    def teardown(self):
        self.release_all()

    # --- values that are read as a whole -------------------------------------------------------------

    def read_single(self, place):
        """Return the value that reading should give, and do to the model what reading does."""
        stored = self.model.get(place)
        if stored is None:
            return None
        if self.expired(stored):
            del self.model[place]
            return stored[1] if self.relaxed else None
        if self.on_read:
            self.model[place] = self.clock.now_ms, stored[1]
        return stored[1]


class ValueComparison(TtlComparison):
    def descriptor(self):
        return ValueStateDescriptor("s", self.type)

    @rule(place=places, value=st.none() | values)
    def update(self, place, value):
        self.bind(place)
        self.state.update(deepcopy(value))
        if value is None:
            self.model.pop(place, None)
        else:
            self.model[place] = self.stamped(value)

    @rule(place=places, change=st.booleans())
    def value(self, place, change):
        self.bind(place)
        found, expected = self.state.value(), self.read_single(place)
        assert found == expected
        if change and place in self.model:
            found.append(7)
            expected.append(7)


class FoldingComparison(TtlComparison):
    """Reducing and aggregating: what is stored is a list, and folding lists appends them."""

    @rule(place=places, into=st.sampled_from(NAMESPACES), data=st.data())
    def merge_namespaces(self, place, into, data):
        others = sorted(set(NAMESPACES) - {into})
        sources = data.draw(st.lists(st.sampled_from(others), unique=True), "sources")
        key, merged = place[0], None
        involved = [
            self.model.get((key, namespace), (self.clock.now_ms, [])) for namespace in (into, *sources)
        ]
        if self.cleans_up and any(map(self.expired, involved)):
            return  # as in Flink, what lives is stamped anew if what has expired is still there
        self.bind(place)
        self.state.merge_namespaces(into, sources)
        for source in sources:
            merged = self.combined(merged, self.model.pop((key, source), None))
        if merged is not None:
            self.model[key, into] = self.combined(self.model.get((key, into)), merged)

    def combined(self, left, right):
        """Return what two stored values come to, of which one may be missing."""
        if left is None or right is None:
            return right if left is None else left
        living = [stored[1] for stored in (left, right) if not self.expired(stored)]
        return (self.clock.now_ms, list(chain(*living))) if living else left

    @rule(place=places)
    def get(self, place):
        self.bind(place)
        found, expected = self.state.get(), self.read_single(place)
        assert found == self.result(expected)

    def result(self, value):
        return value


class ReducingComparison(FoldingComparison):
    def descriptor(self):
        return ReducingStateDescriptor("s", lambda old, new: old + new, self.type)

    @rule(place=places, value=st.none() | values)
    def add(self, place, value):
        self.bind(place)
        self.state.add(deepcopy(value))
        stored = self.model.get(place)
        if value is not None:
            self.model[place] = self.combined(stored, self.stamped(value))
        elif stored is not None and not self.expired(stored):
            self.model[place] = self.clock.now_ms, stored[1]


class Collect(Listing):
    """Collects in place when it merges, too; the result is a text."""

    def get_result(self, accumulator):
        return str(accumulator)

    def merge(self, acc_a, acc_b):
        acc_a.extend(acc_b)
        return acc_a


class AggregatingComparison(FoldingComparison):
    def descriptor(self):
        return AggregatingStateDescriptor("s", Collect(), self.type)

    def result(self, value):
        return None if value is None else str(value)

    @rule(place=places, value=st.none() | st.integers(0, 9))
    def add(self, place, value):
        self.bind(place)
        self.state.add(value)
        if value is None:
            self.model.pop(place, None)
        else:
            self.model[place] = self.combined(self.model.get(place), self.stamped([value]))


class ListComparison(TtlComparison):
    def descriptor(self):
        return ListStateDescriptor("s", self.type)

    def alive(self, stored):
        return [element for element in stored if not self.expired(element)] or None

    @rule(place=places, value=values)
    def add(self, place, value):
        self.bind(place)
        self.state.add(deepcopy(value))
        self.model.setdefault(place, []).append(self.stamped(value))

    @rule(place=places, several=st.lists(values, max_size=3), replace=st.booleans())
    def add_all_or_update(self, place, several, replace):
        self.bind(place)
        (self.state.update if replace else self.state.add_all)(deepcopy(several))
        kept = [] if replace else self.model.get(place, [])
        self.model[place] = kept + [self.stamped(value) for value in several]
        if not self.model[place]:
            del self.model[place]

    @rule(place=places, change=st.booleans(), count=st.sampled_from([0, 1, 2, 99]))
    def get(self, place, change, count):
        """Iterate over the first ``count`` elements, and to the end if there are not that many."""
        self.bind(place)
        found = list(islice(self.state.get(), count))
        elements = self.model.get(place, [])
        visible = [element for element in elements if self.relaxed or not self.expired(element)]
        assert found == [value for _, value in visible[:count]]
        alive = [element for element in elements if not self.expired(element)]
        if not alive and count > len(visible):
            self.model.pop(place, None)
        if self.on_read and alive:
            self.model[place] = [(self.clock.now_ms, value) for _, value in alive]
        if change and found and not self.expired(visible[0]):
            found[0].append(7)
            visible[0][1].append(7)

    @rule(place=places, into=st.sampled_from(NAMESPACES), data=st.data())
    def merge_namespaces(self, place, into, data):
        others = sorted(set(NAMESPACES) - {into})
        sources = data.draw(st.lists(st.sampled_from(others), unique=True), "sources")
        self.bind(place)
        self.state.merge_namespaces(into, sources)
        key = place[0]
        lists = [self.model.get((key, into), []), *(self.model.pop((key, source), []) for source in sources)]
        merged = list(chain(*lists))
        if merged:
            self.model[key, into] = merged


user_keys = st.integers(0, 4)


class MapComparison(TtlComparison):
    def descriptor(self):
        return MapStateDescriptor("s", Types.LONG(), self.type)

    def alive(self, stored):
        return {key: entry for key, entry in stored.items() if not self.expired(entry)} or None

    def discard(self, place, user_key):
        stored = self.model.get(place, {})
        stored.pop(user_key, None)
        if not stored:
            self.model.pop(place, None)

    @rule(place=places, several=st.dictionaries(user_keys, st.none() | values, max_size=3))
    def put_all(self, place, several):
        self.bind(place)
        self.state.put_all(deepcopy(several))
        if several:
            stamped = {key: self.stamped(value) for key, value in several.items()}
            self.model.setdefault(place, {}).update(stamped)

    @rule(place=places, user_key=user_keys, value=st.none() | values)
    def put(self, place, user_key, value):
        self.bind(place)
        self.state.put(user_key, deepcopy(value))
        self.model.setdefault(place, {})[user_key] = self.stamped(value)

    @rule(place=places, user_key=user_keys)
    def remove(self, place, user_key):
        self.bind(place)
        self.state.remove(user_key)
        self.discard(place, user_key)

    def read_entry(self, place, user_key):
        """Return the entry that reading should find, and do to the model what reading does."""
        entry = self.model.get(place, {}).get(user_key)
        if entry is None:
            return None
        if self.expired(entry):
            self.discard(place, user_key)
            return entry if self.relaxed else None
        if self.on_read:
            self.model[place][user_key] = self.clock.now_ms, entry[1]
        return entry

    @rule(place=places, user_key=user_keys, change=st.booleans())
    def get(self, place, user_key, change):
        self.bind(place)
        found, expected = self.state.get(user_key), self.read_entry(place, user_key)
        assert found == (None if expected is None else expected[1])
        if change and found is not None and user_key in self.model.get(place, {}):
            found.append(7)
            expected[1].append(7)

    @rule(place=places, user_key=user_keys)
    def contains(self, place, user_key):
        self.bind(place)
        assert self.state.contains(user_key) is (self.read_entry(place, user_key) is not None)

    @rule(
        place=places,
        view=st.sampled_from(["items", "keys", "values"]),
        count=st.sampled_from([0, 1, 2, 99]),
        removed=st.sets(user_keys, max_size=2),
    )
    def iterate(self, place, view, count, removed):
        """Look at the first ``count`` entries, and remove some of them."""
        self.bind(place)
        iterator = iter(getattr(self.state, view)())
        # The order is the state's own affair; what was cleaned up is seen no more.
        order = list(self.state.get_internal() or ())
        given = 0
        for user_key in order:
            if given == count:
                return
            entry = self.read_entry(place, user_key)
            if entry is None:
                continue
            given += 1
            given_as = {"items": (user_key, entry[1]), "keys": user_key, "values": entry[1]}
            assert next(iterator) == given_as[view]
            if user_key in removed and not self.expired(entry):
                iterator.remove()
                self.discard(place, user_key)
        assert list(iterator) == []

    @rule(place=places)
    def is_empty(self, place):
        self.bind(place)
        empty = self.state.is_empty()
        stored = self.state.get_internal()
        assert empty is (stored is None)
        assert empty or place in self.model


TestValueComparison, TestValueComparisonInDepth = runs_of(ValueComparison, quick=25, full=100, steps=40)
TestReducingComparison, TestReducingComparisonInDepth = runs_of(
    ReducingComparison, quick=25, full=100, steps=40
)
TestAggregatingComparison, TestAggregatingComparisonInDepth = runs_of(
    AggregatingComparison, quick=25, full=100, steps=40
)
TestListComparison, TestListComparisonInDepth = runs_of(ListComparison, quick=25, full=100, steps=40)
TestMapComparison, TestMapComparisonInDepth = runs_of(MapComparison, quick=25, full=100, steps=40)


# --- when state expires, beyond what the model draws -------------------------------------------------------


ON_WRITE, ON_READ = UpdateType.OnCreateAndWrite, UpdateType.OnReadAndWrite
NEVER, RELAXED = StateVisibility.NeverReturnExpired, StateVisibility.ReturnExpiredIfNotCleanedUp

every_rule = pytest.mark.parametrize(
    "config",
    [
        ttl_config(TTL_MS, update, visibility)
        for update in (ON_WRITE, ON_READ)
        for visibility in (NEVER, RELAXED)
    ],
    ids=lambda config: f"{config.get_update_type().name}-{config.get_state_visibility().name}",
)

merging = pytest.mark.parametrize(
    "context", [context for context in CONTEXTS if context.merging], ids=lambda context: context.name
)


@pytest.fixture(params=CONTEXTS, ids=lambda context: context.name)
def context(request):
    return request.param


#: Types, kind of table, and whether each step restores: each pair of these comes once.
WAYS = {
    "declared, copy on write, one run": (True, True, False),
    "declared, nested maps, restored": (True, False, True),
    "pickled, copy on write, restored": (False, True, True),
    "pickled, nested maps, one run": (False, False, False),
}
QUICK_WAYS = ("declared, nested maps, restored", "pickled, copy on write, restored")


@pytest.fixture(params=cases(WAYS, QUICK_WAYS))
def arena(request, context):
    is_declared, async_snapshots, restores = WAYS[request.param]
    declared = (lambda type_info: type_info) if is_declared else (lambda _: Types.PICKLED_BYTE_ARRAY())
    return Arena(context, declared, async_snapshots, restores)


@every_rule
@pytest.mark.parametrize("now_ms", [10, 2**40], ids=["small", "of this age"])
def test_the_longest_time_to_live_never_ends(arena, config, now_ms):
    """T2: the sum does not overflow."""
    arena.start(ttl_config(MAX_LONG, config.get_update_type(), config.get_state_visibility()))
    arena.at(now_ms).update(arena.context.first)
    assert arena.at(now_ms + 40).get() == arena.context.read_first
    assert arena.at(2**62).get() == arena.context.read_first


def test_another_time_to_live_after_a_restore_counts_from_the_old_timestamps(arena):
    """T17."""
    arena.start(ttl_config(1000))
    arena.at(0).update(arena.context.first)
    snapshot = arena.take_snapshot()
    arena.start(ttl_config(60))
    arena.restore(snapshot)
    arena.clock.now_ms = 59
    assert arena.get() == arena.context.read_first
    arena.clock.now_ms = 60
    assert arena.get() == arena.context.empty


@merging
@pytest.mark.parametrize("target", ["target", "expired 1"], ids=["empty target", "target among the expired"])
def test_merging_what_has_expired_gives_nothing_that_lives_on(arena, target):
    arena.start(ttl_config(cleanup=StateTtlConfigBuilder.cleanup_full_snapshot))
    namespaces = ["expired 1", "expired 2", "expired 3"]
    arena.at(0)
    for namespace in namespaces:
        arena.in_namespace(namespace).update(arena.context.first)
    arena.clock.now_ms = 150
    sources = [namespace for namespace in namespaces if namespace != target]
    arena.state.merge_namespaces(target, sources)
    arena.restore(arena.take_snapshot())
    assert arena.backend.num_key_value_state_entries() == 0
    assert arena.in_namespace(target).get() == arena.context.empty
