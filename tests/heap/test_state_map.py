"""The copy-on-write map alone: keys that collide, what is copied, and when it doubles."""

import decimal

import pytest
from state_map_support import CountingCopier, filled

from pyflinkstate.backends.heap.copy_on_write_state_map import (
    BUCKET_LOAD,
    MINIMUM_CAPACITY,
    CopyOnWriteStateMap,
)

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


class TestAlgebra:
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

    def test_a_snapshot_from_before_a_rehash_outlives_it(self, state_map):
        model = filled(state_map, range(FIRST_THRESHOLD))
        with state_map.snapshot() as snapshot:
            filled(state_map, range(FIRST_THRESHOLD, 2000))
            for key in model:
                state_map.remove(key)
            state_map._check()
            assert dict(snapshot.items()) == model
        assert len(state_map) == 2000 - FIRST_THRESHOLD
