"""The pipelined engine on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from contract_engine import EngineContract

from pyflinkstate.runtime.pipelined.runner import PipelinedRunner
from pyflinkstate.runtime.slots import Endpoint
from pyflinkstate.runtime.spark.epoch_runner import SparkRunner


class TestPipelinedEngine(EngineContract):
    @pytest.fixture
    def engine(self, spark: Any) -> Iterator[PipelinedRunner]:
        runner = PipelinedRunner(SparkRunner(spark.sparkContext, "contract"), Endpoint(), 2)
        yield runner
        runner.close()
