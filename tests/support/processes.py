"""Which processes there are: those of this program, and those with a mark in their environment.

Also JVMs that start in half the time: the classes that Spark loads come parsed and verified from one file.
The file is a class data sharing archive, which a JVM writes when it ends. A JVM takes it only if it is of the
same build and has the same jars before it; otherwise it starts as without.
"""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")

#: Is in the environment of all that a run of the tests on Spark starts, also of who has lost its parent.
MARK = "PYFLINKSTATE_TESTS"


def command_of(process: psutil.Process) -> str:
    """Return the command line; nothing of a process that has ended."""
    return " ".join(_asked(process.cmdline) or [])


def is_running(process: psutil.Process) -> bool:
    """Return whether the process has not ended; one that nobody has waited for yet has ended."""
    return process.is_running() and _asked(process.status) not in (None, psutil.STATUS_ZOMBIE)


def slot_pids() -> set[int]:
    """Return the state slots that this run of the tests has running, also those whose worker has ended."""
    return {process.pid for process in _slots()}


def slots_left(patience_s: float = 30) -> list[str]:
    """Return the commands of the slots that have not ended in time; those that are just ending may finish."""
    deadline = time.monotonic() + patience_s
    for pid in slot_pids():
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
            os.close(handle)
    return [command_of(process) for process in _slots()]


def _slots() -> list[psutil.Process]:
    mine = marked(MARK, os.environ[MARK])
    return [process for process in mine if "pyflinkstate.runtime.slots.slot" in command_of(process)]


def marked(name: str, value: str) -> list[psutil.Process]:
    """Return all processes but this one that have a variable in their environment, whoever started them."""
    this = psutil.Process()
    return [process for process in _with(name, value) if process != this and is_running(process)]


def _with(name: str, value: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        if (_asked(process.environ) or {}).get(name) == value:
            yield process


def _asked(question: Callable[[], T]) -> T | None:
    try:
        return question()
    except psutil.Error:
        return None  # it has ended meanwhile, or is another user's


# --- JVMs that start quickly -----------------------------------------------------------------------

#: A test's JVM lives for seconds: what the second compiler and a parallel collector would save costs more.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: Loads what a job needs; the archive is written as Spark's JVM ends.
SAMPLE = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
session = builder.config("spark.driver.defaultJavaOptions", sys.argv[1]).getOrCreate()
context = session.sparkContext
pairs = context.parallelize([(1, 2), (3, 4)], 2).mapPartitionsWithIndex(lambda _, pairs: pairs)
pairs.repartitionAndSortWithinPartitions(2).collect()
process = context._gateway.proc
session.stop()
process.stdin.close()
process.wait()
"""


def quick_start(folder: Path) -> dict[str, str]:
    """Return environment variables with which Spark starts quickly.

    Args:
        folder: is empty; JVMs that have directories with files among their jars take no archive.
    """
    return {
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LAUNCHER_OPTS": QUICK,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }


def java_options(archive: Path | None) -> str:
    """Return the JVM's options; ``archive`` may be missing."""
    return (
        QUICK
        if archive is None
        else f"{QUICK} -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"
    )


def make_archive(archive: Path, folder: Path) -> None:
    """Write the archive, which takes as long as two starts of Spark. A JVM before Java 13 writes none."""
    options = f"{QUICK} -XX:ArchiveClassesAtExit={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"
    subprocess.run(
        [sys.executable, "-c", SAMPLE, options],
        check=False,
        env={**os.environ, **quick_start(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=300,
    )


# --- processes that are slow -----------------------------------------------------------------------


class Slower:
    """Stops one process after the other for a moment, as a machine that is busy with other things does."""

    def __init__(self, rng: random.Random, processes: Callable[[], list[psutil.Process]]) -> None:
        self._rng = rng
        self._processes = processes
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: Who is frozen stays so. The lock keeps the two from crossing.
        self.frozen: set[psutil.Process] = set()
        self.lock = threading.Lock()
        self.stops = 0

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        """Look every few stops who there is: that takes a while."""
        while not self._ends.is_set():
            able = [process for process in self._processes() if process not in self.frozen]
            for process in self._rng.choices(able, k=5) if able else [None]:
                if self._ends.wait(self._rng.uniform(0, 0.2)):
                    return
                if process is not None and process not in self.frozen:
                    self._stop(process)

    def _stop(self, process: psutil.Process) -> None:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
            self.stops += 1
            self._ends.wait(self._rng.uniform(0.02, 0.4))
            with self.lock:
                if process not in self.frozen:
                    process.resume()
