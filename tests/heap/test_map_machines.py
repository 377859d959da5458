"""Both kinds of state map against a dict, under any sequence of operations.

After Flink's ``CopyOnWriteStateMapTest.testRandomModificationsAndCopyOnWriteIsolation``. Tables are small and
doubling slow, so that most operations happen amid a rehash.
"""

from copy import deepcopy

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from state_map_support import entries_of, next_entries
from tiered_support import HAS_ROCKSDB, tiered_map
from tiers import runs_of

from pyflinkstate.backends.heap.copy_on_write_state_map import ABSENT, CopyOnWriteStateMap

MAX_OPEN_SNAPSHOTS = 4

# Few, so that operations meet; some share their low bits; -1 and -2 share their hash; True equals 1.
keys = st.one_of(
    st.integers(-2, 12),
    st.booleans(),
    st.integers(0, 3).map(lambda key: key << 20),
    st.tuples(st.integers(0, 3), st.sampled_from("ab")),
)
immutable_values = st.one_of(st.none(), st.integers(0, 9), st.tuples(st.integers(0, 9)))
values = st.one_of(
    immutable_values,
    st.lists(st.integers(0, 9), max_size=2),
    st.dictionaries(st.integers(0, 1), st.lists(st.integers(0, 9), max_size=1), max_size=2),
    st.tuples(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=2)),
)


def change_in_place(value):
    """Change ``value`` as deep as it can be changed."""
    if isinstance(value, list):
        value.append(len(value))
    elif isinstance(value, dict):
        value.setdefault(9, []).append(len(value))
    elif isinstance(value, tuple):
        for part in value:
            change_in_place(part)


class StateMapRules(RuleBasedStateMachine):
    """Each rule does the same to the map and to a dict."""

    state_map = None
    values = values

    def __init__(self):
        super().__init__()
        self.model = {}
        #: A visitor, and what it owes: the keys that were there since it began and that it has not given.
        self.visitor, self.due = None, set()

    @rule(key=keys, data=st.data())
    def put(self, key, data):
        value = data.draw(self.values)
        self.state_map.put(key, deepcopy(value))
        self.model[key] = value

    @rule(key=keys)
    def get_and_change_in_place(self, key):
        value = self.state_map.get(key)
        assert value == self.model.get(key)
        assert self.state_map.get(key) is value
        assert self.state_map.peek(key) is value
        change_in_place(value)
        change_in_place(self.model.get(key))

    @rule(key=keys)
    def look(self, key):
        assert self.state_map.peek(key) == self.model.get(key)
        assert self.state_map.contains_key(key) is (key in self.model)

    @rule(key=keys)
    def remove(self, key):
        self.state_map.remove(key)
        self.model.pop(key, None)
        self.due.discard(key)

    @rule(data=st.data())
    def remove_and_get_old(self, data):
        key = data.draw(st.sampled_from([*self.model, "absent"]))
        old = self.state_map.remove_and_get_old(key)
        assert old == self.model.pop(key, None)
        change_in_place(old)
        self.due.discard(key)

    @rule(key=keys, data=st.data(), how=st.sampled_from(["replace", "in place", "raise"]))
    def transform(self, key, data, how):
        value = data.draw(self.values)

        def transformation(stored, new):
            assert stored == self.model.get(key)
            if how == "raise":
                raise ZeroDivisionError
            if how == "in place" and stored is not None:
                change_in_place(stored)
                return stored
            return new

        if how == "raise":
            with pytest.raises(ZeroDivisionError):
                self.state_map.transform(key, deepcopy(value), transformation)
        else:
            self.state_map.transform(key, deepcopy(value), transformation)
            if how == "in place" and self.model.get(key) is not None:
                change_in_place(self.model[key])
            else:
                self.model[key] = value

    @rule(start=st.integers(0, 30), count=st.integers(0, 30), is_load=st.booleans())
    def put_many(self, start, count, is_load):
        many = {key: (key,) for key in range(start, start + count)}
        if is_load:  # the last of equal keys wins
            self.state_map.load([*many, *many], [*map(str, many), *many.values()])
        else:
            for key, value in many.items():
                self.state_map.put(key, value)
        self.model.update(many)

    @rule()
    def clear(self):
        for key in self.state_map.all_keys():
            self.remove(key)
        assert self.model == {}

    @rule()
    def iterate_and_update(self):
        """An entry that is put ahead of the iteration is given as it is then."""
        seen, last = [], next(reversed(self.model), None)
        for number, (key, value) in enumerate(self.state_map.items()):
            seen.append(key)
            assert value == self.model[key]
            if number % 4 == 1:
                change_in_place(value)
                change_in_place(self.model[key])
            elif number % 4 == 2:
                self.state_map.transform(key, number, lambda stored, new: (stored, new))
                self.model[key] = (self.model[key], number)
            else:
                changed = key if number % 4 else last
                self.state_map.put(changed, number)
                self.model[changed] = number
        assert len(seen) == len(self.model)
        assert set(seen) == set(self.model)

    @rule(max_positions=st.integers(1, 3))
    def begin_visit(self, max_positions):
        self.visitor = self.state_map.incremental_visitor(max_positions)
        self.due = set(self.model)

    @precondition(lambda self: self.visitor is not None)
    @rule(steps=st.integers(1, 4), data=st.data())
    def visit(self, steps, data):
        for _ in range(steps):
            for key, value in next_entries(self.visitor):
                assert value == self.model[key]
                self.due.discard(key)
                if data.draw(st.booleans(), "remove"):
                    self.remove(key)
        if not self.visitor.has_next():
            assert self.due == set()

    @invariant()
    def invariants_hold(self):
        if self.state_map is not None:
            self.state_map._check()
            assert len(self.state_map) == len(self.model)

    def teardown(self):
        if self.state_map is not None:
            while self.visitor is not None and self.visitor.has_next():
                self.due -= {key for key, _ in next_entries(self.visitor)}
            assert self.due == set()
            assert entries_of(self.state_map) == self.model
            self.state_map._check()


