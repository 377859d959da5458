"""Iteration over a MapState: rows K5, K8 and K9 of the semantics, however it is run.

Iterators fail when others add or remove keys, and can remove what they gave last.
"""

import random

import pytest
from backend_support import prepare
from contract_backends import EVERYWHERE, LONG, STRING, opened
from hypothesis import given, strategies as st

from pyflinkstate.api.state import MapStateDescriptor
from pyflinkstate.errors import ConcurrentModificationError

COUNTS = MapStateDescriptor("counts", STRING, LONG)
VIEWS = ("items", "keys", "values", "__iter__")

every_view = pytest.mark.parametrize("view", VIEWS)


@pytest.fixture
def counts(everywhere):
    """Holds a to e."""
    state = everywhere.state(COUNTS)
    state.put_all({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5})
    return state


def items(state):
    return state.run(lambda counts: dict(counts.items()))


class TestConcurrentModification:
    @every_view
    @pytest.mark.parametrize(
        "change",
        [
            lambda state, _: state.put("z", 0),
            lambda state, _: state.put_all({"y": 0, "z": 0}),
            lambda state, _: state.remove("b"),
            lambda state, _: [state.remove(key) for key in "abcde"],
            lambda state, _: (state.remove("c"), state.put("z", 0)),
            lambda state, _: state.clear(),
            lambda state, _: next(removing := iter(state.keys())) and removing.remove(),
            lambda state, iterator: (iterator.remove(), state.put("z", 0)),
        ],
        ids=[
            *("put", "put_all", "remove", "remove all", "one for another", "clear"),
            *("another iterator's remove", "put after its own remove"),
        ],
    )
    def test_k8_a_key_added_or_removed_while_iterating_is_an_error(self, counts, view, change):
        def iterate(state):
            iterator = iter(getattr(state, view)())
            next(iterator)
            change(state, iterator)
            with pytest.raises(RuntimeError, match="added or removed during iteration") as error:
                next(iterator)
            assert type(error.value) is ConcurrentModificationError

        counts.run(iterate)

    def test_k8_the_first_key_put_while_iterating_over_nothing_is_an_error_too(self, everywhere):
        def iterate(state):
            iterator = iter(state)
            state.put("a", 1)
            with pytest.raises(ConcurrentModificationError):
                next(iterator)

        everywhere.state(COUNTS).run(iterate)

    @pytest.mark.parametrize("misuse", ["remove", "set_value"])
    def test_k8_a_change_forbids_the_iterators_own_changes(self, counts, misuse):
        def iterate(state):
            iterator = iter(state)
            next(iterator)
            state.put("z", 0)
            with pytest.raises(ConcurrentModificationError):
                iterator.remove() if misuse == "remove" else iterator.set_value(9)

        counts.run(iterate)
        assert items(counts) == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "z": 0}

    def test_k8_replacing_values_while_iterating_is_no_error(self, counts):
        def iterate(state):
            for key, value in state.items():
                state.put(key, value * 10)

        counts.run(iterate)
        assert items(counts) == {"a": 10, "b": 20, "c": 30, "d": 40, "e": 50}

    @pytest.mark.parametrize("change", ["put", "remove"])
    @pytest.mark.parametrize("view", VIEWS)
    def test_k8_a_change_after_a_snapshot_was_taken_is_an_error_too(self, bare, view, change):
        """The state goes on with a copy of the map that the iterator began with."""
        state = bare.state(COUNTS)
        state.put_all({"a": 1, "b": 2, "c": 3})
        iterator = state.run(lambda counts: iter(getattr(counts, view)()))
        next(iterator)
        resources = prepare(bare.backend)
        state.put("z", 0) if change == "put" else state.remove("b")
        with pytest.raises(ConcurrentModificationError):
            next(iterator)
        resources.release()

    def test_k8_changes_under_another_key_or_name_are_no_error(self, bare):
        here, there = bare.state(COUNTS, "k"), bare.state(COUNTS, "other")
        beside = bare.state(MapStateDescriptor("beside", STRING, LONG), "k")
        here.put_all({"a": 1, "b": 2, "c": 3})
        there.put_all({"a": 1, "b": 2})
        iterator = iter(here.keys())
        seen = []
        for key in iterator:
            seen.append(key)
            there.put(f"{key}{key}", 0)
            there.remove(key)
            beside.put(key, 0)
            iterator.remove()
        assert seen == ["a", "b", "c"]
        assert sorted(items(there)) == ["aa", "bb", "cc"]
        assert sorted(items(beside)) == ["a", "b", "c"]
        assert sorted(bare.backend.get_keys("counts")) == ["other"]

    def test_k8_changes_in_another_namespace_are_no_error(self, bare):
        here, there = (bare.state(COUNTS, "k", space, STRING) for space in ("w1", "w2"))
        here.put_all({"a": 1, "b": 2, "c": 3})
        for key, _ in here.items():
            there.put(key, 0)
        assert sorted(items(there)) == sorted(items(here)) == ["a", "b", "c"]

    def test_k8_a_change_after_the_end_of_an_iteration_is_no_error(self, counts):
        def iterate(state):
            keys = list(state)
            for key in keys:
                state.remove(key)
            state.put("z", 0)
            return list(state)

        assert counts.run(iterate) == ["z"]

    @pytest.mark.parametrize("size", [1, 2, 5])
    def test_k8_clearing_while_iterating_brings_nothing_back_and_takes_nothing_new(self, everywhere, size):
        def iterate(state):
            iterator = iter(state.items())
            next(iterator)
            state.clear()
            state.put("z", 0)
            for change in (lambda: iterator.set_value(9), iterator.remove, lambda: next(iterator, None)):
                try:
                    change()
                except ConcurrentModificationError:
                    continue

        counts = everywhere.state(COUNTS)
        counts.put_all({f"{number}": number for number in range(size)})
        counts.run(iterate)
        assert items(counts) == {"z": 0}
        assert everywhere.entries() == 1


