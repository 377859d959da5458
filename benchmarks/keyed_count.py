"""Count per key: a KeyedProcessFunction with a ValueState against a plain dict in ``mapPartitions``.

    python benchmarks/keyed_count.py [--json] [--records N] [--keys N] [--rounds N] [--engine pipelined]

The dict is the ceiling of Python on Spark: no fault tolerance, no state that outlives the job. All read
the same records, key them, and emit one ``(key, count)`` for each, which the end of each counts. Rounds are
interleaved, so that all meet the same noise; the figures are medians. Starting slots is part of ours.

With ``--engine`` the records come from a source of numbers, and that engine runs the job; without it they
come from an RDD, as for the dict.

* ``ratio_no_checkpoint``: the state in one epoch, against the dict.
* ``ratio_with_checkpoint``: epochs of a million records with an incremental checkpoint every second, against
  the dict.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
from local_session import local_session, tell
from pyspark import RDD

from pyflinkstate import (
    Available,
    Configuration,
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    Source,
    SplitEpoch,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

PARTITIONS = 2
RECORDS_PER_EPOCH = 1_000_000


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
        self.total += sum(results)

    def commit(self, epoch: int) -> None:
        """Nothing to commit."""

    def rewind(self, epoch: int) -> None:
        """Nothing to rewind."""


class Numbers(Source):
    """Numbers in as many parts as there are partitions."""

    is_bounded = True

    def __init__(self, end: int) -> None:
        self.end = end

    def initial_offset(self) -> int:
        return 0

    def latest_offset(self, start: int, whole: bool) -> Available:
        end = self.end if whole else min(self.end, start + RECORDS_PER_EPOCH)
        return Available(end, is_last=end == self.end, is_full=end < self.end)

    def plan(self, start: int, end: int) -> SplitEpoch:
        cuts = [start + (end - start) * part // PARTITIONS for part in range(PARTITIONS + 1)]
        return SplitEpoch([*itertools.pairwise(cuts)], _numbers, is_fresh=True)


def _numbers(split: tuple[int, int], _: object) -> Iterable[int]:
    return range(*split)


@attrs.frozen
class Records:
    """The records of a round.

    Attributes:
        number: how many there are.
        keys: how many keys they have.
    """

    number: int
    keys: int

    def key_of(self) -> Callable[[int], str]:
        keys = self.keys
        return lambda number: f"customer-{number * 7919 % keys}"

    def rdd(self) -> RDD[str]:
        slices = PARTITIONS * max(1, self.number // RECORDS_PER_EPOCH)
        return SESSION.sparkContext.range(self.number, numSlices=slices).map(self.key_of())

    def stream(self, env: StreamExecutionEnvironment) -> DataStream:
        if ENGINE == "rdd":
            return env.from_rdd(self.rdd())
        env.configure(Configuration().set_string("pyflinkstate.engine", ENGINE.upper()))
        return env.from_source(Numbers(self.number)).map(self.key_of())


def with_dict(records: Records) -> int:
    pairs = records.rdd().map(lambda key: (key, 1)).partitionBy(PARTITIONS)
    return pairs.mapPartitions(count_in_dict).count()


def with_state(records: Records) -> int:
    return counted(StreamExecutionEnvironment(SESSION), records)


def with_checkpoints(records: Records) -> int:
    with tempfile.TemporaryDirectory() as directory:
        env = StreamExecutionEnvironment(SESSION)
        env.enable_checkpointing(1_000, directory, incremental=True)
        return counted(env, records)


def counted(env: StreamExecutionEnvironment, records: Records) -> int:
    env.set_parallelism(PARTITIONS)
    sink = CountingSink()
    # With checkpoints, an epoch has as many partitions as Spark has cores here; without, it has all.
    stream = records.stream(env).key_by(lambda key: key, key_type=Types.STRING())
    stream.process(Count()).sink_to(sink)
    env.execute("keyed count")
    return sink.total


def rate(count: Callable[[Records], int], records: Records) -> float:
    started = time.perf_counter()
    counted = count(records)
    seconds = time.perf_counter() - started
    if counted != records.number:
        raise AssertionError(f"counted {counted} of {records.number} records")
    return records.number / seconds


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", choices=["rdd", "stages", "pipelined"], default="rdd")
    return parser.parse_args()


def main(args: argparse.Namespace) -> None:
    ways = {"dict": with_dict, "state": with_state, "checkpoints": with_checkpoints}
    for count in ways.values():
        rate(count, Records(10_000, args.keys))
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(args.rounds):
        for name, count in ways.items():
            rates[name].append(rate(count, Records(args.records, args.keys)))
        if not args.json:
            seen = ", ".join(f"{name} {rates[name][-1]:,.0f}" for name in ways)
            print(f"round {number + 1}: {seen} records/s")

    def ratio(name: str) -> float:
        return round(statistics.median(x / d for x, d in zip(rates[name], rates["dict"], strict=True)), 3)

    figures = {
        "dict_records_per_s": round(statistics.median(rates["dict"])),
        "state_records_per_s": round(statistics.median(rates["state"])),
        "ratio_no_checkpoint": ratio("state"),
        "ratio_with_checkpoint": ratio("checkpoints"),
    }
    tell(figures, args.json)


if __name__ == "__main__":
    ARGS = parsed()
    ENGINE = ARGS.engine
    SESSION = local_session(PARTITIONS)
    main(ARGS)
