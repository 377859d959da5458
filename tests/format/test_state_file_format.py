"""The bytes of a state file: golden ones, and what a reader that is not ours makes of them."""

import json
import struct
import zlib

import attrs
import pyarrow as pa
import pytest
from backend_support import entries, make_backend, restore, state_of, take_snapshot
from golden_content import (
    DESCRIPTORS,
    KEYS,
    NOW,
    STORED,
    TIMERS,
    TTL_DESCRIPTORS,
    TTL_STORED,
    WINDOW,
    WINDOW_TIMERS,
    WINDOWED,
    WINDOWS,
    backend_with_all,
    changed_contents,
    changed_timers,
    changed_window_timers,
    make_golden,
    make_golden_increment,
    ordered_maps,
    read_golden,
    read_golden_chain,
    timers,
    window_timers,
    windowed,
)

from pyflinkstate.api import (
    ExternalTypeInfo,
    ListStateDescriptor,
    LocalTimeTypeInfo,
    MapStateDescriptor,
    StateKind,
    TypeInformation,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import framing
from pyflinkstate.backends.format.state_file import STATE_FILE_VERSIONS, VERSION, StateFileHead
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types.internal_types import TtlTypeInfo
from pyflinkstate.backends.types.migration import RegisteredQueueMeta, RegisteredStateMeta
from pyflinkstate.backends.types.table import arrow_type, type_from_json, type_to_json
from pyflinkstate.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
)

MAGIC = b"TESTTEST"
LONG, STRING = Types.LONG(), Types.STRING()

# magic, version 1, 13 bytes of JSON, CRC-32.
GOLDEN_HEAD = bytes.fromhex("5445535454455354 0001 0000000d") + b'{"a":[1,"b"]}' + bytes.fromhex("643043d1")

GOLDEN_STATE_HEAD = (
    b"PFSSTATE\x00\x05\x00\x00\x01\x71"
    b'{"key_type":"STRING","key_groups":[0,63],"max_parallelism":128,"states":['
    b'{"name":"count","kind":"VALUE","type":["TTL","LONG"]},'
    b'{"name":"\\u00e9","kind":"MAP","type":["MAP","STRING","PICKLED"],"namespace":["TUPLE","LONG"]},'
    b'{"name":"_timer_state/a","kind":"PRIORITY_QUEUE","type":"LONG"},'
    b'{"name":"_timer_state/b","kind":"PRIORITY_QUEUE","type":"LONG","namespace":"LONG"}]}'
)

HEAD = StateFileHead(
    STRING,
    KeyGroupRange(0, 63),
    128,
    (
        RegisteredStateMeta("count", StateKind.VALUE, TtlTypeInfo(LONG)),
        RegisteredStateMeta(
            "é", StateKind.MAP, Types.MAP(STRING, Types.PICKLED_BYTE_ARRAY()), Types.TUPLE([LONG])
        ),
        RegisteredQueueMeta("_timer_state/a"),
        RegisteredQueueMeta("_timer_state/b", LONG),
    ),
)


@pytest.fixture(params=[True, False], ids=["asynchronous", "synchronous"])
def async_snapshots(request):
    return request.param


class TestFraming:
    @pytest.mark.parametrize("position", [8, 9])
    def test_an_altered_version_is_damage(self, position):
        damaged = bytearray(GOLDEN_HEAD)
        damaged[position] ^= 0x80
        with pytest.raises(
            CorruptCheckpointError, match=r"f is damaged: its head was altered\. It has format version \d+,"
        ):
            framing.decode_head(bytes(damaged), MAGIC, {1}, "f")

    def test_a_version_that_is_no_longer_read_is_refused_too(self):
        with pytest.raises(IncompatibleCheckpointError, match="f has format version 1"):
            framing.decode_head(GOLDEN_HEAD, MAGIC, {2, 3}, "f")


class TestStateFileHead:
    def test_its_bytes(self):
        encoded = HEAD.encode()
        assert encoded[:-4] == GOLDEN_STATE_HEAD
        assert encoded[-4:] == struct.pack(">I", zlib.crc32(GOLDEN_STATE_HEAD))

    def test_it_comes_back(self):
        assert StateFileHead.decode(HEAD.encode(), "f") == HEAD
        assert not HEAD.is_increment

    def test_the_head_of_an_increment_says_so(self):
        head = attrs.evolve(HEAD, is_increment=True)
        content = GOLDEN_STATE_HEAD[14:-1] + b',"increment":true}'
        assert head.encode()[:-4] == GOLDEN_STATE_HEAD[:10] + struct.pack(">I", len(content)) + content
        assert StateFileHead.decode(head.encode(), "f") == head