class TestIteratorRemove:
    @every_view
    def test_k5_removing_the_last_removes_the_entry(self, everywhere, counts, view):
        """Flink leaves an empty entry."""

        def remove_all(state):
            iterator = iter(getattr(state, view)())
            for _ in iterator:
                iterator.remove()

        counts.run(remove_all)
        assert counts.is_empty()
        assert everywhere.entries() == 0
        assert list(everywhere.backend.get_keys("counts")) == []
        assert everywhere.restarted().entries() == 0

    def test_k5_what_is_put_after_the_last_was_removed_stays(self, everywhere, counts):
        def remove_all_and_put(state):
            iterator = iter(state)
            for _ in iterator:
                iterator.remove()
            state.put("z", 26)

        counts.run(remove_all_and_put)
        assert items(counts) == {"z": 26}
        assert items(everywhere.restarted().state(COUNTS)) == {"z": 26}

    @every_view
    @pytest.mark.parametrize("position", range(5))
    def test_k9_any_position_can_be_removed_and_all_are_seen(self, counts, view, position):
        def remove_one(state):
            iterator = iter(getattr(state, view)())
            seen = []
            for index, given_ in enumerate(iterator):
                seen.append(given_)
                if index == position:
                    iterator.remove()
            return seen

        whole = counts.run(lambda state: list(getattr(state, view)()))
        assert counts.run(remove_one) == whole
        assert len(items(counts)) == 4
        assert counts.run(lambda state: list(getattr(state, view)())) == [
            given_ for index, given_ in enumerate(whole) if index != position
        ]

    @given(removed=st.sets(st.integers(0, 19)), size=st.integers(0, 20), mode=st.sampled_from(EVERYWHERE))
    def test_k9_any_positions_can_be_removed(self, removed, size, mode):
        def remove(state):
            iterator = iter(state.items())
            seen = []
            for key, value in iterator:
                seen.append((key, value))
                if value in removed:
                    iterator.remove()
            return seen

        model = {f"{number}": number for number in range(size)}
        with opened(mode) as contract:
            state = contract.state(COUNTS)
            state.put_all(model)
            assert state.run(remove) == list(model.items())
            left = {key: value for key, value in model.items() if value not in removed}
            assert items(state) == left
            assert contract.entries() == bool(left)

    def test_k9_many_can_be_removed(self, everywhere):
        """With a snapshot open too, which goes on holding all of them."""
        state = everywhere.state(COUNTS)
        numbers = list(range(5000))
        random.Random(42).shuffle(numbers)
        state.put_all({f"{number}": number for number in numbers})

        def remove_odd(state):
            iterator = iter(state.values())
            for number in iterator:
                if number % 2:
                    iterator.remove()

        state.run(remove_odd)
        assert items(state) == {f"{number}": number for number in range(0, 5000, 2)}

    def test_k9_an_iteration_may_end_after_a_remove(self, counts):
        def remove_first(state):
            iterator = iter(state)
            next(iterator)
            iterator.remove()

        counts.run(remove_first)
        counts.run(remove_first)
        assert sorted(items(counts)) == ["c", "d", "e"]

    def test_k9_values_may_be_replaced_after_a_remove(self, counts):
        def change(state):
            iterator = iter(state.items())
            for key, value in iterator:
                if key == "b":
                    iterator.remove()
                else:
                    state.put(key, value + 10)

        counts.run(change)
        assert items(counts) == {"a": 11, "c": 13, "d": 14, "e": 15}

    def test_k9_what_is_replaced_ahead_of_the_iterator_is_given_as_it_is_then(self, counts):
        def change(state):
            iterator = iter(state.values())
            seen = [next(iterator)]
            iterator.remove()
            state.put("e", 50)
            return seen + list(iterator)

        assert counts.run(change) == [1, 2, 3, 4, 50]

    @every_view
    @pytest.mark.parametrize("before", ["nothing", "the end", "a remove"])
    @pytest.mark.parametrize("change", ["remove", "set_value"])
    def test_k9_a_change_needs_a_current_entry(self, counts, view, before, change):
        def misuse(state):
            iterator = iter(getattr(state, view)())
            if before == "the end":
                assert len(list(iterator)) == 5
            if before == "a remove":
                next(iterator)
                iterator.remove()
            with pytest.raises(ConcurrentModificationError, match="no current entry"):
                iterator.remove() if change == "remove" else iterator.set_value(0)
            return len(list(iterator))

        assert counts.run(misuse) == {"nothing": 5, "the end": 0, "a remove": 4}[before]
        assert 0 not in items(counts).values()

    def test_k9_a_user_key_of_none_can_be_removed(self, everywhere):
        def remove(state):
            iterator = iter(state)
            for key in iterator:
                if key is None:
                    iterator.remove()

        state = everywhere.state(MapStateDescriptor("any"))
        state.put_all({"a": 1, None: 2, "b": None})
        state.run(remove)
        assert items(state) == {"a": 1, "b": None}


class TestSetValue:
    """Inside the package only: a user's way is ``put``."""

    def test_k9_set_value_writes_through(self, counts):
        def change(state):
            iterator = iter(state.items())
            for _, value in iterator:
                iterator.set_value(value * 10)

        counts.run(change)
        assert items(counts) == {"a": 10, "b": 20, "c": 30, "d": 40, "e": 50}

    def test_k9_set_value_and_remove_can_be_mixed(self, counts):
        def change(state):
            iterator = iter(state.items())
            for key, value in iterator:
                if key in "bd":
                    iterator.remove()
                else:
                    iterator.set_value(-value)

        counts.run(change)
        assert items(counts) == {"a": -1, "c": -3, "e": -5}
