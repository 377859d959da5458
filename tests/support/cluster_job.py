"""A small job for clusters: it says whether its state was right to the end, and where its slots were.

    spark-submit [...] cluster_job.py DIRECTORY [--ship] [--parallelism N] [--pause-ms N] [--conf NAME=VALUE]

It imports nothing but the package, so that it runs from a zip file of it. A place is the folder in which the
executor that started a slot runs, with the address of its host.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import pyflinkstate as ps

KEYS, EPOCHS, RECORDS_PER_EPOCH = 37, 5, 100
RECORDS = [(number * 7919 % KEYS, number) for number in range(EPOCHS * RECORDS_PER_EPOCH)]


class Sums(ps.KeyedProcessFunction):
    """Emits key, number, the sum so far, and where it runs."""

    def open(self, runtime_context: ps.RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ps.ValueStateDescriptor("sum", ps.Types.LONG()))
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.place = f"{os.environ.get('SPARK_LOCAL_IP', '')} {Path.cwd().name}"

    def process_element(self, value: tuple[int, int], ctx: Any) -> Iterator[tuple[int, int, int, int, str]]:
        key, number = value
        self.sum.update((self.sum.value() or 0) + number)
        yield key, number, self.sum.value(), self.subtask, self.place


class Teller(ps.JobListener):
    """Says what happens, and pauses between epochs, when executors may be given up."""

    def __init__(self, pause_ms: int) -> None:
        self._pause_ms = pause_ms

    def on_epoch(self, stats: ps.EpochStats) -> None:
        print(f"epoch {stats.epoch}", flush=True)
        time.sleep(self._pause_ms / 1000)

    def on_restart(self, attempt: int, error: Exception) -> None:
        print(f"restart {attempt}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)


def expected() -> list[tuple[int, int, int]]:
    sums: dict[int, int] = {}
    rows = []
    for key, number in RECORDS:
        sums[key] = sums.get(key, 0) + number
        rows.append((key, number, sums[key]))
    return sorted(rows)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--ship", action="store_true")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--pause-ms", type=int, default=0)
    parser.add_argument("--conf", action="append", default=[])
    return parser.parse_args()


def session_of(settings: list[str]) -> SparkSession:
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    for setting in settings:
        name, _, value = setting.partition("=")
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def main() -> None:
    args = parsed()
    session = session_of(args.conf)
    if args.ship:
        print("shipped" if ps.ship(session) else "not shipped")
    env = ps.StreamExecutionEnvironment(session).set_parallelism(args.parallelism)
    env.enable_checkpointing(0, f"{args.directory}/checkpoints")
    env.add_listener(Teller(args.pause_ms))
    records = env.from_collection(RECORDS, records_per_epoch=RECORDS_PER_EPOCH)
    keyed = records.key_by(lambda record: record[0], ps.Types.LONG()).process(Sums()).uid("sums")
    with keyed.execute_and_collect("cluster job") as results:
        rows = list(results)
    print("equal" if sorted(row[:3] for row in rows) == expected() else "different")
    places = Counter({row[3:]: 1 for row in rows})
    print(dict(sorted(Counter(place for _, place in places).items())))
    session.stop()


if __name__ == "__main__":
    main()
