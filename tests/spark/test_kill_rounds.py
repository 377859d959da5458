"""A job whose processes are killed with SIGKILL at random points; ``make soak`` has more of the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from kill_rounds import KillRound

#: A round starts up to four programs, each with a Spark of its own: minutes on a machine that is busy.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

#: Master, what may be killed, how often. A driver that is killed costs the start of another Spark.
ROUNDS = [
    ("local[2]", ("slot", "worker"), 3),
    ("local[2]", ("driver",), 1),
    ("local[2]", ("slot", "worker", "jvm", "driver"), 2),
    ("local-cluster[2,1,1024]", ("executor", "slot", "worker"), 2),
    ("local-cluster[2,1,1024]", ("executor", "driver"), 2),
]


@pytest.mark.parametrize("number", range(len(ROUNDS)))
def test_whatever_is_killed_the_output_is_right_and_nothing_is_left(tmp_path: Path, number: int) -> None:
    master, kinds, kills = ROUNDS[number]
    KillRound(number, tmp_path, master, kinds, kills).run()
