"""Windows in checkpoints: typed in the file, and going on where they were, at any parallelism."""

import attrs
import pytest
from slot_functions import Mean
from support_windows import MAX_PARALLELISM, Collect, WindowHarness, fired

from pyflinkstate import (
    ContinuousEventTimeTrigger,
    CountSlidingWindowAssigner,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    TimeWindowSerializer,
    TumblingEventTimeWindows,
    Types,
)
from pyflinkstate.backends.format import StateFileHead
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.errors import StateMigrationError
from pyflinkstate.runtime.operators import window_operator

GAP = EventTimeSessionWindows.with_gap(10)

OPERATORS = {
    "tumbling": window_operator(TumblingEventTimeWindows.of(10), allowed_lateness_ms=3, function=Collect()),
    "sliding": window_operator(SlidingEventTimeWindows.of(20, 10), contents=lambda old, new: old + new),
    "sessions": window_operator(GAP, allowed_lateness_ms=15, function=Collect()),
    "sessions, continuous": window_operator(GAP, ContinuousEventTimeTrigger(4), contents=Mean()),
    "global": window_operator(GlobalWindows(), CountTrigger(3), function=Collect()),
    "count": window_operator(
        CountSlidingWindowAssigner(3, 2), function=Collect(), contents_type=Types.LONG()
    ),
}

every_operator = pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)

#: Timestamps and, as negative numbers, watermarks.
EVENTS = [3, 12, 7, -5, 18, 25, -11, 4, 31, 22, -24, 40, 33, 50, -48, 47, 60]


def run(harness, events):
    emitted = []
    for event in events:
        if event < 0:
            emitted += sorted(harness.advance(-event), key=repr)
        else:
            emitted += harness.process("ab"[event % 2], event, event)
    return emitted


@every_operator
def test_going_on_from_a_snapshot_gives_what_going_on_without_gives(operator):
    straight = WindowHarness(operator)
    expected = run(straight, EVENTS)
    expected += sorted(straight.advance(), key=repr)
    for cut in range(len(EVENTS) + 1):
        first = WindowHarness(operator)
        emitted = run(first, EVENTS[:cut])
        handle = first.snapshot()
        run(first, EVENTS[cut:])  # what comes after the snapshot is not in it
        restored = WindowHarness(operator, restore=[handle], watermark=max([0, *(-e for e in EVENTS[:cut])]))
        emitted += run(restored, EVENTS[cut:])
        emitted += sorted(restored.advance(), key=repr)
        assert emitted == expected
        assert restored.entries() == straight.entries()
        assert restored.timers() == straight.timers()


@every_operator
def test_increments_hold_just_what_windows_have_changed(operator):
    harness = WindowHarness(operator)
    parts = []
    for number, start in enumerate(range(0, len(EVENTS), 4)):
        run(harness, EVENTS[start : start + 4])
        changes = harness.history.cut(number, number - 1 if parts else None)
        parts.append(harness.snapshot(changes))
    written = [part for part in parts if part is not None]
    chain = attrs.evolve(written[0], increments=tuple(written[1:]))
    restored = WindowHarness(operator, restore=[chain], watermark=harness.time.watermark)
    assert restored.entries() == harness.entries()
    assert restored.timers() == harness.timers()
    assert sorted(restored.advance(), key=repr) == sorted(harness.advance(), key=repr)


@every_operator
def test_rescaling_deals_windows_and_timers_out_with_their_keys(operator):
    whole = WindowHarness(operator)
    keys = [f"key {number}" for number in range(12)]
    for event in (3, 12, 7, 25):
        for key in keys:
            whole.process(key, event, event)
    handle = whole.snapshot()
    parts = [
        WindowHarness(operator, restore=[handle], own=key_group_range(MAX_PARALLELISM, 3, subtask))
        for subtask in range(3)
    ]
    back = WindowHarness(operator, restore=[part.snapshot() for part in parts])
    assert back.entries() == whole.entries()
    assert back.timers() == whole.timers()
    emitted = sorted((each for part in parts for each in part.advance()), key=repr)
    assert emitted == sorted(whole.advance(), key=repr)


def test_the_file_knows_the_type_of_windows():
    harness = WindowHarness(OPERATORS["sessions"])
    run(harness, EVENTS[:4])
    head = StateFileHead.decode(harness.snapshot().stream.data, "file")
    time_windows = TimeWindowSerializer()
    assert {meta.name: (str(meta.stored_type), str(meta.namespace_type)) for meta in head.states} == {
        "window-contents": ("LIST(PICKLED_BYTE_ARRAY)", "TIME_WINDOW"),
        "merging-window-set": ("LIST(TUPLE(TIME_WINDOW, TIME_WINDOW))", "VOID_NAMESPACE"),
        "_timer_state/event_window-timers": ("LONG", "TIME_WINDOW"),
    }
    assert head.states[0].namespace_type == time_windows


def test_another_kind_of_windows_cannot_take_the_state():
    harness = WindowHarness(OPERATORS["tumbling"])
    harness.process("a", 1, 1)
    with pytest.raises(StateMigrationError, match=r"window-timers.*TIME_WINDOW"):
        WindowHarness(OPERATORS["global"], restore=[harness.snapshot()])


def test_a_changed_gap_goes_on_with_the_windows_that_are_there():
    harness = WindowHarness(OPERATORS["sessions"])
    harness.process("a", 0, 0)
    longer = window_operator(EventTimeSessionWindows.with_gap(100), function=Collect())
    restored = WindowHarness(longer, restore=[harness.snapshot()])
    restored.process("a", 5, 5)
    assert restored.advance() == [fired("a", 0, 105, 0, 5)]
    restored.assert_empty()


def test_processing_time_timers_are_restored():
    operator = window_operator(ProcessingTimeSessionWindows.with_gap(10), function=Collect())
    harness = WindowHarness(operator)
    harness.process("a", 1)
    restored = WindowHarness(operator, restore=[harness.snapshot()])
    assert restored.operator.next_processing_time_ms() == 9
    assert restored.set_processing_time(50) == [fired("a", 0, 10, 1)]
    restored.assert_empty()
