"""What maps, tables and timer queues note for increments, and what a snapshot says of just those keys."""

from copy import deepcopy

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from state_map_support import MAKERS, next_entries, small_map
from test_map_machines import change_in_place, keys, values

from pyflinkstate.api import StateKind, Types
from pyflinkstate.backends.heap import ABSENT
from pyflinkstate.backends.heap.copy_on_write_state_map import CopyOnWriteStateMap
from pyflinkstate.backends.heap.state_table import StateTable
from pyflinkstate.backends.heap.timer_queue import MIN_STALE, SPAN_BITS, Timer, TimerQueue
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types.internal_types import VOID_NAMESPACE, VOID_NAMESPACE_TYPE
from pyflinkstate.backends.types.migration import RegisteredQueueMeta, RegisteredStateMeta

PICKLED, STRING = Types.PICKLED_BYTE_ARRAY(), Types.STRING()
RANGE = KeyGroupRange(3, 4)


@pytest.fixture(params=MAKERS.values(), ids=list(MAKERS))
def state_map(request):
    """Holds a list, a number, None and two tuples, and notes changes from here on."""
    made = request.param()
    for key, value in {"list": [1], "number": 1, "none": None, "plain": (1, "a"), "deep": (1, [2])}.items():
        made.put(key, value)
    made.track_changes()
    return made


def raising(stored, value):
    stored.append(value)
    raise ZeroDivisionError


def transform_and_fail(state_map):
    with pytest.raises(ZeroDivisionError):
        state_map.transform("list", 2, raising)


CHANGES = {
    "put what is new": (lambda held: held.put("new", 1), {"new"}),
    "put None": (lambda held: held.put("new", None), {"new"}),
    "put over what is there": (lambda held: held.put("number", 2), {"number"}),
    "put the same": (lambda held: held.put("number", 1), {"number"}),
    "put two": (lambda held: (held.put("a", 1), held.put("b", [1])), {"a", "b"}),
    "put and remove": (lambda held: (held.put("new", 1), held.remove("new")), {"new"}),
    "remove": (lambda held: held.remove("number"), {"number"}),
    "remove None": (lambda held: held.remove("none"), {"none"}),
    "remove and put back": (lambda held: (held.remove("list"), held.put("list", [1])), {"list"}),
    "remove and get old": (lambda held: held.remove_and_get_old("plain"), {"plain"}),
    "transform": (lambda held: held.transform("number", 2, lambda old, new: old + new), {"number"}),
    "transform what is not there": (lambda held: held.transform("new", 2, lambda _, new: new), {"new"}),
    "transform in place, then raise": (transform_and_fail, {"list"}),
    "load": (lambda held: held.load(["a", "list"], [1, 2]), {"a", "list"}),
    "get what may change": (lambda held: held.get("list"), {"list"}),
    "get what may change deep inside": (lambda held: held.get("deep"), {"deep"}),
    "iterate": (lambda held: list(held.items()), {"list", "deep"}),
}

NO_CHANGES = {
    "get what cannot change": lambda held: (held.get("number"), held.get("none"), held.get("plain")),
    "get what is not there": lambda held: held.get("absent"),
    "peek": lambda held: [held.peek(key) for key in ("list", "deep", "number", "absent")],
    "contains": lambda held: (held.contains_key("list"), held.contains_key("absent")),
    "remove what is not there": lambda held: held.remove("absent"),
    "remove and get what is not there": lambda held: held.remove_and_get_old("absent"),
    "size": lambda held: len(held),
    "all keys": lambda held: held.all_keys(),
    "visit": lambda held: next_entries(held.incremental_visitor(1000)),
    "load nothing": lambda held: held.load([], []),
}


