"""One job of thousands of epochs: memory, descriptors and threads of its processes stay as they are.

    python tests/soak/soak_epochs.py [--epochs 5000]

It takes samples of the driver, of Spark's JVM and of the slots. After the first epochs, in which caches fill,
the line that fits the samples of a figure best must not rise by more than ``MOST_RISE`` of their mean. Memory
is what a process shares with no other one (USS); that of the JVM is its heap after a garbage collection.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import linear_regression, mean
from typing import Any

import psutil
from pyspark.sql import SparkSession

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
#: A rise of fewer descriptors or threads is no trend.
LEAST_COUNT = 3

#: A figure's name, and its samples as (epoch, value).
Samples = dict[str, list[tuple[int, float]]]


class Sum(KeyedProcessFunction):
    """Emits the sum so far of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        self.sum.update((self.sum.value() or 0) + value)
        yield self.sum.value()


def of_processes(name: str, processes: list[psutil.Process]) -> Iterator[tuple[str, float]]:
    """Yield the figures of some processes together."""
    yield f"{name}: USS in MiB", sum(each.memory_full_info().uss for each in processes) / 2**20
    yield f"{name}: descriptors", sum(each.num_fds() for each in processes)
    yield f"{name}: threads", sum(each.num_threads() for each in processes)


def of_jvm(session: SparkSession) -> Iterator[tuple[str, float]]:
    """Yield the figures of the JVM; its process keeps the memory that its heap has needed once."""
    context: Any = session.sparkContext
    context._jvm.java.lang.System.gc()
    runtime = context._jvm.java.lang.Runtime.getRuntime()
    yield "JVM: heap in MiB", (runtime.totalMemory() - runtime.freeMemory()) / 2**20
    _, *counts = of_processes("JVM", [psutil.Process(context._gateway.proc.pid)])
    yield from counts


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
            last = ", ".join(f"{name} {found[-1][1]:.1f}" for name, found in self.samples.items())
            print(f"epoch {stats.epoch}, {time.monotonic() - self._began_s:.0f} s: {last}", flush=True)


def rise_of(samples: list[tuple[int, float]]) -> float:
    """Return by how much the line that fits best rises over all samples.

    >>> rise_of([(0, 10), (1, 11), (2, 12)])
    2.0
    """
    epochs, values = zip(*samples, strict=True)
    slope, _ = linear_regression(epochs, values)
    return slope * (epochs[-1] - epochs[0])


def rising(samples: Samples, warm_up: int) -> list[str]:
    """Return a line for each figure that rises after the first epochs."""
    found = []
    for name, all_of_it in samples.items():
        settled = [(epoch, value) for epoch, value in all_of_it if epoch > warm_up]
        rise, average = rise_of(settled), mean(value for _, value in settled)
        least = 0 if "MiB" in name else LEAST_COUNT
        is_rising = rise > max(MOST_RISE * average, least)
        text = f"{name}: {average:.1f} on average, rises by {rise:.2f} ({rise / average:.1%})"
        print(f"{'RISES' if is_rising else 'flat '} {text}", flush=True)
        found += [text] * is_rising
    return found


def run(epochs: int, directory: str) -> Samples:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    for kept in ("spark.ui.retainedJobs", "spark.ui.retainedStages", "spark.ui.retainedTasks"):
        builder = builder.config(kept, "100")  # of which Spark would fill its lists for thousands of epochs
    # A heap whose size is fixed: otherwise what a collection leaves depends on when the heap has grown.
    java = "-XX:+UseSerialGC -Xms768m -XX:SoftRefLRUPolicyMSPerMB=0"
    builder = builder.config("spark.driver.memory", "768m").config("spark.driver.defaultJavaOptions", java)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
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
    sys.exit(1 if rising(samples, min(WARM_UP, args.epochs // 3)) else 0)


if __name__ == "__main__":
    main()
