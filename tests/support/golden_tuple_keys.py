"""What the golden checkpoint of tuple keys holds: written when a ``TUPLE`` hashed as a Java ``List``.

Written once, by the release that did so, and never again: ``python tests/support/golden_tuple_keys.py``. Two
subtasks of four key groups, each a file of everything and an increment with changes, removals and timers.
"""

from pathlib import Path
from typing import Any

from backend_support import Snapshot, chained, make_backend

from pyflinkstate import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    Time,
    TimeWindow,
    TimeWindowSerializer,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import CheckpointMetadata, OperatorState, OperatorSubtaskState
from pyflinkstate.backends.heap import HeapKeyedStateBackend, Timer
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.backends.snapshots import ChangeHistory
from pyflinkstate.errors import KeyGroupRangeError

PATH = Path(__file__).parents[1] / "keys" / "golden" / "tuple_keys_v1"

#: A tuple in a tuple.
KEY_TYPE = Types.TUPLE([Types.STRING(), Types.TUPLE([Types.LONG(), Types.LONG()])])
KEYS = [(f"k{number % 17}", (number, -number)) for number in range(100)]
MAX_PARALLELISM = 8
#: Changed, and removed, between the two files.
CHANGED, REMOVED = KEYS[::3], KEYS[1::5]

COUNT = ValueStateDescriptor("count", Types.LONG())
SEEN = ListStateDescriptor("seen", Types.STRING())
BY_NAME = MapStateDescriptor("by name", Types.STRING(), Types.LONG())
IN_WINDOWS = ListStateDescriptor("in windows", Types.LONG())
WINDOWS = TimeWindowSerializer()


def alive() -> ValueStateDescriptor:
    """A value that lives for an hour, written at 0."""
    descriptor = ValueStateDescriptor("alive", Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    return descriptor


def windows_of(key: Any) -> list[TimeWindow]:
    number = key[1][0]
    return [TimeWindow(number, number + 10), TimeWindow(number + 10, number + 20)]


def timers_of(key: Any) -> list[Timer]:
    return [Timer(key[1][0] * 1000, key), Timer(5, key)]


def write_first(backend: HeapKeyedStateBackend, key: Any) -> None:
    """What is in the files of everything."""
    number = key[1][0]
    backend.get_partitioned_state(COUNT).update(number)
    backend.get_partitioned_state(SEEN).add_all(["a", str(number)])
    backend.get_partitioned_state(BY_NAME).put_all({"n": number, "m": -number})
    backend.get_partitioned_state(alive()).update(number)
    for window in windows_of(key):
        backend.get_partitioned_state(IN_WINDOWS, window, WINDOWS).add(window.start)
    for timer in timers_of(key):
        backend.create_timer_queue("event_user-timers").add(timer, backend.key_group_of(key))
    windows = backend.create_timer_queue("event_window-timers", WINDOWS)
    windows.add(Timer(number, key, windows_of(key)[0]), backend.key_group_of(key))


def change(backend: HeapKeyedStateBackend, key: Any) -> None:
    """What the increments change."""
    backend.get_partitioned_state(COUNT).update(key[1][0] + 1_000_000)
    backend.get_partitioned_state(SEEN).add("later")


def remove(backend: HeapKeyedStateBackend, key: Any) -> None:
    """What the increments remove."""
    for descriptor in (COUNT, SEEN, BY_NAME, alive()):
        backend.get_partitioned_state(descriptor).clear()
    backend.get_partitioned_state(IN_WINDOWS, windows_of(key)[0], WINDOWS).clear()
    backend.create_timer_queue("event_user-timers").remove(timers_of(key)[1], backend.key_group_of(key))


def apply(backend: HeapKeyedStateBackend, action: Any, keys: list[Any]) -> None:
    """Do ``action`` for those of ``keys`` that are the backend's."""
    for key in keys:
        try:
            backend.set_current_key(key)
        except KeyGroupRangeError:
            continue
        action(backend, key)


def expected() -> HeapKeyedStateBackend:
    """Return a backend that holds all of it."""
    backend = make_backend(KEY_TYPE, key_group_range(MAX_PARALLELISM, 1, 0), MAX_PARALLELISM)
    for action, keys in ((write_first, KEYS), (change, CHANGED), (remove, REMOVED)):
        apply(backend, action, keys)
    return backend


def _chain(subtask: int) -> OperatorSubtaskState:
    backend = make_backend(KEY_TYPE, key_group_range(MAX_PARALLELISM, 2, subtask), MAX_PARALLELISM)
    apply(backend, write_first, KEYS)
    history = ChangeHistory(backend)
    history.cut(1, None)
    full = Snapshot.of(backend).write()
    apply(backend, change, CHANGED)
    apply(backend, remove, REMOVED)
    increment = Snapshot.of(backend, history.cut(2, 1)).write()
    return OperatorSubtaskState(chained(full, increment))


def written() -> CheckpointMetadata:
    """Return the checkpoint."""
    return CheckpointMetadata(
        checkpoint_id=2,
        job_id="0123456789abcdef0123456789abcdef",
        job_name="tuples",
        epoch=2,
        source_position=None,
        counters={},
        timestamp_ms=0,
        operators=(OperatorState("tuples", 2, MAX_PARALLELISM, (_chain(0), _chain(1))),),
    )


if __name__ == "__main__":
    PATH.write_bytes(written().encode())