class TestTypesInTheHead:
    @pytest.mark.parametrize(
        ("type_info", "spec"),
        [
            (Types.LONG(), "LONG"),
            (Types.PRIMITIVE_ARRAY(Types.BYTE()), "BYTES"),
            (Types.PICKLED_BYTE_ARRAY(), "PICKLED"),
            (Types.LIST(Types.LIST(STRING)), ["LIST", ["LIST", "STRING"]]),
            (Types.MAP(STRING, Types.SQL_DATE()), ["MAP", "STRING", "SQL_DATE"]),
            (Types.TUPLE([STRING, Types.BIG_INT()]), ["TUPLE", "STRING", "BIG_INT"]),
            (Types.TUPLE([]), ["TUPLE"]),
            (Types.INSTANT(), "INSTANT"),
            (LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_TIME), "LOCAL_TIME"),
            (Types.PRIMITIVE_ARRAY(LONG), ["PRIMITIVE_ARRAY", "LONG"]),
            (Types.BASIC_ARRAY(STRING), ["BASIC_ARRAY", "STRING"]),
            (Types.OBJECT_ARRAY(Types.LIST(LONG)), ["OBJECT_ARRAY", ["LIST", "LONG"]]),
            (Types.ROW([LONG]), ["ROW", ["f0"], "LONG"]),
            (Types.ROW_NAMED(["a", "b"], [LONG, Types.ROW([])]), ["ROW", ["a", "b"], "LONG", ["ROW", []]]),
            (ExternalTypeInfo(STRING), ["EXTERNAL", "STRING"]),
            (TtlTypeInfo(STRING), ["TTL", "STRING"]),
            (Types.LIST(TtlTypeInfo(Types.LIST(LONG))), ["LIST", ["TTL", ["LIST", "LONG"]]]),
        ],
        ids=str,
    )
    def test_a_type_is_written_so_and_comes_back(self, type_info, spec):
        assert type_to_json(type_info) == spec
        assert type_from_json(json.loads(json.dumps(spec))) == type_info

    @pytest.mark.parametrize(
        "spec",
        ["STRINGS", None, 7, [], ["SET", "LONG"], {"LIST": "LONG"}, [7, "LONG"], "ROW", "LIST"],
        ids=repr,
    )
    def test_a_type_that_is_unknown_is_of_another_release(self, spec):
        with pytest.raises(IncompatibleCheckpointError, match="a type that this release does not know"):
            type_from_json(spec)

    def test_a_type_of_the_users_own_making_is_refused(self):
        class Own(TypeInformation):
            """Another TypeInformation."""

        for refused in (arrow_type, type_to_json):
            with pytest.raises(ConfigurationError, match="Types"):
                refused(Own())


def head_of(handle):
    """Return the JSON of a state file's head."""
    (length,) = struct.unpack_from(">I", handle.stream.data, 10)
    return handle.stream.data[14 : 14 + length]


def assert_states_of_version_1(backend):
    for key in KEYS[:-1]:
        for name, stored in STORED.items():
            assert dict(entries(backend, name))[key] == stored
    assert state_of(backend, DESCRIPTORS["value"], KEYS[-1]).value() == 7


def test_every_readable_version_has_a_golden_file():
    for version in STATE_FILE_VERSIONS:
        assert read_golden(version).stream.data[:10] == b"PFSSTATE" + version.to_bytes(2, "big")


class TestGoldenFileOfVersion1:
    def test_what_release_0_1_0_wrote_is_read(self, async_snapshots):
        backend = restore([read_golden(1)], STRING, async_snapshots=async_snapshots)
        assert_states_of_version_1(backend)
        assert backend.num_key_value_state_entries() == len(STORED) * (len(KEYS) - 1) + 1

    def test_its_states_are_those_of_the_descriptors(self):
        backend = restore([read_golden(1)], STRING)
        for descriptor in DESCRIPTORS.values():
            backend.set_current_key("flink")
            backend.get_partitioned_state(descriptor)
        assert set(backend.registered_kv_states) == set(DESCRIPTORS)
        assert backend.get_partitioned_state(DESCRIPTORS["aggregating"]).get() == 1.5

    def test_this_release_writes_the_same_head_but_for_the_version(self):
        handle = read_golden(1)
        again = take_snapshot(restore([handle], STRING))
        assert head_of(again) == head_of(handle)
        assert (handle.stream.data[8:10], again.stream.data[8:10]) == (b"\x00\x01", b"\x00\x05")


