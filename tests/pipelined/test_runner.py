"""The life of an attempt of the pipelined engine."""

from __future__ import annotations

from contract_engine import RECORDS, driver_of
from support_pipelined import LocalPipelinedRunner

from pyflinkstate.errors import SparkJobError
from pyflinkstate.runtime.engine import EpochEnded
from pyflinkstate.runtime.pipelined.runner import _Order


def test_an_order_that_comes_when_the_attempt_has_ended_is_told_so() -> None:
    engine = LocalPipelinedRunner()
    with driver_of(engine) as epochs:
        epochs.start(("map", lambda number: number))
        assert epochs.rows() == RECORDS
        thread = engine._thread
        assert thread is not None
        engine.close()
        told: list[EpochEnded] = []
        thread.attempt.put(_Order(epochs.request(("map", str)), told.append))
        (ended,) = told
        assert isinstance(ended.error, SparkJobError)
