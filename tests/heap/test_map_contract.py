"""What a state map promises: algebra, load, identity, snapshots, iteration, visitors, and how keys spread."""

import decimal
import operator
import random
import threading
from copy import deepcopy

import pytest
from state_map_support import (
    COPY_ON_WRITE_MAKERS,
    MAKERS,
    CountingCopier,
    advance_to,
    entries_of,
    filled,
    key_at,
    mixed,
    next_entries,
    small_map,
)
from tiers import cases

from pyflinkstate.backends.heap.copy_on_write_state_map import (
    BUCKET_LOAD,
    MINIMUM_CAPACITY,
    CopyOnWriteStateMap,
)
from pyflinkstate.backends.heap.state_map import NestedStateMap
from pyflinkstate.errors import ConcurrentModificationError, StateAccessError


@pytest.fixture(params=MAKERS.values(), ids=MAKERS)
def any_map(request):
    return request.param()


@pytest.fixture(params=COPY_ON_WRITE_MAKERS.values(), ids=COPY_ON_WRITE_MAKERS)
def cow_map(request):
    return request.param()


class TestAlgebra:
    """Flink: ``CopyOnWriteStateMapTest.testPutGetRemoveContainsTransform``."""

    def test_the_walk_of_flinks_test(self, any_map):
        key_1, key_2, key_3 = (1, "n1"), (2, "n1"), (1, "n2")
        any_map.put(key_1, [41])
        assert any_map.get(key_1) == [41]
        assert any_map.size() == 1
        any_map.put(key_2, [42])
        assert any_map.get(key_2) == [42]
        any_map.put(key_3, [43])
        assert any_map.get(key_3) == [43]
        assert any_map.size() == 3

        assert any_map.contains_key(key_1)
        assert not any_map.contains_key((4, "n1"))
        any_map.put(key_1, None)
        assert any_map.contains_key(key_1)
        assert any_map.size() == 3

        any_map.remove(key_1)
        assert not any_map.contains_key(key_1)
        assert any_map.remove_and_get_old(key_2) == [42]
        any_map.put(key_3, [44])
        assert any_map.size() == 1
        any_map.transform(key_3, [3], operator.add)
        assert any_map.get(key_3) == [44, 3]
        assert entries_of(any_map) == {key_3: [44, 3]}

    @pytest.mark.parametrize(
        "read",
        [
            lambda state_map: state_map.get("a"),
            lambda state_map: state_map.peek("a"),
            lambda state_map: state_map.remove("a"),
            lambda state_map: state_map.remove_and_get_old("a"),
            lambda state_map: state_map.contains_key("a") or None,
        ],
        ids=["get", "peek", "remove", "remove_and_get_old", "contains_key"],
    )
    def test_asking_for_what_is_not_there_gives_none_and_creates_nothing(self, any_map, read):
        any_map.put("b", [1])
        assert read(any_map) is None
        assert entries_of(any_map) == {"b": [1]}

    def test_none_is_a_value_like_any_other(self, any_map):
        any_map.put("a", None)
        assert (any_map.size(), any_map.get("a"), any_map.peek("a")) == (1, None, None)
        assert list(any_map.items()) == [("a", None)]
        assert any_map.all_keys() == ["a"]
        assert any_map.remove_and_get_old("a") is None
        assert not any_map.contains_key("a")

    def test_put_under_an_equal_key_replaces_and_keeps_the_size(self, any_map):
        any_map.put((1, "n"), [1])
        any_map.put((True, "n"), [2])
        assert entries_of(any_map) == {(1, "n"): [2]}


class TestTransform:
    @pytest.mark.parametrize("before", [{}, {"a": [1]}, {"a": None}], ids=["no entry", "an entry", "None"])
    def test_when_it_raises_nothing_has_changed(self, any_map, before):
        """Flink inserts the entry before it calls the function (I8)."""
        for key, value in before.items():
            any_map.put(key, value)

        def transformation(stored, value):
            raise ZeroDivisionError

        running = any_map.items()
        assert len(list(zip(running, range(1), strict=False))) == len(before)
        with pytest.raises(ZeroDivisionError):
            any_map.transform("a", 2, transformation)
        assert entries_of(any_map) == before
        assert list(running) == []
        any_map._check()

    def test_what_it_changes_in_place_is_not_in_an_open_snapshot(self, cow_map):
        cow_map.put("a", [1])
        with cow_map.snapshot() as snapshot:
            cow_map.transform("a", [2], operator.iadd)
            assert entries_of(snapshot) == {"a": [1]}
        assert cow_map.get("a") == [1, 2]


