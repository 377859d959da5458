"""MapState by rows K1 to K12 of the semantics, however it is run.

Other than Flink's heap state (K5, K6), a map state never keeps an entry without anything in it.
"""

import pickle
import tracemalloc
from copy import deepcopy

import pytest
from backend_support import make_backend, prepare, state_of
from contract_backends import LONG, PICKLED, STRING, HeldSnapshots, lives

from pyflinkstate import Duration, MapStateDescriptor, Row, StateTtlConfig, Types
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import ConcurrentModificationError, DescriptorTypeError, StateValueError


@pytest.fixture(params=["for ever", "for a time"])
def counts(everywhere, request):
    """A map state, also one that expires: what a user sees of both is the same."""
    descriptor = MapStateDescriptor("counts", STRING, LONG)
    return everywhere.state(descriptor if request.param == "for ever" else lives(descriptor, 1000))


def items(state):
    return state.run(lambda counts: dict(counts.items()))


def test_k3_none_is_a_user_key_where_none_is_declared(everywhere):
    state = everywhere.state(MapStateDescriptor("any"))
    state.put(None, 1)
    state.put("a", 2)
    assert (state.get(None), state.contains(None)) == (1, True)
    assert items(everywhere.restarted().state(MapStateDescriptor("any"))) == {None: 1, "a": 2}
    state.remove(None)
    assert items(state) == {"a": 2}


def test_k3_none_is_no_user_key_of_a_declared_type(everywhere, counts):
    with pytest.raises(StateValueError, match="user key: None"):
        counts.put(None, 1)
    assert everywhere.entries() == 0


def test_k7_put_all_of_none_is_refused(everywhere):
    state = everywhere.state(MapStateDescriptor("counts", STRING, LONG))
    state.put("a", 1)
    with pytest.raises(StateValueError, match="'counts', key 'k': put_all takes a dict, not None"):
        state.put_all(None)
    assert items(state) == {"a": 1}


def test_k7_put_all_of_none_is_nothing_with_time_to_live(everywhere):
    state = everywhere.state(lives(MapStateDescriptor("counts", STRING, LONG), 1000))
    state.put_all(None)
    assert everywhere.entries() == 0
    state.put("a", 1)
    state.put_all(None)
    assert items(state) == {"a": 1}


@pytest.mark.parametrize("entries", [[("a", 1)], "ab", 1], ids=repr)
def test_k7_put_all_takes_a_dict(everywhere, counts, entries):
    with pytest.raises(StateValueError, match="put_all takes a dict"):
        counts.put_all(entries)
    assert everywhere.entries() == 0


@pytest.mark.parametrize("refused", [{"c": "wrong"}, {1: 1}, {None: 1}], ids=str)
def test_k7_put_all_puts_all_or_nothing(everywhere, counts, refused):
    with pytest.raises(StateValueError):
        counts.put_all({"a": 9, **refused})
    assert everywhere.entries() == 0
    counts.put("a", 1)
    with pytest.raises(StateValueError):
        counts.put_all({"a": 9, "b": 2, **refused})
    assert items(counts) == {"a": 1}


def test_k7_the_callers_dict_stays_the_callers(counts):
    mine = {"a": 1}
    counts.put_all(mine)
    mine["b"] = 2
    counts.put("c", 3)
    assert items(counts) == {"a": 1, "c": 3}
    assert mine == {"a": 1, "b": 2}


def test_it_is_used_like_a_dict(counts):
    def use(state):
        state["a"] = 1
        state["b"] = None
        assert (state["a"], state["b"], state["missing"]) == (1, None, None)
        assert ("a" in state, "b" in state, "missing" in state) == (True, True, False)
        del state["a"]
        del state["missing"]
        return sorted(state)

    assert counts.run(use) == ["b"]


def test_user_keys_and_values_are_converted_on_the_way_in(everywhere):
    state = everywhere.state(MapStateDescriptor("ratios", Types.DOUBLE(), Types.DOUBLE()))
    state.put(1, 2)
    state.put_all({3: 4})
    assert {type(part) for item in items(state).items() for part in item} == {float}