@pytest.mark.parametrize("version", [2, 3, 4, 5])
class TestFullGoldenFilesFromVersion2:
    """They have namespaces, timers and time to live beside what version 1 has."""

    @pytest.fixture
    def backend(self, version, async_snapshots):
        return restore([read_golden(version)], STRING, async_snapshots=async_snapshots, clock=lambda: NOW)

    def test_what_version_1_has_is_read(self, backend):
        assert_states_of_version_1(backend)

    def test_state_under_namespaces_is_read(self, backend):
        assert dict(backend.registered_kv_states["windowed"].items()) == {
            (key, window): windowed(key, window) for key in KEYS for window in WINDOWS
        }
        backend.set_current_key("flink")
        state = backend.get_partitioned_state(WINDOWED, WINDOWS[1], WINDOW)
        assert list(state.get()) == ["flink", "60000"]

    @pytest.mark.parametrize("name", TTL_STORED)
    def test_values_are_read_with_their_times(self, backend, name):
        assert dict(entries(backend, name)) == dict.fromkeys(KEYS[:-1], TTL_STORED[name])

    @pytest.mark.parametrize(
        ("now_ms", "expected"),
        [
            (
                NOW,
                [42, ["old", "", "\U0001f600"], {"a": 10**25, "none": None}, {(1, "a"): [1.5], "none": None}],
            ),
            (101_000, [None, ["\U0001f600"], {"none": None}, {"none": None}]),
        ],
        ids=["alive", "expired in part"],
    )
    def test_values_with_times_are_what_the_descriptors_ask_for(self, version, now_ms, expected):
        backend = restore([read_golden(version)], STRING, clock=lambda: now_ms)
        one, many, named, pickled = (state_of(backend, each, "flink") for each in TTL_DESCRIPTORS.values())
        assert [one.value(), list(many.get()), dict(named.items()), dict(pickled.items())] == expected

    def test_timers_are_read(self, backend):
        plain = backend.create_timer_queue(TIMERS)
        spaced = backend.create_timer_queue(WINDOW_TIMERS, WINDOW)
        assert (len(plain), set(plain.timers())) == (len(timers()), timers())
        assert (len(spaced), set(spaced.timers())) == (len(window_timers()), window_timers())
        plain._check()
        spaced._check()

    def test_nothing_else_is_read(self, backend):
        assert set(backend.registered_kv_states) == {*DESCRIPTORS, *TTL_DESCRIPTORS, "windowed"}
        assert set(backend.registered_queues) == {f"_timer_state/{name}" for name in (TIMERS, WINDOW_TIMERS)}
        keys = len(KEYS) - 1
        in_windows = len(KEYS) * len(WINDOWS)
        assert (
            backend.num_key_value_state_entries() == (len(STORED) + len(TTL_STORED)) * keys + 1 + in_windows
        )


def without_version(handle):
    """Return a state file's bytes up to the version, and those behind the checksum of the head."""
    data = handle.stream.data
    return data[:8], data[14 + len(head_of(handle)) + 4 :]


class TestGoldenFilesOfVersion5:
    def test_what_is_read_is_written_again_byte_for_byte(self):
        golden = read_golden(5)
        with ordered_maps():
            handle = take_snapshot(restore([golden], STRING), compression=None)
        assert handle.sections == golden.sections
        assert without_version(handle) == without_version(golden)

    def test_a_backend_with_many_buckets_writes_the_same_but_for_the_order(self):
        """The order in a key group depends on the hashes of strings, which differ between processes."""
        golden = read_golden(5)
        handle = take_snapshot(backend_with_all(async_snapshots=True), compression=None)
        assert head_of(handle) == head_of(golden)
        assert {name: set(groups) for name, groups in handle.sections.items()} == {
            name: set(groups) for name, groups in golden.sections.items()
        }
        tables = states_by_plain_arrow(handle.stream.data)
        expected = states_by_plain_arrow(golden.stream.data, 5)
        for name, table in tables.items():
            assert table.schema == expected[name].schema
            assert sorted(map(repr, table.to_pylist())) == sorted(map(repr, expected[name].to_pylist()))

    def test_this_release_writes_the_same_bytes(self):
        assert make_golden() == read_golden(VERSION), "a changed format needs a new version"
        assert make_golden_increment() == read_golden(VERSION, "_increment")
        assert VERSION == 5

    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_what_an_earlier_release_wrote_is_written_with_wide_floats(self, version):
        again = take_snapshot(restore([read_golden(version)], STRING), compression=None)
        rows = states_by_plain_arrow(again.stream.data)["row"]
        assert rows.schema.field("value").type.field("f4").type == pa.float64()
        assert_states_of_version_1(restore([again], STRING))


