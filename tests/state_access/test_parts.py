"""Tables in parts: between them they have the rows of the table, and each can be read in another process."""

import pickle
from itertools import product

import attrs
import cloudpickle
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
from read_support import COUNT, UID, checkpoint_of, in_memory
from tiers import cases

from pyflinkstate.api.context import CheckpointedFunction
from pyflinkstate.api.functions import BroadcastProcessFunction, KeyedProcessFunction
from pyflinkstate.api.state import ListStateDescriptor, MapStateDescriptor
from pyflinkstate.api.time import Time
from pyflinkstate.api.types import Types
from pyflinkstate.api.window_assigners import TumblingEventTimeWindows
from pyflinkstate.api.windows import TimeWindow
from pyflinkstate.backends.format import CheckpointMetadata, OperatorSubtaskState
from pyflinkstate.backends.heap.timer_queue import Timer
from pyflinkstate.backends.keys import KeyGroupRange, key_group_range
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend
from pyflinkstate.backends.snapshots import ChangeHistory
from pyflinkstate.errors import StateTableError, UnknownStateError
from pyflinkstate.state_access import diff
from pyflinkstate.testing import BroadcastOperatorHarness, KeyedOneInputOperatorHarness, harness_of


def counting(numbers, own=None, **options):
    backend = make_backend(Types.STRING(), **({} if own is None else {"own": own}), **options)
    for number in numbers:
        state_of(backend, COUNT, f"k{number}").update(number)
    return backend


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


def test_a_difference_between_numbers_of_key_groups_is_one():
    old = checkpoint_of(take_snapshot(counting(range(50))))
    own = key_group_range(16, 1, 0)
    new = checkpoint_of(take_snapshot(counting(range(25, 75), own, max_parallelism=16)), max_parallelism=16)
    (found,) = diff(old, new)
    assert len(found.table.parts(4)) == 1


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
