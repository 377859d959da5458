"""The savepoints that Flink wrote have the values that their programs put into them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import flink_golden_values as golden
import pytest

# What reads these files comes with the next change.
pytest.importorskip("pyflinkstate.backends.flink_format")
flink_savepoints = pytest.importorskip("flink_savepoints")

from pyflinkstate import Instant, Row  # noqa: E402, I001
from pyflinkstate.backends.flink_format import operator_id, read_metadata, read_operator_state  # noqa: E402
from pyflinkstate.backends.keys import KeyGroupRange  # noqa: E402

FOLDER = Path(__file__).parent / "golden"
#: What is read nowhere: Python has no year -1, and an object of Kryo has no end that others see.
UNREADABLE = {"local_date", "kryo"}
REFUSED = {f"2.3.0-java-{name}" for name in ("rocksdb-native", "changelog", "unaligned")}
JAVA = sorted({path.name for path in FOLDER.glob("*java*")} - REFUSED)
#: Of these, the operator ``values`` can be read too: natively, an object of Kryo hides what is behind it.
ALL = [name for name in JAVA if name.endswith("-java")]

OTHERS = ("values", "tumbling-process", "sessions-reduce", "count-process", "ended")

#: By operator and state: keys, namespaces and values.
States = dict[tuple[str, str], list[tuple[Any, Any, Any]]]


def plain(value: Any) -> Any:
    """Return a value without classes of this package."""
    if isinstance(value, Row):
        return tuple(plain(field) for field in value)
    if isinstance(value, Instant):
        return (value.seconds, value.nanos)
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value)
    return value


def keyed(name: str, closed: Iterable[str] = ()) -> States:
    """Return the keyed state of a savepoint, of all operators whose uids are not given."""
    files = flink_savepoints.load(FOLDER / name)
    uids = {operator_id(uid): uid for uid in [*golden.SMALL, *golden.LATEST, *OTHERS]}
    found: States = {}
    savepoint = read_metadata(files["_metadata"], name)
    for operator, file in flink_savepoints.keyed_files(
        files, savepoint, {operator_id(uid) for uid in closed}
    ):
        every = KeyGroupRange(0, operator.max_parallelism - 1)
        states = {state.name for state in file.head.states} - UNREADABLE
        for state, entries in file.key_groups(every, states):
            namespaces = entries.namespaces or [None] * len(entries)
            rows = zip(entries.keys, namespaces, entries.values, strict=True)
            found.setdefault((uids[operator.id], state.name), []).extend(rows)
    return found


def by_key(rows: Iterable[tuple[Any, Any, Any]]) -> dict[Any, Any]:
    """Return the values of a state by key."""
    return {plain(key): plain(value) for key, _, value in rows}


@pytest.mark.parametrize("name", ALL)
def test_each_type(name: str) -> None:
    found = keyed(name)
    # Flink 1.20 writes the list of the POJO with Kryo.
    for state in golden.JAVA_VALUES.keys() - ({"pojo"} if name.startswith("1.") else set()):
        first, other = golden.JAVA_VALUES[state]
        values = by_key(found["values", state])
        # As text, since NaN is not equal to itself.
        assert str([values[key] for key in (1, 2, 3)]) == str([first, other, other]), state


@pytest.mark.parametrize("name", JAVA)
def test_each_kind_of_state(name: str) -> None:
    found = keyed(name, closed=["values"])
    for state, expected in golden.JAVA_KINDS.items():
        values = by_key(found["kinds", state])
        assert values == {key: _stamped(state, value) for key, value in expected.items()}, state
    timers = {
        domain: sorted((key, time) for key, _, time in found["kinds", f"_timer_state/{domain}_user-timers"])
        for domain in ("event", "processing")
    }
    assert timers == {"event": sorted(golden.EVENT_TIMERS), "processing": sorted(golden.PROCESSING_TIMERS)}


def _stamped(state: str, value: Any) -> Any:
    """Return a value with the time of its last access if the state has a time to live."""
    if not state.endswith("_ttl"):
        return value
    if isinstance(value, list):
        return [(golden.CLOCK_MS, item) for item in value]
    if isinstance(value, dict):
        return {key: (golden.CLOCK_MS, item) for key, item in value.items()}
    return (golden.CLOCK_MS, value)


@pytest.mark.parametrize("name", JAVA)
def test_windows_in_flight(name: str) -> None:
    found = keyed(name, closed=["values"])
    assert sorted(
        (key, window.start, window.end) for key, window, _ in found["tumbling-reduce", "window-contents"]
    ) == [*golden.TUMBLING]
    assert by_key(found["tumbling-reduce", "window-contents"]) == golden.JAVA_WINDOW_REDUCED
    assert by_key(found["sessions-process", "window-contents"]) == golden.JAVA_WINDOW_LIST
    sessions = [
        (key, *((window.start, window.end) for window in pair))
        for key, _, pairs in found["sessions-process", "merging-window-set"]
        for pair in pairs
    ]
    assert sorted(sessions) == golden.SESSIONS
    if ("count-process", "count") in found:
        assert by_key(found["count-process", "count"]) == golden.JAVA_COUNTS
        for uid, expected in golden.LATEST.items():
            assert by_key(found[uid, "latest"]) == expected


@pytest.mark.parametrize("name", JAVA)
def test_operator_state(name: str) -> None:
    files = flink_savepoints.load(FOLDER / name)
    found: dict[str, list[list[Any]]] = {}
    for operator in read_metadata(files["_metadata"], name).operators:
        for subtask in operator.subtasks.values():
            handle = subtask.operator_state
            if handle is not None and operator.id != operator_id("source of lines"):
                read = flink_savepoints.reader_of(handle.stream, files)
                for state in read_operator_state(handle, read, name):
                    found.setdefault(state.name, []).append([*state.columns])
    assert sorted(line for (lines,) in found["split"] for line in lines) == golden.SPLIT
    assert sum(number for (numbers,) in found["union"] for number in numbers) == golden.UNION_SUM
    for keys, values in found["rules"]:
        assert dict(zip(keys, values, strict=True)) == golden.JAVA_RULES
