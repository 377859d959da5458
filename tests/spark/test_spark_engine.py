"""Spark as an engine; see ``contract_engine``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from contract_engine import EngineContract, driver_of

from pyflinkstate.runtime.engine import CodeBook
from pyflinkstate.runtime.plan import SinkNode, make_plan
from pyflinkstate.runtime.sinks import RddSink
from pyflinkstate.runtime.spark.epoch_rdds import values_of
from pyflinkstate.runtime.spark.epoch_runner import SparkRunner

pytestmark = [pytest.mark.spark]


class TestSparkEngine(EngineContract):
    @pytest.fixture
    def engine(self, spark: Any) -> SparkRunner:
        return SparkRunner(spark.sparkContext, "contract")


def test_the_code_of_a_job_stays_no_longer_than_what_needs_it(spark: Any) -> None:
    """Spark sends it once more with each task that reads results which are kept."""
    context = spark.sparkContext
    runners = [SparkRunner(context, "collects"), SparkRunner(context, "keeps")]
    sent: list[Path] = []
    for runner in runners:
        with driver_of(runner) as epochs:
            request = epochs.request(("map", lambda number: number * 10), ("shuffle", None))
            if runner is runners[1]:
                (sink,) = request.plan.sinks
                plan = make_plan([SinkNode(sink.parent, RddSink(), "sink")], 1, None)
                request = attrs.evolve(request, plan=plan, code=CodeBook(plan))
            runner.start(request, epochs.hear)
            ended = epochs.end()
            assert ended.error is None, ended.error
            sent.append(Path(runner._codes._path))
            assert sent[-1].exists()
            runner.close()
    assert [path.exists() for path in sent] == [False, True]
    assert ended.results is not None
    ((kept,),) = ended.results
    assert sorted(values_of(context, [kept]).collect()) == [10, 20, 30]
