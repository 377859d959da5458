"""Executors in containers, which are control groups: one is too small for its slots, one is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from containers import container, java_home_in

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SUPPORT = Path(__file__).parents[1] / "support"
MIB = 1024**2
#: The JVM and the Python workers of an executor take about half of it.
LIMIT_BYTES = 1024 * MIB


def run(folder: Path, *arguments: str) -> list[str]:
    """Run ``container_job.py``, and return what it printed."""
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "container_job.py"), *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(SUPPORT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_slot_fails_before_the_kernel_kills_what_is_in_its_container(tmp_path: Path) -> None:
    with container(needs_memory=True) as containers:
        containers.limit_memory(LIMIT_BYTES)
        (said,) = run(tmp_path, "hoard", str(java_home_in(containers, tmp_path / "java")))
        assert said.startswith("SlotMemoryError: "), said
        assert f"its container ({containers.folder}) has" in said
        assert "of 1,024 MiB left" in said
        assert containers.killed_by_the_kernel() == 0


def test_a_job_goes_on_from_its_checkpoint_when_a_container_is_killed(
    tmp_path: Path,
) -> None:
    with container() as containers:
        java_home = java_home_in(containers, tmp_path / "java")
        said = run(tmp_path, "killed", str(java_home), str(containers.folder), str(tmp_path))
    assert said[-1] == "equal", said
    (death,) = (line for line in said if line.startswith("killed"))
    processes, slots = (int(word) for word in death.replace(",", "").split() if word.isdecimal())
    assert processes > slots == 2, "the executor and its share of the slots"
    restarted = [number for number, line in enumerate(said) if line.startswith("restart")]
    assert restarted, said
    after = said[restarted[0] :]
    assert "epoch 1" not in after, "it goes on from the checkpoint"
    assert "epoch 20" in after