class TestWhatAMapNotes:
    @pytest.mark.parametrize("change", CHANGES)
    def test_keys_that_were_set_removed_or_handed_out_to_be_changed(self, state_map, change):
        act, keys = CHANGES[change]
        act(state_map)
        assert state_map.take_changes() == keys

    @pytest.mark.parametrize("change", CHANGES)
    def test_the_same_with_a_snapshot_open(self, state_map, change):
        act, keys = CHANGES[change]
        with state_map.snapshot():
            act(state_map)
            assert state_map.take_changes() == keys

    @pytest.mark.parametrize("look", NO_CHANGES)
    def test_what_only_looks_is_not_noted(self, state_map, look):
        NO_CHANGES[look](state_map)
        assert state_map.take_changes() == set()

    def test_values_that_are_promised_not_to_change_are_not_noted_when_they_are_read(self):
        state_map = CopyOnWriteStateMap(None)
        state_map.put("a", [1])
        state_map.track_changes()
        state_map.get("a")
        list(state_map.items())
        assert state_map.take_changes() == set()

    def test_loading_into_an_empty_map_is_a_change_as_any(self):
        state_map = small_map()
        state_map.track_changes()
        state_map.load(["a", "b"], [1, [2]])
        assert state_map.take_changes() == {"a", "b"}


class TestTakingChanges:
    def test_nothing_is_noted_before_it_is_asked_for(self):
        state_map = small_map()
        state_map.put("a", 1)
        assert state_map.take_changes() == set()
        state_map.track_changes()
        assert state_map.take_changes() == set()

    def test_asking_twice_loses_nothing(self, state_map):
        state_map.put("a", 1)
        state_map.track_changes()
        assert state_map.take_changes() == {"a"}


def test_a_released_snapshot_has_nothing(state_map):
    snapshot = state_map.snapshot()
    snapshot.release()
    assert snapshot.look_up(["list", "absent"]) == [ABSENT, ABSENT]


def is_changeable(value):
    return isinstance(value, (list, dict)) or (isinstance(value, tuple) and any(map(is_changeable, value)))


class ChangesComparison(RuleBasedStateMachine):
    """A map that is read as increments alone, each looked up some time after it was taken."""

    def __init__(self):
        super().__init__()
        self.state_map = None
        self.model, self.touched = {}, set()
        #: Snapshot, changes and model of each increment that is not yet read, in order.
        self.open = []
        #: What the increments that were read have come to.
        self.folded = {}

    @initialize(
        capacity=st.sampled_from([1, 2, 8]),
        bucket_load=st.sampled_from([1, 2, 5]),
        min_transferred=st.sampled_from([1, 2, 4]),
    )
    def make(self, capacity, bucket_load, min_transferred):
        self.state_map = CopyOnWriteStateMap(deepcopy, capacity, bucket_load, min_transferred)
        self.state_map.track_changes()

    @rule(key=keys, value=values)
    def put(self, key, value):
        self.state_map.put(key, deepcopy(value))
        self.model[key] = value
        self.touched.add(key)

    @rule(start=st.integers(-5, 30), count=st.integers(1, 20))
    def put_many(self, start, count):
        for key in range(start, start + count):
            self.put(key, [key])

    @rule(key=keys)
    def remove(self, key):
        self.state_map.remove(key)
        if key in self.model:
            self.touched.add(key)
            del self.model[key]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove_what_is_there(self, data):
        self.remove(data.draw(st.sampled_from(list(self.model))))

    @rule(key=keys)
    def get_and_change_in_place(self, key):
        change_in_place(self.state_map.get(key))
        if is_changeable(self.model.get(key)):
            change_in_place(self.model[key])
            self.touched.add(key)

    @rule(key=keys)
    def look(self, key):
        assert self.state_map.peek(key) == self.model.get(key)
        assert self.state_map.contains_key(key) is (key in self.model)

    @rule()
    def iterate_and_change_in_place(self):
        for key, value in self.state_map.items():
            change_in_place(value)
            change_in_place(self.model[key])
            if is_changeable(value):
                self.touched.add(key)

    @rule()
    def take(self):
        changes = self.state_map.take_changes()
        assert changes == self.touched
        self.touched = set()
        self.open.append((self.state_map.snapshot(), changes, deepcopy(self.model)))

    @precondition(lambda self: self.open)
    @rule()
    def read(self):
        snapshot, changes, expected = self.open.pop(0)
        with snapshot:
            for key, value in zip(changes, snapshot.look_up(changes), strict=True):
                if value is ABSENT:
                    self.folded.pop(key, None)
                else:
                    self.folded[key] = deepcopy(value)
            assert snapshot.look_up(expected) == list(expected.values())
        assert self.folded == expected

    @invariant()
    def invariants_hold(self):
        if self.state_map is not None:
            self.state_map._check()

    def teardown(self):
        if self.state_map is not None:
            self.take()
            while self.open:
                self.read()


