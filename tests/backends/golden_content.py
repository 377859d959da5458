"""What the golden state files hold, one file for each format version.

Version 1 was written by release 0.1.0, which knew no namespaces, no timers and no time to live. The file
of the version that is current now is written by

    python tests/backends/golden_content.py

Never write one again under the same name: a later release must read what an earlier one wrote. A new
format version gets a file of its own beside those that are there.

The bytes of version 2 can be made again: they are not compressed, since each release of zstd compresses
in its own way, and they come from a backend of plain dicts, whose order is that of writing.
"""

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
from backend_support import Mean, make_backend, state_of, take_snapshot

from pyflinkstate.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from pyflinkstate.api.time import Duration
from pyflinkstate.api.ttl import StateTtlConfig
from pyflinkstate.api.types import Types
from pyflinkstate.backends.format.state_file import VERSION
from pyflinkstate.backends.heap.backend import HeapKeyedStateBackend
from pyflinkstate.backends.heap.timer_queue import Timer
from pyflinkstate.backends.key_groups import KeyGroupRange
from pyflinkstate.backends.state_handles import ByteStreamStateHandle, KeyGroupsStateHandle, Section

GOLDEN = Path(__file__).parent / "golden"
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


@attrs.define
class SettableClock:
    """Gives the time that it is set to."""

    now_ms: int = 0

    def __call__(self) -> int:
        return self.now_ms


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


def put_expiring_states(backend: HeapKeyedStateBackend, clock: SettableClock) -> None:
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


def backend_with_all(*, async_snapshots: bool) -> HeapKeyedStateBackend:
    """Return a backend that holds what version 2 knows."""
    clock = SettableClock()
    backend = make_backend(Types.STRING(), async_snapshots=async_snapshots, clock=clock)
    put_states(backend)
    put_windows(backend)
    put_expiring_states(backend, clock)
    put_timers(backend)
    return backend


# --- files -------------------------------------------------------------------------------------------


def make_golden() -> KeyGroupsStateHandle:
    """Return the handle of what the golden file of version 2 was written with, written now."""
    handle = take_snapshot(backend_with_all(async_snapshots=False), compression=None)
    assert handle is not None
    return handle


def write_golden(version: int) -> None:
    """Write the file and, as JSON, what its handle says, unless they are there."""
    handle = make_golden()
    with (GOLDEN / f"state_v{version}.bin").open("xb") as file:
        file.write(handle.stream.data)
    with (GOLDEN / f"state_v{version}.json").open("x") as file:
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


def read_golden(version: int) -> KeyGroupsStateHandle:
    """Return the handle of the golden file of a format version."""
    sections = {
        name: {int(key_group): Section(*place) for key_group, place in groups.items()}
        for name, groups in json.loads((GOLDEN / f"state_v{version}.json").read_text()).items()
    }
    stream = ByteStreamStateHandle((GOLDEN / f"state_v{version}.bin").read_bytes())
    return KeyGroupsStateHandle(KeyGroupRange(0, 127), stream, sections)


if __name__ == "__main__":
    write_golden(VERSION)
