"""The clock that is passed to the runtime; tests pass another one.

It has two readings. Wall-clock time says when something happened, for people and for files; it is also the
processing time of timers and time to live, and can be set back or forward. Monotonic time says how long
something took: intervals, timeouts and delays use it.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Protocol

from pyflinkstate.api.type_variables import T
from pyflinkstate.backends.wall_clock import wall_clock_ms


class Clock(Protocol):
    """Tells the time and waits for events."""

    def now_ms(self) -> int:
        """Return the milliseconds since 1970; they may jump."""

    def monotonic_ms(self) -> int:
        """Return the milliseconds since some moment; they never jump, and mean nothing in another process."""

    def receive(self, mailbox: queue.SimpleQueue[T], timeout_ms: int) -> T | None:
        """Return the next event of a mailbox, or None if none comes within ``timeout_ms``."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """See :class:`Clock`."""
        return wall_clock_ms()

    def monotonic_ms(self) -> int:
        """See :class:`Clock`."""
        return time.monotonic_ns() // 1_000_000

    def receive(self, mailbox: queue.SimpleQueue[T], timeout_ms: int) -> T | None:
        """See :class:`Clock`."""
        try:
            return mailbox.get(timeout=timeout_ms / 1000)
        except queue.Empty:
            return None


def steady(clock: Clock) -> Callable[[], int]:
    """Return a function that tells wall-clock time in ms and ignores later changes of the clock."""
    began_ms = clock.now_ms() - clock.monotonic_ms()
    return lambda: began_ms + clock.monotonic_ms()