class CopyOnWriteComparison(StateMapRules):
    """With snapshots held open over all the other rules."""

    def __init__(self):
        super().__init__()
        self.open = []

    @initialize(
        capacity=st.sampled_from([1, 2, 8]),
        bucket_load=st.sampled_from([1, 2, 5, 32]),
        min_transferred=st.sampled_from([1, 2, 4, 10**6]),
    )
    def make(self, capacity, bucket_load, min_transferred):
        self.state_map = CopyOnWriteStateMap(self.copier(), capacity, bucket_load, min_transferred)

    def copier(self):
        return deepcopy

    @precondition(lambda self: len(self.open) < MAX_OPEN_SNAPSHOTS)
    @rule()
    def take_snapshot(self):
        self.open.append((self.state_map.snapshot(), deepcopy(self.model)))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def release_snapshot(self, data):
        snapshot, _ = self.open.pop(data.draw(st.integers(0, len(self.open) - 1), "which"))
        snapshot.release()
        assert len(snapshot) == 0

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def transform_snapshot(self, data):
        snapshot, expected = data.draw(st.sampled_from(self.open))
        snapshot_keys, stored = snapshot.columns(lambda value: [value] if isinstance(value, list) else None)
        assert dict(zip(snapshot_keys, stored, strict=True)) == {
            key: [value] for key, value in expected.items() if isinstance(value, list)
        }

    @precondition(lambda self: not self.open)
    @rule(key=keys)
    def without_a_snapshot_nothing_is_copied(self, key):
        stored = self.state_map.peek(key)
        assert self.state_map.get(key) is stored

    @invariant()
    def every_open_snapshot_holds_what_was_there_when_it_was_taken(self):
        for snapshot, expected in self.open:
            assert entries_of(snapshot) == expected


class TieredComparison(CopyOnWriteComparison):
    """With entries that go to disk at any time."""

    @initialize(
        capacity=st.sampled_from([1, 2, 8]),
        bucket_load=st.sampled_from([1, 2, 5, 32]),
        min_transferred=st.sampled_from([1, 2, 4, 10**6]),
        tracked=st.booleans(),
    )
    def make(self, capacity, bucket_load, min_transferred, tracked):
        self.state_map = tiered_map(self.copier(), capacity, bucket_load, min_transferred)
        if tracked:
            self.state_map.track_changes()

    @rule()
    def age(self):
        self.state_map.age()

    @precondition(lambda self: self.open)
    @rule(data=st.data(), wanted=st.lists(keys))
    def look_up_in_a_snapshot(self, data, wanted):
        snapshot, expected = data.draw(st.sampled_from(self.open))
        assert snapshot.look_up(wanted) == [expected.get(key, ABSENT) for key in wanted]

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def parts_of_a_snapshot(self, data):
        snapshot, expected = data.draw(st.sampled_from(self.open))
        found = [entry for part in snapshot.parts() for entry in zip(*part, strict=True)]
        assert len(found) == len(expected)
        assert dict(found) == expected

    @rule(max_positions=st.integers(1, 3))
    def begin_visit(self, max_positions):
        self.visitor, self.due = self.state_map.incremental_visitor(max_positions), set()


class TieredImmutableComparison(TieredComparison):
    """Without a copier, of values that cannot change."""

    values = immutable_values

    def copier(self):
        return None


class ImmutableComparison(CopyOnWriteComparison):
    """Without a copier, of values that cannot change."""

    values = immutable_values

    def copier(self):
        return None


TestCopyOnWriteComparison, TestCopyOnWriteComparisonInDepth = runs_of(
    CopyOnWriteComparison, quick=60, full=300, steps=50
)
TestImmutableComparison, TestImmutableComparisonInDepth = runs_of(
    ImmutableComparison, quick=25, full=100, steps=40
)
if HAS_ROCKSDB:
    TestTieredComparison, TestTieredComparisonInDepth = runs_of(
        TieredComparison, quick=40, full=400, steps=50
    )
    TestTieredImmutableComparison, TestTieredImmutableComparisonInDepth = runs_of(
        TieredImmutableComparison, quick=15, full=100, steps=40
    )
