"""An hour of the pipelined engine at a steady rate: memory, descriptors and threads stay as they are.

    python tests/soak/soak_pipelined_hour.py [--minutes 60] [--warm-up-minutes 10] [--rate 20000]

The job sums by key and writes files, with an incremental checkpoint every second and without restarts. The
program takes samples of the driver, of Spark's JVM, of the tasks that stay and of the slots. After the
warm-up, the line that fits the samples of a figure best must not rise by more than ``MOST_RISE`` of their
mean. The job must have read the records that were due.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator

import psutil
from pyspark.sql import SparkSession
from trends import Samples, jvm_of, newest, of_jvm, of_processes, rising, session_of_fixed_size

from pyflinkstate import (
    Configuration,
    EpochStats,
    FileSink,
    JobClient,
    JobListener,
    RestartStrategies,
    StreamExecutionEnvironment,
    Types,
)

KEYS = 50_000
CHECKPOINT_MS = 1_000
#: How long output is kept.
RETENTION_MS = 10_000
SAMPLE_EVERY_S = 10
MOST_RISE = 0.02
#: The share of the records that are due which must have been read.
LEAST_READ = 0.95


class Records(JobListener):
    """Counts the records that were read."""

    def __init__(self) -> None:
        self.number = 0

    def on_epoch(self, stats: EpochStats) -> None:
        self.number += stats.records


def start(session: SparkSession, rate: int, directory: str, listener: JobListener) -> JobClient:
    """Start the job."""
    env = StreamExecutionEnvironment(session).set_parallelism(2)
    env.configure(Configuration().set_string("pyflinkstate.engine", "PIPELINED"))
    env.enable_checkpointing(CHECKPOINT_MS, f"{directory}/checkpoints", incremental=True, num_retained=2)
    env.set_restart_strategy(RestartStrategies.no_restart())
    env.add_listener(listener)
    numbers = env.from_rate(rate, partitions=2).map(lambda record: record["value"], Types.LONG())
    keyed = numbers.key_by(lambda number: number * 7919 % KEYS, Types.LONG())
    sums = keyed.reduce(lambda total, number: total + number).uid("sum")
    sums.sink_to(FileSink(f"{directory}/output", retention_ms=RETENTION_MS))
    return env.execute_async("an hour")


def figures(session: SparkSession, client: JobClient) -> Iterator[tuple[str, float]]:
    """Yield a sample of each figure."""
    jvm = jvm_of(session)
    slots = {psutil.Process(pid) for pid in client.slot_pids().values()}
    of_slots = slots.union(*(slot.children(recursive=True) for slot in slots))
    yield from of_processes("driver", [psutil.Process()])
    yield from of_jvm(session)
    yield from of_processes("tasks", {*jvm.children(recursive=True)} - of_slots)
    yield from of_processes("slots", slots)


def sampled(session: SparkSession, client: JobClient, seconds: float) -> Samples:
    """Take samples while the job runs; raises its error if it fails."""
    result = client.get_job_execution_result()
    samples: Samples = defaultdict(list)
    began_s = time.monotonic()
    while (elapsed_s := time.monotonic() - began_s) < seconds:
        time.sleep(SAMPLE_EVERY_S)
        if result.done():
            raise AssertionError(f"the job has ended after {elapsed_s:.0f} s: {result.result()}")
        for name, value in figures(session, client):
            samples[name].append((elapsed_s, value))
        print(f"{elapsed_s:.0f} s: {newest(samples)}", flush=True)
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--warm-up-minutes", type=float, default=10)
    parser.add_argument("--rate", type=int, default=20_000)
    args = parser.parse_args()
    session, records, began_s = session_of_fixed_size(), Records(), time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        client = start(session, args.rate, directory, records)
        samples = sampled(session, client, args.minutes * 60)
        read = records.number / (args.rate * (time.monotonic() - began_s))
        client.cancel().result()
    session.stop()
    print(f"{records.number:,} records were read, {read:.1%} of those that were due", flush=True)
    found = rising(samples, args.warm_up_minutes * 60, MOST_RISE)
    sys.exit(1 if found or read < LEAST_READ else 0)


if __name__ == "__main__":
    main()
