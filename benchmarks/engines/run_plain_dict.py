"""Spark's ``mapPartitions`` over plain dicts: what Python on Spark can do where nothing may be lost or late.

It is the ceiling and no peer: no state outlives the job, nothing is emitted before the input has ended (but
for the keyed count), and the input must be sorted by time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import pyspark
from pyspark.sql import SparkSession
from workload import GAP_MS, PARALLELISM, key_of, main, minute_end

Pairs = Iterator[tuple[int, int]]


def running_counts(pairs: Iterable[tuple[int, int]]) -> Pairs:
    counts: dict[int, int] = {}
    for key, _ in pairs:
        counts[key] = count = counts.get(key, 0) + 1
        yield key, count


def counts_by_minute(pairs: Iterable[tuple[int, int]]) -> Pairs:
    counts: dict[tuple[int, int], int] = {}
    for key, number in pairs:
        window = key, minute_end(number)
        counts[window] = counts.get(window, 0) + 1
    for (key, _), count in counts.items():
        yield key, count


def counts_by_session(pairs: Iterable[tuple[int, int]]) -> Pairs:
    sessions: dict[int, tuple[int, int]] = {}
    for key, number in pairs:
        last, count = sessions.get(key, (number, 0))
        if number - last > GAP_MS:
            yield key, count
            count = 0
        sessions[key] = number, count + 1
    for key, (_, count) in sessions.items():
        yield key, count


PROGRAMS: dict[str, Callable[[Iterable[tuple[int, int]]], Pairs]] = {
    "keyed_count": running_counts,
    "timers": counts_by_minute,
    "tumbling": counts_by_minute,
    "session": counts_by_session,
}


def run(workload: str, records: int, check: bool) -> tuple[float, list[tuple[int, int]] | None]:
    builder = SparkSession.builder.master(f"local[{PARALLELISM}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    context = builder.getOrCreate().sparkContext
    context.setLogLevel("ERROR")
    # One slice, so that the order of time is kept; the other engines read one sequence too.
    numbers = context.range(records, numSlices=1).map(lambda number: (key_of(number), number))
    results = numbers.partitionBy(PARALLELISM).mapPartitions(PROGRAMS[workload])
    started = time.perf_counter()
    if check:
        found = results.collect()
        return time.perf_counter() - started, found
    results.count()
    return time.perf_counter() - started, None


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers are the system's python3
    main(f"dict in mapPartitions, Spark {pyspark.__version__}", run)
