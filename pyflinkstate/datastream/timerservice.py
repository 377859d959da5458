"""PyFlink's ``pyflink.datastream.timerservice``."""

from __future__ import annotations

from pyflinkstate.api.timers import TimerService

__all__ = [
    "TimerService",
]
