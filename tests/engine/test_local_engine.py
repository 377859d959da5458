"""The engine of the tests keeps the same contract as Spark's; see ``contract_engine``."""

from __future__ import annotations

import pytest
from contract_engine import EngineContract
from support_job import LocalRunner


class TestLocalEngine(EngineContract):
    @pytest.fixture
    def engine(self) -> LocalRunner:
        return LocalRunner()
