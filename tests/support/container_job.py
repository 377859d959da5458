"""Jobs whose executors are in containers of their own, which ``JAVA_HOME`` makes; see ``containers.py``.

    python container_job.py hoard JAVA_HOME
    python container_job.py killed JAVA_HOME CONTAINERS DIRECTORY

The first keeps all that it sees until it fails. In the other, a container is killed once a checkpoint is
complete. Both say what happened.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import psutil
from containers import Container
from operators import RunningSum, running_sums
from processes import command_of
from pyspark.sql import SparkSession

import pyflinkstate as ps

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