def test_a_float_user_key_is_found_under_the_number_it_was_put_with(everywhere):
    state = everywhere.state(MapStateDescriptor("ratios", Types.FLOAT(), LONG))
    state.put(0.1, 1)
    assert (state.get(0.1), state.contains(0.1)) == (1, True)
    state.remove(0.1)
    assert everywhere.entries() == 0


@pytest.mark.parametrize("method", ["get", "put", "remove", "contains"])
@pytest.mark.parametrize("key", [1, b"a", [1], None], ids=repr)
def test_a_user_key_that_cannot_be_one_is_refused_by_every_method(everywhere, counts, method, key):
    with pytest.raises(StateValueError, match="'counts', key 'k': user key"):
        getattr(counts, method)(*([key, 1] if method == "put" else [key]))
    assert everywhere.entries() == 0


@pytest.mark.parametrize("key_type", [Types.LIST(LONG), Types.MAP(LONG, LONG)], ids=str)
def test_a_user_key_type_without_a_hash_is_refused_by_the_descriptor(key_type):
    with pytest.raises(DescriptorTypeError, match="not hashable"):
        MapStateDescriptor("counts", key_type, PICKLED)


# --- items(), keys() and values(): rows K5, K8 and K9 ------------------------------------------------------


COUNTS = MapStateDescriptor("counts", STRING, LONG)
VIEWS = ("items", "keys", "values", "__iter__")

every_view = pytest.mark.parametrize("view", VIEWS)


@pytest.fixture
def full(everywhere):
    """Holds a to e."""
    state = everywhere.state(COUNTS)
    state.put_all({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5})
    return state


@pytest.fixture
def bound(bare):
    """The state itself, on its backend, with its key set."""
    bare.backend.set_current_key("k")
    return bare.backend.get_partitioned_state(COUNTS)


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

    def test_a_view_can_be_iterated_over_again_and_within_itself(self, full):
        def pairs(state):
            keys = state.keys()
            return len([(left, right) for left in keys for right in keys])

        assert full.run(pairs) == 25

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

    def test_an_iterator_removes_under_the_key_at_which_its_view_was_asked_for(self, bare):
        for key in ("k", "other"):
            bare.state(COUNTS, key).put("a", 1)
        iterator = iter(bare.state(COUNTS, "k").keys())
        next(iterator)
        bare.backend.set_current_key("other")
        iterator.remove()
        assert list(bare.backend.get_keys("counts")) == ["other"]

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
    def test_k8_a_key_added_or_removed_while_iterating_is_an_error(self, full, view, change):
        def iterate(state):
            iterator = iter(getattr(state, view)())
            next(iterator)
            change(state, iterator)
            with pytest.raises(RuntimeError, match="added or removed during iteration") as error:
                next(iterator)
            assert type(error.value) is ConcurrentModificationError

        full.run(iterate)

    def test_k8_the_first_key_put_while_iterating_over_nothing_is_an_error_too(self, everywhere):
        def iterate(state):
            iterator = iter(state)
            state.put("a", 1)
            with pytest.raises(ConcurrentModificationError):
                next(iterator)

        everywhere.state(COUNTS).run(iterate)

    @pytest.mark.parametrize("misuse", ["remove", "set_value"])
    def test_k8_a_change_forbids_the_iterators_own_changes(self, full, misuse):
        def iterate(state):
            iterator = iter(state)
            next(iterator)
            state.put("z", 0)
            with pytest.raises(ConcurrentModificationError):
                iterator.remove() if misuse == "remove" else iterator.set_value(9)

        full.run(iterate)
        assert items(full) == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "z": 0}

    @pytest.mark.parametrize("change", ["put", "remove"])
    @pytest.mark.parametrize("view", VIEWS)
    def test_k8_a_change_after_a_snapshot_was_taken_is_an_error_too(self, bare, view, change):
        """The state goes on with a copy of the map that the iterator began with."""
        state = bare.state(COUNTS)
        state.put_all({"a": 1, "b": 2, "c": 3})
        iterator = state.run(lambda full: iter(getattr(full, view)()))
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

        full = everywhere.state(COUNTS)
        full.put_all({f"{number}": number for number in range(size)})
        full.run(iterate)
        assert items(full) == {"z": 0}
        assert everywhere.entries() == 1


