"""Iteration over state maps: ``items()`` fails fast, visitors tolerate every change and miss nothing."""

import pytest
from hypothesis import given, settings, strategies as st
from state_map_support import (
    COPY_ON_WRITE_MAKERS,
    MAKERS,
    CountingCopier,
    advance_to,
    entries_of,
    filled,
    key_at,
    next_entries,
    small_map,
)

from pyflinkstate.backends.heap.copy_on_write_state_map import CopyOnWriteStateMap
from pyflinkstate.backends.heap.state_map import NestedStateMap
from pyflinkstate.errors import ConcurrentModificationError


@pytest.fixture(params=MAKERS.values(), ids=MAKERS)
def any_map(request):
    return request.param()


@pytest.fixture(params=COPY_ON_WRITE_MAKERS.values(), ids=COPY_ON_WRITE_MAKERS)
def cow_map(request):
    return request.param()


class TestFailFast:
    """I9."""

    @pytest.mark.parametrize(
        "change",
        [
            lambda state_map: state_map.put("new", 1),
            lambda state_map: state_map.put_and_get_old("new", 1),
            lambda state_map: state_map.transform("new", 1, lambda stored, value: value),
            lambda state_map: state_map.load(["new"], [1]),
            lambda state_map: state_map.remove(0),
            lambda state_map: state_map.remove_and_get_old(9),
            lambda state_map: (state_map.remove(0), state_map.put(0, 1)),
            lambda state_map: (state_map.put("new", 1), state_map.remove("new")),
        ],
        ids=[
            "put",
            "put_and_get_old",
            "transform",
            "load",
            "remove",
            "remove_and_get_old",
            "remove and put back",
            "put and remove again",
        ],
    )
    @pytest.mark.parametrize("given_before", [1, 5, 10])
    def test_a_key_added_or_removed_is_noticed_at_the_next_step(self, any_map, change, given_before):
        filled(any_map, range(10))
        running = any_map.items()
        for _ in range(given_before):
            next(running)
        change(any_map)
        with pytest.raises(
            ConcurrentModificationError, match="a key was added to or removed from the state during iteration"
        ):
            next(running)

    @pytest.mark.parametrize(
        "harmless",
        [
            lambda state_map: state_map.remove("missing"),
            lambda state_map: state_map.remove_and_get_old("missing"),
            lambda state_map: state_map.get("missing"),
            lambda state_map: state_map.all_keys(),
            lambda state_map: state_map.snapshot().release(),
            lambda state_map: list(state_map.items()),
        ],
        ids=["remove", "remove_and_get_old", "get", "all_keys", "snapshot", "items"],
    )
    def test_what_changes_no_key_is_allowed(self, any_map, harmless):
        model = filled(any_map, range(10))
        seen = []
        for entry in any_map.items():
            seen.append(entry)
            harmless(any_map)
        assert dict(seen) == model
        assert len(seen) == 10

    def test_two_iterations_at_once(self, any_map):
        filled(any_map, range(10))
        pairs = [(outer, inner) for outer, _ in any_map.items() for inner, _ in any_map.items()]
        assert sorted(pairs) == [(outer, inner) for outer in range(10) for inner in range(10)]


