"""``items()``, ``keys()`` and ``values()`` of a MapState are lazy views, however it is run."""

import tracemalloc
from copy import deepcopy

import pytest
from backend_support import make_backend
from contract_backends import LONG, PICKLED, STRING, HeldSnapshots, contents

from pyflinkstate import MapStateDescriptor, Row, Types
from pyflinkstate.errors import ConcurrentModificationError, StateValueError

COUNTS = MapStateDescriptor("counts", STRING, LONG)
VIEWS = ("items", "keys", "values", "__iter__")

every_view = pytest.mark.parametrize("view", VIEWS)


@pytest.fixture
def counts(everywhere):
    """Holds a to e."""
    state = everywhere.state(COUNTS)
    state.put_all({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5})
    return state


@pytest.fixture
def bound(bare):
    """The state itself, on its backend, with its key set."""
    bare.backend.set_current_key("k")
    return bare.backend.get_partitioned_state(COUNTS)


def items(state):
    return state.run(lambda counts: dict(counts.items()))


class TestViews:
    @every_view
    def test_a_view_shows_what_is_there_when_iteration_begins(self, bound, view):
        seen = getattr(bound, view)() if view != "__iter__" else bound
        assert list(seen) == []
        bound.put("a", 1)
        assert len(list(seen)) == 1
        bound.put("b", 2)
        assert len(list(seen)) == 2
        bound.clear()
        assert list(seen) == []
        bound.put("c", 3)
        assert len(list(seen)) == 1

    def test_a_view_can_be_iterated_over_again_and_within_itself(self, counts):
        def pairs(state):
            keys = state.keys()
            return len([(left, right) for left in keys for right in keys])

        assert counts.run(pairs) == 25

    def test_a_view_stays_with_the_key_at_which_it_was_asked_for(self, bare):
        for key in ("k", "other"):
            bare.state(COUNTS, key).put(key, 1)
        views = [
            bare.state(COUNTS, "k").run(lambda state, view=view: getattr(state, view)()) for view in VIEWS
        ]
        bare.backend.set_current_key("other")
        assert [list(view) for view in views] == [[("k", 1)], ["k"], [1], ["k"]]
        bare.backend.clear_current_key()
        assert list(views[0]) == [("k", 1)]

    def test_a_view_stays_with_its_namespace(self, bare):
        state = bare.state(COUNTS, "k", "w1", STRING)
        state.put("a", 1)
        bare.state(COUNTS, "k", "w2", STRING).put("b", 2)
        view = state.items()
        bare.state(COUNTS, "k", "w2", STRING).is_empty()
        assert list(view) == [("a", 1)]

    def test_an_iterator_removes_under_the_key_at_which_its_view_was_asked_for(self, bare):
        for key in ("k", "other"):
            bare.state(COUNTS, key).put("a", 1)
        iterator = iter(bare.state(COUNTS, "k").keys())
        next(iterator)
        bare.backend.set_current_key("other")
        iterator.remove()
        assert list(bare.backend.get_keys("counts")) == ["other"]

    def test_a_view_asked_for_before_a_snapshot_does_not_lead_into_it(self, bound, bare):
        bound.put_all({"a": 1, "b": 2})
        view = bound.items()
        held = HeldSnapshots()
        held.take(bare.backend)
        iterator = iter(view)
        next(iterator)
        iterator.remove()
        held.release_all()
        assert len(list(bound)) == 1

    def test_values_reached_by_a_view_asked_for_before_a_snapshot_do_not_lead_into_it(self, bare):
        lists = MapStateDescriptor("lists", STRING, Types.LIST(LONG))
        state = bare.state(lists)
        state.put("a", [1])
        view = state.values()
        held = HeldSnapshots()
        held.take(bare.backend)
        next(iter(view)).append(2)
        held.release_all()
        assert state.get("a") == [1, 2]

    def test_an_iterator_that_is_older_than_a_snapshot_does_not_change_it(self, bound, bare):
        """It walks the map that the snapshot has now, so it must not remove from it any more."""
        bound.put_all({"a": 1, "b": 2})
        iterator = iter(bound.items())
        next(iterator)
        held = HeldSnapshots()
        held.take(bare.backend)
        try:
            iterator.remove()
        except ConcurrentModificationError:
            assert len(list(bound)) == 2
        else:
            assert len(list(bound)) == 1
        held.release_all()

    @pytest.mark.parametrize("change", ["before", "after", "both"])
    def test_snapshots_may_be_taken_at_every_step_of_an_iteration(self, bound, bare, change):
        bound.put_all({f"{number}": number for number in range(12)})
        held = HeldSnapshots()
        iterator = iter(bound.items())
        seen = []
        for key, value in iterator:
            seen.append((key, value))
            if change != "after":
                held.take(bare.backend)
            if value % 3 == 0:
                iterator.remove()
            elif value % 3 == 1:
                iterator.set_value(-value)
            if change != "before":
                held.take(bare.backend)
        held.release_all()
        assert seen == [(f"{number}", number) for number in range(12)]
        left = {f"{n}": n if n % 3 == 2 else -n for n in range(12) if n % 3}
        assert dict(bound.items()) == left

    def test_an_early_exit_is_cheap(self):
        """No copy of the keys is made for an iteration that ends early."""
        backend = make_backend()
        backend.set_current_key("k")
        state = backend.get_partitioned_state(MapStateDescriptor("counts", LONG, LONG))
        state.put_all(dict.fromkeys(range(50_000), 0))
        tracemalloc.start()
        try:
            for view in (state.items(), state.keys(), state.values(), state):
                next(iter(view))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 20_000


