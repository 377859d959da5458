"""Two programs run one job: the older one was only frozen, and goes on when the other has taken over."""

from __future__ import annotations

from pathlib import Path

import pytest
from kill_plan import SECOND_DRIVER, THAWS, Plan
from kill_rounds import KillRound

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.parametrize("thaws", [thaws for thaws in THAWS if "newer" in thaws])
def test_a_driver_that_was_frozen_ends_and_the_output_is_right(tmp_path: Path, thaws: str) -> None:
    this = KillRound(0, tmp_path, plan=Plan((SECOND_DRIVER,), thaws=thaws))
    outcome = this.run()
    assert not outcome.problems(), this.log
    assert any("1 ended with 1" in line and "JobSupersededError" in line for line in this.log), this.log
