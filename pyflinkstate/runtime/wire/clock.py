"""The clock that the runtime is given; tests give another.

It has two readings. Wall time says when something was, for people and for files; timers and time to live by
processing time go by it. Somebody may set it. Monotonic time says how long something took: intervals,
timeouts and delays go by it.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Protocol

from pyflinkstate.api.type_variables import T


class Clock(Protocol):
    """Tells and passes time."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970; may jump."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since some moment; never set, and of no use in another process."""

    def receive(self, mailbox: queue.SimpleQueue[T], timeout_ms: int) -> T | None:
        """Return the next event of a mailbox; None when ``timeout_ms`` have passed without one."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """See :class:`Clock`."""
        return time.time_ns() // 1_000_000

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
    """Return wall time as it is now, and as it goes on if nobody sets the clock; in milliseconds."""
    began_ms = clock.now_ms() - clock.monotonic_ms()
    return lambda: began_ms + clock.monotonic_ms()