KEYS = list(range(100))
VALUES = [[key] if key % 3 else key for key in KEYS]
LOADED = dict(zip(KEYS, VALUES, strict=True))


class TestLoad:
    def test_an_empty_map(self, any_map):
        any_map.load(KEYS, VALUES)
        any_map._check()
        assert entries_of(any_map) == LOADED

    def test_a_map_with_entries_keeps_them_and_replaces_equal_keys(self, any_map):
        filled(any_map, range(-5, 5))
        any_map.load(KEYS, VALUES)
        any_map._check()
        assert entries_of(any_map) == {key: [key] for key in range(-5, 0)} | LOADED

    def test_the_last_of_equal_keys_wins(self, any_map):
        any_map.load(["a", "b", "a"], [[1], [2], [3]])
        any_map._check()
        assert entries_of(any_map) == {"a": [3], "b": [2]}

    @pytest.mark.parametrize("count", [0, 1, 50])
    def test_an_open_snapshot_does_not_see_it(self, cow_map, count):
        model = filled(cow_map, range(count))
        with cow_map.snapshot() as snapshot:
            cow_map.load(KEYS, VALUES)
            cow_map._check()
            assert entries_of(snapshot) == model
        assert entries_of(cow_map) == LOADED

    def test_an_empty_map_gets_its_table_at_once(self):
        state_map = small_map()
        state_map.load(KEYS, VALUES)
        assert (len(state_map._primary), state_map._rehash) == (128, None)
        state_map.put(100, [100])
        assert state_map._rehash is None

    def test_a_running_iteration_notices(self, any_map):
        any_map.put("a", [1])
        running = any_map.items()
        next(running)
        any_map.load(["b"], [[2]])
        with pytest.raises(StateAccessError, match="during iteration"):
            next(running)

    def test_columns_of_different_length_are_refused(self, any_map):
        with pytest.raises(ValueError, match=r"shorter|longer"):
            any_map.load(["a", "b"], [[1]])


class TestCopyOnWriteContracts:
    """Flink: ``testCopyOnWriteContracts``."""

    def test_the_walk_of_flinks_test(self, cow_map):
        originals = {key: [key] for key in range(4)}
        for key, value in originals.items():
            cow_map.put(key, value)
        assert cow_map.get(1) is originals[1]

        first = cow_map.snapshot()
        copied = cow_map.get(1)
        assert copied == originals[1]
        assert copied is not originals[1]
        assert cow_map.get(1) is copied

        second = cow_map.snapshot()
        copied_again = cow_map.get(1)
        assert copied_again == originals[1]
        assert copied_again is not copied
        assert cow_map.get(1) is copied_again

        late = originals[9] = [9]
        cow_map.put(9, late)
        second.release()
        assert cow_map.get(9) is late
        assert cow_map.get(1) is copied_again
        assert cow_map.get(2) is not originals[2]

        first.release()
        assert cow_map.get(3) is originals[3]
        cow_map._check()

    def test_a_put_makes_the_value_ours_without_a_copy(self):
        """I7."""
        copier = CountingCopier()
        state_map = CopyOnWriteStateMap(copier)
        state_map.put("a", [1])
        with state_map.snapshot() as snapshot:
            replacement = [2]
            state_map.put("a", replacement)
            assert state_map.get("a") is replacement
            assert entries_of(snapshot) == {"a": [1]}
        assert copier.copied == []

    @pytest.mark.parametrize("take", ["get", "remove_and_get_old"])
    def test_what_is_handed_out_is_never_what_a_snapshot_holds(self, cow_map, take):
        cow_map.put("a", [[1]])
        with cow_map.snapshot() as snapshot:
            getattr(cow_map, take)("a")[0].append(2)
            assert entries_of(snapshot) == {"a": [[1]]}

    def test_peek_copies_nothing(self, cow_map):
        value = [1]
        cow_map.put("a", value)
        with cow_map.snapshot():
            assert cow_map.peek("a") is value

    def test_a_copy_is_made_once_for_all_open_snapshots(self):
        copier = CountingCopier()
        state_map = CopyOnWriteStateMap(copier)
        state_map.put("a", [1])
        snapshots = [state_map.snapshot() for _ in range(5)]
        state_map.get("a").append(2)
        state_map.get("a").append(3)
        assert copier.copied == [[1]]
        assert [entries_of(snapshot) for snapshot in snapshots] == [{"a": [1]}] * 5


