"""The window operator, after Flink's ``WindowOperatorTest`` and ``WindowOperatorContractTest``."""

from functools import partial

import pytest
from support_windows import Collect, Mean, WindowHarness, collecting, fired, play

from pyflinkstate import (
    AggregateFunction,
    ContinuousEventTimeTrigger,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    Duration,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    OutputTag,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    Time,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    WindowAssigner,
)
from pyflinkstate.api import (
    MAX_LONG_VALUE,
    CountWindow,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
)
from pyflinkstate.errors import ConfigurationError
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
