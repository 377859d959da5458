"""Triggers, after Flink's tests of them: driven through the operator, what they leave included."""

from functools import partial

import pytest
from support_windows import Collect, WindowHarness, collecting, fired, play

from pyflinkstate import (
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    ListStateDescriptor,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Time,
    TimeWindow,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.api import (
    MAX_LONG_VALUE,
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
)
from pyflinkstate.errors import BadRecordError, ConfigurationError
from pyflinkstate.runtime.operators import window_operator

HUNDRED = TumblingEventTimeWindows.of(100)


class TestTriggerResult:
    def test_what_each_does(self):
        does = {result.name: (result.is_fire(), result.is_purge()) for result in TriggerResult}
        assert does == {
            "CONTINUE": (False, False),
            "FIRE": (True, False),
            "PURGE": (False, True),
            "FIRE_AND_PURGE": (True, True),
        }


class TestContinuousEventTimeTrigger:
    def test_it_needs_timestamps(self):
        harness = collecting(GlobalWindows.create(), trigger=ContinuousEventTimeTrigger(10))
        with pytest.raises(BadRecordError, match="ContinuousEventTimeTrigger"):
            harness.process("a", 1)


class TestContinuousProcessingTimeTrigger:
    @pytest.mark.parametrize("make", [ContinuousProcessingTimeTrigger, ContinuousEventTimeTrigger.of])
    def test_the_interval_must_be_positive(self, make):
        with pytest.raises(ConfigurationError, match="interval must be positive"):
            make(0)


class TestCountTrigger:
    @pytest.mark.parametrize("size", [0, -1, 1.5, True])
    def test_the_size_is_a_positive_number(self, size):
        with pytest.raises(ConfigurationError, match="whole number, at least 1"):
            CountTrigger.of(size)


class TestPurgingTrigger:
    @pytest.mark.parametrize("nested", list(TriggerResult))
    def test_what_fires_purges(self, nested):
        class Nested(NeverTrigger):
            def on_element(self, element, timestamp, window, ctx):
                return nested

            on_event_time = on_processing_time = lambda self, time, window, ctx: nested

        trigger = PurgingTrigger.of(Nested())
        expected = TriggerResult.FIRE_AND_PURGE if nested.is_fire() else nested
        assert trigger.on_element(1, 2, None, None) == expected
        assert trigger.on_event_time(1, None, None) == expected
        assert trigger.on_processing_time(1, None, None) == expected

    def test_it_needs_a_trigger(self):
        with pytest.raises(ConfigurationError, match="a trigger is needed"):
            PurgingTrigger.of(EventTimeTrigger)


class Remembering(NeverTrigger):
    """Keeps all its elements in a state of a kind, and tells of them at the end."""

    def __init__(self, descriptor):
        self.descriptor = descriptor

    def can_merge(self):
        return True

    def on_element(self, element, timestamp, window, ctx):
        ctx.get_partitioned_state(self.descriptor).add(element)
        ctx.get_metric_group().counter("remembered").inc()
        return TriggerResult.CONTINUE

    def on_merge(self, window, ctx):
        ctx.merge_partitioned_state(self.descriptor)


class TestTriggerContext:
    def test_state_is_by_window_and_merged(self):
        listed = ListStateDescriptor("remembered", Types.LONG())
        harness = collecting(EventTimeSessionWindows.with_gap(10), trigger=Remembering(listed))
        for timestamp in (0, 30, 40, 15, 7):
            harness.process("a", timestamp, timestamp)
        assert harness.entries()["remembered"] == {
            ("a", TimeWindow(0, 25)): [0, 15, 7],
            ("a", TimeWindow(30, 50)): [30, 40],
        }
        assert harness.context.metrics.values()["remembered"].count == 5

    def test_state_that_cannot_be_merged_is_refused(self):
        class Valued(Remembering):
            def on_element(self, element, timestamp, window, ctx):
                ctx.get_partitioned_state(self.descriptor).update(element)
                return TriggerResult.CONTINUE

        harness = collecting(
            EventTimeSessionWindows.with_gap(10), trigger=Valued(ValueStateDescriptor("one"))
        )
        harness.process("a", 1, 0)
        with pytest.raises(ConfigurationError, match=r"Valued.*cannot be merged"):
            harness.process("a", 2, 5)

    def test_timers_that_a_trigger_leaves_of_merged_windows_do_nothing(self):
        class Leaving(NeverTrigger):
            def can_merge(self):
                return True

            def on_element(self, element, timestamp, window, ctx):
                ctx.register_event_time_timer(window.end - 5)
                return TriggerResult.CONTINUE

            def on_event_time(self, time, window, ctx):
                return TriggerResult.FIRE

        harness = collecting(EventTimeSessionWindows.with_gap(10), trigger=Leaving())
        harness.process("a", 0, 0)
        harness.process("a", 8, 8)
        assert harness.timers()["event"][0] == (5, "a", TimeWindow(0, 10))
        assert harness.advance(5) == []
        assert harness.advance(13) == [fired("a", 0, 18, 0, 8)]

    def test_both_times_are_known(self):
        class Asking(NeverTrigger):
            def on_element(self, element, timestamp, window, ctx):
                ctx.register_processing_time_timer(ctx.get_current_processing_time() + 1)
                ctx.register_event_time_timer(ctx.get_current_watermark() + 1)
                ctx.register_event_time_timer(5)
                ctx.delete_event_time_timer(5)
                ctx.register_processing_time_timer(6)
                ctx.delete_processing_time_timer(6)
                return TriggerResult.CONTINUE

        harness = WindowHarness(
            window_operator(GlobalWindows(), Asking(), function=Collect()), watermark=50, now_ms=70
        )
        harness.process("a", 1)
        assert harness.timers() == {
            "event": [(51, "a", GlobalWindow())],
            "processing": [(71, "a", GlobalWindow())],
        }


#: How to make a harness, and the steps that :func:`play` takes with it.
STORIES = {
    "EventTimeTrigger: past the watermark an element fires and sets no timer": (
        partial(collecting, HUNDRED, allowed_lateness_ms=50),
        ("advance", 99, ...),
        ("process", "a", 1, 5, [fired("a", 0, 100, 1)]),
        ("timers", {"event": [(149, "a", TimeWindow(0, 100))]}),
    ),
    "ProcessingTimeTrigger: it may be used on event time windows": (
        partial(collecting, HUNDRED, trigger=ProcessingTimeTrigger.create()),
        ("process", "a", 1, 5, ...),
        ("set_processing_time", 99, [fired("a", 0, 100, 1)]),
        ("process", "a", 2, 5, ...),
        ("advance", 99, []),
        ("assert_empty", None),
    ),
    "ProcessingTimeTrigger: merging moves the timer": (
        partial(collecting, ProcessingTimeSessionWindows.with_gap(10)),
        ("process", "a", 1, ...),
        ("set_clock", 5, ...),
        ("process", "a", 2, ...),
        ("timers", {"processing": [(14, "a", TimeWindow(0, 15))]}),
    ),
    "ContinuousEventTimeTrigger: fires at multiples of the interval and at the end": (
        partial(collecting, HUNDRED, trigger=ContinuousEventTimeTrigger.of(Time.milliseconds(30))),
        ("process", "a", 1, 35, ...),
        ("advance", 59, []),
        ("advance", 60, [fired("a", 0, 100, 1)]),
        ("process", "a", 2, 70, ...),
        ("advance", 98, [fired("a", 0, 100, 1, 2)]),
        ("process", "a", 3, 70, ...),
        ("advance", 99, [fired("a", 0, 100, 1, 2, 3)]),
        ("assert_empty", None),
    ),
    "ContinuousEventTimeTrigger: each interval that is passed fires": (
        partial(collecting, HUNDRED, trigger=ContinuousEventTimeTrigger(25)),
        ("process", "a", 1, 0, ...),
        ("advance", 99, [fired("a", 0, 100, 1)] * 4),
        ("assert_empty", None),
    ),
    "ContinuousEventTimeTrigger: an interval longer than the window fires once": (
        partial(collecting, HUNDRED, trigger=ContinuousEventTimeTrigger(1000)),
        ("process", "a", 1, 0, ...),
        ("advance", [fired("a", 0, 100, 1)]),
        ("assert_empty", None),
    ),
    "ContinuousEventTimeTrigger: late elements fire at once": (
        partial(collecting, HUNDRED, trigger=ContinuousEventTimeTrigger(50), allowed_lateness_ms=10),
        ("process", "a", 1, 0, ...),
        ("advance", 99, ...),
        ("process", "a", 2, 0, [fired("a", 0, 100, 1, 2)]),
        ("advance", 109, ...),
        ("assert_empty", None),
    ),
    "ContinuousProcessingTimeTrigger: fires at multiples of the interval and at the end": (
        partial(
            collecting,
            TumblingProcessingTimeWindows.of(100),
            trigger=ContinuousProcessingTimeTrigger.of(Time.milliseconds(30)),
        ),
        ("set_clock", 35, ...),
        ("process", "a", 1, ...),
        ("set_processing_time", 59, []),
        ("set_processing_time", 60, [fired("a", 0, 100, 1)]),
        ("set_processing_time", 100, [fired("a", 0, 100, 1)] * 2),
        ("assert_empty", None),
    ),
    "CountTrigger: counts each window by itself and its count goes with the window": (
        partial(collecting, HUNDRED, trigger=CountTrigger.of(2)),
        ("process", "a", 1, 0, []),
        ("process", "a", 2, 100, []),
        ("process", "a", 3, 1, [fired("a", 0, 100, 1, 3)]),
        ("advance", []),
        ("assert_empty", None),
    ),
    "EventTimeTrigger: it may be used on processing time windows": (
        partial(collecting, TumblingProcessingTimeWindows.of(100), trigger=EventTimeTrigger()),
        ("process", "a", 1, 5, ...),
        ("advance", 99, [fired("a", 0, 100, 1)]),
        ("set_processing_time", 98, []),
        ("entries", {"window-contents": {("a", TimeWindow(0, 100)): [1]}}),
        ("set_processing_time", 99, []),
        ("assert_empty", None),
    ),
    "ContinuousEventTimeTrigger: in sessions the earliest next firing counts": (
        partial(collecting, EventTimeSessionWindows.with_gap(20), trigger=ContinuousEventTimeTrigger(7)),
        ("process", "a", 50, 50, ...),
        ("process", "a", 0, 0, ...),
        ("process", "a", 35, 35, ...),
        ("process", "a", 16, 16, ...),
        ("advance", 6, []),
        ("advance", 7, [fired("a", 0, 70, 0, 50, 35, 16)]),
        ("advance", 69, [fired("a", 0, 70, 0, 50, 35, 16)] * 9),
        ("assert_empty", None),
    ),
    "ContinuousEventTimeTrigger: global windows fire for ever": (
        partial(collecting, GlobalWindows.create(), trigger=ContinuousEventTimeTrigger(10)),
        ("process", "a", 1, 0, ...),
        ("advance", 9, []),
        ("advance", 10, [(("a", GlobalWindow(), [1]), MAX_LONG_VALUE)]),
        ("advance", 49, [(("a", GlobalWindow(), [1]), MAX_LONG_VALUE)] * 3),
    ),
    "ContinuousProcessingTimeTrigger: sessions leave nothing": (
        partial(
            collecting, ProcessingTimeSessionWindows.with_gap(20), trigger=ContinuousProcessingTimeTrigger(8)
        ),
        ("process", "a", 0, ...),
        ("set_clock", 5, ...),
        ("process", "a", 5, ...),
        ("set_processing_time", 8, [fired("a", 0, 25, 0, 5)]),
        ("set_processing_time", 30, [fired("a", 0, 25, 0, 5)] * 2),
        ("assert_empty", None),
    ),
    "PurgingTrigger: it merges and clears as the nested one does": (
        partial(
            collecting,
            EventTimeSessionWindows.with_gap(10),
            trigger=PurgingTrigger.of(ContinuousEventTimeTrigger(5)),
        ),
        ("process", "a", 0, 0, ...),
        ("process", "a", 4, 4, ...),
        ("process", "a", 9, 9, ...),
        ("advance", [fired("a", 0, 19, 0, 4, 9)]),
        ("assert_empty", None),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_story(name):
    make, *steps = STORIES[name]
    play(make(), *steps)
