"""This library; ``PACED_ENGINE`` is ``STAGES`` or ``PIPELINED``, as ``pyflinkstate.engine`` takes it.

With ``PACED_CHECKPOINT_MS``, the job takes an incremental checkpoint at this interval and writes JSON files
with a ``FileSink``, and the time of the rename that publishes an epoch is the arrival of its records.
Otherwise it takes none, and the writer of its sink logs the arrivals.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
from pace import PARALLELISM, SECOND_NS, Arrivals, Pace, all_have_arrived, arrivals_of, main, wait_for
from pyspark.sql import SparkSession

import pyflinkstate
from pyflinkstate import (
    Configuration,
    DataStream,
    FileSink,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

ENGINE = os.environ.get("PACED_ENGINE", "PIPELINED")
OUTPUT = "output"
CHECKPOINT_MS = int(os.environ.get("PACED_CHECKPOINT_MS", "0"))
#: Linux's clock of file times, for which Python has no name.
CLOCK_REALTIME_COARSE = 5
#: A record's number, when it was due, and the count of its key.
Counted = tuple[int, int, int]


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: tuple[int, int], ctx: KeyedProcessFunction.Context) -> Iterator[Counted]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield (*value, count)


class LoggingSink:
    """Logs the arrivals in its writer, and throws the records away."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, job_id: str, restored_epoch: int | None) -> None: ...

    def writer(self, epoch: int) -> LoggingSink:
        return self

    def write(self, partition: int, records: Iterator[Counted]) -> Iterator[int]:
        arrivals = arrivals_of(self.folder, partition)
        for record in records:
            arrivals.note(*record)
        arrivals.flush()
        yield 0

    def prepare(self, epoch: int, results: list[int]) -> None: ...
    def commit(self, epoch: int) -> None: ...
    def rewind(self, epoch: int) -> None: ...


def numbered(records: DataStream, rate: int) -> DataStream:
    """Return the number of each record, and when it was due, to the nanosecond."""

    def of(record: dict[str, int]) -> tuple[int, int]:
        number = record["value"]
        start_ms = record["timestamp_ms"] - number * 1000 // rate
        return number, start_ms * 1_000_000 + number * SECOND_NS // rate

    return records.map(of)


def published(folder: Path) -> Iterator[tuple[int, Iterator[Counted]]]:
    """Yield each visible epoch from the newest to the oldest: when it was published, and its records.

    The time is that of the rename, rounded up to the resolution of the kernel's file times.
    """
    resolution_ns = round(time.clock_getres(CLOCK_REALTIME_COARSE) * SECOND_NS)
    for epoch in sorted(folder.glob("epoch=*"), key=lambda path: -int(path.name[6:])):
        lines = (line for file in epoch.iterdir() for line in file.open())
        yield epoch.stat().st_ctime_ns + resolution_ns, map(json.loads, lines)


def is_published(pace: Pace) -> bool:
    """Return whether the newest epoch has later records only. Between it and the first, none is read."""
    epochs = [*published(pace.folder / OUTPUT)]
    if not epochs:
        return False
    at_ns, records = epochs[-1]
    number, due_ns, count = next(records)
    end = pace.measured((number, count, due_ns, at_ns)).stop
    return min(number for number, _, _ in epochs[0][1]) >= end


def log_published(folder: Path) -> None:
    """Log what was published as arrivals."""
    arrivals = Arrivals(folder)
    for at_ns, records in published(folder / OUTPUT):
        for record in records:
            arrivals.note(*record, at_ns)
    arrivals.close()


def run(pace: Pace) -> None:
    builder = SparkSession.builder.master(f"local[{PARALLELISM}]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    env = StreamExecutionEnvironment(spark).set_parallelism(PARALLELISM)
    env.configure(Configuration().set_string("pyflinkstate.engine", ENGINE))
    sink: Any = LoggingSink(pace.folder)
    if CHECKPOINT_MS:
        env.enable_checkpointing(CHECKPOINT_MS, str(pace.folder / "checkpoints"), incremental=True)
        sink = FileSink(str(pace.folder / OUTPUT))
    keyed = numbered(env.from_rate(pace.rate, partitions=PARALLELISM), pace.rate).key_by(
        lambda record: pace.key_of(record[0]), key_type=Types.LONG()
    )
    keyed.process(Count()).uid("count").sink_to(sink)
    client = env.execute_async("paced count")
    result = client.get_job_execution_result()
    is_complete = is_published if CHECKPOINT_MS else all_have_arrived
    wait_for(pace, is_complete, lambda: not (result.done() and result.result()))
    client.cancel().result()
    if CHECKPOINT_MS:
        log_published(pace.folder)


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers are the system's python3
    main(f"pyflinkstate {pyflinkstate.__version__}, Spark {pyspark.__version__}, {ENGINE.lower()}", run)
