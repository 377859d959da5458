"""MapState: rows K1 to K11 of the semantics, K5 and K6 without the empty entries that Flink leaves."""

import pickle

import pytest
from backend_support import make_backend, prepare, state_of

from pyflinkstate.api.descriptors import MapStateDescriptor
from pyflinkstate.api.time import Duration
from pyflinkstate.api.ttl import StateTtlConfig
from pyflinkstate.api.types import Types
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import ConcurrentModificationError, DescriptorTypeError, StateValueError


@pytest.fixture
def state(backend, declared):
    descriptor = MapStateDescriptor("counts", declared(Types.STRING()), declared(Types.LONG()))
    return backend.get_partitioned_state(descriptor)


def test_it_is_empty_at_first_and_reading_creates_nothing(backend, state):
    """K1."""
    assert state.get("a") is None
    assert state.contains("a") is False
    assert list(state.items()) == list(state.keys()) == list(state.values()) == list(state) == []
    assert state.is_empty() is True
    assert backend.num_key_value_state_entries() == 0


def test_what_is_put_is_there(backend, state):
    state.put("a", 1)
    state.put("b", 2)
    state.put("a", 3)
    assert (state.get("a"), state.get("b")) == (3, 2)
    assert sorted(state.items()) == [("a", 3), ("b", 2)]
    assert sorted(state.keys()) == ["a", "b"]
    assert sorted(state.values()) == [2, 3]
    assert state.is_empty() is False
    assert backend.num_key_value_state_entries() == 1


def test_none_is_a_value(state):
    """K2; PyFlink says that such a key is not contained."""
    state.put("a", None)
    assert state.get("a") is None
    assert state.contains("a") is True
    assert "a" in state
    assert state.is_empty() is False
    assert list(state.items()) == [("a", None)]
    state.put_all({"b": None})
    assert list(state.values()) == [None, None]


def test_none_is_a_key_where_the_type_allows_it(backend):
    """K3."""
    state = backend.get_partitioned_state(MapStateDescriptor("any"))
    state.put(None, 1)
    assert (state.get(None), None in state) == (1, True)
    typed = backend.get_partitioned_state(MapStateDescriptor("typed", Types.STRING(), Types.LONG()))
    with pytest.raises(StateValueError, match="user key: None"):
        typed.put(None, 1)


def test_removing_the_last_entry_removes_all(backend, state):
    """K4."""
    state.put_all({"a": 1, "b": 2})
    state.remove("a")
    assert not state.contains("a")
    assert backend.num_key_value_state_entries() == 1
    state.remove("b")
    assert state.is_empty()
    assert backend.num_key_value_state_entries() == 0


def test_removing_what_is_not_there_is_a_no_op(backend, state):
    """K4; PyFlink raises KeyError after clear()."""
    state.remove("a")
    assert backend.num_key_value_state_entries() == 0
    state.put("b", 1)
    state.remove("a")
    assert list(state.items()) == [("b", 1)]
    state.clear()
    state.remove("b")
    assert backend.num_key_value_state_entries() == 0


def test_put_all_puts_all(state):
    """PyFlink iterates over the dict's keys, and stores 'a' -> 'b' for {'ab': 1}."""
    state.put("x", 0)
    state.put_all({"ab": 1, "x": 2})
    assert dict(state.items()) == {"ab": 1, "x": 2}


def test_putting_no_entries_creates_nothing(backend, state):
    """K6: Flink leaves an empty entry."""
    state.put_all({})
    assert state.is_empty()
    assert backend.num_key_value_state_entries() == 0


@pytest.mark.parametrize("entries", [None, [("a", 1)], "ab", 1], ids=repr)
def test_put_all_takes_a_dict(backend, state, entries):
    """K7."""
    with pytest.raises(StateValueError, match="put_all takes a dict"):
        state.put_all(entries)
    assert backend.num_key_value_state_entries() == 0


def test_put_all_puts_all_or_nothing(backend):
    state = backend.get_partitioned_state(MapStateDescriptor("counts", Types.STRING(), Types.LONG()))
    state.put("a", 1)
    with pytest.raises(StateValueError, match="'counts', key 'k': entry 'c'"):
        state.put_all({"a": 9, "b": 2, "c": "wrong"})
    assert dict(state.items()) == {"a": 1}


@pytest.mark.parametrize("view", ["items", "keys", "values", "__iter__"])
@pytest.mark.parametrize("change", ["put", "remove"])
def test_adding_or_removing_while_iterating_is_an_error(state, view, change):
    """K8: Flink throws ConcurrentModificationException."""
    state.put_all({"a": 1, "b": 2, "c": 3})
    iterator = iter(getattr(state, view)())
    next(iterator)
    state.put("d", 4) if change == "put" else state.remove("b")
    with pytest.raises(ConcurrentModificationError, match="added or removed during iteration"):
        next(iterator)


