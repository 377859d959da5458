"""A job whose processes are killed, frozen and slowed at random; ``make soak`` has more of the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from kill_plan import CONTEXT, FREEZE_SLOT, Plan
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
