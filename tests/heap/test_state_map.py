"""The copy-on-write map: algebra, identity and incremental rehash; snapshots and the model are next door."""

import decimal
from copy import deepcopy

import pytest

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


class CountingCopier:
    """Copies deep and counts how often."""

    def __init__(self):
        self.copies = 0

    def __call__(self, value):
        self.copies += 1
        return deepcopy(value)


@pytest.fixture
def copier():
    return CountingCopier()


@pytest.fixture
def state_map(copier):
    return CopyOnWriteStateMap(copier)


def filled(state_map, keys):
    """Put ``[key]`` under each key; return the same as a dict."""
    model = {key: [key] for key in keys}
    for key, value in model.items():
        state_map.put(key, list(value))
    return model


class TestAlgebra:
    def test_a_new_map_is_empty(self, state_map):
        assert len(state_map) == 0
        assert list(state_map.items()) == []
        assert state_map.get("a") is None
        assert not state_map.contains_key("a")
        state_map._check()

    def test_reading_a_missing_key_creates_nothing(self, state_map):
        state_map.get("a")
        state_map.contains_key("a")
        state_map.remove("a")
        assert len(state_map) == 0
        state_map._check()

    def test_put_replaces(self, state_map):
        state_map.put("a", 1)
        state_map.put("a", [2])
        assert (state_map.get("a"), len(state_map)) == ([2], 1)
        state_map.put("a", 3)
        assert (state_map.get("a"), len(state_map)) == (3, 1)

    def test_remove_takes_just_one_key_away(self, state_map):
        filled(state_map, "ab")
        state_map.remove("a")
        assert not state_map.contains_key("a")
        assert state_map.get("b") == ["b"]
        assert len(state_map) == 1

    def test_none_is_a_value(self, state_map):
        state_map.put("a", None)
        assert state_map.contains_key("a")
        assert state_map.get("a") is None
        assert list(state_map.items()) == [("a", None)]
        with state_map.snapshot() as snapshot:
            state_map.remove("a")
            assert list(snapshot.items()) == [("a", None)]
        assert len(state_map) == 0

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

    def test_equal_keys_of_different_types_are_one_key(self, state_map):
        state_map.put(1, "a")
        state_map.put(1.0, "b")
        assert state_map.get(True) == "b"
        assert len(state_map) == 1


