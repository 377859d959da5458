"""Timestamps that no checkpoint can hold are refused where they are set; the ends of time are legal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from support_windows import collecting, fired

from pyflinkstate import (
    EventTimeSessionWindows,
    KeyedProcessFunction,
    StateTtlConfig,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.api import MAX_LONG_VALUE, MIN_LONG_VALUE, TimeWindow
from pyflinkstate.errors import NoCurrentKeyError, StateValueError
from pyflinkstate.testing import MAX_WATERMARK, KeyedOneInputOperatorHarness

CALLS = [f"{what}_{kind}_time_timer" for what in ("register", "delete") for kind in ("event", "processing")]


class Timers(KeyedProcessFunction):
    """Calls a method of the timer service with a timestamp; tells of timers that fire."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        call, timestamp = value
        getattr(ctx.timer_service(), call)(timestamp)
        return []

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield timestamp


def harness(**options: Any) -> KeyedOneInputOperatorHarness:
    return KeyedOneInputOperatorHarness(Timers(), lambda value: "k", Types.STRING(), name="alarm", **options)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "timestamp", [2**63, -(2**63) - 1, 10**30, 1.5, float("nan"), "7", None, True], ids=repr
)
def test_what_is_no_int_of_64_bits_is_refused(call: str, timestamp: object) -> None:
    running = harness()
    with pytest.raises(StateValueError) as caught:
        running.process_element((call, timestamp))
    text = str(caught.value)
    assert (
        "key 'k': a timer's timestamp must be a whole number of milliseconds from -2**63 to 2**63 - 1" in text
    )
    assert f"not {timestamp!r} ({type(timestamp).__name__})" in text
    assert "operator 'alarm'" in text
    assert running.num_event_time_timers() + running.num_processing_time_timers() == 0


@pytest.mark.parametrize("timestamp", [MIN_LONG_VALUE, MAX_LONG_VALUE])
@pytest.mark.parametrize("call", CALLS[:2])
def test_the_ends_of_time_are_legal_and_in_checkpoints(call: str, timestamp: int) -> None:
    running = harness()
    running.process_element((call, timestamp))
    again = harness(restore=[running.snapshot()])
    fire = again.process_watermark if "event" in call else again.set_processing_time
    assert fire(MAX_WATERMARK) == [timestamp]


def test_a_time_to_live_beyond_64_bits_lasts_for_ever_and_is_in_checkpoints() -> None:
    class Keeps(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            descriptor = ValueStateDescriptor("kept", Types.LONG())
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(2**70)).build())
            self.kept = runtime_context.get_state(descriptor)

        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
            yield self.kept.value()
            self.kept.update(value)

    running = KeyedOneInputOperatorHarness(Keeps(), lambda value: "k", Types.STRING())
    running.process_element(1)
    running.set_processing_time(MAX_LONG_VALUE - 1)
    again = KeyedOneInputOperatorHarness(
        Keeps(), lambda value: "k", Types.STRING(), restore=[running.snapshot()]
    )
    again.set_processing_time(MAX_LONG_VALUE - 1)
    assert again.process_element(2) == [1]


class TestWindows:
    @pytest.mark.parametrize(
        ("assigner", "timestamp"),
        [
            (TumblingEventTimeWindows.of(10), MAX_LONG_VALUE),
            (TumblingEventTimeWindows.of(10), MIN_LONG_VALUE + 1),
            (EventTimeSessionWindows.with_gap(10), MAX_LONG_VALUE - 5),
        ],
        ids=["end", "start", "session"],
    )
    def test_one_that_reaches_beyond_the_ends_of_time_is_refused(self, assigner: Any, timestamp: int) -> None:
        """In Java its end wraps round, and the element is dropped as late."""
        windows = collecting(assigner)
        with pytest.raises(StateValueError, match=r"key 'a': namespace: TimeWindow.* 64-bit integers"):
            windows.process("a", 1, timestamp)

    def test_the_last_one_fires_at_the_end_of_input(self) -> None:
        windows = collecting(TumblingEventTimeWindows.of(10))
        last = MAX_LONG_VALUE - MAX_LONG_VALUE % 10
        windows.process("a", 1, last - 1)
        assert windows.timers() == {"event": [(last - 1, "a", TimeWindow(last - 10, last))]}
        assert windows.advance(MAX_LONG_VALUE) == [fired("a", last - 10, last, 1)]


def test_without_a_key_the_missing_key_is_what_is_wrong() -> None:
    class Closing(Timers):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
            self.timers = ctx.timer_service()
            return []

        def close(self) -> None:
            self.timers.register_event_time_timer(2**63)

    running = KeyedOneInputOperatorHarness(Closing(), lambda value: "k", Types.STRING())
    running.process_element(1)
    with pytest.raises(NoCurrentKeyError):
        running.close()
