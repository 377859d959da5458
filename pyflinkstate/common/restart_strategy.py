"""PyFlink's ``pyflink.common.restart_strategy``."""

from __future__ import annotations

from pyflinkstate.runtime.settings import RestartStrategies

__all__ = [
    "RestartStrategies",
]
