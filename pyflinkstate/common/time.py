"""PyFlink's ``pyflink.common.time``."""

from __future__ import annotations

from pyflinkstate.api.time import (
    Duration,
    Instant,
    Time,
)

__all__ = [
    "Duration",
    "Instant",
    "Time",
]
