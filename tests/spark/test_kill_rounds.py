"""A job whose processes are killed with SIGKILL at random points; ``make soak`` has more of the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from kill_rounds import KillRound

pytestmark = pytest.mark.spark

ROUNDS = [
    ("local[2]", ("slot", "worker")),
    ("local[2]", ("driver",)),
    ("local[2]", ("slot", "worker", "jvm", "driver")),
    ("local-cluster[2,1,1024]", ("executor", "slot", "worker")),
    ("local-cluster[2,1,1024]", ("executor", "slot", "worker", "jvm", "driver")),
]


@pytest.mark.parametrize("number", range(len(ROUNDS)))
def test_whatever_is_killed_the_output_is_right_and_nothing_is_left(tmp_path: Path, number: int) -> None:
    master, kinds = ROUNDS[number]
    KillRound(number, tmp_path, master, kinds, kills=2).run()
