"""Executors that are processes of their own, as on a cluster: ``local-cluster``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SUPPORT = Path(__file__).parents[1] / "support"
PROGRAM = """
import os, signal, sys
from processes import family, slots_left
from operators import RunningSum
from test_recovery import EXPECTED, RECORDS, Recorder, Runs
from pathlib import Path
from pyspark.sql import SparkSession

def kill_an_executor():
    executors = [pid for pid, args in family() if "CoarseGrainedExecutorBackend" in args]
    assert len(executors) == 2
    os.kill(executors[0], signal.SIGKILL)

builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
session = builder.config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"]).getOrCreate()
session.sparkContext.setLogLevel("OFF")
runs = Runs(session, Path(sys.argv[1]))
runs.run(listener=Recorder({4: kill_an_executor}), parallelism=3)
print("equal" if runs.rows() == EXPECTED else "different")
session.stop()
print(slots_left())
"""


@pytest.mark.slow
def test_an_executor_that_is_killed(tmp_path: Path) -> None:
    """State slots are no part of the executor that started them, so most likely nothing restarts."""
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(SUPPORT)]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )
    assert done.stdout.splitlines()[-2:] == ["equal", "[]"], done.stdout + done.stderr
