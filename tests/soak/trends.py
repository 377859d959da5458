"""Whether memory, descriptors and threads of a job's processes rise.

Memory is what a process shares with no other one (USS); that of the JVM is its heap after a garbage
collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from statistics import linear_regression, mean
from typing import Any

import psutil
from pyspark.sql import SparkSession

#: A rise of fewer descriptors or threads is no trend.
LEAST_COUNT = 3

#: A figure's name, and its samples as (epoch or second, value).
Samples = dict[str, list[tuple[float, float]]]


def session_of_fixed_size() -> SparkSession:
    """Return a session whose heap is of a fixed size, and whose lists of past jobs are soon full.

    Otherwise what a collection leaves would depend on when the heap has grown.
    """
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    for kept in ("spark.ui.retainedJobs", "spark.ui.retainedStages", "spark.ui.retainedTasks"):
        builder = builder.config(kept, "100")
    java = "-XX:+UseSerialGC -Xms768m -XX:SoftRefLRUPolicyMSPerMB=0"
    builder = builder.config("spark.driver.memory", "768m").config("spark.driver.defaultJavaOptions", java)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def of_processes(name: str, processes: Iterable[psutil.Process]) -> Iterator[tuple[str, float]]:
    """Yield the figures of some processes together; those that have just ended are left out."""
    uss, descriptors, threads = 0, 0, 0
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            found = each.memory_full_info().uss, each.num_fds(), each.num_threads()
            uss, descriptors, threads = uss + found[0], descriptors + found[1], threads + found[2]
    yield f"{name}: USS in MiB", uss / 2**20
    yield f"{name}: descriptors", descriptors
    yield f"{name}: threads", threads


def jvm_of(session: SparkSession) -> psutil.Process:
    """Return the JVM of a session."""
    context: Any = session.sparkContext
    return psutil.Process(context._gateway.proc.pid)


def of_jvm(session: SparkSession) -> Iterator[tuple[str, float]]:
    """Yield the figures of the JVM; its process keeps the memory that its heap has needed once."""
    context: Any = session.sparkContext
    context._jvm.java.lang.System.gc()
    runtime = context._jvm.java.lang.Runtime.getRuntime()
    yield "JVM: heap in MiB", (runtime.totalMemory() - runtime.freeMemory()) / 2**20
    _, *counts = of_processes("JVM", [jvm_of(session)])
    yield from counts


def newest(samples: Samples) -> str:
    """Return the newest sample of each figure in one line."""
    return ", ".join(f"{name} {found[-1][1]:.1f}" for name, found in samples.items())


def rise_of(samples: list[tuple[float, float]]) -> float:
    """Return by how much the line that fits best rises over all samples.

    >>> rise_of([(0, 10), (1, 11), (2, 12)])
    2.0
    """
    at, values = zip(*samples, strict=True)
    slope, _ = linear_regression(at, values)
    return slope * (at[-1] - at[0])


def rising(samples: Samples, warm_up: float, most_rise: float) -> list[str]:
    """Return a line for each figure that rises after the warm-up.

    Args:
        samples: the samples.
        warm_up: the last epoch or second in which caches may fill.
        most_rise: the share of its mean by which a figure may rise.
    """
    found = []
    for name, all_of_it in samples.items():
        settled = [(at, value) for at, value in all_of_it if at > warm_up]
        rise, average = rise_of(settled), mean(value for _, value in settled)
        least = 0 if "MiB" in name else LEAST_COUNT
        is_rising = rise > max(most_rise * average, least)
        text = f"{name}: {average:.1f} on average, rises by {rise:.2f} ({rise / max(average, 1):.1%})"
        print(f"{'RISES' if is_rising else 'flat '} {text}", flush=True)
        found += [text] * is_rising
    return found
