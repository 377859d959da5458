"""Keyed state files: what is written is read, by key group, and the bytes are those of Flink's format."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pyarrow as pa
import pytest
from flink_savepoints import Written, read_keyed, write_keyed
from hypothesis import given, settings, strategies as st

from pyflinkstate import Row
from pyflinkstate.api import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    StateKind,
    TimeWindow,
    TimeWindowSerializer,
    TypeInformation,
    Types,
)
from pyflinkstate.backends.flink_format import (
    FlinkState,
    KeyedStateFile,
    KeyedStateHandle,
    KeyedStateHead,
    Stream,
    serializer_of,
)
from pyflinkstate.backends.flink_format.cursor import Reader
from pyflinkstate.backends.flink_format.snappy import decompress
from pyflinkstate.backends.format import KeyGroupEntries
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import (
    VOID_NAMESPACE_TYPE,
    RegisteredQueueMeta,
    RegisteredStateMeta,
    StateMeta,
    TtlTypeInfo,
)
from pyflinkstate.errors import (
    CheckpointError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    StateValueError,
)

LONG, STRING = Types.LONG(), Types.STRING()
ROW = Types.ROW([LONG, STRING, Types.DOUBLE()])

longs = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
numbers = st.floats(allow_nan=False)
rows = st.builds(
    lambda a, b, c: Row(f0=a, f1=b, f2=c), st.none() | longs, st.none() | texts, st.none() | numbers
)
stamped = st.tuples(longs, texts)

#: Types of keys and namespaces, with values: each pair of fixed and varying length.
KEYS: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (LONG, longs),
    (STRING, texts),
    (Types.TUPLE([LONG, Types.INT()]), st.tuples(longs, st.integers(-5, 5))),
    (Types.ROW([STRING]), st.builds(lambda text: Row(f0=text), texts)),
]
NAMESPACES: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (VOID_NAMESPACE_TYPE, st.none()),
    (TimeWindowSerializer(), st.builds(TimeWindow, longs, longs)),
    (CountWindowSerializer(), st.builds(CountWindow, longs)),
    (GlobalWindowSerializer(), st.just(GlobalWindow.get())),
    (STRING, texts),
]
#: The kinds of state and types of what they store.
STORED: list[tuple[StateKind | None, TypeInformation, st.SearchStrategy[Any]]] = [
    (StateKind.VALUE, LONG, longs),
    (StateKind.VALUE, ROW, rows),
    (StateKind.VALUE, TtlTypeInfo(STRING), stamped),
    (StateKind.VALUE, Types.LIST(STRING), st.lists(texts)),
    (StateKind.REDUCING, STRING, texts),
    (StateKind.AGGREGATING, Types.TUPLE([LONG, LONG]), st.tuples(longs, longs)),
    (StateKind.LIST, Types.LIST(STRING), st.lists(texts, min_size=1)),
    (StateKind.LIST, Types.LIST(TtlTypeInfo(STRING)), st.lists(stamped, min_size=1)),
    (StateKind.MAP, Types.MAP(STRING, LONG), st.dictionaries(texts, st.none() | longs, min_size=1)),
    (StateKind.MAP, Types.MAP(LONG, TtlTypeInfo(STRING)), st.dictionaries(longs, stamped, min_size=1)),
    (None, LONG, longs),
]


def meta(name: str, kind: StateKind | None, stored: TypeInformation, namespace: TypeInformation) -> StateMeta:
    if kind is None:
        return RegisteredQueueMeta(name, namespace)
    return RegisteredStateMeta(name, kind, stored, namespace)


@st.composite
def drawn_states(draw: st.DrawFn) -> tuple[KeyedStateHead, list[list[KeyGroupEntries]], int]:
    """Draw a head, the entries of each state by key group, and a max parallelism."""
    max_parallelism = draw(st.sampled_from([1, 128, 129, 300]))
    key_type, keys = draw(st.sampled_from(KEYS))
    key, states, contents = serializer_of(key_type), [], []
    for number in range(draw(st.integers(1, 3))):
        kind, stored, values = draw(st.sampled_from(STORED))
        namespace, namespaces = draw(st.sampled_from(NAMESPACES))
        states.append(FlinkState.of(meta(f"state {number}", kind, stored, namespace), key))
        groups = sorted(draw(st.sets(st.integers(0, max_parallelism - 1), max_size=3)))
        entries = st.lists(
            st.tuples(keys, namespaces, values),
            min_size=1,
            max_size=4,
            unique_by=lambda entry: repr(entry[:2]),
        )
        content = []
        for key_group in groups:
            columns = [list(column) for column in zip(*draw(entries), strict=True)]
            is_void = namespace == VOID_NAMESPACE_TYPE
            content.append(
                KeyGroupEntries(key_group, columns[0], None if is_void else columns[1], columns[2])
            )
        contents.append(content)
    return KeyedStateHead(key, tuple(states)), contents, max_parallelism


@settings(max_examples=200)
@given(drawn_states())
def test_what_is_written_is_read(
    drawn: tuple[KeyedStateHead, list[list[KeyGroupEntries]], int],
) -> None:
    head, contents, max_parallelism = drawn
    written = write_keyed(head, contents, max_parallelism)
    found: dict[str, list[KeyGroupEntries]] = {state.name: [] for state in head.states}
    for state, entries in read_keyed(written, max_parallelism):
        found[state.name].append(entries)
    assert [*found.values()] == contents
    assert KeyedStateHead.decode(Reader(head.encode())) == head


def counts(*entries: KeyGroupEntries) -> Written:
    state = FlinkState.of(RegisteredStateMeta("count", StateKind.VALUE, LONG), serializer_of(LONG))
    return write_keyed(KeyedStateHead(serializer_of(LONG), (state,)), [[*entries]], 128)


def test_the_bytes_of_a_canonical_file() -> None:
    written = counts(KeyGroupEntries(86, [1, 5], None, [7, -1]))
    begin, end = written.handle.section(86)
    assert written.data[begin:end].hex(" ") == (
        "00 00"  # the number of the state
        " 00 00 00 0a 56 00 00 00 00 00 00 00 01 00 00 00 00 08 00 00 00 00 00 00 00 07"
        " 00 00 00 0a d6 00 00 00 00 00 00 00 05 00 00 00 00 08 ff ff ff ff ff ff ff ff"
        " ff ff"
    )
    assert written.data[:14].hex(" ") == "00 00 00 06 00 00 00 00 02 00 50 6f 72 67"
    assert written.handle.offsets == (*[0] * 86, begin, *[0] * 41)


def test_a_key_and_a_namespace_of_varying_length_have_lengths() -> None:
    state = FlinkState.of(RegisteredStateMeta("s", StateKind.VALUE, LONG, STRING), serializer_of(STRING))
    head = KeyedStateHead(serializer_of(STRING), (state,))
    written = write_keyed(head, [[KeyGroupEntries(3, ["key"], ["x" * 300], [1])]], 1000)
    begin, _ = written.handle.section(3)
    key = written.data[begin + 6 : begin + 6 + int.from_bytes(written.data[begin + 2 : begin + 6], "big")]
    assert key == b"\x80\x03" + b"\x04key" + b"\x04" + b"\xad\x02" + b"x" * 300 + (302).to_bytes(2, "little")
    assert read_keyed(written, 1000)[0][1].namespaces == ["x" * 300]


def test_empty_lists_and_maps_are_not_written() -> None:
    metas = [
        RegisteredStateMeta("list", StateKind.LIST, Types.LIST(LONG)),
        RegisteredStateMeta("map", StateKind.MAP, Types.MAP(LONG, LONG)),
    ]
    key = serializer_of(LONG)
    head = KeyedStateHead(key, tuple(FlinkState.of(one, key) for one in metas))
    empty = [[KeyGroupEntries(1, [1], None, [[]])], [KeyGroupEntries(2, [1, 2], None, [{}, {3: 4}])]]
    written = write_keyed(head, empty, 128)
    assert [(state.name, entries.values) for state, entries in read_keyed(written, 128)] == [
        ("map", [{3: 4}])
    ]
    assert written.handle.offsets[1] == 0


def test_only_the_key_groups_that_are_wanted_are_read() -> None:
    written = counts(*[KeyGroupEntries(key_group, [key_group], None, [1]) for key_group in range(128)])
    asked: list[tuple[int, int]] = []

    def read(offset: int, length: int) -> bytes:
        asked.append((offset, length))
        return written.data[offset : offset + length]

    file = KeyedStateFile.open(written.handle, read, "a file", 128)
    found = [entries.keys for _, entries in file.key_groups(KeyGroupRange(60, 61))]
    assert found == [[60], [61]]
    assert asked == [
        (0, written.handle.offsets[0]),
        *[(begin, end - begin) for begin, end in map(written.handle.section, (60, 61))],
    ]


def test_unwanted_states_are_skipped() -> None:
    key = serializer_of(LONG)
    metas = [RegisteredStateMeta(name, StateKind.VALUE, LONG) for name in "abc"]
    head = KeyedStateHead(key, tuple(FlinkState.of(one, key) for one in metas))
    written = write_keyed(head, [[KeyGroupEntries(1, [1, 2], None, [n, n])] for n in range(3)], 128)
    file = KeyedStateFile.open(written.handle, lambda at, size: written.data[at : at + size], "a file", 128)
    every = KeyGroupRange(0, 127)
    for wanted in ({"a"}, {"b"}, {"c"}, {"a", "c"}, set[str]()):
        assert {state.name for state, _ in file.key_groups(every, wanted)} == wanted


@pytest.mark.parametrize(
    ("stored", "value"),
    [(LONG, "text"), (LONG, 2**63), (LONG, None), (STRING, 1), (Types.TUPLE([LONG]), (1, 2)), (ROW, Row(1))],
)
def test_a_value_that_does_not_fit_is_named(stored: TypeInformation, value: object) -> None:
    state = FlinkState.of(RegisteredStateMeta("count", StateKind.VALUE, stored), serializer_of(LONG))
    with pytest.raises(StateValueError, match="state 'count': a key or value does not fit Flink's") as caught:
        write_keyed(
            KeyedStateHead(serializer_of(LONG), (state,)), [[KeyGroupEntries(1, [1], None, [value])]], 128
        )
    assert caught.value.context == {"state": "count"}


def test_a_large_float_is_infinite_as_in_java() -> None:
    state = FlinkState.of(RegisteredStateMeta("f", StateKind.VALUE, Types.FLOAT()), serializer_of(LONG))
    entries = KeyGroupEntries(1, [1, 2], None, [1e300, -1e300])
    written = write_keyed(KeyedStateHead(serializer_of(LONG), (state,)), [[entries]], 128)
    assert read_keyed(written, 128)[0][1].values == [math.inf, -math.inf]


@pytest.mark.parametrize(
    ("at", "new", "problem"),
    [
        (0, "0001", r"its content makes no sense \(IndexError"),
        (2, "7fffffff", r"state 'count': at byte \d+: 2147483647 bytes are needed, and \d+ are left"),
        (2, "ffffffff", r"4294967295 bytes are needed"),
        (2, "00000009", r"state 'count': at byte \d+: 1 bytes are needed, and 0 are left"),
        (6, "57", r"a key of another key group than 86"),
        (16, "00000007", r"8 bytes are needed, and 7 are left"),
        (16, "00000009", r"1 bytes are left, which no value needs"),
        (54, "fffe", r"its content makes no sense \(IndexError"),
    ],
)
def test_a_changed_key_group_is_an_error(at: int, new: str, problem: str) -> None:
    written = counts(KeyGroupEntries(86, [1, 5], None, [7, -1]))
    begin, _ = written.handle.section(86)
    data = bytearray(written.data)
    change = bytes.fromhex(new)
    data[begin + at : begin + at + len(change)] = change
    with pytest.raises(CorruptCheckpointError, match=problem) as caught:
        read_keyed(attrs.evolve(written, data=bytes(data)), 128)
    assert str(caught.value).startswith("a file, key group 86: ")


def test_every_shorter_file_is_an_error() -> None:
    written = counts(KeyGroupEntries(86, [1, 5], None, [7, -1]))
    for size in range(len(written.data)):
        with pytest.raises(CorruptCheckpointError):
            read_keyed(attrs.evolve(written, data=written.data[:size]), 128)


# --- native and compressed files ---------------------------------------------------------------------------


def native(is_compressed: bool) -> Written:
    """Return a native file with a value and a timer in the second of two key groups."""
    key = serializer_of(LONG)
    metas = [RegisteredStateMeta("count", StateKind.VALUE, LONG), RegisteredQueueMeta("timers")]
    head = KeyedStateHead(key, tuple(FlinkState.of(one, key) for one in metas)).encode()
    head = head[:4] + bytes([is_compressed]) + head[5:]
    empty = ["0000 00000000", "0001 00000000"]
    one, minus_one = f"{1:016x}", f"{(1 << 64) - 1:016x}"
    some = [f"0000 00000001 00 {one} {minus_one}", f"0001 00000001 80000000000003e7 {one} 00"]
    data, offsets = head, []
    for key_group, states in enumerate([empty, some]):
        offsets.append(len(data))
        data += key_group.to_bytes(4, "big")
        for state in states:
            content = bytes.fromhex(state)
            data += framed(content) if is_compressed else content
    stream = Stream("native", len(data))
    return Written(data, KeyedStateHandle(KeyGroupRange(0, 1), tuple(offsets), stream, is_canonical=False))


def framed(content: bytes, is_compressed: bool = True) -> bytes:
    """Return bytes as one stream of Snappy's framing format."""
    packed = pa.compress(content, codec="snappy", asbytes=True) if is_compressed else content
    chunk = b"1234" + packed  # the checksum is ignored
    begin = b"\xff\x06\x00\x00sNaPpY"
    padding = b"\xfe\x02\x00\x00ab"
    return begin + bytes([not is_compressed]) + len(chunk).to_bytes(3, "little") + chunk + padding


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_native_file_is_read(is_compressed: bool) -> None:
    written = native(is_compressed)
    assert [(state.name, entries) for state, entries in read_keyed(written, 2)] == [
        ("count", KeyGroupEntries(1, [1], None, [-1])),
        ("timers", KeyGroupEntries(1, [1], None, [999])),
    ]
    broken = attrs.evolve(written, data=written.data[:-3])
    with pytest.raises(CorruptCheckpointError, match=r"a file, key group 1: .*at byte"):
        read_keyed(broken, 2)


