"""Count per key: a KeyedProcessFunction with a ValueState against a plain dict in ``mapPartitions``.

    python benchmarks/keyed_count.py [--json] [--records N] [--keys N] [--rounds N]

The dict is the ceiling of Python on Spark: no fault tolerance, no state that outlives the job. Both read
the same RDD, key it, and emit one ``(key, count)`` for each record, which the end of each counts. Rounds are
interleaved, so that both meet the same noise; the figures are medians. Starting slots is part of ours.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import RDD
from pyspark.sql import SparkSession

from pyflinkstate import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

PARTITIONS = 2


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value, count


def count_in_dict(pairs: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    counts: dict[str, int] = {}
    for key, _ in pairs:
        count = counts.get(key, 0) + 1
        counts[key] = count
        yield key, count


class CountingSink:
    """Counts what arrives, in the tasks, and keeps nothing."""

    total = 0

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """Nothing to open."""

    def writer(self, epoch: int) -> CountingSink:
        return self

    def write(self, partition: int, records: Iterator[Any]) -> Iterator[int]:
        yield sum(1 for _ in records)

    def prepare(self, epoch: int, results: list[int]) -> None:
        self.total = sum(results)

    def commit(self, epoch: int) -> None:
        """Nothing to commit."""

    def rewind(self, epoch: int) -> None:
        """Nothing to rewind."""


def with_dict(records: RDD[str]) -> int:
    pairs = records.map(lambda key: (key, 1)).partitionBy(PARTITIONS)
    return pairs.mapPartitions(count_in_dict).count()


def with_state(records: RDD[str]) -> int:
    env = StreamExecutionEnvironment(SESSION)
    env.set_parallelism(PARTITIONS)
    sink = CountingSink()
    stream = env.from_rdd(records).key_by(lambda key: key, key_type=Types.STRING())
    stream.process(Count()).sink_to(sink)
    env.execute("keyed count")
    return sink.total


def rate(count: Callable[[RDD[str]], int], records: RDD[str], expected: int) -> float:
    started = time.perf_counter()
    counted = count(records)
    seconds = time.perf_counter() - started
    if counted != expected:
        raise AssertionError(f"counted {counted} of {expected} records")
    return expected / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    context = SESSION.sparkContext
    keys = args.keys

    def records_of(number: int) -> RDD[str]:
        return context.range(number, numSlices=PARTITIONS).map(lambda i: f"customer-{i * 7919 % keys}")

    for count in (with_dict, with_state):
        rate(count, records_of(10_000), 10_000)
    dict_rates, state_rates = [], []
    for number in range(args.rounds):
        dict_rates.append(rate(with_dict, records_of(args.records), args.records))
        state_rates.append(rate(with_state, records_of(args.records), args.records))
        if not args.json:
            print(f"round {number + 1}: dict {dict_rates[-1]:,.0f}, state {state_rates[-1]:,.0f} records/s")
    figures = {
        "dict_records_per_s": round(statistics.median(dict_rates)),
        "state_records_per_s": round(statistics.median(state_rates)),
        "ratio_no_checkpoint": round(
            statistics.median(s / d for s, d in zip(state_rates, dict_rates, strict=True)), 3
        ),
    }
    if args.json:
        print(json.dumps(figures))
    else:
        print(", ".join(f"{name} {value:,}" for name, value in figures.items()))


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers are the system's python3
    SESSION = (
        SparkSession.builder.master(f"local[{PARTITIONS}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    SESSION.sparkContext.setLogLevel("ERROR")
    main()
