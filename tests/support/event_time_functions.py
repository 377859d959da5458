"""Functions of event-time jobs; slot processes import this file, so it is small.

Records are ``(key, number, time)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyflinkstate import (
    MAX_WATERMARK,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ProcessWindowFunction,
    TimestampAssigner,
    ValueStateDescriptor,
)

LATE = OutputTag("late")
FACTORS = MapStateDescriptor("factors")


def key_of(record: Any) -> Any:
    """The key of any record here."""
    return record[0]


class Third(TimestampAssigner):
    """The third item of a record is its time."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        time: int = value[2]
        return time


class Contents(ProcessWindowFunction):
    """Gives key, start and the sorted numbers of a window."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield key, context.window().start, tuple(sorted(number for _, number, _ in elements))


class SumEachTen(KeyedProcessFunction):
    """Sums numbers, and gives the sum of each ten milliseconds when they have passed."""

    def open(self, runtime_context: Any) -> None:
        self.sums = runtime_context.get_map_state(MapStateDescriptor("sums"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        end = value[2] // 10 * 10 + 9
        if end <= ctx.timer_service().current_watermark():
            yield LATE, value
            return
        self.sums.put(end, (self.sums.get(end) or 0) + value[1])
        ctx.timer_service().register_event_time_timer(end)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield len(ctx.get_current_key()), self.sums.get(timestamp), timestamp
        self.sums.remove(timestamp)


class Pair(KeyedCoProcessFunction):
    """Keeps both sides, and pairs all of them when their time has come to an end."""

    def open(self, runtime_context: Any) -> None:
        self.sides = [runtime_context.get_list_state(ListStateDescriptor(name)) for name in ("one", "two")]

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context, side: int = 0) -> None:
        self.sides[side].add(value[1])
        ctx.timer_service().register_event_time_timer(MAX_WATERMARK)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        self.process_element1(value, ctx, 1)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any]:
        one, two = (tuple(sorted(side.get())) for side in self.sides)
        yield ctx.get_current_key(), one, two


class Scale(KeyedBroadcastProcessFunction):
    """Gives each number times the factor of its key's length, summed up at the end of time."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.seen.update((self.seen.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(MAX_WATERMARK)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(FACTORS).put(value[0], value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        key = ctx.get_current_key()
        yield key, self.seen.value() * ctx.get_broadcast_state(FACTORS).get(len(key))


class Passes(KeyedProcessFunction):
    """Gives each record as it is."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        yield value


class TellWatermark(KeyedProcessFunction):
    """Gives the watermark at which a timer for time 5 fires."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(5)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.timer_service().current_watermark()


class CoTellWatermark(KeyedCoProcessFunction):
    """The same for two streams."""

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(5)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        pass

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.timer_service().current_watermark()


class BroadcastTellWatermark(KeyedBroadcastProcessFunction):
    """The same beside a broadcast stream."""

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(5)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        pass

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield ctx.timer_service().current_watermark()


class PassAside(KeyedProcessFunction):
    """Passes records on, on the side."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        yield LATE, value
