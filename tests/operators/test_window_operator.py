"""The window operator, its triggers and functions, after Flink's tests of them."""

from functools import partial

import pytest
from support_windows import Collect, CollectInContext, Listing, Mean, WindowHarness, collecting, fired, play

from pyflinkstate import (
    AggregateFunction,
    AllWindowFunction,
    ContinuousEventTimeTrigger,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    Duration,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    ListStateDescriptor,
    MapStateDescriptor,
    NeverTrigger,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    Time,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    ValueStateDescriptor,
    WindowAssigner,
)
from pyflinkstate.api import (
    MAX_LONG_VALUE,
    ContinuousProcessingTimeTrigger,
    CountWindow,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
)
from pyflinkstate.errors import BadRecordError, ConfigurationError, StateRegistrationError
from pyflinkstate.runtime.operators import window_operator

LATE = OutputTag("late")
TEN = TumblingEventTimeWindows.of(Time.milliseconds(10))


class TestTumbling:
    def test_the_next_processing_time_timer_is_known(self):
        harness = collecting(TumblingProcessingTimeWindows.of(10))
        assert harness.operator.next_processing_time_ms() is None
        harness.process("a", 1)
        assert harness.operator.next_processing_time_ms() == 9


class Says(Trigger):
    """Says what it is told, whatever happens."""

    def __init__(self, result):
        self.result = result

    def on_element(self, element, timestamp, window, ctx):
        return self.result

    def on_processing_time(self, time, window, ctx):
        return self.result

    def on_event_time(self, time, window, ctx):
        return self.result

    def on_merge(self, window, ctx):
        pass

    def clear(self, window, ctx):
        pass


class TestTriggerResults:
    @pytest.mark.parametrize(
        ("result", "fires", "stays"),
        [
            (TriggerResult.CONTINUE, False, True),
            (TriggerResult.FIRE, True, True),
            (TriggerResult.PURGE, False, False),
            (TriggerResult.FIRE_AND_PURGE, True, False),
        ],
    )
    def test_on_element(self, result, fires, stays):
        harness = collecting(TEN, trigger=Says(result))
        assert harness.process("a", 1, 1) == ([fired("a", 0, 10, 1)] if fires else [])
        assert bool(harness.entries()) == stays
        # At the clean-up timer the trigger is asked once more.
        assert harness.advance() == ([fired("a", 0, 10, 1)] if fires and stays else [])
        harness.assert_empty()

    def test_anything_else_is_an_error(self):
        with pytest.raises(ConfigurationError, match=r"Says returned True.*TriggerResult"):
            collecting(TEN, trigger=Says(True)).process("a", 1, 1)


class NoWindows(GlobalWindows):
    def __init__(self, is_event_time, window_type=None):
        self._is_event_time = is_event_time
        self._window_type = window_type or GlobalWindowSerializer()

    def assign_windows(self, element, timestamp, context):
        return []

    def is_event_time(self):
        return self._is_event_time

    def get_window_serializer(self):
        return self._window_type


class TestNoWindows:
    @pytest.mark.parametrize(("is_event_time", "late"), [(True, [(1, 5)]), (False, [])])
    def test_an_element_of_no_window_is_late_if_its_timestamp_is(self, is_event_time, late):
        harness = collecting(NoWindows(is_event_time), allowed_lateness_ms=3, late_tag=LATE)
        harness.advance(8)
        for timestamp in (5, 6, None):
            harness.process("a", 1, timestamp)
        assert harness.side().get("late", []) == late


