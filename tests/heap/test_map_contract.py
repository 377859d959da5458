"""What a state map promises: algebra, load, identity, snapshots, iteration, visitors, and how keys spread."""

import decimal
import random
import threading
from copy import deepcopy

import pytest
from state_map_support import (
    MAKERS,
    CountingCopier,
    entries_of,
    filled,
    key_at,
    mixed,
    next_entries,
)
from tiers import cases

from pyflinkstate.backends.heap.copy_on_write_state_map import (
    BUCKET_LOAD,
    MINIMUM_CAPACITY,
    CopyOnWriteStateMap,
)
from pyflinkstate.errors import ConcurrentModificationError


@pytest.fixture(params=MAKERS.values(), ids=MAKERS)
def any_map(request):
    return request.param()


class TestLoad:
    def test_columns_of_different_length_are_refused(self, any_map):
        with pytest.raises(ValueError, match=r"shorter|longer"):
            any_map.load(["a", "b"], [[1]])


class TestCopyOnWriteContracts:
    """Flink: ``testCopyOnWriteContracts``."""

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
    def test_a_transformer_sees_the_very_values_of_the_snapshot(self, any_map):
        value, seen = [1], []
        any_map.put("a", value)
        with any_map.snapshot() as snapshot:
            any_map.get("a").append(2)
            snapshot.columns(lambda stored: seen.append(stored))
        assert len(seen) == 1
        assert seen[0] is value
        assert value == [1]


class TestRelease:
    def test_it_is_idempotent(self, any_map):
        """Flink: ``testSnapshotRelease``."""
        any_map.put("a", [1])
        snapshot = any_map.snapshot()
        snapshot.release()
        snapshot.release()
        assert (len(snapshot), snapshot.columns()) == (0, ([], []))
        any_map._check()

    def test_it_is_done_at_the_end_of_a_with_block_also_on_an_error(self, any_map):
        any_map.put("a", value := [1])
        with pytest.raises(RuntimeError, match="disk"), any_map.snapshot() as snapshot:
            raise RuntimeError("the disk is full")
        assert len(snapshot) == 0
        assert any_map.get("a") is value

    def test_a_second_release_leaves_the_other_snapshots_alone(self, any_map):
        any_map.put("a", [1])
        first, second = any_map.snapshot(), any_map.snapshot()
        first.release()
        first.release()
        any_map.get("a").append(2)
        assert entries_of(second) == {"a": [1]}

    def test_many_threads_release_while_the_owner_goes_on(self, any_map):
        filled(any_map, range(20))
        expected, snapshots = [], []
        for number in range(40):
            expected.append(deepcopy(dict(any_map.items())))
            snapshots.append(any_map.snapshot())
            any_map.get(number % 20).append(number)
        found = {}

        def read_and_release(part):
            for number in part:
                found[number] = deepcopy(entries_of(snapshots[number]))
                snapshots[number].release()

        threads = [threading.Thread(target=read_and_release, args=(range(n, 40, 4),)) for n in range(4)]
        for thread in threads:
            thread.start()
        for number in range(400):
            any_map.get(number % 20).append("later")
            any_map.put(20 + number, [number])
        for thread in threads:
            thread.join()
        assert [found[number] for number in range(40)] == expected
        assert any_map._highest_required_snapshot_version == 0
        any_map._check()


def test_a_load_that_fails_half_way_leaves_a_consistent_map():
    state_map = CopyOnWriteStateMap(None)
    with pytest.raises(TypeError):
        state_map.load(["a", ["unhashable"], "b"], [1, 2, 3])
    state_map._check()
    assert len(state_map) == 1


def transform_and_fail(state_map):
    """Flink inserts the entry before it calls the function (I8)."""
    with pytest.raises(ZeroDivisionError):
        state_map.transform("missing", 1, lambda stored, value: value // 0)


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
            transform_and_fail,
        ],
        ids=["remove", "remove_and_get_old", "get", "all_keys", "snapshot", "items", "failed transform"],
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

    def test_it_copies_no_value_and_no_bucket(self):
        copier = CountingCopier()
        state_map = CopyOnWriteStateMap(copier, 4)
        filled(state_map, range(20))
        with state_map.snapshot() as snapshot:
            self.walk(state_map.incremental_visitor(1))
            shared = zip(state_map._primary, snapshot._buckets, strict=True)
            assert all(ours is theirs for ours, theirs in shared)
        assert copier.copied == []


#: One entry more than this begins a rehash of a new map.
FIRST_THRESHOLD = MINIMUM_CAPACITY * BUCKET_LOAD


@pytest.fixture
def copier():
    return CountingCopier()


@pytest.fixture
def state_map(copier):
    return CopyOnWriteStateMap(copier)


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


# --- two walk-throughs that are published for Flink's map, step by step ------------------------------------


#: The keys 13, 23 and 42: with four buckets 42 and 23 meet in bucket 2, and 13 is in bucket 1.
BUCKET = 2
K13, K23, K42 = key_at(1), key_at(2), key_at(6)


#: The keys 0, 1, 2, 3 and 5 of the rehash, each where its number says.
K0, K1, K2, K3, K5 = ALL = [key_at(place) for place in (0, 1, 2, 3, 5)]


class CopyOnWrite:
    """The map of the walk-through after its snapshot; ``bucket()`` is the one of 23 and 42."""

    def __init__(self):
        self.copier = CountingCopier()
        self.state_map = CopyOnWriteStateMap(self.copier, capacity=4)
        self.value_23, self.value_42 = [3], [7]
        self.state_map.put(K23, self.value_23)
        self.state_map.put(K42, self.value_42)
        self.first = self.state_map.snapshot()

    def bucket(self):
        return self.state_map._primary[BUCKET]

    def of_first(self):
        return self.first._buckets[BUCKET]

    @property
    def required(self):
        return self.state_map._highest_required_snapshot_version


