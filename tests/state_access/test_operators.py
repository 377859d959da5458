"""Reading what operators of a job keep: timers and operator state."""

import pytest
from read_support import checkpoint_of

from pyflinkstate import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Time,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
)
from pyflinkstate.errors import UnknownStateError
from pyflinkstate.testing import BroadcastOperatorHarness, KeyedOneInputOperatorHarness, harness_of

UID = "op"


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
