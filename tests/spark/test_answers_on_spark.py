"""Random programs give the results of PyFlink 2.3 on Spark too; ``tests/master`` runs many more of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from answered_programs import answers, found_for

from pyflinkstate import StreamExecutionEnvironment

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left"), pytest.mark.timeout(300)]


def test_programs_give_the_answers_of_pyflink(spark: Any, tmp_path: Path) -> None:
    seeds = [1, 8, 11]
    env = StreamExecutionEnvironment(spark).set_parallelism(1)
    assert found_for(env, seeds, tmp_path) == {seed: answers()[seed] for seed in seeds}
