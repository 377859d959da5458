"""Bad input of streams by event time, windows and side outputs: as in Flink, or a clear error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

import pytest
from pass_through import CoMap

from pyflinkstate.api import (
    EventTimeSessionWindows,
    KeyedProcessFunction,
    OutputTag,
    SlidingEventTimeWindows,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    Types,
)
from pyflinkstate.errors import BadRecordError, ConfigurationError, PyFlinkStateError, UserFunctionError
from pyflinkstate.testing import MAX_WATERMARK, KeyedOneInputOperatorHarness, StreamRecord, harness_of

LATE = OutputTag("late")


def windows(assigner: Any, **options: Any) -> KeyedOneInputOperatorHarness:
    """Sums of pairs by their first item, in windows."""
    harness: KeyedOneInputOperatorHarness = harness_of(
        lambda pairs: pairs.key_by(itemgetter(0)).window(assigner).reduce(lambda a, b: (a[0], a[1] + b[1])),
        **options,
    )
    return harness


class TestLateRecords:
    def test_they_go_to_a_side_output(self) -> None:
        harness = harness_of(
            lambda pairs: (
                pairs.key_by(itemgetter(0))
                .window(TumblingEventTimeWindows.of(10))
                .side_output_late_data(LATE)
                .reduce(lambda a, b: a)
            )
        )
        harness.process_watermark(9)
        harness.process_element(("a", 1), 9)
        harness.process_element(("a", 2), 10)
        assert harness.get_side_output(LATE) == [StreamRecord(("a", 1), 9)]
        assert harness.process_watermark(MAX_WATERMARK) == [("a", 2)]

    def test_a_keyed_function_gets_them_as_any_other(self) -> None:
        class Tell(KeyedProcessFunction):
            def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
                yield value, ctx.timestamp(), ctx.timer_service().current_watermark()

        harness = KeyedOneInputOperatorHarness(Tell(), str)
        harness.process_watermark(100)
        assert harness.process_element("late", 3) == [("late", 3, 100)]


@pytest.mark.parametrize(
    "assigner",
    [
        TumblingEventTimeWindows.of(10),
        SlidingEventTimeWindows.of(10, 5),
        EventTimeSessionWindows.with_gap(10),
    ],
    ids=repr,
)
def test_a_record_without_timestamp_in_windows_by_event_time(assigner: Any) -> None:
    with pytest.raises(
        BadRecordError,
        match=r"needs timestamps[\s\S]*assign_timestamps_and_watermarks[\s\S]*"
        r"operator 'sums', key 'a', record \('a', 1\)",
    ):
        windows(assigner, name="sums").process_element(("a", 1))


class SetsTimer(KeyedProcessFunction):
    """A record is the time of a timer."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        ctx.timer_service().register_event_time_timer(value)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield timestamp


class TestTimers:
    def test_one_in_the_past_fires_when_the_watermark_next_advances(self) -> None:
        harness = KeyedOneInputOperatorHarness(SetsTimer(), lambda value: "k")
        harness.process_watermark(100)
        assert harness.process_element(3) == []
        assert harness.process_watermark(100) == []
        assert harness.process_watermark(101) == [3]

    @pytest.mark.parametrize("time", [None, 1.0, "7", True])
    def test_what_is_no_time_names_operator_and_record(self, time: Any) -> None:
        harness = KeyedOneInputOperatorHarness(SetsTimer(), lambda value: "k")
        with pytest.raises(BadRecordError, match=r"milliseconds[\s\S]*operator 'SetsTimer', key 'k', record"):
            harness.process_element(time)


class TestKeySelectors:
    def test_of_connected_streams_each_is_named_with_its_record(self) -> None:
        harness = harness_of(lambda a, b: a.connect(b).key_by(itemgetter(0), itemgetter("key")).map(CoMap()))
        assert harness.process_element1(("k",)) == [("k",)]
        with pytest.raises(UserFunctionError, match=r"KeyError[\s\S]*operator 'CoMap', record \{'k': 1\}"):
            harness.process_element2({"k": 1})


class Tags(KeyedProcessFunction):
    """Gives each record to the tag that it names, and to the main output."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        yield OutputTag(value), value
        yield value


class TestOutputTags:
    def test_what_nobody_asks_for_is_dropped(self) -> None:
        """Flink does the same once any side output of the operator is asked for."""
        harness = KeyedOneInputOperatorHarness(Tags(), str)
        assert harness.process_element("known") == ["known"]
        assert harness.process_element("unknown") == ["unknown"]
        assert harness.extract_side_output_values(OutputTag("known")) == ["known"]

    @pytest.mark.parametrize("tag_id", ["", None, 7])
    def test_a_tag_needs_an_id(self, tag_id: Any) -> None:
        with pytest.raises(ConfigurationError, match="the id of an OutputTag must be a non-empty string"):
            OutputTag(tag_id)


class Forgetful(Trigger[Any, Any]):
    """A trigger that does not say what is to be done."""

    result: Any = None

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        return self.result  # type: ignore[no-any-return]

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: Any) -> None:
        """Nothing is kept."""

    def clear(self, window: Any, ctx: Any) -> None:
        """Nothing is kept."""


class TestTriggers:
    @pytest.mark.parametrize("result", [None, "FIRE", True])
    def test_no_trigger_result_names_operator_and_record(self, result: Any) -> None:
        trigger = Forgetful()
        trigger.result = result
        harness = harness_of(
            lambda pairs: (
                pairs.key_by(itemgetter(0))
                .window(TumblingEventTimeWindows.of(10))
                .trigger(trigger)
                .reduce(lambda a, b: a)
            ),
            name="sums",
        )
        with pytest.raises(
            PyFlinkStateError,
            match=r"Forgetful[\s\S]*TriggerResult[\s\S]*operator 'sums', key 'a', record \('a', 1\)",
        ):
            harness.process_element(("a", 1), 3)


@pytest.mark.parametrize(
    "sent", [lambda words: words, lambda words: words.key_by(len)], ids=["plain", "keyed"]
)
def test_a_result_that_does_not_fit_output_type_names_operator_and_record(sent: Any) -> None:
    harness = harness_of(lambda words: sent(words).map(lambda word: word * 2, Types.INT()).name("doubled"))
    with pytest.raises(BadRecordError, match=r"operator 'doubled': result does not fit[\s\S]*'abab'"):
        harness.process_element("ab")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(
            lambda: windows(TumblingEventTimeWindows.of(10), name="sums").process_element((), 3),
            UserFunctionError,
            r"IndexError[\s\S]*operator 'sums', record \(\)",
            id="one_that_raises_names_operator_and_record",
        ),
        pytest.param(
            lambda: harness_of(lambda stream: stream.map(lambda value: value).get_side_output(LATE)),
            ConfigurationError,
            "'map' has no side outputs",
            id="operators_without_side_outputs_say_so_1",
        ),
        pytest.param(
            lambda: harness_of(lambda stream: stream.key_by(str).process(Tags()).get_side_output("late")),
            ConfigurationError,
            "takes an OutputTag, not 'late'",
            id="operators_without_side_outputs_say_so_2",
        ),
    ],
)
def test_a_mistake_is_refused(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
