"""This library, with nothing set but the parallelism."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from workload import (
    GAP_MS,
    MINUTE_MS,
    PARALLELISM,
    count_in,
    key_of,
    large_key_of,
    large_value,
    main,
    minute_end,
    number_in,
    timed,
)

import pyflinkstate
from pyflinkstate import (
    AggregateFunction,
    DataStream,
    EmbeddedRocksDBStateBackend,
    EventTimeSessionWindows,
    KeyedProcessFunction,
    MapStateDescriptor,
    NumberSequenceSource,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Time,
    TimestampAssigner,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class Millisecond(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield ctx.get_current_key(), count


class CountInLargeValue(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.value = runtime_context.get_state(ValueStateDescriptor("value", Types.STRING()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int]]:
        count = count_in(self.value.value()) + 1
        self.value.update(large_value(count))
        yield number_in(ctx.get_current_key()), count


class CountUntilTimer(KeyedProcessFunction):
    """Counts by minute, because parts of the input are read side by side, so minutes come mixed."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts", Types.LONG(), Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[tuple[int, int]]:
        end = minute_end(value)
        self.counts.put(end, (self.counts.get(end) or 0) + 1)
        ctx.timer_service().register_event_time_timer(end)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[int, int]]:
        yield ctx.get_current_key(), self.counts.get(timestamp)
        self.counts.remove(timestamp)


class CountAggregate(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithKey(ProcessWindowFunction):
    def process(
        self, key: int, context: ProcessWindowFunction.Context, elements: Iterable[int]
    ) -> Iterator[tuple[int, int]]:
        yield from ((key, count) for count in elements)


class DiscardingSink:
    """Throws results away; the peers do so too."""

    def open(self, job_id: str, restored_epoch: int | None) -> None: ...

    def writer(self, epoch: int) -> DiscardingSink:
        return self

    def write(self, partition: int, records: Iterator[Any]) -> Iterator[int]:
        for _ in records:
            pass
        yield 0

    def prepare(self, epoch: int, results: list[int]) -> None: ...
    def commit(self, epoch: int) -> None: ...
    def rewind(self, epoch: int) -> None: ...


def program(numbers: DataStream, workload: str) -> DataStream:
    if workload == "keyed_count":
        return numbers.key_by(key_of, key_type=Types.LONG()).process(Count(), output_type=PAIR)
    if workload == "large_state":
        keyed = numbers.key_by(large_key_of, key_type=Types.STRING())
        return keyed.process(CountInLargeValue(), output_type=PAIR)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Millisecond())
    keyed = numbers.assign_timestamps_and_watermarks(strategy).key_by(key_of, key_type=Types.LONG())
    if workload == "timers":
        return keyed.process(CountUntilTimer(), output_type=PAIR)
    if workload == "session":
        windowed = keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(GAP_MS)))
    else:
        windowed = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(MINUTE_MS)))
    return windowed.aggregate(CountAggregate(), WithKey(), accumulator_type=Types.LONG(), output_type=PAIR)


def run(workload: str, records: int, check: bool) -> tuple[float, list[tuple[int, int]] | None]:
    builder = SparkSession.builder.master(f"local[{PARALLELISM}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    env = StreamExecutionEnvironment(spark).set_parallelism(PARALLELISM)
    if workload == "large_state":
        env.set_state_backend(EmbeddedRocksDBStateBackend())
    results = program(env.from_source(NumberSequenceSource(0, records - 1)), workload)
    if check:
        with results.execute_and_collect() as found:
            return 0.0, list(found)
    results.sink_to(DiscardingSink())
    return timed(lambda: env.execute(workload)), None


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers are the system's python3
    main(f"pyflinkstate {pyflinkstate.__version__}, Spark {pyspark.__version__}", run)
