"""State that is frozen between two epochs and read beside the next: what is in it, and when it is let go."""

from __future__ import annotations

from typing import Any

import pytest
from backend_support import make_backend, state_of

from pyflinkstate import (
    ListStateDescriptor,
    MapStateDescriptor,
    TimeWindow,
    TimeWindowSerializer,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.heap import HeapKeyedStateBackend
from pyflinkstate.errors import StateQueryError, StateValueError
from pyflinkstate.runtime.slots import frozen_state
from pyflinkstate.runtime.slots.frozen_state import FrozenState, freeze
from pyflinkstate.runtime.wire import AskState

COUNT = ValueStateDescriptor("count", Types.LONG())
LISTED = ListStateDescriptor("listed", Types.LONG())
MAPPED = MapStateDescriptor("mapped", Types.STRING(), Types.LONG())
BY_WINDOW = ValueStateDescriptor("by window", Types.LONG())
WINDOWS = [TimeWindow(start, start + 10) for start in (0, 10)]

both_kinds = pytest.mark.parametrize("async_snapshots", [True, False], ids=["asynchronous", "synchronous"])


def counting(count: int = 100, **settings: Any) -> HeapKeyedStateBackend:
    """Return a backend in which each key has its own number."""
    backend = make_backend(Types.LONG(), **settings)
    for key in range(count):
        state_of(backend, COUNT, key).update(key)
    return backend


def windowed(**settings: Any) -> HeapKeyedStateBackend:
    """Return a backend in which three keys have a value for each of two windows."""
    backend = make_backend(Types.LONG(), **settings)
    for key in range(3):
        backend.set_current_key(key)
        for window in WINDOWS:
            state = backend.get_partitioned_state(BY_WINDOW, window, TimeWindowSerializer())
            state.update(100 * key + window.start)
    return backend


def named(backend: HeapKeyedStateBackend, *keys: Any) -> dict[int, tuple[Any, ...]]:
    groups: dict[int, tuple[Any, ...]] = {}
    for key in keys:
        groups[backend.key_group_of(key)] = (*groups.get(backend.key_group_of(key), ()), key)
    return groups


def contents(frozen: FrozenState, *columns: str) -> list[Any]:
    names = columns or ("key", "value")
    rows = [row for batch in frozen.batches() for row in batch.to_pylist()]
    return sorted(tuple(map(row.get, names)) for row in rows)


def open_snapshots(backend: HeapKeyedStateBackend, state: str) -> int:
    """Return how many snapshots the maps of a state have to keep."""
    maps: list[Any] = backend.registered_kv_states[state].maps
    return sum(len(one._snapshot_versions) for one in maps)


@both_kinds
def test_what_is_frozen_stays_as_it_was(async_snapshots: bool) -> None:
    backend = counting(async_snapshots=async_snapshots)
    first = freeze(backend, AskState(1, "count"))
    for key in range(50, 150):
        state_of(backend, COUNT, key).update(-key)
    second = freeze(backend, AskState(2, "count"))
    state_of(backend, COUNT, 7).clear()
    third = freeze(backend, AskState(2, "count", named(backend, 7, 60, 999)))
    assert contents(first) == [(key, key) for key in range(100)]
    assert contents(second) == [(key, key if key < 50 else -key) for key in range(150)]
    assert contents(third) == [(60, -60)]


@both_kinds
def test_values_that_change_in_place_stay_too(async_snapshots: bool) -> None:
    backend = make_backend(Types.LONG(), async_snapshots=async_snapshots)
    state_of(backend, LISTED, 1).add_all([1, 2])
    everything, one = (freeze(backend, AskState(1, "listed", keys)) for keys in (None, named(backend, 1)))
    state_of(backend, LISTED, 1).add(3)
    assert contents(everything) == contents(one) == [(1, [1, 2])]


@both_kinds
@pytest.mark.parametrize(
    ("keys", "namespace", "expected"),
    [
        (None, (), [0, 10, 100, 110, 200, 210]),
        (None, (WINDOWS[1],), [10, 110, 210]),
        ((0, 2, 9), (), [0, 10, 200, 210]),
        ((0, 2, 9), (WINDOWS[0],), [0, 200]),
        ((), (WINDOWS[0],), []),
    ],
)
def test_windows_are_picked(async_snapshots: bool, keys: Any, namespace: Any, expected: list[int]) -> None:
    backend = windowed(async_snapshots=async_snapshots)
    groups = None if keys is None else named(backend, *keys)
    frozen = freeze(backend, AskState(1, "by window", groups, namespace))
    found = [row for batch in frozen.batches() for row in batch.to_pylist()]
    assert sorted(row["value"] for row in found) == expected
    assert all(row["namespace"]["start"] == row["value"] % 100 for row in found)


def test_a_namespace_must_be_of_the_right_type() -> None:
    with pytest.raises(StateQueryError, match=r"'by window' has namespaces of .*, not 'today'"):
        freeze(windowed(), AskState(1, "by window", None, ("today",)))
    with pytest.raises(StateQueryError, match="'count' has no namespaces"):
        freeze(counting(), AskState(1, "count", None, (WINDOWS[0],)))


def test_a_state_that_is_not_there_has_no_entries() -> None:
    frozen = freeze(counting(), AskState(1, "other"))
    assert (frozen.head.meta, frozen.head.known) == (None, ("count",))
    assert list(frozen.batches()) == []


def test_only_the_maps_of_the_wanted_keys_are_frozen_and_only_until_they_are_read() -> None:
    backend = counting()
    one = freeze(backend, AskState(1, "count", named(backend, 7)))
    assert open_snapshots(backend, "count") == 1
    everything = freeze(backend, AskState(1, "count"))
    assert open_snapshots(backend, "count") == 129
    contents(one)
    assert open_snapshots(backend, "count") == 128
    next(everything.batches())
    everything.release()
    everything.release()
    assert open_snapshots(backend, "count") == 0
    for state_map in backend.registered_kv_states["count"].maps:
        state_map._check()


def test_batches_are_small_whether_rows_are_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_state, "FIRST_ROWS", 4)
    monkeypatch.setattr(frozen_state, "BATCH_BYTES", 4_000)
    text = ValueStateDescriptor("text", Types.STRING())
    narrow, wide = make_backend(Types.LONG()), make_backend(Types.LONG())
    for key in range(200):
        state_of(narrow, text, key).update("x")
        state_of(wide, text, key).update("x" * 1_000)
    for backend in (narrow, wide):
        batches = list(freeze(backend, AskState(1, "text")).batches())
        assert sum(batch.num_rows for batch in batches) == 200
        assert all(batch.nbytes < 6_000 for batch in batches)
    assert max(batch.num_rows for batch in batches) == 4
    assert max(batch.num_rows for batch in freeze(narrow, AskState(1, "text")).batches()) > 30


