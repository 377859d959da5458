"""What a state map promises, both kinds where it applies: algebra, load, identity, snapshots, release."""

import operator
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
    small_map,
)

from pyflinkstate.backends.heap.copy_on_write_state_map import CopyOnWriteStateMap
from pyflinkstate.backends.heap.state_map import NestedStateMap
from pyflinkstate.errors import StateAccessError


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
        assert any_map.put_and_get_old(key_3, [43]) is None
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
        assert any_map.put_and_get_old(key_3, [44]) == [43]
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
        assert any_map.put_and_get_old("a", None) is None
        assert (any_map.size(), any_map.get("a"), any_map.peek("a")) == (1, None, None)
        assert list(any_map.items()) == [("a", None)]
        assert any_map.all_keys() == ["a"]
        assert any_map.put_and_get_old("a", [1]) is None
        any_map.put("a", None)
        assert any_map.remove_and_get_old("a") is None
        assert not any_map.contains_key("a")

    def test_put_under_an_equal_key_replaces_and_keeps_the_size(self, any_map):
        any_map.put((1, "n"), [1])
        any_map.put((True, "n"), [2])
        assert entries_of(any_map) == {(1, "n"): [2]}

    def test_what_put_and_get_old_returns_is_the_callers(self, any_map):
        any_map.put("a", [1])
        any_map.put_and_get_old("a", [2]).append(9)
        any_map.remove_and_get_old("a").append(9)
        assert entries_of(any_map) == {}

    def test_all_of_many_keys_are_found_and_none_once_removed(self, any_map):
        """Flink: ``testIncrementalRehash``."""
        inserted = removed = 0
        for key in range(300):
            any_map.put(key, key)
            inserted += 1
            if key % 8 == 0:
                any_map.remove(key)
                removed += 1
            any_map._check()
        assert any_map.size() == inserted - removed
        assert [any_map.contains_key(key) for key in range(300)] == [key % 8 != 0 for key in range(300)]

    def test_all_keys_are_a_list_of_what_is_there_now(self, any_map):
        filled(any_map, range(20))
        keys = any_map.all_keys()
        any_map.remove(3)
        assert sorted(keys) == list(range(20))