class TestBuilder:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"assigner": TumblingEventTimeWindows}, "a window assigner is needed"),
            ({"assigner": NoWindows(True, "text")}, "a type of the windows"),
            ({"trigger": EventTimeTrigger}, "a trigger is needed"),
            ({"allowed_lateness_ms": -1}, "lateness.*not -1"),
            ({"allowed_lateness_ms": Time.seconds(1)}, "lateness.*milliseconds"),
            ({"late_tag": "late"}, "an OutputTag"),
            ({"function": len}, "WindowFunction"),
            ({"function": None}, "needs a window function"),
            ({"contents": dict}, "contents of a window"),
            ({"contents": 3}, "contents of a window"),
            (
                {"assigner": EventTimeSessionWindows.with_gap(1), "trigger": NeverTrigger()},
                "merge.*NeverTrigger does not support that",
            ),
            (
                {
                    "assigner": EventTimeSessionWindows.with_gap(1),
                    "trigger": PurgingTrigger.of(Says(TriggerResult.FIRE)),
                },
                "merge.*PurgingTrigger does not support that",
            ),
        ],
    )
    def test_what_cannot_run_is_refused(self, options, message):
        with pytest.raises(ConfigurationError, match=message):
            window_operator(**{"assigner": TEN, "function": Collect(), **options})

    def test_lengths_may_be_any_length_of_time(self):
        for size in (10, Time.milliseconds(10), Duration.of_millis(10)):
            assert repr(TumblingEventTimeWindows.of(size)) == "TumblingEventTimeWindows(10, 0)"

    def test_the_trigger_is_the_assigners_unless_there_is_one(self):
        assert isinstance(window_operator(TEN, contents=max).trigger, EventTimeTrigger)
        trigger = ContinuousEventTimeTrigger.of(5)
        assert window_operator(TEN, trigger, contents=max).trigger is trigger

    def test_an_assigner_of_ones_own_with_windows_of_ones_own(self):
        harness = WindowHarness(window_operator(ByParity(), CountTrigger(2), function=Collect()))
        emitted = [harness.process("a", number, 0) for number in range(3)]
        assert emitted == [[], [], [(("a", Parity(0), [0, 2]), 99)]]
        restored = WindowHarness(
            window_operator(ByParity(), CountTrigger(2), function=Collect()), restore=[harness.snapshot()]
        )
        assert restored.process("a", 3, 0) == [(("a", Parity(1), [1, 3]), 99)]


class Parity:
    def __init__(self, rest):
        self.rest = rest

    def max_timestamp(self):
        return 99

    def __eq__(self, other):
        return isinstance(other, Parity) and self.rest == other.rest

    def __hash__(self):
        return self.rest


class ByParity(WindowAssigner):
    def assign_windows(self, element, timestamp, context):
        return [Parity(element % 2)]

    def get_default_trigger(self, env):
        return NeverTrigger()

    def get_window_serializer(self):
        return Types.PICKLED_BYTE_ARRAY()

    def is_event_time(self):
        return True


class Unmergeable(Mean, AggregateFunction):
    def __init__(self, error):
        self.error = error

    def merge(self, acc_a, acc_b):
        if self.error:
            raise NotImplementedError
        return


class TestAggregatesThatCannotMerge:
    @pytest.mark.parametrize("error", [True, False])
    def test_is_a_clear_error(self, error):
        sessions = EventTimeSessionWindows.with_gap(10)
        harness = WindowHarness(window_operator(sessions, contents=Unmergeable(error)))
        harness.process("a", 1, 0)
        harness.process("a", 1, 5)
        harness.process("a", 1, 22)
        with pytest.raises(ConfigurationError, match=r"Unmergeable.merge\(\) failed.*sessions"):
            harness.process("a", 1, 13)


def counted(window, *elements):
    """What a window without a time emits."""
    return ("a", window, list(elements)), MAX_LONG_VALUE