class TestGoldenIncrements:
    @pytest.mark.parametrize("version", [3, 4, 5])
    def test_an_increment_is_put_on_top_of_the_full_file(self, async_snapshots, version):
        backend = restore([read_golden_chain(version)], STRING, async_snapshots=async_snapshots)
        contents = {name: dict(entries(backend, name)) for name in backend.registered_kv_states}
        assert contents == changed_contents()
        plain = backend.create_timer_queue(TIMERS)
        spaced = backend.create_timer_queue(WINDOW_TIMERS, WINDOW)
        assert (len(plain), set(plain.timers())) == (len(changed_timers()), changed_timers())
        assert (len(spaced), set(spaced.timers())) == (len(changed_window_timers()), changed_window_timers())
        plain._check()
        spaced._check()

    @pytest.mark.parametrize(
        "chain",
        [
            attrs.evolve(read_golden_chain(3), stream=read_golden(2).stream),
            attrs.evolve(read_golden(3), increments=(read_golden(5, "_increment"),)),
        ],
        ids=["3 on 2", "5 on 3"],
    )
    def test_an_increment_goes_on_top_of_a_full_file_of_an_earlier_version(self, chain):
        backend = restore([chain], STRING)
        contents = {name: dict(entries(backend, name)) for name in backend.registered_kv_states}
        assert contents == changed_contents()


def states_by_plain_arrow(data, expected_version=VERSION):
    """Read a state file as a stranger would: JSON for the names, Arrow for the rest."""
    magic, version, length = struct.unpack_from(">8sHI", data)
    assert (magic, version) == (b"PFSSTATE", expected_version)
    head = json.loads(data[14 : 14 + length])
    source = pa.BufferReader(data)
    source.seek(14 + length + 4)
    tables = {}
    for state in head["states"]:
        with pa.ipc.open_stream(source) as stream:
            tables[state["name"]] = stream.read_all()
    assert source.tell() == len(data)
    return tables


class TestPlainArrow:
    """A file is readable without this library."""

    @pytest.fixture
    def written(self):
        backend = make_backend(STRING)
        for number in range(50):
            key = f"key-{number}"
            state_of(backend, ValueStateDescriptor("count", Types.LONG()), key).update(number)
            state_of(backend, ListStateDescriptor("visits", STRING), key).add_all(["é", key])
            state_of(backend, MapStateDescriptor("spend", STRING, Types.DOUBLE()), key).put("a", None)
        backend.get_partitioned_state(ValueStateDescriptor("empty", Types.BOOLEAN()))
        return take_snapshot(backend)

    def test_each_state_is_one_table_of_keys_and_values(self, written):
        tables = states_by_plain_arrow(written.stream.data)
        assert list(tables) == ["count", "visits", "spend", "empty"]
        assert all(table.column_names == ["key", "value"] for table in tables.values())
        rows = {name: dict(zip(*table.to_pydict().values(), strict=True)) for name, table in tables.items()}
        keys = [f"key-{number}" for number in range(50)]
        assert rows["count"] == {key: number for number, key in enumerate(keys)}
        assert rows["visits"] == {key: ["é", key] for key in keys}
        assert rows["spend"] == {key: [("a", None)] for key in keys}
        assert rows["empty"] == {}

    def test_each_section_is_a_record_batch_of_its_own(self, written):
        data, schema = (
            written.stream.data,
            pa.schema([pa.field("key", pa.large_string(), nullable=False), pa.field("value", pa.int64())]),
        )
        keys = []
        for section in written.sections["count"].values():
            section_bytes = data[section.offset : section.offset + section.length]
            assert zlib.crc32(section_bytes) == section.checksum
            keys += pa.ipc.read_record_batch(pa.py_buffer(section_bytes), schema).column("key").to_pylist()
        assert sorted(keys) == sorted(f"key-{number}" for number in range(50))
