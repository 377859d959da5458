"""Two walk-throughs of the copy-on-write map that are published for Flink's, step by step."""

import pytest
from state_map_support import CountingCopier, entries_of, key_at

from pyflinkstate.backends.heap.copy_on_write_state_map import CopyOnWriteStateMap

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
