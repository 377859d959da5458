"""PyFlink; ``FLINK_PYTHON_MODE`` is ``process`` or ``thread``, as ``python.execution-mode`` takes it.

In process mode the cache of its Python process holds the state of all keys, and a bundle has as many records
as pass in a second. With the defaults, a cache of 1,000 states and bundles of 1,000 records, most records
would wait for an answer from the JVM, and a keyed count would be nine times as slow.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import version

from pyflink.common import Configuration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.base import Sink
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.functions import AggregateFunction, ProcessWindowFunction
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor
from pyflink.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from pyflink.java_gateway import get_gateway
from workload import (
    GAP_MS,
    KEYS,
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

MODE = os.environ.get("FLINK_PYTHON_MODE", "process")
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
    configuration = Configuration()
    configuration.set_string("python.execution-mode", MODE)
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    configuration.set_string("pipeline.object-reuse", "true")
    configuration.set_string("python.state.cache-size", str(2 * KEYS))
    configuration.set_string("python.fn-execution.bundle.size", "100000")
    if workload == "large_state":
        configuration.set_string("state.backend.type", "rocksdb")
        configuration.set_string("state.backend.rocksdb.memory.fixed-per-slot", "256mb")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(PARALLELISM)
    source = env.from_source(
        NumberSequenceSource(0, records - 1), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
    )
    results = program(source, workload)
    if check:
        with results.execute_and_collect() as found:
            return 0.0, [(int(key), int(count)) for key, count in found]
    package = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2
    results.sink_to(Sink(package.DiscardingSink()))
    return timed(lambda: env.execute(workload)), None


if __name__ == "__main__":
    # The interpreter that thread mode embeds in the JVM does not know of virtual environments.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    main(f"PyFlink {version('apache-flink')}, {MODE} mode", run)
