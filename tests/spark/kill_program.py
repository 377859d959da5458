"""The program that kill rounds kill: running sums and histories over a few thousand records.

    python kill_program.py DIRECTORY [--master M] [--parallelism N] [--restore]

It says ``epoch <n>`` whenever an epoch has run. Output is in ``out``, checkpoints are in ``checkpoints``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from pyflinkstate import (
    EpochStats,
    FileSink,
    JobListener,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    RestartStrategies,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

EPOCHS = 10
RECORDS_PER_EPOCH = 100
KEYS = 37
MAX_HISTORY = 5

RECORDS = [(number * 7919 % KEYS, number) for number in range(EPOCHS * RECORDS_PER_EPOCH)]

Row = tuple[int, int, int, list[int], int]


class Remember(KeyedProcessFunction):
    """Emits key, number, sum so far, the last few numbers, and how many of them were of the same parity."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))
        self.last = runtime_context.get_list_state(ListStateDescriptor("last", Types.LONG()))
        self.parities = runtime_context.get_map_state(
            MapStateDescriptor("parities", Types.LONG(), Types.LONG())
        )

    def process_element(self, value: tuple[int, int], ctx: Any) -> Iterator[Row]:
        key, number = value
        total = (self.sum.value() or 0) + number
        self.sum.update(total)
        last = [*self.last, number][-MAX_HISTORY:]
        self.last.update(last)
        same = (self.parities.get(number % 2) or 0) + 1
        self.parities.put(number % 2, same)
        yield key, number, total, last, same


def expected() -> list[Row]:
    """Return the rows by a plain loop, sorted."""
    sums: dict[int, int] = {}
    last: dict[int, list[int]] = {}
    parities: dict[tuple[int, int], int] = {}
    rows = []
    for key, number in RECORDS:
        sums[key] = sums.get(key, 0) + number
        last[key] = [*last.get(key, []), number][-MAX_HISTORY:]
        parity = (key, number % 2)
        parities[parity] = parities.get(parity, 0) + 1
        rows.append((key, number, sums[key], last[key], parities[parity]))
    return sorted(rows)


class Teller(JobListener):
    def on_epoch(self, stats: EpochStats) -> None:
        print(f"epoch {stats.epoch}", flush=True)

    def on_restart(self, attempt: int, error: Exception) -> None:
        print(f"restart {attempt}: {type(error).__name__}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--restore", action="store_true")
    args = parser.parse_args()
    builder = SparkSession.builder.master(args.master).config("spark.ui.enabled", "false")
    for variable in ("PYTHONPATH", "PYSPARK_PYTHON", "KILL_ROUND"):
        if variable in os.environ:
            builder = builder.config(f"spark.executorEnv.{variable}", os.environ[variable])
    session = builder.config("spark.task.maxFailures", "4").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    env = StreamExecutionEnvironment(session).set_parallelism(args.parallelism).set_max_parallelism(16)
    env.enable_checkpointing(0, f"{args.directory}/checkpoints", incremental=True, num_retained=2)
    env.get_checkpoint_config().enable_incremental_checkpoints(materialization_interval=4)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(100, 0)).add_listener(Teller())
    if args.restore:
        env.restore_from("latest")
    records = env.from_collection(RECORDS, records_per_epoch=RECORDS_PER_EPOCH)
    kept = records.key_by(lambda record: record[0], Types.LONG()).process(Remember()).uid("remember")
    # A second keyed operator, by another key: rows pass through it unchanged.
    again = kept.key_by(lambda row: row[1] % 5, Types.LONG()).process(Passing()).uid("passing")
    again.sink_to(FileSink(f"{args.directory}/out"))
    env.execute("kill round")
    session.stop()


class Passing(KeyedProcessFunction):
    """Counts, and emits what came."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Row, ctx: Any) -> Iterator[Row]:
        self.count.update((self.count.value() or 0) + 1)
        yield value


if __name__ == "__main__":
    main()
