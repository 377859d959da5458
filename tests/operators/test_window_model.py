"""Random elements, watermarks, snapshots and restores, against models that keep everything and search it."""

import attrs
from hypothesis import given, settings, strategies as st
from support_windows import Collect, WindowHarness

from pyflinkstate import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    OutputTag,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeWindow,
)
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
