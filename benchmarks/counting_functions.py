"""What the benchmarks of operators run: functions that count, and the keys whose records they count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyflinkstate import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StateTtlConfig,
    Time,
    TimestampAssigner,
    Types,
    ValueStateDescriptor,
)

KEYS = 10_000
MINUTE_MS = 60_000


def key_of(number: int) -> int:
    """Return the key of a record; the even keys are active in even minutes, the odd keys in odd ones."""
    return number * 7919 % (KEYS // 2) * 2 + number // MINUTE_MS % 2


class Count(KeyedProcessFunction):
    """Counts the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(self.descriptor())

    def descriptor(self) -> ValueStateDescriptor:
        return ValueStateDescriptor("count", Types.LONG())

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value, count


class CountWithTtl(Count):
    def descriptor(self) -> ValueStateDescriptor:
        descriptor = super().descriptor()
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        return descriptor


class CountUntilTimer(Count):
    """Emits the count when the minute of a record has passed."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[tuple[int, int]]:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(value - value % MINUTE_MS + MINUTE_MS - 1)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[int, int]]:
        yield ctx.get_current_key(), self.count.value()
        self.count.clear()


class CountAggregate(AggregateFunction):
    """Counts the records of a window one by one."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class CountElements(ProcessWindowFunction):
    """Counts all records of a window when it fires."""

    def process(
        self, key: int, context: ProcessWindowFunction.Context, elements: Iterable[int]
    ) -> Iterator[tuple[int, int]]:
        yield key, sum(1 for _ in elements)


class Millisecond(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value
