"""PyFlink's ``pyflink.common.restart_strategy``."""

from pyflinkstate.runtime.settings import RestartStrategies, RestartStrategy as RestartStrategyConfiguration

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]