class TestIdentity:
    """Flink: ``CopyOnWriteStateMapTest.testCopyOnWriteContracts``."""

    def test_without_a_snapshot_the_object_itself_is_returned(self, state_map, copier):
        value = [1]
        state_map.put("a", value)
        assert state_map.get("a") is value
        assert state_map.get("a") is value
        assert copier.copies == 0

    def test_with_a_snapshot_a_copy_is_returned_and_then_the_same_copy(self, state_map, copier):
        value = [1]
        state_map.put("a", value)
        with state_map.snapshot() as snapshot:
            copied = state_map.get("a")
            assert copied == value
            assert copied is not value
            assert state_map.get("a") is copied
            assert copier.copies == 1
            assert dict(snapshot.items())["a"] is value

    def test_each_further_snapshot_makes_one_more_copy(self, state_map, copier):
        state_map.put("a", [1])
        with state_map.snapshot():
            first = state_map.get("a")
            with state_map.snapshot():
                second = state_map.get("a")
                assert second == first
                assert second is not first
                assert state_map.get("a") is second
        assert copier.copies == 2

    def test_a_value_put_after_a_snapshot_is_not_copied_for_it(self, state_map, copier):
        late = [1]
        with state_map.snapshot():
            state_map.put("a", late)
            assert state_map.get("a") is late
        assert copier.copies == 0

    def test_after_the_newer_snapshot_is_released_only_older_values_are_copied(self, state_map):
        old, late = [1], [2]
        state_map.put("old", old)
        first = state_map.snapshot()
        state_map.put("late", late)
        state_map.snapshot().release()
        assert state_map.get("late") is late
        assert state_map.get("old") is not old
        first.release()

    def test_after_the_older_snapshot_is_released_the_newer_one_still_counts(self, state_map):
        value = [1]
        first = state_map.snapshot()
        state_map.put("a", value)
        second = state_map.snapshot()
        first.release()
        state_map.get("a").append(2)
        assert list(second.items()) == [("a", [1])]
        second.release()

    def test_after_all_are_released_nothing_is_copied(self, state_map, copier):
        value = [1]
        state_map.put("a", value)
        snapshots = [state_map.snapshot() for _ in range(3)]
        for snapshot in snapshots:
            snapshot.release()
        assert state_map.get("a") is value
        assert copier.copies == 0

    @pytest.mark.parametrize(
        "value", [1, "text", None, b"b", 1.5, decimal.Decimal(1), (1, ("a", None))], ids=repr
    )
    def test_what_cannot_change_is_never_copied(self, state_map, copier, value):
        state_map.put("a", value)
        with state_map.snapshot() as snapshot:
            assert state_map.get("a") is value
            assert dict(snapshot.items())["a"] is value
        assert copier.copies == 0

    @pytest.mark.parametrize("value", [[1], {1: 2}, {1}, bytearray(b"b"), ([1],)], ids=repr)
    def test_what_can_change_is_copied(self, state_map, copier, value):
        state_map.put("a", value)
        with state_map.snapshot():
            assert state_map.get("a") is not value
        assert copier.copies == 1

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

    @pytest.mark.parametrize(
        ("operation", "arguments"),
        [
            *(("get", [-5]), ("peek", [-5]), ("contains_key", [-5]), ("remove", [-5])),
            *(("put", [0, [0]]), ("put_and_get_old", [0, [0]]), ("remove_and_get_old", [-5])),
            ("transform", [0, [0], lambda stored, value: stored + value]),
        ],
        ids=lambda part: part if isinstance(part, str) else "",
    )
    def test_every_operation_moves_it_forward_until_it_ends(self, state_map, operation, arguments):
        filled(state_map, range(FIRST_THRESHOLD + 1))
        progress = [state_map._rehash_index]
        while state_map._rehash is not None:
            getattr(state_map, operation)(*arguments)
            state_map._check()
            progress.append(state_map._rehash_index)
        assert progress[-1] == 0
        assert progress[:-1] == sorted(set(progress[:-1]))
        assert len(state_map._primary) == 2 * MINIMUM_CAPACITY
        assert len(state_map) == FIRST_THRESHOLD + 1

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

    def test_a_snapshot_amid_a_rehash_is_complete_and_stays_so(self, copier):
        seen = set()
        for operations in range(MINIMUM_CAPACITY + 1):
            state_map = CopyOnWriteStateMap(copier)
            model = filled(state_map, range(FIRST_THRESHOLD + 1))
            for _ in range(operations):
                state_map.contains_key(-1)
            seen.add(state_map._rehash_index)
            with state_map.snapshot() as snapshot:
                assert len(snapshot) == len(model)
                assert dict(snapshot.items()) == model
                for key in list(model):
                    state_map.get(key).append("later")
                    state_map._check()
                filled(state_map, range(1000, 1200))
                state_map.remove(3)
                entries = list(snapshot.items())
                assert dict(entries) == model
                assert len(entries) == len(model)
            assert state_map.get(5) == [5, "later"]
        assert seen == set(range(MINIMUM_CAPACITY))

    def test_a_snapshot_from_before_a_rehash_outlives_it(self, state_map):
        model = filled(state_map, range(FIRST_THRESHOLD))
        with state_map.snapshot() as snapshot:
            filled(state_map, range(FIRST_THRESHOLD, 2000))
            for key in model:
                state_map.remove(key)
            state_map._check()
            assert dict(snapshot.items()) == model
        assert len(state_map) == 2000 - FIRST_THRESHOLD

    def test_a_bucket_that_the_rehash_made_is_not_copied_again(self, state_map):
        filled(state_map, range(FIRST_THRESHOLD + 1))
        with state_map.snapshot():
            while state_map._rehash is not None:
                state_map.contains_key(-5)
            made = list(state_map._primary)
            filled(state_map, range(FIRST_THRESHOLD + 1))
            assert all(now is then for now, then in zip(state_map._primary, made, strict=True))
