"""What each kind of operator costs: records/s, each as a ratio to a ``ValueState`` count in the same run.

    python benchmarks/operators.py [--json] [--records N] [--rounds N] [--only NAME ...]
        [--engine pipelined]

All operators read one number sequence, a record a millisecond of event time, over 10,000 keys of which half
are active in each minute, 12 times. A rate is that of the difference between two sizes, so that the start of
Spark's workers and of the slots does not count. Rounds are interleaved, so that all meet the same noise. The
figures are medians.

* ``ratio_ttl``: the count with time to live.
* ``ratio_timers``: the count, and for each record an event-time timer at the end of its minute.
* ``ratio_tumbling``, ``ratio_process_window``: windows of a minute, with an ``AggregateFunction`` and with a
  ``ProcessWindowFunction`` over all elements.
* ``ratio_session``: sessions with a gap of 20 seconds, which a key ends after each of its minutes.
* ``ratio_sliding``: windows of a minute every 20 seconds, so that each record is in three.
* ``ratio_chain2``: two counts in a row, each after a shuffle of its own.
* ``ratio_map``, ``ratio_reducing``, ``ratio_list``: the other kinds of state.
* ``ratio_stateless``: source, map, filter, map.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from counting_functions import (
    KEYS,
    MINUTE_MS,
    Count,
    CountAggregate,
    CountElements,
    CountUntilTimer,
    CountWithTtl,
    Millisecond,
    key_of,
)
from local_session import local_session, tell
from pyspark.sql import SparkSession

from pyflinkstate import (
    Configuration,
    DataStream,
    EventTimeSessionWindows,
    KeyedProcessFunction,
    KeyedStream,
    ListStateDescriptor,
    MapStateDescriptor,
    NumberSequenceSource,
    ReducingStateDescriptor,
    RuntimeContext,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)

PARTITIONS = 2
YARDSTICK = "value"


class CountInMap(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = MapStateDescriptor("counts", Types.LONG(), Types.LONG())
        self.counts = runtime_context.get_map_state(descriptor)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int]]:
        count = (self.counts.get(0) or 0) + 1
        self.counts.put(0, count)
        yield value, count


class CountByReducing(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG())
        self.count = runtime_context.get_reducing_state(descriptor)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int]]:
        self.count.add(1)
        yield value, self.count.get()


class CollectInList(KeyedProcessFunction):
    """Collects ten elements, emits how many they were, and begins again."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.elements = runtime_context.get_list_state(ListStateDescriptor("elements", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int]]:
        self.elements.add(value)
        number = sum(1 for _ in self.elements.get())
        if number == 10:
            self.elements.clear()
        yield value, number


class CountingSink:
    """Adds up what arrives, in the tasks, and keeps the sum."""

    total = 0

    def open(self, job_id: str, restored_epoch: int | None) -> None: ...

    def writer(self, epoch: int) -> CountingSink:
        return self

    def write(self, partition: int, records: Iterator[Any]) -> Iterator[int]:
        yield sum(self.weight(record) for record in records)

    @staticmethod
    def weight(record: Any) -> int:
        return 1

    def prepare(self, epoch: int, results: list[int]) -> None:
        self.total += sum(results)

    def commit(self, epoch: int) -> None: ...
    def rewind(self, epoch: int) -> None: ...


class SummingSink(CountingSink):
    """Adds up counts, whether they come alone or beside their key."""

    @staticmethod
    def weight(record: Any) -> int:
        return int(record[1]) if isinstance(record, tuple) else int(record)


def keyed(numbers: DataStream) -> KeyedStream:
    return numbers.key_by(key_of, key_type=Types.LONG())


def timed(numbers: DataStream) -> KeyedStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Millisecond())
    return keyed(numbers.assign_timestamps_and_watermarks(strategy))


def minutes(numbers: DataStream) -> Any:
    return timed(numbers).window(TumblingEventTimeWindows.of(Time.minutes(1)))


def stateless(numbers: DataStream) -> DataStream:
    return numbers.map(lambda n: n + 1).filter(lambda n: n > 0).map(lambda n: (n, 1))