def test_frames_are_decompressed_and_checked() -> None:
    content = bytes(range(256)) * 100
    frames = framed(content) + framed(b"more", is_compressed=False)
    assert decompress(Reader(frames)) == content + b"more"
    for size in (1, 9, 11, 13, 20, len(frames) - 1):
        with pytest.raises((CheckpointError, OSError)):
            decompress(Reader(frames[:size]))
    with pytest.raises(CorruptCheckpointError, match="a chunk of 65537 bytes"):
        decompress(Reader(framed(bytes(65537))))
    with pytest.raises(CorruptCheckpointError, match="unknown type 2"):
        decompress(Reader(b"\x02\0\0\0"))


def test_a_file_of_another_version_or_with_an_unknown_key_is_refused() -> None:
    written = counts(KeyGroupEntries(86, [1], None, [7]))
    with pytest.raises(CorruptCheckpointError, match=r"a file: .*does not begin as keyed state"):
        read_keyed(attrs.evolve(written, data=b"\0\0\0\5" + written.data[4:]), 128)
    other = written.data.replace(
        b"LongSerializer$LongSerializerSnapshot", b"LongSerializer$LongSerializerSnapsho_"
    )
    with pytest.raises(IncompatibleCheckpointError, match="Flink's LongSerializer is not known here"):
        read_keyed(attrs.evolve(written, data=other), 128)
