"""Jobs whose executors are in containers of their own, which ``JAVA_HOME`` makes; the containers.

    python container_job.py hoard JAVA_HOME
    python container_job.py killed JAVA_HOME CONTAINERS DIRECTORY

The first keeps all that it sees until it fails. In the other, a container is killed once a checkpoint is
complete. Both say what happened.

Containers are control groups, made below the group of whoever runs the tests: nothing leaves that one. They
need root, or a group that was given to this user. A test that cannot have them is skipped, and says so.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import psutil
import pytest
from operators import RunningSum, running_sums
from processes import command_of
from pyspark.sql import SparkSession

import pyflinkstate as ps
from pyflinkstate.runtime.slots.memory import control_groups

# --- the control groups ----------------------------------------------------------------------------

#: Processes that are killed are gone by then.
PATIENCE_S = 60
#: The limit, and where the kernel counts the processes that it has killed for it: both versions.
LIMITS = {"memory.max": "memory.events", "memory.limit_in_bytes": "memory.oom_control"}


@attrs.frozen
class Container:
    """A control group, with groups in it that may be made by others."""

    folder: Path

    def pids(self) -> set[int]:
        """Return all processes that are in it."""
        found: set[int] = set()
        for file in self.folder.rglob("cgroup.procs"):
            with suppress(OSError):  # the group has been removed, or is just being killed
                found.update(map(int, file.read_text().split()))
        return found

    def kill(self) -> None:
        """Kill all that is in it at once, as the end of a container does."""
        if (self.folder / "cgroup.kill").exists():
            (self.folder / "cgroup.kill").write_text("1")
            return
        deadline = time.monotonic() + PATIENCE_S  # version 1: one after the other, until no more are born
        while (pids := self.pids()) and time.monotonic() < deadline:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def remove(self) -> None:
        """Kill what is left, and remove it with the groups in it."""
        self.kill()
        deadline = time.monotonic() + PATIENCE_S
        while self.folder.exists():
            try:
                inner = [each for each in self.folder.rglob("*") if each.is_dir()]
                for folder in (*sorted(inner, reverse=True), self.folder):
                    folder.rmdir()
            except OSError:  # not all have ended
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def limit_memory(self, size_bytes: int) -> None:
        """Set its limit."""
        (name,) = (name for name in LIMITS if (self.folder / name).exists())
        (self.folder / name).write_text(str(size_bytes))

    def killed_by_the_kernel(self) -> int:
        """Return how many processes the kernel has killed for want of memory."""
        (name,) = (events for limit, events in LIMITS.items() if (self.folder / limit).exists())
        lines = dict(line.split() for line in (self.folder / name).read_text().splitlines())
        return int(lines["oom_kill"])


@contextmanager
def container(needs_memory: bool = False) -> Iterator[Container]:
    """Make a group, and remove it with all that is in it; skip the test where that is not possible.

    Args:
        needs_memory: whether it must be one that can have a limit.
    """
    made = _made(needs_memory)
    try:
        yield made
    finally:
        made.remove()


def _made(needs_memory: bool) -> Container:
    own: dict[str, Path] = {}
    for group in control_groups():
        own.setdefault(group.version, group.folder)
    for version in ("cgroup2", "cgroup"):
        if version in own:
            with suppress(OSError):
                made = Container(own[version] / f"pyflinkstate-test-{uuid.uuid4().hex[:12]}")
                made.folder.mkdir()
                if not needs_memory or any((made.folder / name).exists() for name in LIMITS):
                    return made
                made.folder.rmdir()
    pytest.skip("no control group can be made here")


def java_home_in(containers: Container, folder: Path) -> Path:
    """Make a Java home whose Java begins in a new group of its own, in ``containers``."""
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}")
    assert java is not None
    (folder / "bin").mkdir(parents=True)
    script = folder / "bin" / "java"
    group = f"{containers.folder}/$$"
    script.write_text(f'#!/bin/sh\nmkdir {group} && echo $$ > {group}/cgroup.procs && exec {java} "$@"\n')
    script.chmod(0o755)
    return folder


# --- the jobs --------------------------------------------------------------------------------------

KIB = 1024
RECORDS = [(f"key-{n * 7 % 23}", n) for n in range(1000)]
EPOCHS = 20
#: More than any container of a test holds.
LARGE_RECORDS = 8_000
SLOT = "pyflinkstate.runtime.slots.slot"


class Hoard(ps.KeyedProcessFunction):
    """Keeps every record."""

    def open(self, runtime_context: ps.RuntimeContext) -> None:
        self.kept = runtime_context.get_state(ps.ValueStateDescriptor("kept"))

    def process_element(self, value: tuple[int, bytes], ctx: Any) -> None:
        self.kept.update(value[1])


class KillsAContainer(ps.JobListener):
    """Kills a container with slots in it when the first checkpoint is complete, and says what happens."""

    def __init__(self, containers: Path) -> None:
        self._containers = containers
        self._is_done = False

    def on_epoch(self, stats: ps.EpochStats) -> None:
        print(f"epoch {stats.epoch}", flush=True)

    def on_checkpoint(self, stats: ps.CheckpointStats) -> None:
        if self._is_done:
            return
        self._is_done = True
        for container in map(Container, sorted(each for each in self._containers.iterdir() if each.is_dir())):
            commands = [command_of(psutil.Process(pid)) for pid in container.pids()]
            slots = sum(SLOT in command for command in commands)
            if slots:
                container.kill()
                print(f"killed {len(commands)} processes, slots: {slots}", flush=True)
                return

    def on_restart(self, attempt: int, error: Exception) -> None:
        print(f"restart {attempt}: {type(error).__name__}", flush=True)


def session_of(master: str, java_home: str) -> SparkSession:
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.executorEnv.JAVA_HOME", java_home)
    builder = builder.config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
    builder = builder.config("spark.executor.memory", "512m")
    session = builder.config("spark.scheduler.minRegisteredResourcesRatio", "1").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def hoard(java_home: str) -> None:
    session = session_of("local-cluster[1,1,512]", java_home)
    env = ps.StreamExecutionEnvironment(session).set_parallelism(1)
    records = env.from_collection(range(LARGE_RECORDS)).map(lambda number: (number, bytes(256 * KIB)))
    records.key_by(lambda record: record[0]).process(Hoard()).print()
    try:
        env.execute("hoard")
    except ps.PyFlinkStateError as error:
        print(f"{type(error).__name__}: {error}")
    session.stop()


def killed(java_home: str, containers: str, directory: str) -> None:
    session = session_of("local-cluster[2,1,512]", java_home)
    env = ps.StreamExecutionEnvironment(session).set_parallelism(4)
    env.enable_checkpointing(0, f"{directory}/checkpoints")
    env.set_restart_strategy(ps.RestartStrategies.fixed_delay_restart(10, 0))
    env.add_listener(KillsAContainer(Path(containers)))
    source = env.from_collection(RECORDS, records_per_epoch=len(RECORDS) // EPOCHS)
    with (
        source.key_by(lambda record: record[0]).process(RunningSum()).execute_and_collect("killed") as results
    ):
        rows = sorted(results)
    print("equal" if rows == sorted(running_sums(RECORDS)) else "different")
    session.stop()


if __name__ == "__main__":
    {"hoard": hoard, "killed": killed}[sys.argv[1]](*sys.argv[2:])