class TestUpdatesDuringIteration:
    @staticmethod
    def update_all(state_map):
        """Set each value while iterating; return the keys and the values that were given."""
        keys, values = [], []
        for key, value in state_map.items():
            keys.append(key)
            values.append(list(value))
            if key % 3 == 0:
                state_map.put(key, [key, "put"])
            elif key % 3 == 1:
                value.append("in place")
            else:
                state_map.transform(key, ["transformed"], lambda stored, new: stored + new)
        return keys, values

    @staticmethod
    def updated(keys):
        return {key: [key, ("put", "in place", "transformed")[key % 3]] for key in keys}

    def test_every_entry_is_given_once(self, any_map):
        filled(any_map, range(50))
        keys, values = self.update_all(any_map)
        assert sorted(keys) == list(range(50))
        assert values == [[key] for key in keys]
        assert entries_of(any_map) == self.updated(range(50))

    def test_an_open_snapshot_sees_nothing_of_it(self, cow_map):
        model = filled(cow_map, range(50))
        with cow_map.snapshot() as snapshot:
            keys, values = self.update_all(cow_map)
            assert sorted(keys) == list(range(50))
            assert values == [[key] for key in keys]
            assert entries_of(snapshot) == model
        assert entries_of(cow_map) == self.updated(range(50))
        cow_map._check()

    @pytest.mark.parametrize("open_snapshot", [False, True], ids=["no snapshot", "snapshot open"])
    @pytest.mark.parametrize("rehash_index", range(16))
    def test_during_a_rehash_that_the_iteration_itself_drives(self, rehash_index, open_snapshot):
        state_map = small_map(capacity=16)
        model = filled(state_map, range(17))
        advance_to(state_map, rehash_index)
        snapshot = state_map.snapshot() if open_snapshot else None
        keys, values = self.update_all(state_map)
        # The rehash ended meanwhile,
        assert (state_map._rehash, len(state_map._primary)) == (None, 32)
        # and nothing was given twice or left out.
        assert sorted(keys) == list(range(17))
        assert values == [[key] for key in keys]
        assert entries_of(state_map) == self.updated(range(17))
        if snapshot is not None:
            assert entries_of(snapshot) == model
            snapshot.release()
        state_map._check()

    def test_a_value_set_ahead_of_the_iteration_is_given_as_it_is_now(self, any_map):
        filled(any_map, range(30))
        for number, (key, value) in enumerate(any_map.items()):
            if number == 0:
                first = key
                for other in range(30):
                    any_map.put(other, ["now"])
            assert value == ([key] if key == first else ["now"])

    def test_values_are_copied_once_though_iterated_over_twice(self):
        copier = CountingCopier()
        state_map = CopyOnWriteStateMap(copier)
        filled(state_map, range(20))
        with state_map.snapshot():
            once = dict(state_map.items())
            assert all(value is once[key] for key, value in state_map.items())
        assert len(copier.copied) == 20


class TestVisitor:
    @staticmethod
    def walk(visitor):
        """All that a visitor gives, while nobody changes the map."""
        seen = []
        while visitor.has_next():
            seen += next_entries(visitor)
        return seen

    @pytest.mark.parametrize("max_positions", [1, 2, 7, 1000])
    def test_without_changes_it_gives_every_entry_once(self, any_map, max_positions):
        model = filled(any_map, range(100))
        while getattr(any_map, "_rehash", None) is not None:
            any_map.contains_key(-1)
        seen = self.walk(any_map.incremental_visitor(max_positions))
        assert sorted(seen) == sorted(model.items())

    def test_it_is_at_the_end_for_good(self, any_map):
        filled(any_map, range(5))
        visitor = any_map.incremental_visitor(1)
        self.walk(visitor)
        assert not visitor.has_next()
        assert next_entries(visitor) == []

    def test_an_empty_map_gives_nothing(self, any_map):
        assert self.walk(any_map.incremental_visitor(1)) == []

    def test_it_looks_at_no_more_buckets_at_a_time_than_it_may(self):
        state_map = CopyOnWriteStateMap(None, capacity=64)
        key = key_at(62)
        state_map.put(key, "last but one")
        visitor = state_map.incremental_visitor(5)
        calls = [next_entries(visitor) for _ in range(13)]
        assert calls == [*[[]] * 12, [(key, "last but one")]]

    def test_it_gives_one_whole_bucket_a_call(self):
        state_map = CopyOnWriteStateMap(None, capacity=4)
        for place in (0, 4, 8, 1, 3, 7):
            state_map.put(key_at(place), place)
        visitor = state_map.incremental_visitor(4)
        places = [[place for _, place in next_entries(visitor)] for _ in range(3)]
        assert places == [[0, 4, 8], [1], [3, 7]]

    @pytest.mark.parametrize("max_positions", [1, 3])
    def test_nested_it_gives_so_many_keys_a_call(self, max_positions):
        state_map = NestedStateMap()
        filled(state_map, range(7))
        visitor = state_map.incremental_visitor(max_positions)
        sizes = []
        while visitor.has_next():
            sizes.append(len(next_entries(visitor)))
        assert sizes == {1: [1] * 7, 3: [3, 3, 1]}[max_positions]

    @pytest.mark.parametrize("rehash_index", range(4))
    def test_amid_a_rehash_it_gives_what_has_moved_and_what_has_not(self, rehash_index):
        state_map = small_map(capacity=4)
        model = filled(state_map, range(5))
        advance_to(state_map, rehash_index)
        seen = self.walk(state_map.incremental_visitor(2))
        assert sorted(seen) == sorted(model.items())
        # A visitor drives no rehash.
        assert state_map._rehash_index == rehash_index
        assert state_map._rehash is not None

    def test_it_copies_no_value_and_no_bucket(self):
        copier = CountingCopier()
        state_map = CopyOnWriteStateMap(copier, 4)
        filled(state_map, range(20))
        with state_map.snapshot() as snapshot:
            self.walk(state_map.incremental_visitor(1))
            shared = zip(state_map._primary, snapshot._buckets, strict=True)
            assert all(ours is theirs for ours, theirs in shared)
        assert copier.copied == []

    def test_what_is_removed_ahead_of_it_is_not_given(self, any_map):
        filled(any_map, range(40))
        visitor = any_map.incremental_visitor(1)
        while not next_entries(visitor):
            assert visitor.has_next()
        assert visitor.has_next()
        for key in range(40):
            any_map.remove(key)
        assert self.walk(visitor) == []

    def test_values_are_given_as_they_are_now(self, any_map):
        filled(any_map, range(40))
        visitor = any_map.incremental_visitor(1)
        given = {key for key, _ in next_entries(visitor)}
        for key in range(40):
            any_map.put(key, ["now"])
        assert all(value == ["now"] for key, value in self.walk(visitor) if key not in given)

    def test_what_it_gives_can_be_removed_and_replaced_at_once(self, any_map):
        filled(any_map, range(100))
        visitor = any_map.incremental_visitor(3)
        while visitor.has_next():
            for key, _ in next_entries(visitor):
                if key % 2:
                    any_map.remove(key)
                else:
                    any_map.put(key, ["new"])
        any_map._check()
        assert entries_of(any_map) == {key: ["new"] for key in range(0, 100, 2)}

    def test_it_misses_nothing_though_the_map_doubles_after_every_step(self):
        state_map = small_map(min_transferred=10**6)
        filled(state_map, range(8))
        visitor, following = state_map.incremental_visitor(1), iter(range(8, 9999))
        seen, lengths = set(), set()
        while visitor.has_next():
            seen.update(key for key, _ in next_entries(visitor))
            length = len(state_map._primary)
            lengths.add(length)
            while length < 512 and len(state_map._primary) == length:
                state_map.put(next(following), None)
        assert seen >= set(range(8))
        assert len(lengths) > 5