#: How to make a harness, and the steps that :func:`play` takes with it.
STORIES = {
    "Tumbling: a window fires at its end for each key and leaves nothing": (
        partial(collecting, TEN),
        ("process", "a", 0, 0, []),
        ("process", "b", 9, 9, []),
        ("process", "a", 3, 3, []),
        ("process", "a", 10, 10, []),
        ("advance", 8, []),
        ("advance", 9, [fired("a", 0, 10, 0, 3), fired("b", 0, 10, 9)]),
        ("advance", 18, []),
        ("advance", 19, [fired("a", 10, 20, 10)]),
        ("assert_empty", None),
    ),
    "Tumbling: windows fire in the order of time": (
        partial(collecting, TEN),
        ("process", "a", 35, 35, ...),
        ("process", "a", 5, 5, ...),
        ("process", "a", 25, 25, ...),
        ("advance", [fired("a", 0, 10, 5), fired("a", 20, 30, 25), fired("a", 30, 40, 35)]),
    ),
    "Tumbling: processing time": (
        partial(collecting, TumblingProcessingTimeWindows.of(Time.seconds(3))),
        ("set_clock", 3, ...),
        ("process", "a", 1, 7000, ...),
        ("process", "b", 2, ...),
        ("set_clock", 2998, ...),
        ("process", "a", 3, ...),
        ("set_processing_time", 2998, []),
        ("set_processing_time", 2999, [fired("a", 0, 3000, 1, 3), fired("b", 0, 3000, 2)]),
        ("assert_empty", None),
    ),
    "Tumbling: offset": (
        partial(collecting, TumblingEventTimeWindows.of(Time.seconds(3), Time.milliseconds(100))),
        ("process", "a", 99, 99, ...),
        ("process", "a", 100, 100, ...),
        ("process", "a", 3099, 3099, ...),
        ("advance", [fired("a", -2900, 100, 99), fired("a", 100, 3100, 100, 3099)]),
    ),
    "Tumbling: a processing time window knows no late elements": (
        partial(collecting, TumblingProcessingTimeWindows.of(10), late_tag=LATE),
        ("advance", 1000, ...),
        ("process", "a", 1, 0, ...),
        ("set_processing_time", 9, [fired("a", 0, 10, 1)]),
        ("side", {}),
    ),
    "Sliding: an element is in each window that covers it": (
        partial(collecting, SlidingEventTimeWindows.of(Time.seconds(3), Time.seconds(1))),
        ("process", "a", "x", 3000, ...),
        ("process", "a", "y", 3999, ...),
        ("process", "a", "z", 20, ...),
        (
            "advance",
            [
                fired("a", -2000, 1000, "z"),
                fired("a", -1000, 2000, "z"),
                fired("a", 0, 3000, "z"),
                fired("a", 1000, 4000, "x", "y"),
                fired("a", 2000, 5000, "x", "y"),
                fired("a", 3000, 6000, "x", "y"),
            ],
        ),
        ("assert_empty", None),
    ),
    "Sliding: with gaps between windows elements of no window are dropped but not late": (
        partial(collecting, SlidingEventTimeWindows.of(5, 10), late_tag=LATE),
        ("process", "a", 1, 7, ...),
        ("entries", {}),
        ("process", "a", 2, 14, ...),
        ("advance", [fired("a", 10, 15, 2)]),
        ("side", {}),
        ("dropped", 0),
    ),
    "Sliding: an element is late for some of its windows": (
        partial(collecting, SlidingEventTimeWindows.of(20, 10), late_tag=LATE),
        ("advance", 19, ...),
        ("process", "a", 1, 15, ...),
        ("side", {}),
        ("advance", [fired("a", 10, 30, 1)]),
    ),
    "Sliding: processing time": (
        partial(collecting, SlidingProcessingTimeWindows.of(Time.seconds(3), Time.seconds(1))),
        ("set_clock", 3, ...),
        ("process", "a", 1, ...),
        ("set_processing_time", 1000, [fired("a", -2000, 1000, 1)]),
        ("process", "a", 2, ...),
        ("set_processing_time", 1999, [fired("a", -1000, 2000, 1, 2)]),
        ("set_processing_time", 10000, ...),
        ("assert_empty", None),
    ),
    "Lateness: late elements are dropped and counted": (
        partial(collecting, TEN),
        ("advance", 9, ...),
        ("process", "a", 1, 9, ...),
        ("dropped", 1),
        ("entries", {}),
        ("timers", {}),
    ),
    "Lateness: late elements go to the side output with their timestamps": (
        partial(collecting, TEN, late_tag=LATE),
        ("advance", 9, ...),
        ("process", "a", 1, 9, ...),
        ("process", "a", 2, 10, ...),
        ("side", {"late": [(1, 9)]}),
        ("dropped", 0),
    ),
    "Lateness: an element whose window lives is not late though its timestamp is past": (
        partial(collecting, TEN, late_tag=LATE),
        ("advance", 8, ...),
        ("process", "a", 1, 0, ...),
        ("advance", 9, [fired("a", 0, 10, 1)]),
        ("side", {}),
    ),
    "Lateness: within the lateness each late element fires again": (
        partial(collecting, TEN, allowed_lateness_ms=5, late_tag=LATE),
        ("process", "a", 1, 1, ...),
        ("advance", 9, [fired("a", 0, 10, 1)]),
        ("process", "a", 2, 2, [fired("a", 0, 10, 1, 2)]),
        ("advance", 13, []),
        ("process", "a", 3, 3, [fired("a", 0, 10, 1, 2, 3)]),
        ("advance", 14, []),
        ("assert_empty", None),
        ("process", "a", 4, 4, []),
        ("side", {"late": [(4, 4)]}),
    ),
    "Lateness: a purging trigger keeps nothing for late firings": (
        partial(collecting, TEN, trigger=PurgingTrigger.of(EventTimeTrigger.create()), allowed_lateness_ms=5),
        ("process", "a", 1, 1, ...),
        ("advance", 9, [fired("a", 0, 10, 1)]),
        ("entries", {}),
        ("process", "a", 2, 2, [fired("a", 0, 10, 2)]),
        ("advance", 14, ...),
        ("assert_empty", None),
    ),
    "Lateness: an empty window does not fire at its clean up": (
        partial(collecting, TEN, trigger=PurgingTrigger.of(CountTrigger.of(1)), allowed_lateness_ms=5),
        ("process", "a", 1, 1, [fired("a", 0, 10, 1)]),
        ("advance", []),
        ("assert_empty", None),
    ),
    "Lateness: one clean up timer for each window": (
        partial(collecting, TEN, allowed_lateness_ms=5, trigger=NeverTrigger()),
        ("process", "a", 1, 1, ...),
        ("process", "a", 2, 2, ...),
        ("timers", {"event": [(14, "a", TimeWindow(0, 10))]}),
    ),
    "Lateness: a lateness beyond the end of time means no clean up": (
        partial(collecting, TEN, allowed_lateness_ms=MAX_LONG_VALUE - 5),
        ("process", "a", 1, 1, ...),
        ("timers", {"event": [(9, "a", TimeWindow(0, 10))]}),
        ("advance", MAX_LONG_VALUE - 1, [fired("a", 0, 10, 1)]),
        ("process", "a", 2, 2, [fired("a", 0, 10, 1, 2)]),
    ),
    "Lateness: lateness means nothing to processing time": (
        partial(collecting, TumblingProcessingTimeWindows.of(10), allowed_lateness_ms=50),
        ("process", "a", 1, ...),
        ("set_processing_time", 9, ...),
        ("assert_empty", None),
    ),
    "GlobalAndCountWindows: global windows never fire by themselves": (
        partial(collecting, GlobalWindows.create()),
        ("process", "a", 1, 1, ...),
        ("advance", []),
        ("set_processing_time", 10**15, []),
        ("timers", {}),
        ("entries", {"window-contents": {("a", GlobalWindow()): [1]}}),
    ),
    "GlobalAndCountWindows: by event time the global window fires at the final watermark": (
        partial(collecting, GlobalWindows.create(), trigger=EventTimeTrigger()),
        ("process", "a", 1, 1, ...),
        ("advance", MAX_LONG_VALUE - 1, []),
        ("advance", [counted(GlobalWindow(), 1)]),
    ),
    "GlobalAndCountWindows: count windows of Java": (
        partial(collecting, GlobalWindows.create(), trigger=PurgingTrigger.of(CountTrigger.of(2))),
        ("process", "a", 0, []),
        ("process", "b", 7, []),
        ("process", "a", 1, [counted(GlobalWindow(), 0, 1)]),
        ("process", "a", 2, []),
        (
            "entries",
            {
                "window-contents": {("a", GlobalWindow()): [2], ("b", GlobalWindow()): [7]},
                "count": {("a", GlobalWindow()): 1, ("b", GlobalWindow()): 1},
            },
        ),
    ),
    "GlobalAndCountWindows: without purging the elements stay": (
        partial(collecting, GlobalWindows.create(), trigger=CountTrigger.of(2)),
        ("process", "a", 0, []),
        ("process", "a", 1, [counted(GlobalWindow(), 0, 1)]),
        ("process", "a", 2, []),
        ("process", "a", 3, [counted(GlobalWindow(), 0, 1, 2, 3)]),
    ),
    "GlobalAndCountWindows: tumbling count windows": (
        partial(collecting, CountTumblingWindowAssigner.of(2)),
        ("process", "a", 0, []),
        ("process", "a", 1, [counted(CountWindow(0), 0, 1)]),
        ("process", "a", 2, []),
        ("process", "a", 3, [counted(CountWindow(1), 2, 3)]),
        ("entries", {"tumble-count-assigner": {"a": 4}}),
    ),
    "GlobalAndCountWindows: sliding count windows fire when they are full": (
        partial(collecting, CountSlidingWindowAssigner.of(3, 1)),
        ("process", "a", 0, []),
        ("process", "a", 1, []),
        ("process", "a", 2, [counted(CountWindow(0), 0, 1, 2)]),
        ("process", "a", 3, [counted(CountWindow(1), 1, 2, 3)]),
    ),
    "GlobalAndCountWindows: sliding count windows that have fired leave just the count": (
        partial(collecting, CountSlidingWindowAssigner.of(2, 2)),
        ("process", "a", 0, []),
        ("process", "a", 1, [counted(CountWindow(0), 0, 1)]),
        ("entries", {"slide-count-assigner": {"a": 2}}),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_story(name):
    make, *steps = STORIES[name]
    play(make(), *steps)


# --- triggers, after Flink's tests of them: driven through the operator ------------------------------------


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
TRIGGER_STORIES = {
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


@pytest.mark.parametrize("name", TRIGGER_STORIES)
def test_story_of_a_trigger(name):
    make, *steps = TRIGGER_STORIES[name]
    play(make(), *steps)


# --- contents and functions of windows ---------------------------------------------------------------------


WINDOWS_OF_TEN = TumblingEventTimeWindows.of(10)


class TestContents:
    @pytest.mark.parametrize(
        ("options", "values", "stored", "result"),
        [
            ({"contents": lambda old, new: old * 10 + new}, (1, 2, 3), 123, 123),
            ({"contents": lambda old, new: old + new}, (0,), 0, 0),
            ({"contents": Mean(), "contents_type": Types.LIST(Types.LONG())}, (3, 4), [7, 2], 3.5),
            ({"contents": Mean(), "function": Collect()}, (1, 2, 6), [9, 3], ("a", [3.0])),
            ({"contents": Mean(), "function": CollectInContext()}, (2,), [2, 1], ("a", [2])),
            ({"contents": max, "function": CollectInContext()}, (2, 3), 3, ("a", [3])),
            ({"contents": list, "function": CollectInContext()}, (2, 3), [2, 3], ("a", [2, 3])),
        ],
        ids=[
            "a reduced value passes through",
            "a reduced zero is a result",
            "an aggregated value passes through",
            "aggregated, with a window function",
            "aggregated, with a process function",
            "reduced, with a process function",
            "all elements",
        ],
    )
    def test_what_is_kept_and_what_comes_out(self, options, values, stored, result):
        harness = WindowHarness(window_operator(WINDOWS_OF_TEN, **options))
        for value in values:
            harness.process("a", value, value)
        assert harness.entries() == {"window-contents": {("a", TimeWindow(0, 10)): stored}}
        if type(result) is tuple:
            result = (result[0], TimeWindow(0, 10), result[1])
        assert harness.advance(9) == [(result, 9)]
        harness.assert_empty()

    def test_reducing_in_place_changes_neither_other_windows_nor_what_was_emitted(self):
        def extend(old, new):
            old.extend(new)
            return old

        sliding = SlidingEventTimeWindows.of(20, 10)
        harness = WindowHarness(window_operator(sliding, CountTrigger.of(1), contents=extend))
        first = harness.process("a", [1], 5)
        second = harness.process("a", [2], 15)
        assert (first, second) == ([([1], 19), ([1], 9)], [([2], 29), ([1, 2], 19)])

    def test_aggregating_in_place_does_not_change_what_was_emitted(self):
        harness = WindowHarness(window_operator(WINDOWS_OF_TEN, CountTrigger.of(1), contents=Listing()))
        emitted = [harness.process("a", value, 0) for value in (1, 2)]
        assert emitted == [[([1], 9)], [([1, 2], 9)]]

    def test_a_function_that_changes_its_elements_does_not_change_state(self):
        class Sorting(ProcessWindowFunction):
            def process(self, key, context, elements):
                elements.sort()
                return [list(elements)]

        harness = WindowHarness(window_operator(WINDOWS_OF_TEN, allowed_lateness_ms=9, function=Sorting()))
        harness.process("a", 2, 1)
        harness.process("a", 1, 1)
        assert harness.advance(9) == [([1, 2], 9)]
        assert harness.entries()["window-contents"] == {("a", TimeWindow(0, 10)): [2, 1]}

    def test_no_result_and_side_outputs(self):
        tag = OutputTag("big")

        class Sides(ProcessWindowFunction):
            def process(self, key, context, elements):
                if elements[0] > 1:
                    return [(tag, elements[0])]
                return None

        harness = WindowHarness(window_operator(WINDOWS_OF_TEN, function=Sides()))
        harness.process("a", 1, 1)
        harness.process("b", 2, 1)
        assert harness.advance() == []
        assert harness.side() == {"big": [(2, 9)]}

    def test_functions_of_streams_that_are_not_keyed(self):
        class Apply(AllWindowFunction):
            def apply(self, window, inputs):
                yield window, list(inputs)

        class Process(ProcessAllWindowFunction):
            def process(self, context, elements):
                yield context.window(), list(elements)

        for function in (Apply(), Process()):
            harness = WindowHarness(window_operator(WINDOWS_OF_TEN, function=function))
            harness.process(0, 1, 1)
            assert harness.advance() == [((TimeWindow(0, 10), [1]), 9)]


class Counting(ProcessWindowFunction):
    """Counts firings: of the window, of the key, and what was cleared."""

    def __init__(self, clears=True):
        self.clears = clears
        self.closed = 0
        self.of_window = ValueStateDescriptor("firings", Types.LONG())
        self.of_key = ValueStateDescriptor("all-firings", Types.LONG())

    def open(self, runtime_context):
        self.name = runtime_context.get_task_name()

    def close(self):
        self.closed += 1

    def process(self, key, context, elements):
        states = [
            context.window_state().get_state(self.of_window),
            context.global_state().get_state(self.of_key),
        ]
        for state in states:
            state.update((state.value() or 0) + 1)
        yield [context.window().start, *(state.value() for state in states)]
        yield [context.current_processing_time(), context.current_watermark()]

    def clear(self, context):
        if self.clears:
            assert context.window_state().get_state(self.of_window).value()
            context.window_state().get_state(self.of_window).clear()


class TestStateOfFunctions:
    def test_the_function_is_opened_and_closed(self):
        harness = WindowHarness(window_operator(WINDOWS_OF_TEN, function=Counting()))
        assert harness.operator.function.name == "windows"
        harness.operator.close()
        assert harness.operator.function.closed == 1

    def test_contents_are_closed_although_the_function_is_not(self):
        class FailsToClose(Counting):
            def close(self):
                super().close()
                raise TimeoutError("flush took too long")

        class ClosingMean(Mean):
            closed = 0

            def close(self):
                self.closed += 1

        harness = WindowHarness(
            window_operator(WINDOWS_OF_TEN, contents=ClosingMean(), function=FailsToClose())
        )
        with pytest.raises(TimeoutError, match="flush took too long"):
            harness.operator.close()
        assert harness.operator.function.closed == harness.operator.contents.function.closed == 1

    def test_every_kind_of_per_window_state(self):
        class Kinds(ProcessWindowFunction):
            def process(self, key, context, elements):
                listed = context.window_state().get_list_state(ListStateDescriptor("listed"))
                mapped = context.window_state().get_map_state(MapStateDescriptor("mapped"))
                listed.add_all(elements)
                mapped.put(key, len(elements))
                yield list(listed.get()), dict(mapped.items())

        harness = WindowHarness(window_operator(WINDOWS_OF_TEN, allowed_lateness_ms=9, function=Kinds()))
        harness.process("a", 1, 1)
        assert harness.advance(9) == [(([1], {"a": 1}), 9)]
        assert harness.process("a", 2, 2) == [(([1, 1, 2], {"a": 2}), 9)]

    def test_per_window_state_is_refused_where_windows_merge(self):
        harness = WindowHarness(
            window_operator(EventTimeSessionWindows.with_gap(10), function=Counting(clears=False))
        )
        harness.process("a", 1, 1)
        with pytest.raises(ConfigurationError, match=r"'firings'.*merge.*global_state"):
            harness.advance()

    def test_per_window_state_needs_the_right_descriptor(self):
        class Wrong(ProcessWindowFunction):
            def process(self, key, context, elements):
                context.window_state().get_state(ListStateDescriptor("listed"))

        harness = WindowHarness(window_operator(WINDOWS_OF_TEN, function=Wrong()))
        harness.process("a", 1, 1)
        with pytest.raises(StateRegistrationError, match="ValueStateDescriptor"):
            harness.advance()


def counting(assigner, now_ms=0, *, clears=True, **options):
    operator = window_operator(assigner, function=Counting(clears), **options)
    return WindowHarness(operator, now_ms=now_ms)


#: How to make a harness, and the steps that :func:`play` takes with it.
CONTENTS_STORIES = {
    "state of a window is its own, and global state the key's": (
        partial(counting, WINDOWS_OF_TEN, now_ms=77, allowed_lateness_ms=5),
        ("process", "a", 1, 1, ...),
        ("advance", 9, [([0, 1, 1], 9), ([77, 9], 9)]),
        ("process", "a", 1, 2, [([0, 2, 2], 9), ([77, 9], 9)]),
        ("process", "a", 1, 12, ...),
        ("advance", 19, [([10, 1, 3], 19), ([77, 19], 19)]),
        ("process", "b", 1, 22, ...),
        ("advance", 29, [([20, 1, 1], 29), ([77, 29], 29)]),
        ("advance", 34, []),
        ("entries", {"all-firings": {"a": 3, "b": 1}}),
    ),
    "state of a window that is not cleared stays": (
        partial(counting, WINDOWS_OF_TEN, clears=False),
        ("process", "a", 1, 1, ...),
        ("advance", 9, ...),
        ("entries", {"firings": {("a", TimeWindow(0, 10)): 1}, "all-firings": {"a": 1}}),
    ),
    "a generator reads the state of its own window": (
        partial(counting, SlidingEventTimeWindows.of(20, 10)),
        ("process", "a", 1, 15, ...),
        ("advance", 29, [([0, 1, 1], 19), ([0, 29], 19), ([10, 1, 2], 29), ([0, 29], 29)]),
    ),
}


@pytest.mark.parametrize("name", CONTENTS_STORIES)
def test_story_of_contents(name):
    make, *steps = CONTENTS_STORIES[name]
    play(make(), *steps)