class TestSnapshots:
    @pytest.mark.parametrize("rehash_index", range(4))
    def test_one_taken_amid_a_rehash_holds_what_was_there(self, rehash_index):
        state_map = small_map(capacity=4)
        model = filled(state_map, range(5))
        advance_to(state_map, rehash_index)
        assert state_map._rehash_index == rehash_index
        with state_map.snapshot() as snapshot:
            assert entries_of(snapshot) == model
            for key in range(5):
                state_map.get(key).append("later")
            state_map.remove(rehash_index)
            filled(state_map, range(10, 40))
            state_map._check()
            assert entries_of(snapshot) == model

    def test_a_transformer_replaces_and_drops(self, any_map):
        for key, value in {"a": [1], "b": [2], "c": None, "d": 4}.items():
            any_map.put(key, value)
        with any_map.snapshot() as snapshot:
            keys, values = snapshot.columns(lambda value: None if value in ([2], None) else [value, "new"])
            assert dict(zip(keys, values, strict=True)) == {"a": [[1], "new"], "d": [4, "new"]}
            # What the map and the snapshot hold is as before.
            assert entries_of(snapshot) == entries_of(any_map) == {"a": [1], "b": [2], "c": None, "d": 4}

    def test_a_transformer_sees_the_very_values_of_the_snapshot(self, cow_map):
        value, seen = [1], []
        cow_map.put("a", value)
        with cow_map.snapshot() as snapshot:
            cow_map.get("a").append(2)
            snapshot.columns(lambda stored: seen.append(stored))
        assert len(seen) == 1
        assert seen[0] is value
        assert value == [1]


class TestRelease:
    def test_it_is_idempotent(self, any_map):
        """Flink: ``testSnapshotRelease``."""
        any_map.put("a", [1])
        snapshot = any_map.snapshot()
        assert not snapshot.is_released
        snapshot.release()
        snapshot.release()
        assert snapshot.is_released
        assert (snapshot.size(), snapshot.columns()) == (0, ([], []))
        any_map._check()

    def test_it_is_done_at_the_end_of_a_with_block_also_on_an_error(self, cow_map):
        cow_map.put("a", value := [1])
        with pytest.raises(RuntimeError, match="disk"), cow_map.snapshot() as snapshot:
            raise RuntimeError("the disk is full")
        assert snapshot.is_released
        assert cow_map.get("a") is value

    def test_a_second_release_leaves_the_other_snapshots_alone(self, cow_map):
        cow_map.put("a", [1])
        first, second = cow_map.snapshot(), cow_map.snapshot()
        first.release()
        first.release()
        cow_map.get("a").append(2)
        assert entries_of(second) == {"a": [1]}

    def test_many_threads_release_while_the_owner_goes_on(self, cow_map):
        filled(cow_map, range(20))
        expected, snapshots = [], []
        for number in range(40):
            expected.append(deepcopy(dict(cow_map.items())))
            snapshots.append(cow_map.snapshot())
            cow_map.get(number % 20).append(number)
        found = {}

        def read_and_release(part):
            for number in part:
                found[number] = deepcopy(entries_of(snapshots[number]))
                snapshots[number].release()

        threads = [threading.Thread(target=read_and_release, args=(range(n, 40, 4),)) for n in range(4)]
        for thread in threads:
            thread.start()
        for number in range(400):
            cow_map.get(number % 20).append("later")
            cow_map.put(20 + number, [number])
        for thread in threads:
            thread.join()
        assert [found[number] for number in range(40)] == expected
        assert cow_map._highest_required_snapshot_version == 0
        cow_map._check()


def test_a_load_that_fails_half_way_leaves_a_consistent_map():
    state_map = CopyOnWriteStateMap(None)
    with pytest.raises(TypeError):
        state_map.load(["a", ["unhashable"], "b"], [1, 2, 3])
    state_map._check()
    assert state_map.size() == 1


