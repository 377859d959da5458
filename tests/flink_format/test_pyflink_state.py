"""State of PyFlink in both modes: what real programs wrote, and what is written for them."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal
from typing import Any

import attrs
import pytest
from flink_savepoints import FOLDERS, keyed_files, load, read_keyed, write_keyed

from pyflinkstate import Instant, Row
from pyflinkstate.api import StateKind, TimeWindow, TimeWindowSerializer, TypeInformation, Types
from pyflinkstate.backends.flink_format import (
    Coder,
    FlinkState,
    KeyedStateFile,
    KeyedStateHead,
    operator_id,
    read_metadata,
    read_operator_state,
    serializer_of,
)
from pyflinkstate.backends.format import KeyGroupEntries
from pyflinkstate.backends.types import RegisteredQueueMeta, RegisteredStateMeta, StateMeta, TtlTypeInfo
from pyflinkstate.errors import ConfigurationError, CorruptCheckpointError, StateValueError
from pyflinkstate.state_access.flink.shapes import PROCESS, THREAD, with_plain_keys, with_row_keys

LONG, STRING, PICKLED = Types.LONG(), Types.STRING(), Types.PICKLED_BYTE_ARRAY()
PAIR = Types.TUPLE([LONG, LONG])
ROW_KEY = serializer_of(PROCESS.key_type(LONG))
NOW = 1_700_000_000_000

#: The values that tests/flink_format/programs/golden_pyflink.py writes, for key 1 and for all others.
VALUES: dict[str, tuple[TypeInformation, Any, Any]] = {
    "boolean": (Types.BOOLEAN(), True, False),
    "byte": (Types.BYTE(), 127, -128),
    "short": (Types.SHORT(), 32767, -32768),
    "int": (Types.INT(), 2**31 - 1, -(2**31)),
    "long": (LONG, 2**63 - 1, -(2**63)),
    "float": (Types.FLOAT(), 1.5, -0.25),
    "double": (Types.DOUBLE(), 1e300, -0.1),
    "string": (STRING, "naïve € 😀", ""),
    "char": (Types.CHAR(), "€", "a"),
    "big_int": (Types.BIG_INT(), 2**62, -1),
    "big_dec": (Types.BIG_DEC(), Decimal("12345.678900000000000000"), Decimal("-0.000000000000000001")),
    "date": (Types.SQL_DATE(), datetime.date(2024, 2, 29), datetime.date(1969, 12, 31)),
    "time": (Types.SQL_TIME(), datetime.time(23, 59, 59, 999000), datetime.time(0, 0)),
    "timestamp": (
        Types.SQL_TIMESTAMP(),
        datetime.datetime(2024, 2, 29, 12, 30, 0, 123000),
        datetime.datetime(1970, 1, 1),
    ),
    "instant": (Types.INSTANT(), Instant(1700000000, 5), Instant(-1, 999999999)),
    "bytes": (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x00\xff", b""),
    "longs": (Types.PRIMITIVE_ARRAY(LONG), [1, -1], []),
    "strings": (Types.BASIC_ARRAY(STRING), ["a", "", "€"], []),
    "list": (Types.LIST(LONG), [1, 2], []),
    "map": (Types.MAP(STRING, LONG), {"a": 1}, {}),
    "tuple": (Types.TUPLE([LONG, STRING]), (1, "a"), (-1, "")),
    "row": (Types.ROW([LONG, STRING]), Row(f0=1, f1=None), Row(f0=None, f1="a")),
    "row_named": (
        Types.ROW_NAMED(["id", "name"], [LONG, STRING]),
        Row(id=1, name=None),
        Row(id=None, name="a"),
    ),
}

#: The states of its operator ``kinds``, and what they hold for key 1.
KINDS: dict[str, tuple[StateKind, TypeInformation, Any]] = {
    "value": (StateKind.VALUE, LONG, 4000),
    "value_ttl": (StateKind.VALUE, TtlTypeInfo(LONG), (NOW, 4000)),
    "list": (StateKind.LIST, Types.LIST(LONG), [1000, 4000]),
    "list_ttl": (StateKind.LIST, Types.LIST(TtlTypeInfo(LONG)), [(NOW, 1000), (NOW, 4000)]),
    "map": (StateKind.MAP, Types.MAP(STRING, LONG), {"a": 4000}),
    "map_ttl": (StateKind.MAP, Types.MAP(STRING, TtlTypeInfo(LONG)), {"a": (NOW, 4000)}),
    "reducing": (StateKind.REDUCING, LONG, 5000),
    "reducing_ttl": (StateKind.REDUCING, TtlTypeInfo(LONG), (NOW, 5000)),
    "aggregating": (StateKind.AGGREGATING, PAIR, (5000, 2)),
    "aggregating_ttl": (StateKind.AGGREGATING, TtlTypeInfo(PAIR), (NOW, (5000, 2))),
}


def meta_of(name: str, kind: StateKind, stored: TypeInformation) -> RegisteredStateMeta:
    return RegisteredStateMeta(name, kind, stored)


def operator_file(folder: str, uid: str) -> KeyedStateFile:
    if folder not in FOLDERS:
        pytest.skip(f"there is no golden savepoint {folder}")
    files = load(FOLDERS[folder])
    found = keyed_files(files, read_metadata(files["_metadata"], folder))
    (file,) = [file for operator, file in found if operator.id == operator_id(uid)]
    return file


def states_of(file: KeyedStateFile, name: str) -> list[tuple[FlinkState, KeyGroupEntries]]:
    return list(file.key_groups(file.handle.key_groups, {name}))


@pytest.mark.parametrize("folder", ["2.3.0-process", "2.3.0-process-native"])
@pytest.mark.parametrize("name", VALUES)
def test_values_of_process_mode(folder: str, name: str) -> None:
    stored, first, other = VALUES[name]
    meta = meta_of(name, StateKind.VALUE, stored)
    found = states_of(operator_file(folder, "values"), f"python-state-{name}")
    values = {}
    for state, entries in found:
        assert state == PROCESS.state(meta, ROW_KEY)
        read = PROCESS.arriving(meta, entries)
        values.update(zip(read.keys, read.values, strict=True))
        assert PROCESS.leaving(meta, read) == entries
    assert values == {1: first, 2: other, 3: other}


@pytest.mark.parametrize("folder", ["2.3.0-process", "2.3.0-process-native"])
@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_process_mode(folder: str, name: str) -> None:
    kind, stored, expected = KINDS[name]
    meta = meta_of(name, kind, stored)
    for state, entries in states_of(operator_file(folder, "kinds"), f"python-state-{name}"):
        assert state == PROCESS.state(meta, ROW_KEY)
        read = PROCESS.arriving(meta, entries)
        assert PROCESS.arriving(meta, PROCESS.leaving(meta, read)) == read
        if read.keys == [1]:
            (value,) = read.values
            assert {**value, **expected} == value if isinstance(value, dict) else value == expected


@pytest.mark.parametrize("name", ["pickled_value", "pickled_list_ttl"])
def test_pickles_stay_bytes(name: str) -> None:
    kind, _, expected = KINDS[name.removeprefix("pickled_")]
    pickled = {"value": PICKLED, "list_ttl": Types.LIST(TtlTypeInfo(PICKLED))}[name.removeprefix("pickled_")]
    for _, entries in states_of(operator_file("2.3.0-process", "kinds"), f"python-state-{name}"):
        read = PROCESS.arriving(meta_of(name, kind, pickled), entries)
        if read.keys == [1]:
            (value,) = read.values
            loaded = (
                pickle.loads(value)
                if kind is StateKind.VALUE
                else [(at, pickle.loads(one)) for at, one in value]
            )
            assert loaded == expected


THREAD_VALUES = {
    name: value
    for name, value in VALUES.items()
    if value[0].kind
    in {"BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "STRING", "CHAR", "BIG_DEC"}
}


@pytest.mark.parametrize("folder", ["2.3.0-thread", "2.3.0-thread-native"])
@pytest.mark.parametrize("name", THREAD_VALUES)
def test_values_of_thread_mode(folder: str, name: str) -> None:
    stored, first, other = THREAD_VALUES[name]
    values = {}
    for state, entries in states_of(operator_file(folder, "values"), name):
        assert state == THREAD.state(meta_of(name, StateKind.VALUE, stored), ROW_KEY)
        plain = with_plain_keys(entries)
        assert with_row_keys(plain) == entries
        values.update(zip(plain.keys, plain.values, strict=True))
    assert values == {1: first, 2: other, 3: other}


@pytest.mark.parametrize("name", [name for name in KINDS if "aggregating" not in name])
def test_kinds_of_thread_mode(name: str) -> None:
    kind, stored, expected = KINDS[name]
    found = states_of(operator_file("2.3.0-thread", "kinds"), name)
    assert {state for state, _ in found} == {THREAD.state(meta_of(name, kind, stored), ROW_KEY)}
    assert [entries.values for _, entries in found if with_plain_keys(entries).keys == [1]] == [[expected]]


def test_tuples_of_thread_mode_are_pickles() -> None:
    found = states_of(operator_file("2.3.0-thread", "kinds"), "aggregating")
    meta = meta_of("aggregating", StateKind.AGGREGATING, PAIR)
    assert THREAD.state(meta, ROW_KEY).value.snapshot() == found[0][0].value.snapshot()
    assert [pickle.loads(entries.values[0]) for _, entries in found if entries.keys[0][0] == 1] == [(5000, 2)]


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_windows_and_timers(mode: str) -> None:
    file = operator_file(f"2.3.0-{mode}", "tumbling-reduce")
    make = PROCESS.state if mode == "process" else THREAD.state
    metas: list[StateMeta] = [
        RegisteredStateMeta("window-contents", StateKind.REDUCING, PAIR, TimeWindowSerializer()),
        *[
            RegisteredQueueMeta(
                f"_timer_state/{domain}_{'user' if mode == 'process' else 'window'}-timers",
                TimeWindowSerializer(),
            )
            for domain in ("processing", "event")
        ],
    ]
    expected = [make(meta, ROW_KEY) for meta in metas]
    assert [head.snapshot() for head in (state.value for state in file.head.states)] == [
        state.value.snapshot() for state in expected
    ]
    assert [(state.name, state.kind, state.namespace) for state in file.head.states] == [
        (state.name, state.kind, state.namespace) for state in expected
    ]
    contents = file.head.states[0].name
    if mode == "process":
        for _, entries in states_of(file, contents):
            read = PROCESS.arriving(metas[0], entries)
            assert read.namespaces == [TimeWindow(0, 10000)]
            assert read.values in [[(5000, 1)], [(2000, 2)], [(3000, 3)]]


def test_broadcast_state_of_process_mode() -> None:
    if "2.3.0-process" not in FOLDERS:
        pytest.skip("there is no golden savepoint")
    files = load(FOLDERS["2.3.0-process"])
    savepoint = read_metadata(files["_metadata"], "_metadata")
    (operator,) = [one for one in savepoint.operators if one.id == operator_id("broadcast-without-key")]
    handle = operator.subtasks[0].operator_state
    assert handle is not None
    (state,) = read_operator_state(handle, lambda at, size: handle.stream.data[at : at + size], "state")
    keys, values = state.columns
    assert [Coder(STRING).decode(key) for key in keys] == [["1"], ["2"], ["3"]]
    assert [Coder(LONG).decode(value) for value in values] == [[4000], [2000], [3000]]


def test_what_is_written_for_process_mode_is_read() -> None:
    metas: list[StateMeta] = [meta_of(name, kind, stored) for name, (kind, stored, _) in KINDS.items()]
    metas.append(RegisteredQueueMeta("_timer_state/event_user-timers"))
    contents = [expected for _, _, expected in KINDS.values()] + [10]
    head = KeyedStateHead(ROW_KEY, tuple(PROCESS.state(meta, ROW_KEY) for meta in metas))
    plain = [KeyGroupEntries(44, [1], None, [content]) for content in contents]
    written = write_keyed(head, [[PROCESS.leaving(*pair)] for pair in zip(metas, plain, strict=True)], 128)
    by_name = {state.name: meta for state, meta in zip(head.states, metas, strict=True)}
    found = {
        state.name: PROCESS.arriving(by_name[state.name], entries)
        for state, entries in read_keyed(written, 128)
    }
    assert [found[state.name] for state in head.states] == plain


def test_bytes_of_another_type_are_an_error() -> None:
    entries = KeyGroupEntries(1, [Row(f0=1)], None, [[b"\0\0\0\1"]])
    with pytest.raises(
        CorruptCheckpointError, match="state 'count': at byte 0: 8 bytes are needed, and 4 are left"
    ):
        PROCESS.arriving(meta_of("count", StateKind.VALUE, LONG), entries)
    with pytest.raises(
        StateValueError, match="state 'count': a key or value does not fit Flink's PyFlink's coder"
    ):
        PROCESS.leaving(meta_of("count", StateKind.VALUE, LONG), attrs.evolve(entries, values=["text"]))


def test_a_type_that_thread_mode_has_not_is_refused() -> None:
    for stored in (Types.ROW([LONG]), Types.LIST(LONG), Types.SQL_DATE(), Types.BIG_INT()):
        with pytest.raises(ConfigurationError, match=r"cannot keep .* in thread mode"):
            THREAD.state(meta_of("s", StateKind.VALUE, stored), ROW_KEY)