def test_replacing_values_while_iterating_is_no_error(state):
    state.put_all({"a": 1, "b": 2})
    for key in state:
        state.put(key, state.get(key) * 10)
    assert dict(state.items()) == {"a": 10, "b": 20}


def test_removing_all_over_a_list_of_the_keys_leaves_no_entry(backend, state):
    """K5: Flink's iterator.remove() leaves an empty entry."""
    state.put_all({"a": 1, "b": 2})
    for key in list(state):
        state.remove(key)
    assert state.is_empty()
    assert backend.num_key_value_state_entries() == 0


@pytest.mark.parametrize("view", ["items", "keys", "values", "__iter__"])
def test_removing_all_by_the_iterator_leaves_no_entry(backend, state, view):
    """K5, likewise."""
    state.put_all({"a": 1, "b": 2})
    iterator = iter(getattr(state, view)())
    for _ in iterator:
        iterator.remove()
    assert state.is_empty()
    assert backend.num_key_value_state_entries() == 0


@pytest.mark.parametrize("change", ["put", "remove"])
def test_adding_or_removing_is_an_error_also_after_the_iterator_removed(state, change):
    state.put_all({"a": 1, "b": 2, "c": 3})
    iterator = iter(state.keys())
    next(iterator)
    iterator.remove()
    state.put("d", 4) if change == "put" else state.remove("c")
    with pytest.raises(ConcurrentModificationError):
        next(iterator)


def test_it_is_used_like_a_dict(state):
    state["a"] = 1
    state["b"] = None
    assert state["a"] == 1
    assert state["missing"] is None
    assert "a" in state
    assert "b" in state
    assert "missing" not in state
    assert sorted(state) == ["a", "b"]
    del state["a"]
    del state["missing"]
    assert sorted(state) == ["b"]


def test_it_is_empty_only_after_all_removes(backend, state):
    """K11."""
    for number in range(1024):
        state.put(f"{number}", number)
        assert not state.is_empty()
    assert backend.num_key_value_state_entries() == 1
    for number in range(1024):
        assert not state.is_empty()
        state.remove(f"{number}")
    assert state.is_empty()


def test_the_callers_dict_stays_the_callers(state):
    mine = {"a": 1}
    state.put_all(mine)
    mine["b"] = 2
    assert dict(state.items()) == {"a": 1}


def test_keys_and_values_are_converted(backend):
    state = backend.get_partitioned_state(MapStateDescriptor("ratios", Types.DOUBLE(), Types.DOUBLE()))
    state.put(1, 2)
    (entry,) = state.items()
    assert [type(part) for part in entry] == [float, float]


@pytest.mark.parametrize("key", [1, None, b"a", [1], {}], ids=repr)
def test_a_key_of_another_type_is_refused(backend, key):
    state = backend.get_partitioned_state(MapStateDescriptor("counts", Types.STRING(), Types.LONG()))
    with pytest.raises(StateValueError, match="'counts', key 'k': user key"):
        state.put(key, 1)
    assert backend.num_key_value_state_entries() == 0


def test_an_unhashable_key_is_refused_without_a_type_too(backend):
    state = backend.get_partitioned_state(MapStateDescriptor("any"))
    with pytest.raises(StateValueError, match="unhashable"):
        state.put([1], 1)


@pytest.mark.parametrize(
    "lookup",
    [lambda state: state.get(0.1) == 1, lambda state: state.contains(0.1), lambda state: 0.1 in state],
    ids=["get", "contains", "in"],
)
def test_a_float_key_is_found_under_the_number_it_was_put_with(backend, lookup):
    state = backend.get_partitioned_state(MapStateDescriptor("f", Types.FLOAT(), Types.LONG()))
    state.put(0.1, 1)
    assert lookup(state)


def test_a_float_key_is_removed_by_the_number_it_was_put_with(backend):
    state = backend.get_partitioned_state(MapStateDescriptor("f", Types.FLOAT(), Types.LONG()))
    state.put(0.1, 1)
    state.remove(0.1)
    assert state.is_empty()


def test_a_key_type_that_cannot_be_a_key_is_refused_in_the_family():
    with pytest.raises(DescriptorTypeError, match=r"'l'.*not hashable"):
        MapStateDescriptor("l", Types.LIST(Types.LONG()), Types.LONG())


# --- reading is no change ------------------------------------------------------------------------------

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
def test_a_view_that_is_kept_or_emitted_is_a_list(state, view):
    state.put_all({"a": 1, "b": 2})
    shown = getattr(state, view)()
    for made in (isolated(shown), pickle.loads(pickle.dumps(shown))):
        assert made == list(shown)
        assert type(made) is list
