"""One job of thousands of epochs: memory, descriptors and threads of its processes stay as they are.

    python tests/soak/soak_epochs.py [--epochs 5000]

It takes samples of the driver, of Spark's JVM and of the slots. After the first epochs, in which caches fill,
the line that fits the samples of a figure best must not rise by more than ``MOST_RISE`` of their mean.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import psutil
from trends import Samples, newest, of_jvm, of_processes, rising, session_of_fixed_size

from pyflinkstate import (
    EpochStats,
    JobClient,
    JobListener,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.runtime.sinks import DriverSink

KEYS = 20
RECORDS_PER_EPOCH = 10
#: Epochs in which caches may fill, and between two samples.
WARM_UP = 500
SAMPLE_EVERY = 25
MOST_RISE = 0.04


class Sum(KeyedProcessFunction):
    """Emits the sum so far of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        self.sum.update((self.sum.value() or 0) + value)
        yield self.sum.value()


class Sampler(JobListener):
    """Takes a sample after every few epochs, on the job's thread."""

    def __init__(self, figures: Callable[[], Iterator[tuple[str, float]]]) -> None:
        self._figures = figures
        self._began_s = time.monotonic()
        self.samples: Samples = defaultdict(list)

    def on_epoch(self, stats: EpochStats) -> None:
        if stats.epoch % SAMPLE_EVERY:
            return
        for name, value in self._figures():
            self.samples[name].append((stats.epoch, value))
        if stats.epoch % (10 * SAMPLE_EVERY) == 0:
            elapsed_s = time.monotonic() - self._began_s
            print(f"epoch {stats.epoch}, {elapsed_s:.0f} s: {newest(self.samples)}", flush=True)


def run(epochs: int, directory: str) -> Samples:
    session = session_of_fixed_size()
    client: list[JobClient] = []

    def figures() -> Iterator[tuple[str, float]]:
        yield from of_processes("driver", [psutil.Process()])
        yield from of_jvm(session)
        yield from of_processes("slots", [psutil.Process(pid) for pid in client[0].slot_pids().values()])

    env = StreamExecutionEnvironment(session).set_parallelism(2)
    env.enable_checkpointing(0, directory, incremental=True, num_retained=2)
    env.add_listener(sampler := Sampler(figures))
    numbers = env.from_collection(range(epochs * RECORDS_PER_EPOCH), records_per_epoch=RECORDS_PER_EPOCH)
    sums = numbers.key_by(lambda number: number % KEYS, Types.LONG()).process(Sum()).uid("sum")
    sums.sink_to(DriverSink(lambda *_: None))
    client.append(env.execute_async("many epochs"))
    client[0].get_job_execution_result().result()
    session.stop()
    return sampler.samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        samples = run(args.epochs, directory)
    sys.exit(1 if rising(samples, min(WARM_UP, args.epochs // 3), MOST_RISE) else 0)


if __name__ == "__main__":
    main()
