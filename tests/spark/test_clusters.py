"""Executors that are processes of their own, with settings that clusters have, in containers, and killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from container_job import container, java_home_in

from pyflinkstate.runtime.spark.epoch_rdds import Executor, placed
from pyflinkstate.runtime.wire import SlotId

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SUPPORT = Path(__file__).parents[1] / "support"
ENCRYPTED = [
    "spark.authenticate=true",
    "spark.authenticate.secret=a secret",
    "spark.network.crypto.enabled=true",
]
#: A copy of whatever runs longer than most tasks. Spark makes none on a host that already runs the task, so
#: on one host nothing is copied: this only shows that the setting itself does no harm.
SPECULATIVE = [
    "spark.speculation=true",
    "spark.speculation.quantile=0.1",
    "spark.speculation.multiplier=1.01",
    "spark.speculation.interval=10ms",
    "spark.speculation.minTaskRuntime=1ms",
]
#: Executors that are given up after a second without work.
DYNAMIC = [
    "spark.dynamicAllocation.enabled=true",
    "spark.dynamicAllocation.shuffleTracking.enabled=true",
    "spark.dynamicAllocation.shuffleTracking.timeout=1s",
    "spark.dynamicAllocation.executorIdleTimeout=1s",
    "spark.dynamicAllocation.minExecutors=0",
]
#: Executors that are told to leave take no more tasks, and end when theirs have ended.
LEAVING = ["spark.decommission.enabled=true", "spark.storage.decommission.enabled=true"]
#: Listening everywhere, and known by a name.
ELSEWHERE = ["spark.driver.bindAddress=0.0.0.0", "spark.driver.host=localhost"]


def run(master: str, folder: Path, settings: list[str], *arguments: str) -> list[str]:
    """Run the job of ``cluster_job.py``, and return what it printed."""
    conf = [part for setting in [f"spark.master={master}", *settings] for part in ("--conf", setting)]
    return printed_by("cluster_job.py", folder, str(folder / "job"), *arguments, *conf)


def printed_by(program: str, folder: Path, *arguments: str, **environment: str) -> list[str]:
    """Run a program of ``tests/support``; return what it printed."""
    done = subprocess.run(
        [sys.executable, str(SUPPORT / program), *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            **environment,
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("cores", "settings", "arguments"),
    [
        (1, ENCRYPTED, []),
        (2, SPECULATIVE, ["--parallelism", "3"]),
        (1, DYNAMIC, ["--until-none"]),
        (1, ELSEWHERE, []),
    ],
    ids=["encrypted", "speculation", "dynamic allocation", "another address"],
)
def test_state_is_right_to_the_end(
    cores: int, settings: list[str], arguments: list[str], tmp_path: Path
) -> None:
    assert "equal" in run(f"local-cluster[2,{cores},1024]", tmp_path, settings, *arguments)


def test_an_executor_that_is_decommissioned_costs_no_restart(tmp_path: Path) -> None:
    arguments = ("--decommission", "--executors", "2", "--parallelism", "4")
    told = run("local-cluster[2,1,1024]", tmp_path, LEAVING, *arguments)
    assert "equal" in told
    (left,) = (line for line in told if line.startswith("left"))
    assert "decommission" in left.lower()
    assert not [line for line in told if line.startswith("restart")], told


def test_executors_share_the_slots_evenly_whatever_a_task_takes(tmp_path: Path) -> None:
    told = run(
        "local-cluster[2,2,1024]",
        tmp_path,
        ["spark.task.cpus=2", "spark.locality.wait=60s"],
        *("--parallelism", "4", "--executors", "2"),
    )
    assert told[-2:] == ["equal", "{'127.0.0.1 0': 2, '127.0.0.1 1': 2}"]


def test_hosts_share_the_slots_evenly_whatever_executors_they_have() -> None:
    executors = [Executor("a", "0"), Executor("a", "1"), Executor("a", "2"), Executor("b", "3")]
    given = placed([SlotId("count", subtask) for subtask in range(6)], executors)
    assert [(executor.host, executor.executor_id) for _, executor in given] == [
        *(("a", "0"), ("b", "3"), ("a", "1"), ("b", "3"), ("a", "2"), ("b", "3"))
    ]


def test_what_is_read_twice_is_computed_once_whatever_executors_there_are(tmp_path: Path) -> None:
    """There is room for all tasks at once, so those that read a partition may be in different executors."""
    told = run("local-cluster[2,3,1024]", tmp_path, [], "--parallelism", "3", "--executors", "2", "--twice")
    assert "equal" in told
    assert not [line for line in told if line.startswith("restart")], told


# --- containers ------------------------------------------------------------------------------------

MIB = 1024**2
#: The JVM and the Python workers of an executor take about half of it.
LIMIT_BYTES = 1024 * MIB


def run_in_container(folder: Path, *arguments: str) -> list[str]:
    """Run ``container_job.py``, and return what it printed."""
    return printed_by("container_job.py", folder, *arguments, PYTHONPATH=str(SUPPORT))


def test_a_slot_fails_before_the_kernel_kills_what_is_in_its_container(tmp_path: Path) -> None:
    with container(needs_memory=True) as containers:
        containers.limit_memory(LIMIT_BYTES)
        (said,) = run_in_container(tmp_path, "hoard", str(java_home_in(containers, tmp_path / "java")))
        assert said.startswith("SlotMemoryError: "), said
        assert f"its container ({containers.folder}) has" in said
        assert "of 1,024 MiB left" in said
        assert containers.killed_by_the_kernel() == 0


def test_a_job_goes_on_from_its_checkpoint_when_a_container_is_killed(
    tmp_path: Path,
) -> None:
    with container() as containers:
        java_home = java_home_in(containers, tmp_path / "java")
        said = run_in_container(tmp_path, "killed", str(java_home), str(containers.folder), str(tmp_path))
    assert said[-1] == "equal", said
    (death,) = (line for line in said if line.startswith("killed"))
    processes, slots = (int(word) for word in death.replace(",", "").split() if word.isdecimal())
    assert processes > slots == 2, "the executor and its share of the slots"
    restarted = [number for number, line in enumerate(said) if line.startswith("restart")]
    assert restarted, said
    after = said[restarted[0] :]
    assert "epoch 1" not in after, "it goes on from the checkpoint"
    assert "epoch 20" in after