CHANGES = st.one_of(
    st.tuples(st.just("visit"), st.just(0)),
    st.tuples(st.sampled_from(["put", "remove", "get"]), st.integers(0, 60)),
    st.tuples(st.sampled_from(["grow", "drive"]), st.integers(1, 30)),
    st.tuples(st.sampled_from(["snapshot", "release"]), st.just(0)),
)


class Walk:
    """A visitor over a map that goes on changing, and what it owes."""

    def __init__(self, state_map, model, max_positions):
        self.state_map = state_map
        self.model = model
        self.visitor = state_map.incremental_visitor(max_positions)
        #: What was there at the beginning and always since, and is not yet seen.
        self.due = set(model)
        self.next_key = 1000
        self.snapshots = []

    def visit(self, _=0):
        for key, value in next_entries(self.visitor):
            assert value == self.model[key]
            self.due.discard(key)

    def put(self, key):
        self.state_map.put(key, [key, len(self.model)])
        self.model[key] = [key, len(self.model)]

    def remove(self, key):
        self.state_map.remove(key)
        self.model.pop(key, None)
        self.due.discard(key)

    def get(self, key):
        assert self.state_map.get(key) == self.model.get(key)

    def grow(self, count):
        for key in range(self.next_key, self.next_key + count):
            self.put(key)
        self.next_key += count

    def drive(self, count):
        for _ in range(count):
            self.state_map.contains_key(-1)

    def snapshot(self, _):
        self.snapshots.append(self.state_map.snapshot())

    def release(self, _):
        if self.snapshots:
            self.snapshots.pop(0).release()


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@given(
    before=st.integers(0, 40),
    max_positions=st.integers(1, 5),
    changes=st.lists(CHANGES, max_size=60),
)
@settings(max_examples=150)
def test_what_is_there_throughout_is_seen_under_any_changes(make, before, max_positions, changes):
    state_map = make()
    walk = Walk(state_map, filled(state_map, range(before)), max_positions)
    for change, argument in changes:
        getattr(walk, change)(argument)
    while walk.visitor.has_next():
        walk.visit()
    assert walk.due == set()
    state_map._check()
