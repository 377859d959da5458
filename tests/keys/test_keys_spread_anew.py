"""State whose keys had another hash when it was written is spread anew, and nothing of it is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from backend_support import MemoryReader, MemoryStreams, contents, make_backend
from golden_tuple_keys import (
    CHANGED,
    COUNT,
    KEY_TYPE,
    KEYS,
    MAX_PARALLELISM,
    PATH,
    REMOVED,
    expected,
)
from tiers import cases

from pyflinkstate.api import Types
from pyflinkstate.backends.format.metadata import CheckpointMetadata, OperatorState, OperatorSubtaskState
from pyflinkstate.backends.heap.backend import (
    HeapKeyedStateBackend,
    HeapRestoreOperation,
    HeapSnapshotStrategy,
)
from pyflinkstate.backends.keys import KEY_HASH_VERSION, hash_has_changed, key_group_range
from pyflinkstate.backends.operator_state import assign_state

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


@pytest.fixture(scope="module")
def golden() -> OperatorState:
    """The state of an operator, as an earlier release wrote it."""
    (operator,) = CheckpointMetadata.decode(PATH.read_bytes(), "golden").operators
    return operator


@pytest.fixture(scope="module")
def whole() -> Any:
    """What all subtasks together have to hold."""
    return contents(expected())


def restored(
    subtasks: tuple[OperatorSubtaskState, ...], parallelism: int, *, async_snapshots: bool = True
) -> list[HeapKeyedStateBackend]:
    """Return the backends of ``parallelism`` subtasks that restore ``subtasks``."""
    backends = []
    for index, assigned in enumerate(assign_state(subtasks, parallelism, MAX_PARALLELISM, KEY_TYPE)):
        own = key_group_range(MAX_PARALLELISM, parallelism, index)
        backend = make_backend(KEY_TYPE, own, MAX_PARALLELISM, async_snapshots=async_snapshots)
        HeapRestoreOperation(backend, MemoryReader()).restore(assigned.managed_keyed)
        backends.append(backend)
    return backends


def written(backend: HeapKeyedStateBackend) -> OperatorSubtaskState:
    strategy = HeapSnapshotStrategy(backend)
    resources = strategy.sync_prepare_resources()
    return OperatorSubtaskState(strategy.async_snapshot(resources, MemoryStreams(), threading.Event()))


def keys_by_group(backend: HeapKeyedStateBackend) -> Iterator[tuple[int, Any]]:
    """Iterate over the key group that each entry and timer lies in, and its key."""
    for queue in backend.registered_queues.values():
        for entries in queue.snapshot().key_groups():
            yield from ((entries.key_group, key) for key in entries.keys)
    for table in backend.registered_kv_states.values():
        for key_group in backend.key_group_range:
            for entry, _ in table.map_of(key_group).items():
                yield key_group, entry[0] if table.meta.is_namespaced else entry


def placed_right(backend: HeapKeyedStateBackend) -> bool:
    """Whether every key lies in the key group of its hash."""
    return all(backend.key_group_of(key) == key_group for key_group, key in keys_by_group(backend))


def test_the_golden_file_is_of_the_first_hash(golden: OperatorState) -> None:
    handles = [subtask.managed_keyed for subtask in golden.subtasks]
    versions = [
        part.key_hash_version for handle in handles if handle for part in (handle, *handle.increments)
    ]
    assert versions == [1, 1, 1, 1]


@pytest.mark.parametrize("async_snapshots", [True, False], ids=["copy on write", "nested maps"])
@pytest.mark.parametrize("parallelism", cases([1, 2, 3, 8], quick=[1, 3]))
def test_nothing_is_lost_and_every_key_meets_its_state(
    golden: OperatorState, whole: Any, parallelism: int, async_snapshots: bool
) -> None:
    """Values, lists, maps, time to live, windows and timers; of files of everything and increments."""
    backends = restored(golden.subtasks, parallelism, async_snapshots=async_snapshots)
    assert all(map(placed_right, backends))
    assert contents(*backends) == whole


def test_each_key_goes_on_from_its_state(golden: OperatorState) -> None:
    (backend,) = restored(golden.subtasks, 1)
    count = backend.get_partitioned_state(COUNT)
    values = {}
    for key in KEYS:
        backend.set_current_key(key)
        values[key] = count.value()
    assert values == {
        key: None if key in REMOVED else key[1][0] + (1_000_000 if key in CHANGED else 0) for key in KEYS
    }


def test_the_next_checkpoint_is_of_the_new_hash_and_is_not_spread_anew(
    golden: OperatorState, whole: Any
) -> None:
    backends = restored(golden.subtasks, 3)
    subtasks = tuple(map(written, backends))
    metadata = CheckpointMetadata(
        3, "0" * 32, "tuples", 3, None, {}, 0, (OperatorState("tuples", 3, MAX_PARALLELISM, subtasks),)
    )
    (again,) = CheckpointMetadata.decode(metadata.encode(), "new").operators
    assert again.subtasks == subtasks
    assert {
        subtask.managed_keyed.key_hash_version for subtask in again.subtasks if subtask.managed_keyed
    } == {KEY_HASH_VERSION}
    assigned = assign_state(again.subtasks, 3, MAX_PARALLELISM, KEY_TYPE)
    assert [len(one.managed_keyed) for one in assigned] == [1, 1, 1]
    assert contents(*restored(again.subtasks, 2)) == whole


def test_other_keys_are_not_read_by_subtasks_that_do_not_own_them(golden: OperatorState) -> None:
    assigned = assign_state(golden.subtasks, 2, MAX_PARALLELISM, Types.STRING())
    assert [len(one.managed_keyed) for one in assigned] == [1, 1]


def test_without_spreading_them_keys_would_not_find_their_state(golden: OperatorState) -> None:
    """What would happen if the version were not looked at."""
    handle = golden.subtasks[0].managed_keyed
    assert handle is not None
    blind = attrs.evolve(handle, increments=(), key_hash_version=KEY_HASH_VERSION)
    backend = make_backend(KEY_TYPE, key_group_range(MAX_PARALLELISM, 1, 0), MAX_PARALLELISM)
    HeapRestoreOperation(backend, MemoryReader()).restore([blind])
    lost = 0
    for key in backend.get_keys("count"):
        backend.set_current_key(key)
        lost += backend.get_partitioned_state(COUNT).value() is None
    assert lost > 0


@pytest.mark.parametrize(
    ("key_type", "changed"),
    [
        (PAIR, True),
        (Types.ROW([PAIR]), True),
        (Types.ROW([Types.LONG()]), False),
        (Types.STRING(), False),
        (Types.PICKLED_BYTE_ARRAY(), False),
    ],
    ids=str,
)
def test_which_types_hashed_otherwise(key_type: object, changed: bool) -> None:
    assert hash_has_changed(key_type, 1) is changed  # type: ignore[arg-type]
    assert not hash_has_changed(key_type, KEY_HASH_VERSION)  # type: ignore[arg-type]
