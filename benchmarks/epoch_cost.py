"""What an epoch costs when there is much state: 1,000 records over millions of keys and over a thousand.

    python benchmarks/epoch_cost.py [--json] [--keys N] [--few N] [--epochs N] [--engine pipelined]
        [--no-checkpoints]

Two jobs run side by side, one with much state and one with little. Each epoch brings both 1,000 records of
keys that are there, and ends with an incremental checkpoint; the epochs alternate, so that both jobs meet
the same noise. The figures are medians.

* ``epoch_ratio``: an epoch over much state against one over little.
* ``incremental_share``: bytes of an incremental checkpoint of such an epoch against a full one.
* ``epoch_p50_ms``: an epoch over much state, with its checkpoint.
* ``epoch_without_p50_ms``: the same without checkpoints; in a run of its own, with ``--no-checkpoints``.
"""

from __future__ import annotations

import argparse
import itertools
import queue
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from local_session import local_session, tell
from pyspark.sql import SparkSession

from pyflinkstate import (
    Available,
    Configuration,
    JobListener,
    KeyedProcessFunction,
    RuntimeContext,
    Source,
    SplitEpoch,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.runtime.settings.restart import RestartStrategy

PARTITIONS = 2
RECORDS = 1_000
WARM_UP = 3
#: What runs the epochs.
ENGINE = "stages"


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value, count


def read_keys(split: tuple[int, int, int, int], _: Any) -> Iterator[str]:
    first, stop, step, keys = split
    return (f"customer-{number * step % keys}" for number in range(first, stop))


class PacedSource(Source):
    """All keys once, then an epoch of 1,000 records whenever it is asked to."""

    def __init__(self, keys: int, epochs: int) -> None:
        self.keys = keys
        self.epochs = epochs
        self.allowed = 0
        self._wake_up: Callable[[], None] = lambda: None

    def open(self, wake_up: Callable[[], None]) -> None:
        self._wake_up = wake_up

    def allow(self) -> None:
        self.allowed += 1
        self._wake_up()

    def initial_offset(self) -> int:
        return -1

    def latest_offset(self, start: int, whole: bool) -> Available:
        if start == self.epochs:
            return Available(start, is_last=True)
        return Available(start + 1 if start < self.allowed else start)

    def plan(self, start: int, end: int) -> SplitEpoch:
        if start < 0:
            cuts = [self.keys * part // PARTITIONS for part in range(PARTITIONS + 1)]
            spans = itertools.pairwise(cuts)
            return SplitEpoch([(first, stop, 1, self.keys) for first, stop in spans], read_keys)
        first, half = start * RECORDS, RECORDS // 2
        halves = ((first, first + half), (first + half, first + RECORDS))
        return SplitEpoch([(begin, stop, 7919, self.keys) for begin, stop in halves], read_keys)


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


class Epochs(JobListener):
    """Hands over each completed checkpoint, or without checkpoints each epoch."""

    def __init__(self, has_checkpoints: bool) -> None:
        self.has_checkpoints = has_checkpoints
        self.completed: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def on_checkpoint(self, stats: Any) -> None:
        self.completed.put(stats)

    def on_epoch(self, stats: Any) -> None:
        if not self.has_checkpoints:
            self.completed.put(stats)


class PacedJob:
    """A job that runs one epoch, to its completed checkpoint if there is a directory, at a time."""

    def __init__(
        self,
        spark: SparkSession,
        keys: int,
        epochs: int,
        directory: str | None,
        restart: RestartStrategy | None = None,
    ) -> None:
        self.source = PacedSource(keys, epochs)
        self.epochs = Epochs(directory is not None)
        env = StreamExecutionEnvironment(spark).set_parallelism(PARTITIONS)
        env.configure(Configuration().set_string("pyflinkstate.engine", ENGINE.upper()))
        if directory is not None:
            env.enable_checkpointing(0, directory)
            env.get_checkpoint_config().enable_incremental_checkpoints(materialization_interval=1_000_000)
        env.add_listener(self.epochs)
        if restart is not None:
            env.set_restart_strategy(restart)
        stream = env.from_source(self.source).key_by(lambda key: key, key_type=Types.STRING())
        stream.process(Count()).sink_to(Discard())
        self.client = env.execute_async(f"{keys} keys")
        first = self.epochs.completed.get()
        self.full_bytes = first.checkpointed_bytes if self.epochs.has_checkpoints else 0
        self.incremental_bytes: list[int] = []

    def epoch(self) -> float:
        """Run one epoch and return the seconds it took."""
        started = time.perf_counter()
        self.source.allow()
        stats = self.epochs.completed.get()
        seconds = time.perf_counter() - started
        if self.epochs.has_checkpoints:
            self.incremental_bytes.append(stats.checkpointed_bytes)
        return seconds

    def end(self) -> None:
        self.client.cancel().result()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--few", type=int, default=1_000)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--engine", choices=["stages", "pipelined"], default="stages")
    parser.add_argument("--no-checkpoints", action="store_true")
    return parser.parse_args()


def main(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        much, little = (
            PacedJob(SESSION, keys, 10 * args.epochs, None if args.no_checkpoints else f"{directory}/{keys}")
            for keys in (args.keys, args.few)
        )
        for job in (much, little):
            for _ in range(WARM_UP):
                job.epoch()
        pairs = [(much.epoch(), little.epoch()) for _ in range(args.epochs)]
        for job in (much, little):
            job.end()
    much_s, little_s = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    if args.no_checkpoints:
        tell({"epoch_without_p50_ms": round(much_s * 1000, 1)}, args.json)
        return
    figures = {
        "epoch_ratio": round(much_s / little_s, 3),
        "incremental_share": round(statistics.median(much.incremental_bytes) / much.full_bytes, 5),
        "epoch_p50_ms": round(much_s * 1000, 1),
    }
    tell(figures, args.json)
    if not args.json:
        print(f"full checkpoint {much.full_bytes:,} bytes, incremental {much.incremental_bytes[-1]:,}")


if __name__ == "__main__":
    ARGS = parsed()
    ENGINE = ARGS.engine
    # Each of the two jobs keeps its tasks, if they stay.
    SESSION = local_session(PARTITIONS if ENGINE == "stages" else 2 * PARTITIONS + 1)
    main(ARGS)
