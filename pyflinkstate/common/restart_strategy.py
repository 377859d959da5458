"""PyFlink's ``pyflink.common.restart_strategy``."""

from __future__ import annotations

from pyflinkstate.runtime.settings import RestartStrategies
from pyflinkstate.runtime.settings import RestartStrategy as RestartStrategyConfiguration

__all__ = [
    "RestartStrategies",
    "RestartStrategyConfiguration",
]
