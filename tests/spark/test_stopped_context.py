"""A SparkContext that is stopped inside a JVM that goes on, at any line of a running job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import stop_program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

#: A job ends within so many seconds after the stop; the limit is for a machine that is busy.
SOON_S = 30
#: One of so many lines is tried here. Kill rounds stop the context at any moment.
EVERY = 17


@pytest.mark.parametrize(
    "cases",
    [["ahead", "epoch"], [str(line) for line in range(0, len(stop_program.LINES), EVERY)]],
    ids=["dropped", "lines"],
)
def test_the_job_ends_with_an_error_and_nothing_is_left(tmp_path: Path, cases: list[str]) -> None:
    support = str(Path(stop_program.__file__).parent)
    environment = {**os.environ, "PYTHONPATH": support, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, stop_program.__file__, str(tmp_path), *cases],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    ended = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(ended) == len(cases), done.stderr[-4000:]
    stopped = [one for one in ended if one["seconds"] is not None]
    assert len(stopped) > len(cases) // 3  # other lines are passed only after another failure
    for one in ended:
        assert one["left"] == [], one
        assert one["error"] == ("SparkUnavailableError" if one in stopped else None), one
        assert one["seconds"] is None or one["seconds"] < SOON_S, one