TestChangesComparison = ChangesComparison.TestCase
TestChangesComparison.settings = settings(max_examples=60, stateful_step_count=40)


# --- tables ------------------------------------------------------------------------------------------


def make_table(namespace_type=VOID_NAMESPACE_TYPE, kind=StateKind.VALUE):
    return StateTable(RegisteredStateMeta("s", kind, PICKLED, namespace_type), RANGE)


def rows_of(increment):
    """Return what an increment has, by key group: value by entry key, ABSENT for what is gone."""
    found = {}
    for entries in increment.key_groups():
        columns = zip(entries.entry_keys(), entries.values, entries.removed, strict=True)
        found[entries.key_group] = {key: ABSENT if gone else value for key, value, gone in columns}
        assert len(found[entries.key_group]) == len(entries)
    return found


@pytest.fixture
def table():
    """Holds two lists in its first key group and one in its second; notes changes from here on."""
    made = make_table()
    for key, key_group in (("a", 3), ("b", 3), ("c", 4)):
        made.map_of(key_group).put(key, [key])
    made.track_changes()
    return made


class TestTableChanges:
    def test_a_visited_entry_is_noted_when_it_is_written_to_and_not_when_it_is_looked_at(self, table):
        visitor = table.visitor(10)
        keys, values = visitor.next_columns()
        assert values in ([["a"], ["b"]], [["b"], ["a"]], [["a"]], [["b"]])
        assert table.take_changes() == [set(), set()]
        assert visitor.state_map.get(keys[0]) == values[0]
        assert table.take_changes() == [{keys[0]}, set()]
        visitor.state_map.put(keys[0], [1])
        assert table.take_changes() == [{keys[0]}, set()]
        visitor.state_map.remove(keys[0])
        assert table.take_changes() == [{keys[0]}, set()]

    def test_maps_without_changes_are_not_held(self, table):
        table.map_of(3).put("d", 1)
        increment = table.increment(table.take_changes())
        assert [held._snapshot_versions for held in table.maps] == [{1}, set()]
        rows_of(increment)
        assert [held._snapshot_versions for held in table.maps] == [set(), set()]

    def test_key_groups_are_released_one_by_one_and_the_rest_when_it_is_given_up(self, table):
        increment = table.increment([{"a"}, {"c"}])
        groups = increment.key_groups()
        next(groups)
        next(groups)
        assert [bool(held._snapshot_versions) for held in table.maps] == [False, True]
        increment.release()
        increment.release()
        assert [held._snapshot_versions for held in table.maps] == [set(), set()]

    def test_what_a_snapshot_would_leave_out_is_gone(self, table):
        table.snapshot_transformer_factory = lambda: lambda value: None if value == ["a"] else [*value, "!"]
        increment = table.increment([{"a", "b", "absent"}, {"c"}])
        table.snapshot_transformer_factory = None
        assert rows_of(increment) == {
            3: {"a": ABSENT, "b": ["b", "!"], "absent": ABSENT},
            4: {"c": ["c", "!"]},
        }

    def test_each_increment_has_a_transformer_of_its_own(self, table):
        made = []
        table.snapshot_transformer_factory = lambda: made.append(1) or (lambda value: value)
        for _ in range(2):
            table.increment([{"a"}, {"c"}]).release()
        assert made == [1, 1]