class TestIteratorRemove:
    def test_k9_what_is_replaced_ahead_of_the_iterator_is_given_as_it_is_then(self, full):
        def change(state):
            iterator = iter(state.values())
            seen = [next(iterator)]
            iterator.remove()
            state.put("e", 50)
            return seen + list(iterator)

        assert full.run(change) == [1, 2, 3, 4, 50]

    @every_view
    @pytest.mark.parametrize("before", ["nothing", "the end", "a remove"])
    @pytest.mark.parametrize("change", ["remove", "set_value"])
    def test_k9_a_change_needs_a_current_entry(self, full, view, before, change):
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

        assert full.run(misuse) == {"nothing": 5, "the end": 0, "a remove": 4}[before]
        assert 0 not in items(full).values()

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


#: Reads of a map state; none of them hands out what could change in place if the values are numbers.
READS = {
    "get": lambda state: state.get("a"),
    "get what is missing": lambda state: state.get("b"),
    "contains": lambda state: state.contains("a"),
    "is_empty": lambda state: state.is_empty(),
    "remove what is missing": lambda state: state.remove("b"),
    "items": lambda state: list(state.items()),
    "keys": lambda state: list(state.keys()),
    "values": lambda state: list(state.values()),
}


def a_state_with_an_open_snapshot(value_type, value, config=None):
    backend = make_backend()
    descriptor = MapStateDescriptor("m", Types.STRING(), value_type)
    if config is not None:
        descriptor.enable_time_to_live(config)
    state = state_of(backend, descriptor, "k")
    state.put("a", value)
    (table,) = backend.registered_kv_states.values()
    table.track_changes()
    return state, table, prepare(backend)


def stored_in(table):
    return next(state_map.peek("k") for state_map in table.maps if state_map.contains_key("k"))


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("lives", [False, True], ids=["for ever", "for a time"])
def test_reading_values_that_cannot_change_copies_and_changes_nothing(read, lives):
    config = StateTtlConfig.new_builder(Duration.of_hours(1)).disable_cleanup_in_background().build()
    state, table, resources = a_state_with_an_open_snapshot(Types.LONG(), 1, config if lives else None)
    before = stored_in(table)
    READS[read](state)
    assert stored_in(table) is before
    assert not any(table.take_changes())
    resources.release()


@pytest.mark.parametrize("read", ["contains", "is_empty", "remove what is missing"])
def test_what_hands_out_no_value_copies_none(read):
    state, table, resources = a_state_with_an_open_snapshot(Types.LIST(Types.LONG()), [1])
    before = stored_in(table)
    READS[read](state)
    assert stored_in(table) is before
    assert not any(table.take_changes())
    resources.release()


def test_a_value_that_can_change_is_copied_when_it_is_read():
    state, table, resources = a_state_with_an_open_snapshot(Types.LIST(Types.LONG()), [1])
    before = stored_in(table)
    state.get("a").append(2)
    assert before == {"a": [1]}
    assert any(table.take_changes())
    resources.release()


@pytest.mark.parametrize(
    "change", [lambda iterator: iterator.remove(), lambda iterator: iterator.set_value(9)]
)
def test_an_iterator_changes_nothing_that_a_snapshot_shares(change):
    state, table, resources = a_state_with_an_open_snapshot(Types.LONG(), 1)
    state.put("b", 2)
    resources.release()
    snapshots = [state_map.snapshot() for state_map in table.maps]
    table.take_changes()
    before = stored_in(table)
    iterator = iter(state.items())
    next(iterator)
    change(iterator)
    assert list(iterator) == [("b", 2)]
    assert before == {"a": 1, "b": 2}
    assert dict(state.items()) in ({"b": 2}, {"a": 9, "b": 2})
    assert any(table.take_changes())
    for snapshot in snapshots:
        snapshot.release()


@pytest.mark.parametrize("view", ["items", "keys", "values"])
def test_a_view_that_is_kept_or_emitted_is_a_list(backend, view):
    state = backend.get_partitioned_state(MapStateDescriptor("counts"))
    state.put_all({"a": 1, "b": 2})
    shown = getattr(state, view)()
    for made in (isolated(shown), pickle.loads(pickle.dumps(shown))):
        assert made == list(shown)
        assert type(made) is list
