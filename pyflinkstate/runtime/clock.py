"""The clock that the runtime is given; tests give another."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells and passes time."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""

    def sleep_ms(self, duration_ms: int) -> None:
        """Return after ``duration_ms``."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """See :class:`Clock`."""
        return time.time_ns() // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        """See :class:`Clock`."""
        time.sleep(duration_ms / 1000)