class TestTransform:
    def test_it_is_given_what_is_stored_and_the_new_value(self, any_map):
        seen = []

        def transformation(stored, value):
            seen.append((deepcopy(stored), value))
            return [value]

        any_map.transform("a", 1, transformation)
        any_map.transform("a", 2, transformation)
        assert seen == [(None, 1), ([1], 2)]
        assert any_map.get("a") == [2]

    def test_it_may_change_in_place_what_is_stored(self, any_map):
        any_map.put("a", [1])
        any_map.transform("a", [2], operator.iadd)
        assert any_map.get("a") == [1, 2]

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

    def test_nothing(self, any_map):
        any_map.load([], [])
        any_map._check()
        assert entries_of(any_map) == {}

    def test_a_map_with_entries_keeps_them_and_replaces_equal_keys(self, any_map):
        filled(any_map, range(-5, 5))
        any_map.load(KEYS, VALUES)
        any_map._check()
        assert entries_of(any_map) == {key: [key] for key in range(-5, 0)} | LOADED

    def test_the_last_of_equal_keys_wins(self, any_map):
        any_map.load(["a", "b", "a"], [[1], [2], [3]])
        any_map._check()
        assert entries_of(any_map) == {"a": [3], "b": [2]}

    def test_twice(self, any_map):
        any_map.load(KEYS[:40], VALUES[:40])
        any_map.load(KEYS[30:], VALUES[30:])
        any_map._check()
        assert entries_of(any_map) == LOADED

    @pytest.mark.parametrize("count", [0, 1, 50])
    def test_an_open_snapshot_does_not_see_it(self, cow_map, count):
        model = filled(cow_map, range(count))
        with cow_map.snapshot() as snapshot:
            cow_map.load(KEYS, VALUES)
            cow_map._check()
            assert entries_of(snapshot) == model
        assert entries_of(cow_map) == LOADED

    def test_a_snapshot_taken_after_it_is_apart(self, cow_map):
        cow_map.load(["a"], [[1]])
        with cow_map.snapshot() as snapshot:
            cow_map.get("a").append(2)
            assert entries_of(snapshot) == {"a": [1]}

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

    @pytest.mark.parametrize("take", ["get", "remove_and_get_old", "put_and_get_old"])
    def test_what_is_handed_out_is_never_what_a_snapshot_holds(self, cow_map, take):
        cow_map.put("a", [[1]])
        with cow_map.snapshot() as snapshot:
            arguments = ("a", [5]) if take == "put_and_get_old" else ("a",)
            getattr(cow_map, take)(*arguments)[0].append(2)
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

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)], ids=str)
    def test_they_may_be_released_in_any_order(self, cow_map, order):
        snapshots, models = [], []
        for step in range(3):
            filled(cow_map, range(step * 5, step * 5 + 8))
            models.append(deepcopy(dict(cow_map.items())))
            snapshots.append(cow_map.snapshot())
        still_open = dict(enumerate(snapshots))
        for number in order:
            for key in cow_map.all_keys():
                cow_map.get(key).append(number)
            cow_map.remove(number)
            for index, snapshot in still_open.items():
                assert entries_of(snapshot) == models[index]
            still_open.pop(number).release()
            cow_map._check()
        assert cow_map._highest_required_snapshot_version == 0

    def test_nested_the_snapshot_is_what_is_there_until_the_owner_goes_on(self):
        state_map = NestedStateMap()
        model = filled(state_map, range(5))
        snapshot = state_map.snapshot()
        assert entries_of(snapshot) == model
        assert snapshot.columns() == (list(range(5)), [[key] for key in range(5)])

    def test_a_transformer_replaces_and_drops(self, any_map):
        for key, value in {"a": [1], "b": [2], "c": None, "d": 4}.items():
            any_map.put(key, value)
        with any_map.snapshot() as snapshot:
            keys, values = snapshot.columns(lambda value: None if value in ([2], None) else [value, "new"])
            assert dict(zip(keys, values, strict=True)) == {"a": [[1], "new"], "d": [4, "new"]}
            # What the map and the snapshot hold is as before.
            assert entries_of(snapshot) == entries_of(any_map) == {"a": [1], "b": [2], "c": None, "d": 4}

    def test_a_transformer_may_drop_everything(self, any_map):
        filled(any_map, range(10))
        with any_map.snapshot() as snapshot:
            assert snapshot.columns(lambda value: None) == ([], [])

    def test_a_transformer_sees_the_very_values_of_the_snapshot(self, cow_map):
        value, seen = [1], []
        cow_map.put("a", value)
        with cow_map.snapshot() as snapshot:
            cow_map.get("a").append(2)
            snapshot.columns(lambda stored: seen.append(stored))
        assert len(seen) == 1
        assert seen[0] is value
        assert value == [1]

    def test_all_keys_while_a_snapshot_is_open_change_nothing_about_it(self, cow_map):
        model = filled(cow_map, range(10))
        with cow_map.snapshot() as snapshot:
            assert sorted(cow_map.all_keys()) == list(range(10))
            cow_map.get(3).append("later")
            cow_map._check()
            assert entries_of(snapshot) == model


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

    def test_an_iteration_over_the_items_needs_none(self, cow_map):
        filled(cow_map, range(10))
        next(cow_map.items())
        cow_map.put("a", value := [1])
        assert cow_map.get("a") is value

    def test_a_second_release_leaves_the_other_snapshots_alone(self, cow_map):
        cow_map.put("a", [1])
        first, second = cow_map.snapshot(), cow_map.snapshot()
        first.release()
        first.release()
        cow_map.get("a").append(2)
        assert entries_of(second) == {"a": [1]}

    def test_a_version_that_is_not_known_is_refused(self, cow_map):
        """I10."""
        snapshot = cow_map.snapshot()
        snapshot.release()
        with pytest.raises(StateAccessError, match="attempt to release unknown snapshot version 1"):
            cow_map.release_snapshot(snapshot)
        cow_map._check()

    def test_the_snapshot_of_another_map_is_refused_and_stays_open(self, cow_map):
        """I10; versions alone would not tell them apart."""
        other = small_map()
        other.put("a", [1])
        mine, foreign = cow_map.snapshot(), other.snapshot()
        with pytest.raises(StateAccessError, match="owned by another state map"):
            cow_map.release_snapshot(foreign)
        assert not mine.is_released
        other.get("a").append(2)
        assert entries_of(foreign) == {"a": [1]}
        cow_map._check()
        other._check()

    def test_another_thread_may_do_it(self, cow_map):
        value = [1]
        cow_map.put("a", value)
        older, newer = cow_map.snapshot(), cow_map.snapshot()
        for snapshot in (newer, older):
            releaser = threading.Thread(target=snapshot.release)
            releaser.start()
            releaser.join()
            assert snapshot.is_released
        cow_map._check()
        assert cow_map.get("a") is value

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