class TestAnotherTypeOfValuesWhileChangesAreNoted:
    META = RegisteredStateMeta("s", StateKind.VALUE, Types.LIST(STRING))

    def test_all_entries_become_changes(self, table):
        table.set_meta(self.META, lambda value: [*value, "converted"])
        changes = table.take_changes()
        assert changes == [{"a", "b"}, {"c"}]
        increment = table.increment(changes)
        assert increment.meta == self.META
        assert rows_of(increment)[4] == {"c": ["c", "converted"]}

    def test_an_increment_from_before_stays_as_it_was(self, table):
        increment = table.increment([{"a"}, {"c"}])
        table.set_meta(self.META, lambda value: [*value, "converted"])
        assert rows_of(increment) == {3: {"a": ["a"]}, 4: {"c": ["c"]}}
        assert increment.meta.stored_type == PICKLED

    def test_what_was_removed_before_is_not_forgotten(self, table):
        table.map_of(3).remove("a")
        table.set_meta(self.META)
        changes = table.take_changes()
        assert rows_of(table.increment(changes)) == {3: {"a": ABSENT, "b": ["b"]}, 4: {"c": ["c"]}}


# --- timers ------------------------------------------------------------------------------------------


@pytest.fixture
def queue():
    """Owns the key groups 3 and 4, has three timers, and notes changes from here on."""
    made = TimerQueue(RegisteredQueueMeta("timers", STRING), RANGE)
    for timer, key_group in ((Timer(1, "a", "w"), 3), (Timer(2, "a", "w"), 3), (Timer(2, "c", "w"), 4)):
        made.add(timer, key_group)
    made.track_changes()
    return made


def fire(queue):
    while queue.poll(2) is not None:
        pass


TIMER_CHANGES = {
    "add": (lambda queue: queue.add(Timer(3, "a", "w"), 3), [{(3, "a", "w")}, set()]),
    "add again": (lambda queue: queue.add(Timer(1, "a", "w"), 3), [set(), set()]),
    "add in another namespace": (lambda queue: queue.add(Timer(1, "a", "x"), 3), [{(1, "a", "x")}, set()]),
    "load": (lambda queue: queue.load(4, [Timer(3, "c", "w")]), [set(), {(3, "c", "w")}]),
    "remove": (lambda queue: queue.remove(Timer(2, "c", "w"), 4), [set(), {(2, "c", "w")}]),
    "remove what is not there": (lambda queue: queue.remove(Timer(3, "c", "w"), 4), [set(), set()]),
    "fire": (fire, [{(1, "a", "w"), (2, "a", "w")}, {(2, "c", "w")}]),
    "fire what is not due": (lambda queue: queue.poll(0), [set(), set()]),
    "look": (lambda queue: (queue.first_timestamp(), list(queue.timers()), queue.snapshot()), [set(), set()]),
}


class TestTimerChanges:
    @pytest.mark.parametrize("change", TIMER_CHANGES)
    def test_timers_that_were_added_deleted_or_fired_are_noted(self, queue, change):
        act, expected = TIMER_CHANGES[change]
        act(queue)
        assert list(map(set, queue.take_changes())) == expected
        assert list(map(set, queue.take_changes())) == [set(), set()]

    def test_nothing_is_noted_before_it_is_asked_for(self):
        queue = TimerQueue(RegisteredQueueMeta("timers"), RANGE)
        queue.add(Timer(1, "a"), 3)
        assert list(map(set, queue.take_changes())) == [set(), set()]
        queue.track_changes()
        queue.add(Timer(2, "a"), 3)
        queue.track_changes()
        assert list(map(set, queue.take_changes())) == [{(2, "a", VOID_NAMESPACE)}, set()]

    def test_timers_whose_time_was_dropped_from_the_heap_are_gone_all_the_same(self, queue):
        times = [span << SPAN_BITS for span in range(3 * MIN_STALE)]
        for time in times:
            queue.add(Timer(time, "a", "w"), 3)
        queue.take_changes()
        for time in times:
            queue.remove(Timer(time, "a", "w"), 3)
        assert len(queue._heap) < len(times)
        changes = queue.take_changes()
        assert list(map(set, changes)) == [{(time, "a", "w") for time in times}, set()]
        first, _ = queue.increment(changes).key_groups()
        assert first.removed == [True] * len(times)
