"""Reading keyed state: every kind, every type of key, increments, and what a restored backend has."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from decimal import Decimal
from functools import partial
from itertools import product
from typing import Any

import attrs
import cloudpickle
import pyarrow as pa
import pytest
from backend_support import (
    Snapshot,
    chained,
    contents,
    fill,
    make_backend,
    one_of_each_kind,
    restore,
    state_of,
    take_snapshot,
)
from golden_content import (
    KEYS,
    NOW,
    STORED,
    TTL_STORED,
    WINDOWS,
    changed_contents,
    changed_timers,
    changed_window_timers,
    read_golden,
    read_golden_chain,
    timers,
    window_timers,
    windowed,
)
from golden_tuple_keys import KEY_TYPE, MAX_PARALLELISM, PATH
from operator_support import NUMBERS, snapshot
from read_support import COUNT, UID, checkpoint_of, filled, in_memory, metadata_of, operator_of
from tiers import cases

from pyflinkstate.api import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    Duration,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Row,
    StateTtlConfig,
    Time,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import CheckpointMetadata, OperatorSubtaskState
from pyflinkstate.backends.heap.timer_queue import Timer
from pyflinkstate.backends.keys import KeyGroupRange, key_group_range
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend
from pyflinkstate.backends.snapshots import ChangeHistory
from pyflinkstate.backends.types import encode_column
from pyflinkstate.errors import (
    ConfigurationError,
    InvalidKeyError,
    PickledStateError,
    StateTableError,
    UnknownOperatorError,
    UnknownStateError,
)
from pyflinkstate.runtime.master.observe import CheckpointStats, JobExecutionResult
from pyflinkstate.state_access import Checkpoint, KeyHistory, Moment, Verification, diff, edit
from pyflinkstate.state_access.tables import loaded
from pyflinkstate.state_access.writing import DryRun, Mismatch
from pyflinkstate.testing import BroadcastOperatorHarness, KeyedOneInputOperatorHarness, harness_of

PICKLED = Types.PICKLED_BYTE_ARRAY()

KEY_TYPES = {
    "string": (Types.STRING(), lambda n: f"k{n}"),
    "long": (Types.LONG(), lambda n: n),
    "double": (Types.DOUBLE(), lambda n: n / 2),
    "decimal": (Types.BIG_DEC(), lambda n: Decimal(n) / 4),
    "tuple": (Types.TUPLE([Types.STRING(), Types.LONG()]), lambda n: (f"a{n % 3}", n)),
    "row": (Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()]), lambda n: Row(a=f"é{n}", b=n)),
    "bytes": (Types.PRIMITIVE_ARRAY(Types.BYTE()), lambda n: bytes([n])),
    "pickled": (PICKLED, lambda n: (f"p{n}", n)),
}
key_types = pytest.mark.parametrize(("key_type", "make_key"), KEY_TYPES.values(), ids=KEY_TYPES)


def rows(table):
    return list(table.rows())


def by_key(table, name):
    return {row["key"]: row[name] for row in table.rows()}


def counted(*numbers, key_type=PICKLED, own=None, **options):
    """Return the snapshot of a backend that counts, and the backend."""
    backend = make_backend(key_type, **({} if own is None else {"own": own}), **options)
    for key, number in numbers:
        state_of(backend, COUNT, key).update(number)
    return backend


@key_types
def test_a_row_a_key_and_a_column_a_state(key_type, make_key):
    backend = make_backend(key_type)
    descriptors = one_of_each_kind(lambda declared: declared)
    for number in range(20):
        fill(backend, descriptors, make_key(number), number)
    backend.set_current_key(make_key(20))
    state_of(backend, descriptors["value"], make_key(20)).update(20)
    checkpoint = checkpoint_of(take_snapshot(backend))
    table = checkpoint.keyed(UID, allow_pickle=True)
    expected = contents(backend)
    for name, stored in expected.items():
        found = {row["key"]: row[name] for row in table.rows() if row[name] is not None}
        assert found == stored, name
    assert len(rows(table)) == 21
    assert checkpoint.keyed(UID).to_arrow().num_rows == 21


@key_types
def test_some_keys_are_found_by_their_key_groups(key_type, make_key):
    backend = counted(*((make_key(number), number) for number in range(60)), key_type=key_type)
    checkpoint = checkpoint_of(take_snapshot(backend))
    wanted = [make_key(number) for number in (3, 59, 77)]
    assert by_key(checkpoint.keyed(UID, wanted, allow_pickle=True), "count") == {wanted[0]: 3, wanted[1]: 59}
    assert rows(checkpoint.keyed(UID, [])) == []


def test_only_the_batches_of_the_wanted_keys_are_read():
    backend = counted(*((f"k{n}", n) for n in range(20_000)), key_type=Types.STRING())
    handle = take_snapshot(backend)
    checkpoint = checkpoint_of(handle)
    checkpoint.keyed(UID, ["k7"]).to_arrow()
    assert checkpoint.bytes_read < 0.2 * handle.size_bytes  # the head is large beside so few entries
    data = sum(section.length for section in handle.sections["count"].values())
    assert checkpoint.bytes_read - (handle.size_bytes - data) < 0.02 * data


@key_types
@pytest.mark.parametrize("seed", range(2))
def test_the_reader_has_what_a_restored_backend_has(key_type, make_key, seed):
    """Random changes of all kinds of state and timers, in a chain of increments, at parallelism 2."""
    choose = random.Random(seed)
    handles = []
    for subtask in range(2):
        backend = make_backend(key_type, key_group_range(128, 2, subtask))
        changes = ChangeHistory(backend)
        parts = []
        for checkpoint_id in range(1, 5):
            for _ in range(40):
                change_something(backend, make_key(choose.randrange(30)), choose)
            changed = changes.cut(checkpoint_id, checkpoint_id - 1 or None)
            parts.append(Snapshot.of(backend, changed).write())
        handles.append(chained(*parts))
    expected = contents(*(restore([h], key_type, key_group_range(128, 2, n)) for n, h in enumerate(handles)))
    checkpoint = checkpoint_of(*handles)
    for name, stored in expected.items():
        if name.startswith("_timer_state"):
            found = {
                Timer(row["timestamp_ms"], row["key"])
                for row in checkpoint.timers(UID, allow_pickle=True).rows()
            }
            assert found == stored
        else:
            table = checkpoint.keyed(UID, states=[name], allow_pickle=True)
            assert by_key(table, name) == stored


LISTED = ListStateDescriptor("listed", Types.STRING())
MAPPED = MapStateDescriptor("mapped", Types.STRING(), Types.DOUBLE())
ANYTHING = ValueStateDescriptor("anything")


def change_something(backend, key, choose):
    """Change one of the states of ``key``, if it belongs to the backend."""
    try:
        backend.set_current_key(key)
    except ValueError:
        return
    number = choose.randrange(1000)
    queue = backend.create_timer_queue("processing_user-timers")
    changes = [
        lambda: state_of(backend, COUNT, key).update(number),
        lambda: state_of(backend, COUNT, key).clear(),
        lambda: state_of(backend, LISTED, key).add(f"{number}"),
        lambda: state_of(backend, LISTED, key).clear(),
        lambda: state_of(backend, MAPPED, key).put(f"{number % 5}", number / 3),
        lambda: state_of(backend, MAPPED, key).remove(f"{number % 5}"),
        lambda: state_of(backend, ANYTHING, key).update({number: [number]}),
        lambda: queue.add(Timer(number % 7, key), backend.key_group_of(key)),
        lambda: queue.remove(Timer(number % 7, key), backend.key_group_of(key)),
    ]
    choose.choice(changes)()


class TestEntries:
    def test_a_value(self):
        checkpoint = checkpoint_of(take_snapshot(counted(("a", 1), key_type=Types.STRING())))
        table = checkpoint.entries(UID, "count")
        assert rows(table) == [{"key": "a", "value": 1}]
        assert table.schema == pa.schema([("key", pa.large_string()), ("value", pa.int64())])

    def test_a_row_an_element_of_a_list_and_an_entry_of_a_map(self):
        backend = make_backend(Types.STRING())
        state_of(backend, LISTED, "a").add_all(["x", "y"])
        state_of(backend, MAPPED, "a").put_all({"m": 1.5, "n": None})
        checkpoint = checkpoint_of(take_snapshot(backend))
        assert rows(checkpoint.entries(UID, "listed")) == [
            {"key": "a", "position": 0, "value": "x"},
            {"key": "a", "position": 1, "value": "y"},
        ]
        assert rows(checkpoint.entries(UID, "mapped")) == [
            {"key": "a", "map_key": "m", "value": 1.5},
            {"key": "a", "map_key": "n", "value": None},
        ]

    def test_the_way_to_pandas(self):
        checkpoint = checkpoint_of(take_snapshot(counted(("a", 2**62 + 1), key_type=Types.STRING())))
        frame = checkpoint.keyed(UID).to_pandas()
        assert frame.to_dict("records") == [{"key": "a", "count": 2**62 + 1}]

    @pytest.mark.parametrize(
        ("library", "read"),
        [
            ("pyarrow", lambda arrow, table: arrow.table(table).to_pylist()),
            ("polars", lambda polars, table: polars.DataFrame(table).to_dicts()),
        ],
    )
    def test_other_libraries_read_it_as_arrow(self, library, read):
        numbers = [("a", 1), ("b", 2)]
        table = checkpoint_of(take_snapshot(counted(*numbers, key_type=Types.STRING()))).keyed(UID)
        found = read(pytest.importorskip(library), table)
        assert sorted((row["key"], row["count"]) for row in found) == numbers

    def test_the_way_to_duckdb(self):
        duckdb = pytest.importorskip("duckdb")
        checkpoint = checkpoint_of(take_snapshot(counted(("a", 1), ("b", 2), key_type=Types.STRING())))
        with duckdb.connect() as connection:
            checkpoint.entries(UID, "count").to_duckdb(connection, "counts")
            assert connection.sql("select sum(value) from counts").fetchall() == [(3,)]


class TestTimeToLive:
    @pytest.fixture
    def handle(self):
        now = [1_000]
        backend = make_backend(Types.STRING(), clock=lambda: now[0])
        config = StateTtlConfig.new_builder(Duration.of_millis(100)).disable_cleanup_in_background().build()
        self.descriptors = {
            "one": ValueStateDescriptor("one", Types.LONG()),
            "many": ListStateDescriptor("many", Types.LONG()),
            "named": MapStateDescriptor("named", Types.STRING(), Types.LONG()),
        }
        for descriptor in self.descriptors.values():
            descriptor.enable_time_to_live(config)
        state_of(backend, self.descriptors["one"], "a").update(1)
        state_of(backend, self.descriptors["many"], "a").add(1)
        state_of(backend, self.descriptors["named"], "a").put("x", 1)
        now[0] = 1_050
        state_of(backend, self.descriptors["one"], "b").update(2)
        state_of(backend, self.descriptors["many"], "a").add(2)
        state_of(backend, self.descriptors["named"], "a").put("y", 2)
        return take_snapshot(backend)

    def test_what_has_expired_is_left_out(self, handle):
        checkpoint = checkpoint_of(handle, clock=lambda: 1_100)
        assert sorted(rows(checkpoint.keyed(UID)), key=lambda row: row["key"]) == [
            {"key": "a", "one": None, "many": [2], "named": {"y": 2}},
            {"key": "b", "one": 2, "many": None, "named": None},
        ]
        assert rows(checkpoint_of(handle, clock=lambda: 1_150).keyed(UID)) == []

    def test_it_is_there_just_before(self, handle):
        assert by_key(checkpoint_of(handle, clock=lambda: 1_099).keyed(UID), "many") == {
            "a": [1, 2],
            "b": None,
        }

    def test_entries_say_when(self, handle):
        checkpoint = checkpoint_of(handle, clock=lambda: 1_100)
        late = {"value": 2, "timestamp_ms": 1_050, "expires_at_ms": 1_150}
        early = {"value": 1, "timestamp_ms": 1_000, "expires_at_ms": 1_100}
        assert rows(checkpoint.entries(UID, "many")) == [{"key": "a", "position": 1} | late]
        assert rows(checkpoint.entries(UID, "named", with_expired=True)) == [
            {"key": "a", "map_key": "x"} | early,
            {"key": "a", "map_key": "y"} | late,
        ]

    def test_another_length_may_be_asked_for(self, handle):
        checkpoint = checkpoint_of(handle, clock=lambda: 1_100)
        longer = checkpoint.keyed(UID, states=["one"], time_to_live={"one": Duration.of_millis(101)})
        assert by_key(longer, "one") == {"a": 1, "b": 2}

    def test_the_states_say_so(self, handle):
        states = {state.name: (state.expires, state.ttl_ms) for state in checkpoint_of(handle).states(UID)}
        assert states == dict.fromkeys(("one", "many", "named"), (True, 100))


class Anything:
    """What a pickle names."""

    def __eq__(self, other):
        return isinstance(other, Anything)

    __hash__ = None


class TestPickles:
    def test_they_are_bytes(self):
        backend = make_backend()
        state_of(backend, ANYTHING, "a").update(Anything())
        table = checkpoint_of(take_snapshot(backend)).keyed(UID)
        assert table.schema.types == [pa.large_binary()] * 2
        assert all(isinstance(value, bytes) for value in rows(table)[0].values())

    def test_they_are_loaded_on_request(self):
        backend = make_backend()
        state_of(backend, ANYTHING, "a").update(1)
        state_of(backend, ANYTHING, "b").update(2.5)
        table = checkpoint_of(take_snapshot(backend)).keyed(UID, allow_pickle=True)
        assert table.schema == pa.schema([("key", pa.string()), ("anything", pa.float64())])
        assert dict(map(dict.values, table.to_arrow().to_pylist())) == {"a": 1.0, "b": 2.5}

    def test_those_without_an_arrow_type_are_rows_of_python(self):
        backend = make_backend()
        state_of(backend, ANYTHING, "a").update(Anything())
        table = checkpoint_of(take_snapshot(backend)).keyed(UID, allow_pickle=True)
        assert by_key(table, "anything") == {"a": Anything()}
        with pytest.raises(StateTableError, match=r"read them with rows\(\)"):
            table.to_arrow()

    def test_plain_keys_are_found_without_running_code(self):
        checkpoint = checkpoint_of(take_snapshot(counted(((1, "a"), 1), ((2, "b"), 2))))
        assert [row["count"] for row in rows(checkpoint.keyed(UID, [(2, "b")]))] == [2]

    def test_equal_keys_meet_though_their_pickles_differ(self):
        checkpoint = checkpoint_of(take_snapshot(counted((1, 1))))
        assert [row["count"] for row in rows(checkpoint.keyed(UID, [1.0]))] == [1]

    def test_keys_that_name_classes_need_permission(self):
        checkpoint = checkpoint_of(take_snapshot(counted((Decimal(1), 1))))
        with pytest.raises(PickledStateError, match=r"decimal\.Decimal, and loading it runs code"):
            checkpoint.keyed(UID, [Decimal(1)]).to_arrow()
        assert by_key(checkpoint.keyed(UID, [Decimal(1)], allow_pickle=True), "count") == {Decimal(1): 1}


class TestBadInput:
    @pytest.fixture
    def checkpoint(self):
        backend = counted(("a", 1), key_type=Types.STRING())
        state_of(backend, LISTED, "a").add("x")
        return checkpoint_of(take_snapshot(backend), uid="counter")

    @pytest.mark.parametrize(
        ("error", "message", "read"),
        [
            (UnknownOperatorError, "no operator 'countr'; it has 'counter'", lambda one: one.keyed("countr")),
            (
                UnknownStateError,
                "no keyed state 'cuont'; it has 'count', 'listed'",
                lambda one: one.entries("counter", "cuont"),
            ),
            (
                UnknownStateError,
                "it has 'listed', 'count'",
                lambda one: one.keyed("counter", states=["lists"]),
            ),
            (
                InvalidKeyError,
                "operator 'counter' has keys of STRING: invalid key 7",
                lambda one: one.keyed("counter", [7]),
            ),
            (UnknownStateError, "no state by window", lambda one: one.windows("counter")),
            (
                UnknownStateError,
                "no operator state None; it has none",
                lambda one: one.operator_state("counter"),
            ),
        ],
    )
    def test_what_is_not_there_is_told_with_the_nearest_name_first(self, checkpoint, error, message, read):
        with pytest.raises(error, match=message):
            read(checkpoint)

    @pytest.mark.parametrize("one", ["count", b"count", 1], ids=repr)
    def test_a_single_key_or_state_is_no_list(self, checkpoint, one):
        for call in (checkpoint.keyed, checkpoint.timers, partial(checkpoint.entries, state="count")):
            with pytest.raises(ConfigurationError, match=rf"keys is a list, not {one!r}: give \[{one!r}\]"):
                call("counter", keys=one)
        with pytest.raises(ConfigurationError, match=rf"states is a list, not {one!r}: give \[{one!r}\]"):
            checkpoint.keyed("counter", states=one)

    def test_there_may_be_no_timers(self, checkpoint):
        assert rows(checkpoint.timers("counter")) == []


# --- loaded pickles ----------------------------------------------------------------------------------------

NESTED = {
    "list": (Types.LIST(PICKLED), [None, [1, 2], [], None, [3]]),
    "array": (Types.OBJECT_ARRAY(PICKLED), [None, [1, None], [], None, [3]]),
    "map": (Types.MAP(Types.STRING(), PICKLED), [None, {"a": 1}, {}, None, {"b": 2}]),
    "map of lists": (Types.MAP(PICKLED, Types.LIST(PICKLED)), [None, {1: [1, 2]}, {}, None, {2: []}]),
    "list of lists": (Types.LIST(Types.LIST(PICKLED)), [None, [[1], []], [], None, [[2]]]),
    "tuple": (Types.TUPLE([Types.LIST(PICKLED), Types.LONG()]), [None, (None, 1), ([], 2), None, ([3], 4)]),
}


@pytest.mark.parametrize("begin", [0, 1, 3])
@pytest.mark.parametrize("name", NESTED)
def test_what_is_missing_stays_missing_when_pickles_are_loaded(name, begin):
    type_info, values = NESTED[name]
    column = encode_column(type_info, values)
    plain = pa.array(*as_arrow(name, values))
    for end in (begin, begin + 2):
        found = loaded(type_info, column[begin:end])
        found.validate(full=True)
        assert found.to_pylist() == plain[begin:end].to_pylist()
        assert found.null_count == plain[begin:end].null_count


def as_arrow(name, values):
    """Return the values as Arrow takes them, and their Arrow type."""
    long_list = pa.large_list(pa.int64())
    arrow = {
        "list": long_list,
        "array": long_list,
        "map": pa.map_(pa.string(), pa.int64()),
        "map of lists": pa.map_(pa.int64(), long_list),
        "list of lists": pa.large_list(long_list),
        "tuple": pa.struct([("f0", long_list), ("f1", pa.int64())]),
    }[name]
    return [list(value.items()) if isinstance(value, dict) else value for value in values], arrow


def test_a_key_without_a_list_or_map_has_none_when_pickles_are_loaded():
    listed, mapped = ListStateDescriptor("l", PICKLED), MapStateDescriptor("m", Types.STRING(), PICKLED)
    backend = make_backend(Types.STRING(), key_group_range(1, 1, 0), 1)
    state_of(backend, listed, "a").add(1)
    state_of(backend, mapped, "b").put("x", 2)
    state_of(backend, COUNT, "c").update(3)
    checkpoint = checkpoint_of(take_snapshot(backend), max_parallelism=1)
    found = {row.pop("key"): row for row in checkpoint.keyed(UID, allow_pickle=True).to_arrow().to_pylist()}
    assert found == {
        "a": {"l": [1], "m": None, "count": None},
        "b": {"l": None, "m": [("x", 2)], "count": None},
        "c": {"l": None, "m": None, "count": 3},
    }
    empty = make_backend(Types.STRING(), key_group_range(1, 1, 0), 1)
    state_of(empty, COUNT, "c").update(3)
    there = diff(checkpoint, checkpoint_of(take_snapshot(empty), max_parallelism=1), allow_pickle=True)
    differences = {one.state: one.table.to_arrow() for one in there}
    for name in ("l", "m"):
        assert differences[name].column("new").to_pylist() == [None]


# --- what is printed of a checkpoint and of all that reads it fits on a screen --------------------


#: 80 columns and 24 lines.
SCREEN = 80 * 24
MANY = [f"name number {number}" for number in range(1_000)]


@pytest.fixture(scope="module")
def large() -> Checkpoint:
    """Five states with something in every key group, in each of many operators."""
    subtasks = filled(range(500)).operator(UID).subtasks
    metadata = metadata_of([operator_of(subtasks, uid) for uid in (UID, *MANY)])
    source = [{"path": name, "offset": 1} for name in MANY]
    counts = dict.fromkeys(MANY, 1)
    object.__setattr__(metadata, "source_position", source)
    object.__setattr__(metadata, "counters", counts)
    return in_memory(metadata)


def shown(large: Checkpoint) -> list[Any]:
    """Return an object of each kind that programs print."""
    table = large.keyed(UID)
    moments = tuple(Moment(number, number, number, table) for number in range(100))
    stats = tuple(CheckpointStats(number, number, uri=f"/checkpoints/chk-{number}") for number in range(100))
    return [
        large,
        large.metadata,
        large.operator(UID),
        large.operators()[0],
        large.states(UID)[0],
        large.offsets(),
        large.keyed_state(UID),
        table,
        large.entries(UID, "value"),
        table.parts(2)[0],
        moments[0],
        KeyHistory(moments),
        diff(large, large, UID)[0],
        Verification(MANY, 1, 1, MANY, MANY),
        DryRun(tuple(Mismatch(name, None, "it does not fit") for name in MANY), tuple(MANY), tuple(MANY)),
        edit(large),
        JobExecutionResult("0" * 32, dict.fromkeys(MANY, 1), (), stats, 1, 0),
    ]


def test_whatever_is_printed_fits_on_a_screen(large: Checkpoint) -> None:
    lengths = [(type(one).__name__, len(repr(one))) for one in shown(large)]
    assert [(name, length) for name, length in lengths if length > SCREEN] == []


# --- the reader and the command line need neither Java nor PySpark --------------------------------


@pytest.mark.parametrize(
    "module",
    cases(
        [
            "pyflinkstate.state_access",
            "pyflinkstate.state_access.command_line",
            "pyflinkstate.__main__",
        ],
        quick=["pyflinkstate.__main__"],
    ),
)
def test_neither_pyspark_nor_py4j_is_imported(module):
    script = f"import sys, {module}; sys.exit(bool({{'pyspark', 'py4j'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# --- tables in parts: between them they have the rows of the table, and each can be read in another proc


def counting(numbers, own=None, **options):
    return counted(*((f"k{n}", n) for n in numbers), key_type=Types.STRING(), own=own, **options)


def rows_of(tables):
    return [row for table in tables for row in table.rows()]


@pytest.fixture
def kinds():
    """Two subtasks with every kind of state and timers, the second one with an increment."""
    handles = []
    for subtask in range(2):
        backend = make_backend(Types.STRING(), key_group_range(128, 2, subtask))
        descriptors = one_of_each_kind(lambda declared: declared)
        changes = ChangeHistory(backend)
        written = []
        for checkpoint_id, numbers in ((1, range(100)), (2, range(50, 150))):
            for number in numbers:
                try:
                    backend.set_current_key(f"k{number}")
                except ValueError:
                    continue
                fill(backend, descriptors, f"k{number}", number)
                group = backend.key_group_of(f"k{number}")
                backend.create_timer_queue("event_user-timers").add(Timer(number, f"k{number}"), group)
            changed = changes.cut(checkpoint_id, checkpoint_id - 1 or None)
            written.append(Snapshot.of(backend, changed).write())
        handles.append(chained(*written))
    return checkpoint_of(*handles)


@pytest.mark.parametrize(
    ("what", "number"),
    cases(
        product(["keyed", "entries", "timers"], [1, 3, 128, 1000, None]),
        quick=[("keyed", 3), ("entries", 1000), ("timers", None)],
    ),
)
def test_they_have_the_rows_of_the_table_in_its_order(kinds, what, number):
    table = kinds.entries(UID, "list") if what == "entries" else getattr(kinds, what)(UID)
    parts = table.parts(number)
    assert len(parts) == min(number or 2, 128)
    assert rows_of(parts) == rows_of([table])
    assert len(rows_of([table])) >= 150


def test_only_those_with_wanted_keys(kinds):
    table = kinds.keyed(UID, ["k7"])
    assert len(table.parts(128)) == 1
    assert rows_of(table.parts(128)) == rows_of([table])
    assert rows_of(kinds.keyed(UID, []).parts(3)) == []


def test_they_can_be_pickled(kinds):
    table = kinds.keyed(UID)
    there = pickle.loads(cloudpickle.dumps(table.parts(3)))
    assert rows_of(there) == rows_of([table])


def test_operator_state_by_subtask():
    states = []
    for number in range(5):
        backend = DefaultOperatorStateBackend()
        backend.get_list_state(NUMBERS).add_all([number, number + 10])
        states.append(OperatorSubtaskState(managed_operator=snapshot(backend)))
    table = checkpoint_of(*states).operator_state(UID)
    for number, sizes in ((None, [2] * 5), (2, [4, 6]), (9, [2] * 5)):
        parts = table.parts(number)
        assert [len(rows_of([part])) for part in parts] == sizes
        assert rows_of(parts) == rows_of([table])


def test_a_difference():
    old = checkpoint_of(take_snapshot(counting(range(50))))
    new = checkpoint_of(take_snapshot(counting(range(25, 75))))
    (found,) = diff(old, new)
    assert len(found.table.parts(4)) == 4
    assert rows_of(found.table.parts(4)) == rows_of([found.table])
    assert found.counts() == {"added": 25, "removed": 25, "changed": 0}


def test_less_than_one_is_refused(kinds):
    with pytest.raises(StateTableError, match="at least 1 part, not in 0"):
        kinds.keyed(UID).parts(0)


# --- reading what operators of a job keep: timers and operator state ------------------------------


class Reminders(KeyedProcessFunction, CheckpointedFunction):
    """Registers a timer of each kind, and keeps what it has seen in operator state."""

    def __init__(self):
        self.seen = []

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.listed = store.get_list_state(ListStateDescriptor("listed", Types.STRING()))
        self.union = store.get_union_list_state(ListStateDescriptor("union", Types.LONG()))

    def snapshot_state(self, context):
        self.listed.update([key for key, _ in self.seen])
        self.union.update([time for _, time in self.seen])

    def process_element(self, value, ctx):
        self.seen.append(value)
        ctx.timer_service().register_event_time_timer(value[1])
        ctx.timer_service().register_processing_time_timer(value[1] + 1)


@pytest.fixture
def checkpoint():
    states = []
    for subtask in range(2):
        harness = KeyedOneInputOperatorHarness(
            Reminders(), lambda value: value[0], Types.STRING(), parallelism=2, subtask=subtask
        )
        for key in ("a", "b", "c", "d"):
            try:
                harness.process_element((key, 10), 0)
            except ValueError:  # another subtask's
                continue
        states.append(harness.snapshot().state)
    return checkpoint_of(*states)


def test_timers(checkpoint):
    found = checkpoint.timers(UID).to_arrow().to_pylist()
    assert sorted((row["timestamp_ms"], row["key"], row["time_domain"]) for row in found) == [
        *((10, key, "event_time") for key in "abcd"),
        *((11, key, "processing_time") for key in "abcd"),
    ]
    some = checkpoint.timers(UID, ["b"]).to_arrow()
    assert some.column("key").to_pylist() == ["b", "b"]


def test_lists_of_all_subtasks(checkpoint):
    found = checkpoint.operator_state(UID, "listed").to_arrow().to_pylist()
    assert sorted(row["value"] for row in found) == list("abcd")
    assert {row["subtask"] for row in found} == {0, 1}
    union = checkpoint.operator_state(UID, "union")
    assert union.schema.names == ["subtask", "position", "value"]
    assert union.to_arrow().column("value").to_pylist() == [10] * 4


def test_one_of_several_must_be_named(checkpoint):
    with pytest.raises(UnknownStateError, match="several, so one must be named; it has"):
        checkpoint.operator_state(UID)
    with pytest.raises(UnknownStateError, match="no operator state 'lists'; it has 'listed', 'union'"):
        checkpoint.operator_state(UID, "lists")


def test_states(checkpoint):
    kinds = sorted(state.kind for state in checkpoint.states(UID))
    assert kinds == ["SPLIT_DISTRIBUTE", "TIMERS", "TIMERS", "UNION"]


class Rules(BroadcastProcessFunction):
    """Keeps each record of the broadcast stream."""

    def process_element(self, value, ctx):
        yield value

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value, len(value))


RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


def test_broadcast_state_is_read_once_though_every_subtask_has_it():
    states = []
    for subtask in range(2):
        harness = BroadcastOperatorHarness(Rules(), [RULES], parallelism=2, subtask=subtask)
        harness.process_broadcast_element("rule")
        states.append(harness.snapshot().state)
    table = checkpoint_of(*states).operator_state(UID)
    assert table.to_arrow().to_pylist() == [{"subtask": 0, "position": 0, "key": "rule", "value": 4}]


def test_the_contents_of_windows():
    harness = harness_of(
        lambda pairs: (
            pairs.key_by(lambda pair: pair[0], key_type=Types.STRING())
            .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
            .reduce(lambda a, b: (a[0], a[1] + b[1]))
        )
    )
    for pair, time in ((("a", 1), 3), (("a", 2), 4), (("a", 5), 13)):
        harness.process_element(pair, time)
    checkpoint = checkpoint_of(harness.snapshot().state)
    for table in (checkpoint.windows(UID, allow_pickle=True), checkpoint.keyed(UID, allow_pickle=True)):
        found = {row["window"]: row["window-contents"] for row in table.rows()}
        assert found == {TimeWindow(0, 10): ("a", 3), TimeWindow(10, 20): ("a", 5)}
    assert checkpoint.windows(UID, ["b"]).to_arrow().num_rows == 0
    timers = sorted(row["timestamp_ms"] for row in checkpoint.timers(UID).rows())
    assert timers == [9, 19]


# --- the reader on what earlier releases wrote: the same golden files that restores are tested with ---


def values(checkpoint, name, **options):
    """Return what is stored of a state by key, or key and namespace, as a restored backend has it."""
    rows = checkpoint.keyed(UID, states=[name], allow_pickle=True, **options).rows()
    return {tuple(head) if len(head) > 1 else head[0]: value for *head, value in map(dict.values, rows)}


def untimed(stored):
    """Return a stored value without the times at which its parts were written."""
    if isinstance(stored, dict):
        return {key: value for key, (_, value) in stored.items()}
    return [value for _, value in stored] if isinstance(stored, list) else stored[1]


def found_timers(checkpoint):
    return {
        (row["timestamp_ms"], row["key"], row["namespace"], row["time_domain"], row["timer_service"])
        for row in checkpoint.timers(UID).rows()
    }


def expected_timers(plain, spaced):
    return {(t.timestamp_ms, t.key, None, "processing_time", "user-timers") for t in plain} | {
        (t.timestamp_ms, t.key, t.namespace, "event_time", "window-timers") for t in spaced
    }


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_the_states_of_version_1_are_read(version):
    checkpoint = checkpoint_of(read_golden(version))
    for name, stored in STORED.items():
        few = {KEYS[-1]: 7} if name == "value" else {}
        assert values(checkpoint, name) == dict.fromkeys(KEYS[:-1], stored) | few


@pytest.mark.parametrize("version", [2, 3, 4, 5])
class TestFromVersion2:
    def test_windows(self, version):
        checkpoint = checkpoint_of(read_golden(version))
        found = values(checkpoint, "windowed")
        assert found == {(key, window): windowed(key, window) for key in KEYS for window in WINDOWS}

    @pytest.mark.parametrize("name", TTL_STORED)
    def test_time_to_live(self, version, name):
        checkpoint = checkpoint_of(read_golden(version), clock=lambda: NOW)
        assert values(checkpoint, name) == dict.fromkeys(KEYS[:-1], untimed(TTL_STORED[name]))

    def test_timers(self, version):
        checkpoint = checkpoint_of(read_golden(version))
        assert found_timers(checkpoint) == expected_timers(timers(), window_timers())


@pytest.mark.parametrize("version", [3, 4, 5])
class TestIncrements:
    @pytest.mark.parametrize("name", changed_contents())
    def test_they_are_read_on_top_of_the_full_file(self, version, name):
        checkpoint = checkpoint_of(read_golden_chain(version))
        expected = changed_contents()[name]
        if name.startswith("ttl") or name == "cleaned":
            expected = {key: untimed(stored) for key, stored in expected.items()}
        assert values(checkpoint, name) == expected

    def test_timers(self, version):
        checkpoint = checkpoint_of(read_golden_chain(version))
        assert found_timers(checkpoint) == expected_timers(changed_timers(), changed_window_timers())


def test_files_of_two_versions_are_one_state():
    chain = attrs.evolve(read_golden(3), increments=(read_golden(5, "_increment"),))
    assert values(checkpoint_of(chain), "row") == changed_contents()["row"]


def test_only_from_version_5_on_is_it_known_when_values_expire():
    late = {"clock": lambda: 101_000}
    assert values(checkpoint_of(read_golden(4), **late), "ttl value") == dict.fromkeys(KEYS[:-1], 42)
    assert values(checkpoint_of(read_golden(5), **late), "ttl value") == {}


class TestKeysWhoseHashHasChanged:
    """Tuples hashed otherwise once, so their old checkpoints have them in other key groups."""

    @pytest.fixture
    def checkpoint(self):
        return in_memory(CheckpointMetadata.decode(PATH.read_bytes(), "golden"))

    @pytest.fixture
    def uid(self, checkpoint):
        return checkpoint.operators()[0].uid

    @pytest.fixture
    def expected(self, checkpoint, uid):
        handles = [subtask.managed_keyed for subtask in checkpoint.operator(uid).subtasks]
        own = KeyGroupRange(0, MAX_PARALLELISM - 1)
        return contents(restore(handles, KEY_TYPE, own, MAX_PARALLELISM))

    def test_all_of_it_is_read(self, checkpoint, uid, expected):
        rows = checkpoint.keyed(uid, states=["count"]).rows()
        assert {row["key"]: row["count"] for row in rows} == expected["count"]
        windows = checkpoint.windows(uid)
        assert windows.schema.names == ["key", "window", "in windows"]
        found = {(row["key"], row["window"]): row["in windows"] for row in windows.rows()}
        assert found == expected["in windows"]

    def test_keys_are_found_in_the_key_groups_that_they_have_now(self, checkpoint, uid, expected):
        for key in list(expected["count"])[:3]:
            (row,) = checkpoint.keyed(uid, [key], ["count"]).rows()
            assert (row["key"], row["count"]) == (key, expected["count"][key])
