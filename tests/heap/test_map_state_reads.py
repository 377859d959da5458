"""What reading a MapState changes, and what it copies: nothing where nothing can change in place."""

import pickle

import pytest
from backend_support import make_backend, prepare, state_of

from pyflinkstate import Duration, MapStateDescriptor, StateTtlConfig, Types
from pyflinkstate.backends.values import isolated

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
