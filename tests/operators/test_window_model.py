"""Windows against models that keep everything, over snapshots and restores, and in checkpoints."""

import attrs
import pytest
from hypothesis import given, settings, strategies as st
from slot_functions import Mean
from support_windows import MAX_PARALLELISM, Collect, WindowHarness, fired

from pyflinkstate import (
    ContinuousEventTimeTrigger,
    CountSlidingWindowAssigner,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    OutputTag,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeWindow,
    TimeWindowSerializer,
    TumblingEventTimeWindows,
    Types,
)
from pyflinkstate.backends.format import StateFileHead
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.errors import StateMigrationError
from pyflinkstate.runtime.operators import window_operator
from pyflinkstate.runtime.wire import MAX_WATERMARK, NO_WATERMARK

LATE = OutputTag("late")


@attrs.define
class Pane:
    """One window of one key."""

    key: str
    start: int
    end: int
    elements: list

    def result(self):
        return (self.key, TimeWindow(self.start, self.end), list(self.elements)), self.end - 1


class Model:
    """All panes that live, as a list."""

    def __init__(self, lateness, purging):
        self.lateness = lateness
        self.purging = purging
        self.watermark = NO_WATERMARK
        self.panes = []
        self.late = []
        self.emitted = []

    def element(self, key, value, timestamp):
        panes = [pane for pane in self.panes_for(key, timestamp, value) if not self.is_over(pane)]
        for pane in panes:
            if pane not in self.panes:
                self.panes.append(pane)
            pane.elements.append(value)
            if pane.end - 1 <= self.watermark:
                self.fire(pane)
        if not panes and timestamp + self.lateness <= self.watermark:
            self.late.append((value, timestamp))

    def advance(self, watermark):
        for pane in self.panes:
            if self.watermark < pane.end - 1 <= watermark:
                self.fire(pane)
        self.watermark = watermark
        self.panes = [pane for pane in self.panes if not self.is_over(pane)]

    def is_over(self, pane):
        return pane.end - 1 + self.lateness <= self.watermark

    def fire(self, pane):
        if pane.elements:
            self.emitted.append(pane.result())
        if self.purging:
            pane.elements = []

    def taken(self):
        emitted, self.emitted = self.emitted, []
        return sorted(emitted, key=repr)


class Sliding(Model):
    def __init__(self, lateness, purging, size, slide, offset):
        super().__init__(lateness, purging)
        self.size, self.slide, self.offset = size, slide, offset

    def panes_for(self, key, timestamp, value):
        found = []
        for start in range(timestamp - self.size + 1, timestamp + 1):
            if start % self.slide == self.offset % self.slide:
                living = [pane for pane in self.panes if (pane.key, pane.start) == (key, start)]
                found += living or [Pane(key, start, start + self.size, [])]
        return found


class Sessions(Model):
    def panes_for(self, key, timestamp, value):
        pane = Pane(key, timestamp, timestamp + value[1], [])
        while True:
            touching = [
                other
                for other in self.panes
                if other.key == key and other.start <= pane.end and other.end >= pane.start
            ]
            if not touching:
                return [pane]
            self.panes = [other for other in self.panes if other not in touching]
            together = sorted([pane, *touching], key=lambda each: (each.start, each.end))
            pane = Pane(
                key,
                min(each.start for each in together),
                max(each.end for each in together),
                [element for each in together for element in each.elements],
            )


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return element[1]


elements = st.tuples(st.just("element"), st.sampled_from("ab"), st.integers(0, 60), st.integers(1, 12))
watermarks = st.tuples(st.just("advance"), st.integers(0, 12))
histories = st.lists(
    st.one_of(elements, elements, elements, watermarks, watermarks, st.just(("restore",))), max_size=40
)
latenesses = st.sampled_from([0, 1, 5, 20])


def check(operator, model, history):
    harness = WindowHarness(operator)
    for number, (what, *details) in enumerate(history):
        if what == "element":
            key, timestamp, gap = details
            model.element(key, (number, gap), timestamp)
            emitted = harness.process(key, (number, gap), timestamp)
        elif what == "advance":
            watermark = max(model.watermark, -1) + details[0]
            model.advance(watermark)
            emitted = harness.advance(watermark)
        else:
            side = harness.output.side  # what was emitted is no state
            harness = WindowHarness(operator, restore=[harness.snapshot()], watermark=model.watermark)
            harness.output.side = side
            emitted = []
        assert sorted(emitted, key=repr) == model.taken()
    model.advance(MAX_WATERMARK)
    assert sorted(harness.advance(), key=repr) == model.taken()
    assert harness.side().get("late", []) == model.late
    harness.assert_empty()


@settings(max_examples=100, deadline=None)
@given(histories, latenesses, st.booleans(), st.integers(1, 20), st.integers(1, 12), st.integers(-11, 11))
def test_sliding_windows(history, lateness, purging, size, slide, offset):
    offset = offset % slide
    trigger = PurgingTrigger.of(EventTimeTrigger()) if purging else None
    assigner = SlidingEventTimeWindows.of(size, slide, offset)
    operator = window_operator(assigner, trigger, lateness, LATE, function=Collect())
    check(operator, Sliding(lateness, purging, size, slide, offset), history)


@settings(max_examples=100, deadline=None)
@given(histories, latenesses, st.booleans())
def test_sessions_with_a_gap_of_each_elements_own(history, lateness, purging):
    trigger = PurgingTrigger.of(EventTimeTrigger()) if purging else None
    assigner = EventTimeSessionWindows.with_dynamic_gap(Gap())
    operator = window_operator(assigner, trigger, lateness, LATE, function=Collect())
    check(operator, Sessions(lateness, purging), history)


# --- windows in checkpoints --------------------------------------------------------------------------------


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
