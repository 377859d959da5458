"""Questions to the live state of a job: one key between two epochs, and all entries while the job goes on.

    python benchmarks/live_state.py [--json] [--entries N] [--queries N] [--records N] [--rounds N]

A job counts records by key (str -> int) in two subtasks. When it has seen every key once, it stands still,
and one key after another is asked for. Then epochs of ``--records`` records follow each other. In turns, a
while passes with a scan of all entries, and about as long without one.

* ``query_p50_ms``: the value of one key, between two epochs; ``query_cpu_ms`` is the driver's processor time.
* ``scan_s``: all entries as an Arrow table, asked for while epochs follow each other. ``scan_wait_s`` is the
  part of it that waits for the end of an epoch.
* ``scan_throughput_ratio``: records a second during a scan, against the time before and after it.

Medians are over all rounds. How far the job is at a moment is interpolated between the ends of its epochs.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from local_session import local_session, tell

from pyflinkstate import (
    Available,
    EpochStats,
    JobClient,
    JobListener,
    KeyedProcessFunction,
    RuntimeContext,
    Source,
    SplitEpoch,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

PARTITIONS = 2
UID = "counts"
STATE = "count"
WARM_UP = 4


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor(STATE, Types.LONG()))

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value, count


def read_keys(split: tuple[int, int, int], _: Any) -> Iterator[str]:
    first, stop, keys = split
    return (f"customer-{number * 7919 % keys}" for number in range(first, stop))


class SwitchedSource(Source):
    """All keys once, then nothing, and then epoch after epoch while it is switched on."""

    def __init__(self, keys: int, records: int) -> None:
        self.keys = keys
        self.records = records
        self.is_on = False
        self.is_over = False
        self._wake_up: Callable[[], None] = lambda: None

    def open(self, wake_up: Callable[[], None]) -> None:
        self._wake_up = wake_up

    def switch(self, is_on: bool, is_over: bool = False) -> None:
        self.is_on, self.is_over = is_on, is_over
        self._wake_up()

    def initial_offset(self) -> int:
        return 0

    def latest_offset(self, start: int, whole: bool) -> Available:
        if start == 0:
            return Available(self.keys)
        end = start + self.records if self.is_on else start
        return Available(end, self.is_over and end == start)

    def plan(self, start: int, end: int) -> SplitEpoch:
        cuts = [start + (end - start) * part // PARTITIONS for part in range(PARTITIONS + 1)]
        return SplitEpoch([(*span, self.keys) for span in itertools.pairwise(cuts)], read_keys)


class Discard:
    """A sink that counts."""

    def open(self, job_id: str, restored_epoch: int | None) -> None: ...
    def writer(self, epoch: int) -> Discard:
        return self

    def write(self, partition: int, records: Iterator[Any]) -> Iterator[int]:
        yield sum(1 for _ in records)

    def prepare(self, epoch: int, results: list[int]) -> None: ...
    def commit(self, epoch: int) -> None: ...
    def rewind(self, epoch: int) -> None: ...


class Progress(JobListener):
    """When each epoch ended, and how many records there were by then."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, int]] = []
        self._changed = threading.Condition()

    def on_epoch(self, stats: EpochStats) -> None:
        with self._changed:
            before = self._ends[-1][1] if self._ends else 0
            self._ends.append((time.perf_counter(), before + stats.records))
            self._changed.notify_all()

    def wait_for(self, epochs: int) -> None:
        """Wait until so many more epochs have ended."""
        with self._changed:
            until = len(self._ends) + epochs
            self._changed.wait_for(lambda: len(self._ends) >= until)

    def rate(self, begin_s: float, end_s: float) -> float:
        """Return the records a second between two moments; waits for the end of the last epoch."""
        with self._changed:
            self._changed.wait_for(lambda: self._ends[-1][0] >= end_s)
            return (self._records_at(end_s) - self._records_at(begin_s)) / (end_s - begin_s)

    def _records_at(self, moment_s: float) -> float:
        for (before_s, before), (after_s, after) in itertools.pairwise(self._ends):
            if before_s <= moment_s <= after_s:
                return before + (after - before) * (moment_s - before_s) / (after_s - before_s)
        raise ValueError("no epoch was running then")


# --- measures ------------------------------------------------------------------------------------------


def look_up(client: JobClient, keys: int, queries: int) -> dict[str, float]:
    """Ask for one key after another."""
    client.query_value(UID, STATE, "customer-0")
    times_ms: list[float] = []
    began_cpu = time.process_time()
    for number in range(queries):
        began = time.perf_counter()
        found = client.query_value(UID, STATE, f"customer-{number * 104_729 % keys}")
        times_ms.append((time.perf_counter() - began) * 1000)
        assert found == 1, found
    cpu_ms = (time.process_time() - began_cpu) * 1000 / queries
    p99 = sorted(times_ms)[int(queries * 0.99)]
    return {"query_p50_ms": statistics.median(times_ms), "query_p99_ms": p99, "query_cpu_ms": cpu_ms}


def scan(client: JobClient, keys: int, progress: Progress) -> tuple[float, float, float, float]:
    """Return the seconds of a scan, those of them until it began, and the rates without and during it."""
    asked = time.perf_counter()
    with client.query(UID, STATE) as answer:
        frozen = time.perf_counter()
        rows = answer.to_arrow().num_rows
    ended = time.perf_counter()
    assert rows == keys, rows
    during = progress.rate(frozen, ended)
    began = time.perf_counter()
    progress.wait_for(2)
    while time.perf_counter() - began < ended - frozen:
        progress.wait_for(1)
    return ended - asked, frozen - asked, progress.rate(began, time.perf_counter()), during


def scans(client: JobClient, keys: int, progress: Progress, rounds: int) -> dict[str, float]:
    """Scan again and again while the job goes on."""
    progress.wait_for(WARM_UP)
    found = [scan(client, keys, progress) for _ in range(rounds)]
    alone = [found[0][2]] + [rate for _, _, rate, _ in found]
    around = [(before + after) / 2 for before, after in itertools.pairwise(alone)]
    ratios = [during / without for (_, _, _, during), without in zip(found, around, strict=True)]
    return {
        "scan_s": statistics.median(total for total, _, _, _ in found),
        "scan_wait_s": statistics.median(wait for _, wait, _, _ in found),
        "scan_throughput_ratio": statistics.median(ratios),
        "records_per_s": statistics.median(alone),
    }


def measure(args: argparse.Namespace) -> dict[str, float]:
    source, progress = SwitchedSource(args.entries, args.records), Progress()
    env = StreamExecutionEnvironment(SESSION).set_parallelism(PARTITIONS)
    env.add_listener(progress)
    stream = env.from_source(source).key_by(lambda key: key, key_type=Types.STRING())
    stream.process(Count()).uid(UID).sink_to(Discard())
    client = env.execute_async("live state")
    progress.wait_for(1)
    figures = look_up(client, args.entries, args.queries)
    source.switch(True)
    figures |= scans(client, args.entries, progress, args.rounds)
    source.switch(False, is_over=True)
    client.get_job_execution_result().result()
    return {name: round(value, 3) for name, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--records", type=int, default=250_000)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    tell(measure(args), args.json)


if __name__ == "__main__":
    SESSION = local_session(PARTITIONS)
    main()