class TestFailFast:
    """I9."""

    @pytest.mark.parametrize(
        "change",
        [
            lambda state_map: state_map.put("new", 1),
            lambda state_map: state_map.transform("new", 1, lambda stored, value: value),
            lambda state_map: state_map.load(["new"], [1]),
            lambda state_map: state_map.remove(0),
            lambda state_map: state_map.remove_and_get_old(9),
            lambda state_map: (state_map.remove(0), state_map.put(0, 1)),
            lambda state_map: (state_map.put("new", 1), state_map.remove("new")),
        ],
        ids=[
            "put",
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


class TestVisitor:
    @staticmethod
    def walk(visitor):
        """All that a visitor gives, while nobody changes the map."""
        seen = []
        while visitor.has_next():
            seen += next_entries(visitor)
        return seen

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


#: One entry more than this begins a rehash of a new map.
FIRST_THRESHOLD = MINIMUM_CAPACITY * BUCKET_LOAD


class SameHash:
    """Keys that differ and hash alike."""

    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return 12345

    def __eq__(self, other):
        return isinstance(other, SameHash) and self.name == other.name


@pytest.fixture
def copier():
    return CountingCopier()


@pytest.fixture
def state_map(copier):
    return CopyOnWriteStateMap(copier)


class TestKeysThatCollide:
    @pytest.mark.parametrize(
        "keys",
        [
            [key << 20 for key in range(-300, 300)],
            [key << 32 for key in range(300)],
            [(key << 20) + 3 for key in range(300)],
            [SameHash(name) for name in range(100)],
            [-1, -2],
        ],
        ids=["2**20 apart", "2**32 apart", "2**20 apart, odd", "one hash for all", "-1 and -2"],
    )
    def test_keys_whose_hashes_collide_are_kept_apart(self, state_map, keys):
        model = filled(state_map, keys)
        state_map._check()
        assert len(state_map) == len(keys)
        with state_map.snapshot() as snapshot:
            for key in keys[::2]:
                state_map.remove(key)
            state_map._check()
            assert dict(snapshot.items()) == model
        assert dict(state_map.items()) == {key: model[key] for key in keys[1::2]}
        assert all(state_map.contains_key(key) is (key in keys[1::2]) for key in keys)


class TestIdentity:
    @pytest.mark.parametrize(
        "value", [1, "text", None, b"b", 1.5, decimal.Decimal(1), (1, ("a", None))], ids=repr
    )
    def test_what_cannot_change_is_never_copied(self, state_map, copier, value):
        state_map.put("a", value)
        with state_map.snapshot() as snapshot:
            assert state_map.get("a") is value
            assert dict(snapshot.items())["a"] is value
        assert copier.copied == []

    @pytest.mark.parametrize("value", [[1], {1: 2}, {1}, bytearray(b"b"), ([1],)], ids=repr)
    def test_what_can_change_is_copied(self, state_map, copier, value):
        state_map.put("a", value)
        with state_map.snapshot():
            assert state_map.get("a") is not value
        assert copier.copied == [value]

    def test_without_a_copier_nothing_is_ever_copied(self):
        """It says that values never change in place."""
        state_map, value = CopyOnWriteStateMap(None), ("a", [1])
        state_map.put("a", value)
        with state_map.snapshot() as snapshot:
            assert state_map.get("a") is value
            assert dict(snapshot.items())["a"] is value
            state_map.put("a", ("b",))
            assert dict(snapshot.items()) == {"a": value}


class TestIncrementalRehash:
    def test_it_begins_when_the_buckets_are_full(self, state_map):
        filled(state_map, range(FIRST_THRESHOLD))
        assert state_map._rehash is None
        state_map.put(FIRST_THRESHOLD, [FIRST_THRESHOLD])
        assert state_map._rehash is not None
        assert state_map._rehash_index == 0
        state_map._check()

    def test_progress_through_many_inserts(self, state_map):
        lengths, rehashing = [len(state_map._primary)], 0
        for key in range(3000):
            state_map.put(key, [key])
            if key % 50 == 0:
                state_map._check()
            if len(state_map._primary) != lengths[-1]:
                lengths.append(len(state_map._primary))
            rehashing += state_map._rehash_index > 0
        assert lengths == [4, 8, 16, 32, 64, 128]
        assert rehashing > 0
        assert [state_map.get(key) for key in range(3000)] == [[key] for key in range(3000)]

    def test_the_map_never_shrinks(self, state_map):
        filled(state_map, range(1000))
        for key in range(1000):
            state_map.remove(key)
        state_map._check()
        assert len(state_map) == 0
        assert len(state_map._primary) == 32


#: Full tables of 4, 64 and 1,024 buckets.
SIZES = (4 * BUCKET_LOAD, 64 * BUCKET_LOAD, 1024 * BUCKET_LOAD)

#: Random hashes give a full table buckets of a Poisson-distributed length: its mean and eight deviations.
LONGEST = BUCKET_LOAD + round(8 * BUCKET_LOAD**0.5)

MILLISECOND = 1_700_000_000_000

PATTERNS = {
    **{f"i << {shift}": lambda i, shift=shift: i << shift for shift in range(63)},
    **{f"-(i << {shift})": lambda i, shift=shift: -(i << shift) for shift in range(0, 63, 4)},
    **{
        f"i * {stride}": lambda i, stride=stride: i * stride
        for stride in (3, 10, 1000, 3_600_000, 86_400_000, 2**16 + 1, 2**31 - 1, 2**32 + 1, 2**33 - 1, 2**61)
    },
    "snowflake of one machine": lambda i: (MILLISECOND + i << 22) | 5 << 12,
    "snowflake of a burst": lambda i: (MILLISECOND + i // 3 << 22) | i % 3,
    "snowflake each second": lambda i: (MILLISECOND + 1000 * i << 22) | 5 << 12,
    "two halves": lambda i: i << 32 | i,
    "pairs in one int": lambda i: i // 200 << 32 | i % 200,
    "halves against each other": lambda i: (i << 32) - i,
    "whole floats": float,
    "halves": lambda i: i / 2,
    "fractions": lambda i: i * 0.1,
    "small floats": lambda i: (i + 1) * 2.0**-40,
    "big floats": lambda i: (i + 1) * 2.0**80,
    "pairs": lambda i: (i // 200, i % 200),
    "pairs of shifted": lambda i: (i // 200 << 32, i % 200 << 32),
    "one-tuples": lambda i: (i << 20,),
    "tuples of floats": lambda i: (float(i), 0.0),
    "strings": lambda i: f"user-{i:09d}",
    "bytes": lambda i: i.to_bytes(8, "big"),
}


#: Shifts that leave no, some and few of the low 32 bits of a hash; the full tier has all of them.
QUICK = {
    *(name for name in PATTERNS if "<<" not in name),
    *(f"i << {shift}" for shift in (0, 1, 7, 16, 20, 31, 32, 40, 62)),
    *(f"-(i << {shift})" for shift in (0, 20, 32, 60)),
}


def longest_bucket(state_map):
    return max(map(len, state_map._buckets()))


@pytest.mark.parametrize("pattern", cases(PATTERNS, QUICK))
class TestLongestBucket:
    @pytest.mark.parametrize("size", SIZES)
    def test_of_a_full_table(self, pattern, size):
        state_map = CopyOnWriteStateMap(None)
        keys = list(map(PATTERNS[pattern], range(size)))
        state_map.load(keys, keys)
        assert len(state_map) == size
        assert len(state_map._primary) == size // BUCKET_LOAD
        assert longest_bucket(state_map) <= LONGEST

    def test_amid_a_rehash(self, pattern):
        size = SIZES[1]
        state_map = CopyOnWriteStateMap(None)
        for key in map(PATTERNS[pattern], range(size + 20)):
            state_map.put(key, 0)
        assert 0 < state_map._rehash_index < len(state_map._primary)
        assert longest_bucket(state_map) <= LONGEST
        assert max(map(len, state_map._rehash)) <= LONGEST
        state_map._check()


def test_a_machine_word_and_a_python_int_are_mixed_alike():
    """Placement is the same compiled and interpreted, also of the greatest and the least hash."""

    class Hashed:
        def __init__(self, code):
            self.code = code

        def __hash__(self):
            return self.code

    seed = random.Random(7)
    codes = [2**63 - 1, -(2**63), 2**32, -(2**32), 2**31, 0, -2]
    codes += [seed.getrandbits(64) - 2**63 for _ in range(200)]
    state_map = CopyOnWriteStateMap(None, capacity=2**16)
    for code in codes:
        key = Hashed(code)
        state_map.put(key, code)
        assert key in state_map._primary[mixed(hash(key)) % 2**16]
