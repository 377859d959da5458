"""The machine's clock. It is compiled, because each access to a state with time to live reads it."""

from __future__ import annotations

from time import time_ns


def wall_clock_ms() -> int:
    """Return the time since 1970 in ms (Flink: ``TtlTimeProvider.DEFAULT``)."""
    return time_ns() // 1_000_000