def test_reading_by_iteration_changes_nothing(everywhere, declared):
    descriptor = MapStateDescriptor("lists", declared(STRING), declared(Types.LIST(LONG)))
    state = everywhere.state(descriptor)
    state.put_all({"a": [1], "b": []})
    before = deepcopy(contents(everywhere.backend))
    for view in VIEWS:
        assert len(state.run(lambda lists, view=view: list(getattr(lists, view)()))) == 2
    assert contents(everywhere.backend) == before


NAN = float("nan")
#: Keys that Python finds by the same object alone: a copy or a restored one would be another key.
NAN_KEYS = [
    (Types.DOUBLE(), NAN),
    (Types.FLOAT(), NAN),
    (PICKLED, NAN),
    (PICKLED, ("a", (1, NAN))),
    (PICKLED, Row(1, NAN)),
    (PICKLED, (Row(a=NAN),)),
    (PICKLED, frozenset([NAN])),
    (Types.TUPLE([STRING, Types.DOUBLE()]), ("a", NAN)),
    (Types.ROW([Types.DOUBLE()]), Row(NAN)),
    (Types.ROW([Types.FLOAT()]), Row(NAN)),
]


@pytest.mark.parametrize(("key_type", "key"), NAN_KEYS, ids=str)
@pytest.mark.parametrize("use", ["put", "put_all", "get", "contains", "remove"])
def test_nan_is_no_user_key_and_no_part_of_one(bare, key_type, key, use):
    arguments = {"put": (key, 1), "put_all": ({key: 1},)}.get(use, (key,))
    state = bare.state(MapStateDescriptor("doubles", key_type, LONG))
    with pytest.raises(StateValueError, match="user key: NaN does not equal itself"):
        getattr(state, use)(*arguments)
    assert state.is_empty()


@pytest.mark.parametrize(
    ("key_type", "key"),
    [
        (PICKLED, ("a", (1, 2.5))),
        (PICKLED, Row(1, None)),
        (PICKLED, frozenset([1, 2])),
        (Types.TUPLE([STRING, Types.DOUBLE()]), ("a", 2.5)),
        (Types.ROW([STRING, Types.FLOAT()]), Row("a", 2.5)),
    ],
    ids=str,
)
def test_other_parts_of_user_keys_are_found_again(bare, key_type, key):
    state = bare.state(MapStateDescriptor("doubles", key_type, LONG))
    state.put(key, 1)
    assert state.get(deepcopy(key)) == 1
