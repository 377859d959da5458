"""Spark as an engine; see ``contract_engine``."""

from __future__ import annotations

from typing import Any

import pytest
from contract_engine import EngineContract

from pyflinkstate.runtime.spark.spark import SparkRunner

pytestmark = [pytest.mark.spark]


class TestSparkEngine(EngineContract):
    @pytest.fixture
    def engine(self, spark: Any) -> SparkRunner:
        return SparkRunner(spark.sparkContext, "contract")
