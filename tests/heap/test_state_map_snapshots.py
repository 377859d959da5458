"""Snapshots of the copy-on-write map: what they hold, and how they are released."""

import threading
from copy import deepcopy

import pytest

from pyflinkstate.backends.heap.copy_on_write_state_map import CopyOnWriteStateMap
from pyflinkstate.errors import ConcurrentModificationError, StateAccessError


@pytest.fixture
def state_map():
    return CopyOnWriteStateMap(deepcopy)


def filled(state_map, keys):
    """Put ``[key]`` under each key; return the same as a dict."""
    model = {key: [key] for key in keys}
    for key, value in model.items():
        state_map.put(key, list(value))
    return model


def test_it_holds_what_was_there(state_map):
    model = filled(state_map, "abc")
    with state_map.snapshot() as snapshot:
        state_map.put("d", [4])
        state_map.put("a", "replaced")
        state_map.get("b").append("changed")
        state_map.remove("c")
        assert len(snapshot) == 3
        assert dict(snapshot.items()) == model
        keys, values = snapshot.columns()
        assert dict(zip(keys, values, strict=True)) == model
    assert dict(state_map.items()) == {"a": "replaced", "b": ["b", "changed"], "d": [4]}


def test_versions_rise(state_map):
    versions = [state_map.snapshot().version for _ in range(3)]
    assert versions == sorted(set(versions))


def test_release_may_be_called_again(state_map):
    value = [1]
    state_map.put("a", value)
    snapshot, other = state_map.snapshot(), state_map.snapshot()
    assert not snapshot.is_released
    snapshot.release()
    snapshot.release()
    assert snapshot.is_released
    assert list(snapshot.items()) == []
    assert not other.is_released
    assert state_map.get("a") is not value
    state_map._check()
    other.release()


def test_a_map_refuses_the_snapshot_of_another(state_map):
    value = [1]
    state_map.put("a", value)
    own, foreign = state_map.snapshot(), CopyOnWriteStateMap(deepcopy).snapshot()
    assert own.version == foreign.version
    with pytest.raises(StateAccessError, match="owned by another state map"):
        state_map.release_snapshot(foreign)
    assert state_map.get("a") is not value
    own.release()


def test_a_map_refuses_a_version_that_is_released_already(state_map):
    """Flink: ``CopyOnWriteStateMap.releaseSnapshot``."""
    snapshot = state_map.snapshot()
    snapshot.release()
    with pytest.raises(StateAccessError, match=f"unknown snapshot version {snapshot.version}"):
        state_map.release_snapshot(snapshot)


def test_a_released_snapshot_is_empty(state_map):
    filled(state_map, "abc")
    snapshot = state_map.snapshot()
    snapshot.release()
    assert len(snapshot) == len(list(snapshot.items())) == 0


def test_the_context_manager_releases_also_on_an_error(state_map):
    value = [1]
    state_map.put("a", value)
    snapshot = state_map.snapshot()
    with pytest.raises(RuntimeError, match="disk"), snapshot:
        raise RuntimeError("the disk is full")
    assert snapshot.is_released
    assert state_map.get("a") is value


def test_another_thread_may_release(state_map):
    value = [1]
    state_map.put("a", value)
    snapshot = state_map.snapshot()
    other = threading.Thread(target=snapshot.release)
    other.start()
    other.join()
    assert snapshot.is_released
    assert state_map.get("a") is value
    state_map._check()


def test_another_thread_may_read_while_the_owner_goes_on(state_map):
    model = filled(state_map, range(200))
    snapshot, readings = state_map.snapshot(), []

    def read():
        readings.extend(dict(snapshot.items()) == model for _ in range(50))
        snapshot.release()

    reader = threading.Thread(target=read)
    reader.start()
    for key in range(2000):
        state_map.put(key + 200, [key])
        state_map.get(key % 200).append("later")
    reader.join()
    assert readings == [True] * 50
    state_map._check()
    assert len(state_map) == 2200


@pytest.mark.parametrize(
    "change",
    [lambda state_map: state_map.put("new", []), lambda state_map: state_map.remove(3)],
    ids=["put", "remove"],
)
@pytest.mark.parametrize("size", [10, 4])
def test_iterating_over_the_items_fails_once_a_key_was_added_or_removed(state_map, change, size):
    filled(state_map, range(size))
    items = state_map.items()
    for _ in range(4):
        next(items)
    change(state_map)
    with pytest.raises(ConcurrentModificationError, match="during iteration"):
        next(items)
    state_map._check()


def test_values_may_be_set_and_changed_while_the_items_are_iterated_over(state_map):
    model = filled(state_map, range(1000))
    with state_map.snapshot() as snapshot:
        for key, value in state_map.items():
            value.append("seen")
            state_map.put(key, [*value, "set"])
        assert dict(snapshot.items()) == model
    assert dict(state_map.items()) == {key: [key, "seen", "set"] for key in model}


def test_iterating_over_the_items_leaves_no_snapshot_open(state_map):
    filled(state_map, range(10))
    next(state_map.items())
    state_map.put("a", value := [1])
    assert state_map.get("a") is value