def chain2(numbers: DataStream) -> DataStream:
    first = keyed(numbers).process(Count())
    return first.map(lambda pair: pair[0]).key_by(lambda n: n % KEYS, key_type=Types.LONG()).process(Count())


def session(numbers: DataStream) -> DataStream:
    return (
        timed(numbers).window(EventTimeSessionWindows.with_gap(Time.seconds(20))).aggregate(CountAggregate())
    )


def sliding(numbers: DataStream) -> DataStream:
    windows = SlidingEventTimeWindows.of(Time.minutes(1), Time.seconds(20))
    return timed(numbers).window(windows).aggregate(CountAggregate())


#: The program of each operator, the sink that checks it, and what the sink's sum is for a record.
OPERATORS: dict[str, tuple[Callable[[DataStream], DataStream], type[CountingSink], int]] = {
    YARDSTICK: (lambda numbers: keyed(numbers).process(Count()), CountingSink, 1),
    "stateless": (stateless, CountingSink, 1),
    "map": (lambda numbers: keyed(numbers).process(CountInMap()), CountingSink, 1),
    "reducing": (lambda numbers: keyed(numbers).process(CountByReducing()), CountingSink, 1),
    "list": (lambda numbers: keyed(numbers).process(CollectInList()), CountingSink, 1),
    "chain2": (chain2, CountingSink, 1),
    "ttl": (lambda numbers: keyed(numbers).process(CountWithTtl()), CountingSink, 1),
    "timers": (lambda numbers: timed(numbers).process(CountUntilTimer()), SummingSink, 1),
    "tumbling": (lambda numbers: minutes(numbers).aggregate(CountAggregate()), SummingSink, 1),
    "process_window": (lambda numbers: minutes(numbers).process(CountElements()), SummingSink, 1),
    "session": (session, SummingSink, 1),
    "sliding": (sliding, SummingSink, 3),
}


def seconds_of(spark: SparkSession, engine: str, name: str, records: int) -> float:
    """Run one operator over ``records`` numbers and return how long it took."""
    program, sink_class, weight = OPERATORS[name]
    env = StreamExecutionEnvironment(spark).set_parallelism(PARTITIONS)
    env.configure(Configuration().set_string("pyflinkstate.engine", engine.upper()))
    sink = sink_class()
    program(env.from_source(NumberSequenceSource(0, records - 1))).sink_to(sink)
    started = time.perf_counter()
    env.execute(name)
    seconds = time.perf_counter() - started
    if sink.total != records * weight:
        raise AssertionError(f"{name}: {sink.total} came out for {records} records")
    return seconds


def figures_of(rates: dict[str, list[float]]) -> dict[str, float]:
    """Return the rates, and the ratios to the yardstick of the same round."""
    figures: dict[str, float] = {
        f"{name}_records_per_s": round(statistics.median(seen)) for name, seen in rates.items()
    }
    for name, seen in rates.items():
        if name != YARDSTICK:
            ratios = [rate / plain for rate, plain in zip(seen, rates[YARDSTICK], strict=True)]
            figures[f"ratio_{name}"] = round(statistics.median(ratios), 3)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--records", type=int, default=2_400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", choices=["stages", "pipelined"], default="stages")
    parser.add_argument("--only", nargs="+", choices=sorted(set(OPERATORS) - {YARDSTICK}), metavar="NAME")
    args = parser.parse_args()
    names = [name for name in OPERATORS if name == YARDSTICK or not args.only or name in args.only]
    # Workers and slots import the functions by their module's name.
    path = os.pathsep.join(filter(None, sys.path))
    spark = local_session(PARTITIONS, {"spark.executorEnv.PYTHONPATH": path})
    small = max(args.records // 6, MINUTE_MS)
    rates: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        seconds_of(spark, args.engine, name, small)
    for number in range(args.rounds):
        for name in names:
            start_up = seconds_of(spark, args.engine, name, small)
            rates[name].append(
                args.records / (seconds_of(spark, args.engine, name, small + args.records) - start_up)
            )
        if not args.json:
            print(f"round {number + 1}: " + ", ".join(f"{name} {rates[name][-1]:,.0f}" for name in names))
    tell(figures_of(rates), args.json)


if __name__ == "__main__":
    main()