IN_PLACE = {
    "list": (LISTED, lambda state, number: state.add(number), lambda number: [number]),
    "map": (MAPPED, lambda state, number: state.put(f"at {number}", number), lambda n: [(f"at {n}", n)]),
}


@pytest.mark.parametrize("are_named", [False, True], ids=["all keys", "some keys"])
@pytest.mark.parametrize("kind", IN_PLACE)
def test_values_stay_as_they_were_until_their_batch_is_made(
    monkeypatch: pytest.MonkeyPatch, kind: str, are_named: bool
) -> None:
    """The owner changes them in place at the very moment in which their batch is made."""
    descriptor, change, expected = IN_PLACE[kind]
    backend = make_backend(Types.LONG())
    for key in range(100):
        change(state_of(backend, descriptor, key), key)
    frozen = freeze(backend, AskState(1, descriptor.name, named(backend, *range(100)) if are_named else None))
    make_batch = frozen_state.to_batch

    def beside(*arguments: Any) -> Any:
        for key in range(100):
            change(state_of(backend, descriptor, key), 1_000)
        return make_batch(*arguments)

    monkeypatch.setattr(frozen_state, "to_batch", beside)
    assert contents(frozen) == [(key, expected(key)) for key in range(100)]
    assert open_snapshots(backend, descriptor.name) == 0


def test_key_groups_are_released_one_after_another_with_their_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frozen_state, "FIRST_ROWS", 10)
    monkeypatch.setattr(frozen_state, "MOST_ROWS", 10)
    backend = counting()
    held = [open_snapshots(backend, "count") for _ in freeze(backend, AskState(1, "count")).batches()]
    assert len(held) == 10
    assert held == sorted(held, reverse=True)
    assert held[0] > 100
    assert held[-1] < 20
    assert open_snapshots(backend, "count") == 0


def test_an_answer_that_ends_early_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise StateValueError("it does not fit")

    backend = counting()
    left = freeze(backend, AskState(1, "count")).batches()
    next(left)
    left.close()
    assert open_snapshots(backend, "count") == 0
    monkeypatch.setattr(frozen_state, "to_batch", refuse)
    with pytest.raises(StateValueError, match="it does not fit"):
        contents(freeze(backend, AskState(1, "count")))
    assert open_snapshots(backend, "count") == 0
