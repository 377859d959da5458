"""What the golden state files hold, one file for each format version.

Version 1 was written by release 0.1.0, which knew no namespaces, no timers and no time to live; version 2
knew no increments, and up to version 3 a ``FLOAT`` had 32 bits, and up to version 4 the head did not say
how long values live. The full files from version 2 on hold the
same, and from version 3 on there is an increment to be put on top as well. The files of the version that is
current now are written by

    python tests/support/golden_content.py

Never write one again under the same name: a later release must read what an earlier one wrote. A new
format version gets a file of its own beside those that are there.

The bytes from version 2 on can be made again: they are not compressed, since each release of zstd compresses
in its own way, and they come from maps of one bucket, whose order is that of writing. The order of an
increment is that of the changes, which are sorted here.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
from backend_support import MemoryStreams, make_backend, state_of, take_snapshot
from slot_functions import Mean

from pyflinkstate import (
    AggregatingStateDescriptor,
    Duration,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import ByteStreamStateHandle, KeyGroupsStateHandle, Section
from pyflinkstate.backends.format.state_file import VERSION
from pyflinkstate.backends.heap import HeapKeyedStateBackend, Timer, state_table
from pyflinkstate.backends.heap.backend import HeapSnapshotStrategy
from pyflinkstate.backends.heap.copy_on_write_state_map import CopyOnWriteStateMap
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.snapshots import ChangeHistory, Changes
from pyflinkstate.testing import ManualClock

GOLDEN = Path(__file__).parents[1] / "format" / "golden"
KEYS = ["flink", "été", "\U0001f600", ""]

# --- version 1 ---------------------------------------------------------------------------------------

ROW = Types.TUPLE([Types.BIG_DEC(), Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Types.BIG_INT(), Types.FLOAT()])

DESCRIPTORS: dict[str, StateDescriptor] = {
    "value": ValueStateDescriptor("value", Types.LONG()),
    "row": ValueStateDescriptor("row", ROW),
    "list": ListStateDescriptor("list", Types.STRING()),
    "map": MapStateDescriptor("map", Types.STRING(), Types.LIST(Types.DOUBLE())),
    "reducing": ReducingStateDescriptor("reducing", max, Types.BIG_INT()),
    "aggregating": AggregatingStateDescriptor("aggregating", Mean(), Types.LIST(Types.LONG())),
    "pickled value": ValueStateDescriptor("pickled value"),
    "pickled map": MapStateDescriptor("pickled map"),
}

#: What is stored under each key but the last, which holds a value alone.
STORED = {
    "value": -(2**63),
    "row": (Decimal("1.10"), date(2024, 2, 29), datetime(2024, 2, 29, 1, 2, 3, 4), 10**30, 0.5),
    "list": ["", "日本", "\U0001f600"],
    "map": {"a": [0.1], "none": None},
    "reducing": 10**25,
    "aggregating": [3, 2],
    "pickled value": {"set": {1, 2}, "tuple": (None, b"\x00")},
    "pickled map": {None: None, (1, "a"): [1.5]},
}

# --- what version 2 has beside -------------------------------------------------------------------------

WINDOW = Types.TUPLE([Types.LONG(), Types.LONG()])
WINDOWS = [(0, 60_000), (60_000, 120_000), (-(2**63), 2**63 - 1)]

WINDOWED = ListStateDescriptor("windowed", Types.STRING())

TTL = StateTtlConfig.new_builder(Duration.of_millis(100_000)).build()

TTL_DESCRIPTORS: dict[str, Any] = {
    "ttl value": ValueStateDescriptor("ttl value", Types.LONG()),
    "ttl list": ListStateDescriptor("ttl list", Types.STRING()),
    "ttl map": MapStateDescriptor("ttl map", Types.STRING(), Types.BIG_INT()),
    "ttl pickled map": MapStateDescriptor("ttl pickled map"),
}
for _descriptor in TTL_DESCRIPTORS.values():
    _descriptor.enable_time_to_live(TTL)

#: What is stored under each key but the last, with the times in ms at which it was written.
TTL_STORED = {
    "ttl value": (1_000, 42),
    "ttl list": [(1_000, "old"), (1_000, ""), (2_000, "\U0001f600")],
    "ttl map": {"a": (1_000, 10**25), "none": (2_000, None)},
    "ttl pickled map": {(1, "a"): (1_000, [1.5]), "none": (2_000, None)},
}

#: The last time at which something was written: all of it is alive then.
NOW = 2_000

TIMERS = "processing_user-timers"
WINDOW_TIMERS = "event_window-timers"

#: The times of the timers of each key; a window's timer fires at its end.
TIMES = [-(2**63), 0, 2**63 - 1]


def put_states(backend: HeapKeyedStateBackend) -> None:
    """Store what version 1 knows."""
    for key in KEYS[:-1]:
        state_of(backend, DESCRIPTORS["value"], key).update(STORED["value"])
        state_of(backend, DESCRIPTORS["row"], key).update(STORED["row"])
        state_of(backend, DESCRIPTORS["list"], key).update(STORED["list"])
        state_of(backend, DESCRIPTORS["map"], key).put_all(STORED["map"])
        state_of(backend, DESCRIPTORS["reducing"], key).add(STORED["reducing"])
        state_of(backend, DESCRIPTORS["aggregating"], key).add(1)
        state_of(backend, DESCRIPTORS["aggregating"], key).add(2)
        state_of(backend, DESCRIPTORS["pickled value"], key).update(STORED["pickled value"])
        state_of(backend, DESCRIPTORS["pickled map"], key).put_all(STORED["pickled map"])
    state_of(backend, DESCRIPTORS["value"], KEYS[-1]).update(7)


def put_windows(backend: HeapKeyedStateBackend) -> None:
    """Store the state that has namespaces."""
    for key in KEYS:
        backend.set_current_key(key)
        for window in WINDOWS:
            backend.get_partitioned_state(WINDOWED, window, WINDOW).add_all(windowed(key, window))


def windowed(key: str, window: tuple[int, int]) -> list[str]:
    """Return what is stored under ``key`` and ``window``."""
    return [key, str(window[0])]


def put_expiring_states(backend: HeapKeyedStateBackend, clock: ManualClock) -> None:
    """Store the states with time to live."""
    for key in KEYS[:-1]:
        clock.now_ms = 1_000
        state_of(backend, TTL_DESCRIPTORS["ttl value"], key).update(42)
        state_of(backend, TTL_DESCRIPTORS["ttl list"], key).add_all(["old", ""])
        state_of(backend, TTL_DESCRIPTORS["ttl map"], key).put("a", 10**25)
        state_of(backend, TTL_DESCRIPTORS["ttl pickled map"], key).put((1, "a"), [1.5])
        clock.now_ms = NOW
        state_of(backend, TTL_DESCRIPTORS["ttl list"], key).add("\U0001f600")
        state_of(backend, TTL_DESCRIPTORS["ttl map"], key).put("none", None)
        state_of(backend, TTL_DESCRIPTORS["ttl pickled map"], key).put("none", None)


def timers() -> set[Timer]:
    """Return the timers without namespaces."""
    return {Timer(time, key) for key in KEYS for time in TIMES}


def window_timers() -> set[Timer]:
    """Return the timers with namespaces."""
    return {Timer(window[1], key, window) for key in KEYS for window in WINDOWS}


def put_timers(backend: HeapKeyedStateBackend) -> None:
    """Add both kinds of timers."""
    plain = backend.create_timer_queue(TIMERS)
    spaced = backend.create_timer_queue(WINDOW_TIMERS, WINDOW)
    for key in KEYS:
        for time in TIMES:
            plain.add(Timer(time, key), backend.key_group_of(key))
        for window in WINDOWS:
            spaced.add(Timer(window[1], key, window), backend.key_group_of(key))


def backend_with_all(*, async_snapshots: bool, clock: ManualClock | None = None) -> HeapKeyedStateBackend:
    """Return a backend that holds what version 2 knows."""
    clock = ManualClock() if clock is None else clock
    backend = make_backend(Types.STRING(), async_snapshots=async_snapshots, clock=clock)
    put_states(backend)
    put_windows(backend)
    put_expiring_states(backend, clock)
    put_timers(backend)
    return backend


# --- what the increment of version 3 has ---------------------------------------------------------------

#: When the increment is taken: nothing of ``TTL_STORED`` has expired.
LATER = 50_000

CHANGED, REMOVED, UNTOUCHED, FEW = KEYS
NEW_KEY = "новый"

#: What has expired of it stays stored, and no snapshot has it.
CLEANED = ValueStateDescriptor("cleaned", Types.STRING())
CLEANED.enable_time_to_live(
    StateTtlConfig.new_builder(Duration.of_millis(10_000))
    .disable_cleanup_in_background()
    .cleanup_full_snapshot()
    .build()
)
LATE = MapStateDescriptor("registered late", Types.LONG(), Types.STRING())

#: What ``change_states`` makes of ``STORED`` under the first key.
CHANGED_STORED = {
    "value": 0,
    "row": (Decimal("-0.01"), date(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59), -1, -0.0),
    "list": ["", "日本", "\U0001f600", "more"],
    "map": {"a": [0.1, 2.5], "none": None, "new": []},
    "reducing": 10**26,
    "aggregating": [13, 3],
    "pickled value": {"set": {1, 2}, "tuple": (None, b"\x00"), "new": [None]},
    "pickled map": {None: "no longer"},
}


def change_states(backend: HeapKeyedStateBackend) -> None:
    """Change all that the first key has, remove all that the second has, and add a key."""
    for descriptor in DESCRIPTORS.values():
        state_of(backend, descriptor, REMOVED).clear()
    for name in ("value", "row", "pickled value"):
        state_of(backend, DESCRIPTORS[name], CHANGED).update(CHANGED_STORED[name])
    state_of(backend, DESCRIPTORS["list"], CHANGED).add("more")
    state_of(backend, DESCRIPTORS["map"], CHANGED).put_all({"a": [0.1, 2.5], "new": []})
    state_of(backend, DESCRIPTORS["reducing"], CHANGED).add(10**26)
    state_of(backend, DESCRIPTORS["aggregating"], CHANGED).add(10)
    pickled_map = state_of(backend, DESCRIPTORS["pickled map"], CHANGED)
    pickled_map.remove((1, "a"))
    pickled_map.put(None, "no longer")
    state_of(backend, DESCRIPTORS["value"], NEW_KEY).update(-1)
    state_of(backend, LATE, NEW_KEY).put(2**62, "late")


def change_windows(backend: HeapKeyedStateBackend) -> None:
    """Remove one window and add to another."""
    backend.set_current_key(CHANGED)
    backend.get_partitioned_state(WINDOWED, WINDOWS[0], WINDOW).clear()
    backend.get_partitioned_state(WINDOWED, WINDOWS[1], WINDOW).add("more")


def change_expiring_states(backend: HeapKeyedStateBackend, clock: ManualClock) -> None:
    """Change and remove some, and leave it to the snapshot to drop another that has expired."""
    state_of(backend, CLEANED, CHANGED).update("dropped")
    clock.now_ms = LATER
    state_of(backend, CLEANED, NEW_KEY).update("kept")
    state_of(backend, TTL_DESCRIPTORS["ttl value"], CHANGED).update(43)
    state_of(backend, TTL_DESCRIPTORS["ttl value"], REMOVED).clear()
    state_of(backend, TTL_DESCRIPTORS["ttl list"], CHANGED).add("new")
    state_of(backend, TTL_DESCRIPTORS["ttl map"], CHANGED).put("a", -1)
    state_of(backend, TTL_DESCRIPTORS["ttl pickled map"], REMOVED).clear()


def change_timers(backend: HeapKeyedStateBackend) -> None:
    """Let the first timers fire, add one, and take away one that was never there when a file was written."""
    plain = backend.create_timer_queue(TIMERS)
    spaced = backend.create_timer_queue(WINDOW_TIMERS, WINDOW)
    while plain.poll(-1) is not None:
        pass
    plain.add(Timer(5, NEW_KEY), backend.key_group_of(NEW_KEY))
    plain.add(Timer(6, NEW_KEY), backend.key_group_of(NEW_KEY))
    plain.remove(Timer(6, NEW_KEY), backend.key_group_of(NEW_KEY))
    spaced.remove(Timer(WINDOWS[0][1], CHANGED, WINDOWS[0]), backend.key_group_of(CHANGED))


def changed_contents() -> dict[str, dict[Any, Any]]:
    """Return what is stored after the increment, by state and entry key."""
    contents: dict[str, dict[Any, Any]] = {
        name: {CHANGED: CHANGED_STORED[name], UNTOUCHED: stored} for name, stored in STORED.items()
    }
    contents["value"] |= {FEW: 7, NEW_KEY: -1}
    contents["registered late"] = {NEW_KEY: {2**62: "late"}}
    contents["windowed"] = {(key, window): windowed(key, window) for key in KEYS for window in WINDOWS}
    del contents["windowed"][CHANGED, WINDOWS[0]]
    contents["windowed"][CHANGED, WINDOWS[1]].append("more")
    for name, stored in TTL_STORED.items():
        contents[name] = {key: deepcopy(stored) for key in KEYS[:-1]}
    contents["ttl value"][CHANGED] = (LATER, 43)
    del contents["ttl value"][REMOVED], contents["ttl pickled map"][REMOVED]
    contents["ttl list"][CHANGED].append((LATER, "new"))
    contents["ttl map"][CHANGED]["a"] = (LATER, -1)
    contents["cleaned"] = {NEW_KEY: (LATER, "kept")}
    return contents


def changed_timers() -> set[Timer]:
    """Return the timers without namespaces after the increment."""
    return {timer for timer in timers() if timer.timestamp_ms >= 0} | {Timer(5, NEW_KEY)}


def changed_window_timers() -> set[Timer]:
    """Return the timers with namespaces after the increment."""
    return window_timers() - {Timer(WINDOWS[0][1], CHANGED, WINDOWS[0])}


def sorted_changes(changes: Changes) -> Changes:
    """Return changes in an order that does not depend on how this process hashes strings."""

    def in_order(group: Any) -> Any:
        keys = sorted(group, key=repr)
        return {change: group[change] for change in keys} if isinstance(group, dict) else keys

    return {name: list(map(in_order, groups)) for name, groups in changes.items()}


# --- files -------------------------------------------------------------------------------------------


@contextmanager
def ordered_maps() -> Iterator[None]:
    """Keep entries in the order in which they are put, however this process hashes strings: in one bucket."""
    with mock.patch.object(
        state_table, "CopyOnWriteStateMap", lambda copy: CopyOnWriteStateMap(copy, 1, 10**9)
    ):
        yield


def make_golden() -> KeyGroupsStateHandle:
    """Return the handle of what the full golden files from version 2 on were written with, written now."""
    with ordered_maps():
        handle = take_snapshot(backend_with_all(async_snapshots=False), compression=None)
    assert handle is not None
    return handle


def make_golden_increment() -> KeyGroupsStateHandle:
    """Return the handle of what the golden increments were written with, written now."""
    clock = ManualClock()
    backend = backend_with_all(async_snapshots=True, clock=clock)
    history = ChangeHistory(backend)
    assert history.cut(1, None) is None
    change_states(backend)
    change_windows(backend)
    change_expiring_states(backend, clock)
    change_timers(backend)
    changes = history.cut(2, 1)
    assert changes is not None
    strategy = HeapSnapshotStrategy(backend, None, sorted_changes(changes))
    handle = strategy.async_snapshot(strategy.sync_prepare_resources(), MemoryStreams(), threading.Event())
    assert handle is not None
    return handle


def write_golden(name: str, handle: KeyGroupsStateHandle) -> None:
    """Write the file and, as JSON, what its handle says, unless they are there."""
    with (GOLDEN / f"state_{name}.bin").open("xb") as file:
        file.write(handle.stream.data)
    with (GOLDEN / f"state_{name}.json").open("x") as file:
        file.write(json.dumps(places(handle), indent=1) + "\n")


def places(handle: KeyGroupsStateHandle) -> dict[str, dict[int, list[int]]]:
    """Return offset, length and checksum of each section."""
    return {
        name: {
            key_group: [section.offset, section.length, section.checksum]
            for key_group, section in groups.items()
        }
        for name, groups in handle.sections.items()
    }


def read_golden(version: int, kind: str = "") -> KeyGroupsStateHandle:
    """Return the handle of the golden file of a format version."""
    name = f"state_v{version}{kind}"
    sections = {
        name: {int(key_group): Section(*place) for key_group, place in groups.items()}
        for name, groups in json.loads((GOLDEN / f"{name}.json").read_text()).items()
    }
    stream = ByteStreamStateHandle((GOLDEN / f"{name}.bin").read_bytes())
    return KeyGroupsStateHandle(KeyGroupRange(0, 127), stream, sections)


def read_golden_chain(version: int) -> KeyGroupsStateHandle:
    """Return the handle of the full golden file of a version, 3 or later, with its increment on top."""
    return attrs.evolve(read_golden(version), increments=(read_golden(version, "_increment"),))


if __name__ == "__main__":
    write_golden(f"v{VERSION}", make_golden())
    write_golden(f"v{VERSION}_increment", make_golden_increment())
