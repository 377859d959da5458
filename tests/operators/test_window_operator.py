"""The window operator, after Flink's ``WindowOperatorTest`` and ``WindowOperatorContractTest``."""

import pytest
from slot_functions import Mean
from support_windows import Collect, WindowHarness, collecting, fired

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
from pyflinkstate.api.windows import (
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
    def test_a_window_fires_at_its_end_for_each_key_and_leaves_nothing(self):
        harness = collecting(TEN)
        for key, timestamp in (("a", 0), ("b", 9), ("a", 3), ("a", 10)):
            assert harness.process(key, timestamp, timestamp) == []
        assert harness.advance(8) == []
        assert sorted(harness.advance(9)) == [fired("a", 0, 10, 0, 3), fired("b", 0, 10, 9)]
        assert harness.advance(18) == []
        assert harness.advance(19) == [fired("a", 10, 20, 10)]
        harness.assert_empty()

    def test_windows_fire_in_the_order_of_time(self):
        harness = collecting(TEN)
        for timestamp in (35, 5, 25):
            harness.process("a", timestamp, timestamp)
        assert [timestamp for _, timestamp in harness.advance()] == [9, 29, 39]

    def test_offset(self):
        harness = collecting(TumblingEventTimeWindows.of(Time.seconds(3), Time.milliseconds(100)))
        for timestamp in (99, 100, 3099):
            harness.process("a", timestamp, timestamp)
        assert harness.advance() == [fired("a", -2900, 100, 99), fired("a", 100, 3100, 100, 3099)]

    def test_processing_time(self):
        harness = collecting(TumblingProcessingTimeWindows.of(Time.seconds(3)))
        harness.now_ms = 3
        harness.process("a", 1, 7000)
        harness.process("b", 2)
        harness.now_ms = 2998
        harness.process("a", 3)
        assert harness.set_processing_time(2998) == []
        assert sorted(harness.set_processing_time(2999)) == [
            fired("a", 0, 3000, 1, 3),
            fired("b", 0, 3000, 2),
        ]
        harness.assert_empty()

    def test_a_processing_time_window_knows_no_late_elements(self):
        harness = collecting(TumblingProcessingTimeWindows.of(10), late_tag=LATE)
        harness.advance(1000)
        harness.process("a", 1, 0)
        assert harness.set_processing_time(9) == [fired("a", 0, 10, 1)]
        assert harness.side() == {}

    def test_the_next_processing_time_timer_is_known(self):
        harness = collecting(TumblingProcessingTimeWindows.of(10))
        assert harness.operator.next_processing_time_ms() is None
        harness.process("a", 1)
        assert harness.operator.next_processing_time_ms() == 9


class TestSliding:
    def test_an_element_is_in_each_window_that_covers_it(self):
        harness = collecting(SlidingEventTimeWindows.of(Time.seconds(3), Time.seconds(1)))
        harness.process("a", "x", 3000)
        harness.process("a", "y", 3999)
        harness.process("a", "z", 20)
        assert harness.advance() == [
            fired("a", -2000, 1000, "z"),
            fired("a", -1000, 2000, "z"),
            fired("a", 0, 3000, "z"),
            fired("a", 1000, 4000, "x", "y"),
            fired("a", 2000, 5000, "x", "y"),
            fired("a", 3000, 6000, "x", "y"),
        ]
        harness.assert_empty()

    def test_with_gaps_between_windows_elements_of_no_window_are_dropped_but_not_late(self):
        harness = collecting(SlidingEventTimeWindows.of(5, 10), late_tag=LATE)
        harness.process("a", 1, 7)
        assert harness.entries() == {}
        harness.process("a", 2, 14)
        assert harness.advance() == [fired("a", 10, 15, 2)]
        assert (harness.side(), harness.dropped()) == ({}, 0)

    def test_an_element_is_late_for_some_of_its_windows(self):
        harness = collecting(SlidingEventTimeWindows.of(20, 10), late_tag=LATE)
        harness.advance(19)
        harness.process("a", 1, 15)
        assert harness.side() == {}
        assert harness.advance() == [fired("a", 10, 30, 1)]

    def test_processing_time(self):
        harness = collecting(SlidingProcessingTimeWindows.of(Time.seconds(3), Time.seconds(1)))
        harness.now_ms = 3
        harness.process("a", 1)
        assert harness.set_processing_time(1000) == [fired("a", -2000, 1000, 1)]
        harness.process("a", 2)
        assert harness.set_processing_time(1999) == [fired("a", -1000, 2000, 1, 2)]
        harness.set_processing_time(10_000)
        harness.assert_empty()


class TestLateness:
    def test_late_elements_are_dropped_and_counted(self):
        harness = collecting(TEN)
        harness.advance(9)
        harness.process("a", 1, 9)
        assert (harness.dropped(), harness.entries(), harness.timers()) == (1, {}, {})

    def test_late_elements_go_to_the_side_output_with_their_timestamps(self):
        harness = collecting(TEN, late_tag=LATE)
        harness.advance(9)
        harness.process("a", 1, 9)
        harness.process("a", 2, 10)
        assert harness.side() == {"late": [(1, 9)]}
        assert harness.dropped() == 0

    def test_an_element_whose_window_lives_is_not_late_though_its_timestamp_is_past(self):
        harness = collecting(TEN, late_tag=LATE)
        harness.advance(8)
        harness.process("a", 1, 0)
        assert harness.advance(9) == [fired("a", 0, 10, 1)]
        assert harness.side() == {}

    def test_within_the_lateness_each_late_element_fires_again(self):
        harness = collecting(TEN, allowed_lateness_ms=5, late_tag=LATE)
        harness.process("a", 1, 1)
        assert harness.advance(9) == [fired("a", 0, 10, 1)]
        assert harness.process("a", 2, 2) == [fired("a", 0, 10, 1, 2)]
        assert harness.advance(13) == []
        assert harness.process("a", 3, 3) == [fired("a", 0, 10, 1, 2, 3)]
        assert harness.advance(14) == []
        harness.assert_empty()
        assert harness.process("a", 4, 4) == []
        assert harness.side() == {"late": [(4, 4)]}

    def test_a_purging_trigger_keeps_nothing_for_late_firings(self):
        harness = collecting(TEN, trigger=PurgingTrigger.of(EventTimeTrigger.create()), allowed_lateness_ms=5)
        harness.process("a", 1, 1)
        assert harness.advance(9) == [fired("a", 0, 10, 1)]
        assert harness.entries() == {}
        assert harness.process("a", 2, 2) == [fired("a", 0, 10, 2)]
        harness.advance(14)
        harness.assert_empty()

    def test_an_empty_window_does_not_fire_at_its_clean_up(self):
        harness = collecting(TEN, trigger=PurgingTrigger.of(CountTrigger.of(1)), allowed_lateness_ms=5)
        assert harness.process("a", 1, 1) == [fired("a", 0, 10, 1)]
        assert harness.advance() == []
        harness.assert_empty()

    def test_one_clean_up_timer_for_each_window(self):
        harness = collecting(TEN, allowed_lateness_ms=5, trigger=NeverTrigger())
        harness.process("a", 1, 1)
        harness.process("a", 2, 2)
        assert harness.timers() == {"event": [(14, "a", TimeWindow(0, 10))]}

    def test_a_lateness_beyond_the_end_of_time_means_no_clean_up(self):
        harness = collecting(TEN, allowed_lateness_ms=MAX_LONG_VALUE - 5)
        harness.process("a", 1, 1)
        assert harness.timers() == {"event": [(9, "a", TimeWindow(0, 10))]}
        assert harness.advance(MAX_LONG_VALUE - 1) == [fired("a", 0, 10, 1)]
        assert harness.process("a", 2, 2) == [fired("a", 0, 10, 1, 2)]

    def test_lateness_means_nothing_to_processing_time(self):
        harness = collecting(TumblingProcessingTimeWindows.of(10), allowed_lateness_ms=50)
        harness.process("a", 1)
        harness.set_processing_time(9)
        harness.assert_empty()


class TestGlobalAndCountWindows:
    def test_global_windows_never_fire_by_themselves(self):
        harness = collecting(GlobalWindows.create())
        harness.process("a", 1, 1)
        assert harness.advance() == []
        assert harness.set_processing_time(10**15) == []
        assert harness.timers() == {}
        assert harness.entries() == {"window-contents": {("a", GlobalWindow()): [1]}}

    def test_by_event_time_the_global_window_fires_at_the_final_watermark(self):
        harness = collecting(GlobalWindows.create(), trigger=EventTimeTrigger())
        harness.process("a", 1, 1)
        assert harness.advance(MAX_LONG_VALUE - 1) == []
        assert harness.advance() == [(("a", GlobalWindow(), [1]), MAX_LONG_VALUE)]

    def test_count_windows_of_java(self):
        harness = collecting(GlobalWindows.create(), trigger=PurgingTrigger.of(CountTrigger.of(3)))
        emitted = [harness.process(key, number) for number in range(4) for key in "ab"]
        window = GlobalWindow.get()
        assert [found for found in emitted if found] == [
            [((key, window, [0, 1, 2]), MAX_LONG_VALUE)] for key in "ab"
        ]
        assert harness.entries()["window-contents"] == {(key, window): [3] for key in "ab"}

    def test_without_purging_the_elements_stay(self):
        harness = collecting(GlobalWindows.create(), trigger=CountTrigger.of(2))
        emitted = [harness.process("a", number) for number in range(4)]
        assert [found[0][0][2] for found in emitted if found] == [[0, 1], [0, 1, 2, 3]]

    def test_tumbling_count_windows(self):
        harness = collecting(CountTumblingWindowAssigner.of(2))
        emitted = [harness.process("a", number) for number in range(5)]
        assert [found[0][0][1:] for found in emitted if found] == [
            (CountWindow(0), [0, 1]),
            (CountWindow(1), [2, 3]),
        ]
        assert harness.entries()["window-contents"] == {("a", CountWindow(2)): [4]}

    def test_sliding_count_windows_fire_when_they_are_full(self):
        harness = collecting(CountSlidingWindowAssigner.of(3, 1))
        emitted = [harness.process("a", number) for number in range(5)]
        assert [found[0][0][1:] for found in emitted if found] == [
            (CountWindow(0), [0, 1, 2]),
            (CountWindow(1), [1, 2, 3]),
            (CountWindow(2), [2, 3, 4]),
        ]

    def test_count_windows_that_have_fired_leave_just_the_count(self):
        harness = collecting(CountSlidingWindowAssigner.of(4, 4))
        for number in range(8):
            harness.process("a", number)
        assert harness.entries() == {"slide-count-assigner": {"a": 8}}


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
