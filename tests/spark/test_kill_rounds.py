"""Jobs whose processes are killed, frozen and slowed at random, or whose context is stopped at any line.

``make soak`` has more of the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import stop_program
from kill_plan import CONTEXT, FREEZE_SLOT, SECOND_DRIVER, THAWS, Plan
from kill_rounds import KillRound

#: A round starts up to four programs, each with a Spark of its own: minutes on a machine that is busy.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

CLUSTER = "local-cluster[2,1,1024]"

#: A driver that is killed costs the start of another Spark.
ROUNDS = {
    "slowed": ("local[2]", Plan(("slot", "worker"), is_slowed=True, injection=(30, 3))),
    "forks": ("local[2]", Plan(("driver",), forks=("driver", "slot"))),
    "savepoint": ("local[2]", Plan(("jvm",), savepoint_after=2)),
    "frozen": ("local[2]", Plan((FREEZE_SLOT, "slot"))),
    "context": ("local[2]", Plan((CONTEXT, CONTEXT))),
    "cluster": (CLUSTER, Plan(("executor", "slot"))),
    "dataframe": ("local[2]", Plan((CONTEXT, "slot"), is_dataframe=True)),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_whatever_happens_the_output_is_right_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    master, plan = ROUNDS[name]
    this = KillRound(list(ROUNDS).index(name), tmp_path, master, plan)
    assert not this.run().problems(), this.log
    # A streaming query that was killed may read two files in one batch.
    assert plan.is_dataframe or any("epoch 10" in line for line in this.log)


# --- two drivers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("thaws", [thaws for thaws in THAWS if "newer" in thaws])
def test_a_driver_that_was_frozen_ends_and_the_output_is_right(tmp_path: Path, thaws: str) -> None:
    this = KillRound(0, tmp_path, plan=Plan((SECOND_DRIVER,), thaws=thaws))
    outcome = this.run()
    assert not outcome.problems(), this.log
    assert any("1 ended with 1" in line and "JobSupersededError" in line for line in this.log), this.log


# --- a stopped context -----------------------------------------------------------------------------

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
