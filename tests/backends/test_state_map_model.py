"""The copy-on-write map against a dict, with snapshots held open over every kind of change.

After Flink's ``CopyOnWriteStateMapTest.testRandomModificationsAndCopyOnWriteIsolation``.
"""

from copy import deepcopy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pyflinkstate.backends.heap.copy_on_write_state_map import CopyOnWriteStateMap

MAX_OPEN_SNAPSHOTS = 5

# Few, so that operations meet; some share their low bits; -1 and -2 share their hash.
keys = st.one_of(
    st.integers(-2, 80),
    st.integers(0, 40).map(lambda key: key << 20),
    st.integers(0, 8).map(lambda key: key << 32),
)
values = st.one_of(
    st.none(),
    st.integers(0, 9),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.integers(0, 3), st.lists(st.integers(0, 9), max_size=2), max_size=2),
    st.tuples(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=2)),
)


def change_in_place(value):
    """Change ``value`` as deep as it can be changed; return whether it could."""
    if isinstance(value, list):
        value.append(len(value))
    elif isinstance(value, dict):
        value.setdefault(9, []).append(len(value))
    elif isinstance(value, tuple):
        value[1].append(len(value[1]))
    else:
        return False
    return True


class StateMapComparison(RuleBasedStateMachine):
    """Each rule does the same to the map and to a dict."""

    def __init__(self):
        super().__init__()
        self.model = {}
        self.open = []

    @initialize(
        capacity=st.sampled_from([1, 4]), bucket_load=st.sampled_from([1, 8, 32]), moved=st.integers(1, 9)
    )
    def begin(self, capacity, bucket_load, moved):
        """Small tables, so that most runs see one rehash or more."""
        self.state_map = CopyOnWriteStateMap(deepcopy, capacity, bucket_load, moved)

    @rule(key=keys, value=values)
    def put(self, key, value):
        self.state_map.put(key, deepcopy(value))
        self.model[key] = value

    @rule(start=st.integers(0, 200), count=st.integers(10, 60))
    def put_many(self, start, count):
        for key in range(start, start + count):
            self.state_map.put(key, [key])
            self.model[key] = [key]

    @rule(key=keys)
    def get(self, key):
        assert self.state_map.get(key) == self.model.get(key)
        assert self.state_map.get(key) is self.state_map.get(key)

    @rule(key=keys)
    def peek(self, key):
        assert self.state_map.peek(key) == self.model.get(key)

    @rule(key=keys)
    def contains(self, key):
        assert self.state_map.contains_key(key) is (key in self.model)

    @rule(key=keys)
    def remove(self, key):
        self.state_map.remove(key)
        self.model.pop(key, None)

    @rule(key=keys, value=values)
    def put_and_get_old(self, key, value):
        old = self.state_map.put_and_get_old(key, deepcopy(value))
        assert old == self.model.get(key)
        change_in_place(old)
        self.model[key] = value

    @rule(key=keys)
    def remove_and_get_old(self, key):
        old = self.state_map.remove_and_get_old(key)
        assert old == self.model.pop(key, None)
        change_in_place(old)

    @rule(key=keys, value=values)
    def transform(self, key, value):
        """The function keeps what is stored and changes it."""

        def changed(stored, new):
            return stored if change_in_place(stored) else new

        self.state_map.transform(key, deepcopy(value), changed)
        self.model[key] = changed(self.model.get(key), value)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove_what_is_there(self, data):
        self.remove(data.draw(st.sampled_from(sorted(self.model)), "key"))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), count=st.integers(1, 5))
    def change_in_place_after_get(self, data, count):
        for key in data.draw(st.lists(st.sampled_from(sorted(self.model)), min_size=count, max_size=count)):
            assert change_in_place(self.state_map.get(key)) is change_in_place(self.model[key])

    @precondition(lambda self: len(self.open) < MAX_OPEN_SNAPSHOTS)
    @rule()
    def take_snapshot(self):
        self.open.append((self.state_map.snapshot(), deepcopy(self.model)))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def release_snapshot(self, data):
        snapshot, _ = self.open.pop(data.draw(st.integers(0, len(self.open) - 1), "which"))
        snapshot.release()
        assert snapshot.is_released

    @invariant()
    def invariants_hold(self):
        self.state_map._check()
        assert len(self.state_map) == len(self.model)

    @invariant()
    def every_open_snapshot_holds_what_was_there_when_it_was_taken(self):
        for snapshot, expected in self.open:
            entries = list(snapshot.items())
            assert len(entries) == len(snapshot) == len(expected)
            assert dict(entries) == expected

    def teardown(self):
        for snapshot, _ in self.open:
            snapshot.release()
        assert dict(self.state_map.items()) == self.model
        for key in self.model:
            live = self.state_map.get(key)
            assert self.state_map.get(key) is live
        self.state_map._check()


TestStateMapComparison = StateMapComparison.TestCase
TestStateMapComparison.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