@pytest.fixture
def walk():
    return CopyOnWrite()


def test_a_get_copies_the_bucket_and_the_value_that_it_hands_out(walk):
    theirs = walk.state_map.get(K23)
    assert theirs == [3]
    assert theirs is not walk.value_23
    assert walk.bucket() is not walk.of_first()
    assert walk.copier.copied == [[3]]
    # Of the neighbour the bucket's copy holds the same, still shared.
    assert walk.bucket()[K42] is walk.of_first()[K42]
    assert walk.state_map.peek(K42) is walk.value_42


def test_the_whole_walk(walk):
    state_map = walk.state_map
    state_map.put(K13, [2])
    state_map.get(K23).append("later")
    state_map.get(K42).append("later")
    first = dict(zip(*walk.first.columns(), strict=True))
    walk.first.release()
    assert walk.required == 0

    second = state_map.snapshot()
    assert (second.version, walk.required) == (2, 2)
    live_42, shared = state_map.peek(K42), walk.bucket()
    state_map.remove(K23)
    assert walk.bucket() is not shared
    assert set(walk.bucket()) == {K42}
    assert walk.bucket()[K42] is shared[K42]
    assert state_map.peek(K42) is live_42
    assert len(walk.copier.copied) == 2
    state_map._check()

    assert first == {K23: [3], K42: [7]}
    assert entries_of(second) == {K13: [2], K23: [3, "later"], K42: [7, "later"]}
    second.release()
    assert walk.required == 0
    assert entries_of(state_map) == {K13: [2], K42: [7, "later"]}


class Rehash:
    """A map of five keys in four buckets, which has just begun to double."""

    def __init__(self):
        self.state_map = CopyOnWriteStateMap(CountingCopier(), capacity=4, bucket_load=1, min_transferred=1)
        for key in ALL:
            self.state_map.put(key, [key])

    def old(self):
        """The keys of each bucket of the old table."""
        return [list(bucket) for bucket in self.state_map._primary]

    def new(self):
        return [list(bucket) for bucket in self.state_map._rehash]

    def where(self):
        """How far the rehash is, and the keys in both tables, checked."""
        self.state_map._check()
        return self.state_map._rehash_index, self.old(), self.new()


@pytest.fixture
def rehash():
    return Rehash()


def test_the_incremental_rehash(rehash):
    state_map = rehash.state_map

    assert state_map.get(K0) == [K0]
    assert rehash.where() == (1, [[], [K1, K5], [K2], [K3]], [[K0], [], [], [], [], [], [], []])

    state_map.put(K3, 5)
    assert rehash.where() == (2, [[], [], [K2], [K3]], [[K0], [K1], [], [], [], [K5], [], []])
    assert state_map._primary[3][K3] == 5

    state_map.remove(K1)
    assert rehash.where() == (3, [[], [], [], [K3]], [[K0], [], [K2], [], [], [K5], [], []])

    assert state_map.get(K5) == [K5]
    assert (state_map._rehash_index, state_map._rehash) == (0, None)
    assert rehash.old() == [[K0], [], [K2], [K3], [], [K5], [], []]
    state_map._check()
    assert entries_of(state_map) == {K0: [K0], K2: [K2], K3: 5, K5: [K5]}


@pytest.mark.parametrize(
    "operation",
    [
        lambda state_map: state_map.get(K2),
        lambda state_map: state_map.peek(K2),
        lambda state_map: state_map.contains_key(K2),
        lambda state_map: state_map.put(K2, [K2]),
        lambda state_map: state_map.remove(K2),
        lambda state_map: state_map.remove(-1),
        lambda state_map: state_map.remove_and_get_old(K2),
        lambda state_map: state_map.transform(K2, [K2], lambda stored, value: value),
    ],
    ids=[
        "get",
        "peek",
        "contains_key",
        "put",
        "remove",
        "remove what is not there",
        "remove_and_get_old",
        "transform",
    ],
)
@pytest.mark.parametrize("open_snapshots", [0, 2])
def test_each_operation_moves_one_bucket(rehash, operation, open_snapshots):
    snapshots = [rehash.state_map.snapshot() for _ in range(open_snapshots)]
    operation(rehash.state_map)
    expected = {key: [key] for key in ALL}
    assert [entries_of(snapshot) for snapshot in snapshots] == [expected] * open_snapshots
    assert rehash.state_map._rehash_index == 1
    rehash.state_map._check()


def test_a_bucket_that_was_moved_is_ours_and_not_copied_again(rehash):
    state_map = rehash.state_map
    snapshot = state_map.snapshot()
    assert snapshot._buckets[0] is state_map._primary[0]
    state_map.contains_key(-1)
    moved = state_map._rehash[0]
    state_map.put(K0, "replaced")
    assert state_map._rehash[0] is moved
    assert entries_of(snapshot) == {key: [key] for key in ALL}


def test_empty_buckets_do_not_count_as_progress():
    """At least ``min_transferred`` entries are moved, not buckets."""
    sparse = CopyOnWriteStateMap(None, capacity=8, bucket_load=1, min_transferred=1)
    keys = [key_at(6 + 8 * (number % 8), number // 8) for number in range(9)]
    for key in keys:
        sparse.put(key, key)
    assert (sparse._rehash_index, len(sparse._rehash)) == (0, 16)
    assert sparse.get(keys[0]) == keys[0]
    assert sparse._rehash_index == 7
    sparse._check()
