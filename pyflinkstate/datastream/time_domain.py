"""PyFlink's ``pyflink.datastream.time_domain``."""

from __future__ import annotations

from pyflinkstate.api.timers import TimeDomain

__all__ = [
    "TimeDomain",
]
