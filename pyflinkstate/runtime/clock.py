"""The clock that the runtime is given; tests give another."""

from __future__ import annotations

import queue
import time
from typing import Any, Protocol


class Clock(Protocol):
    """Tells and passes time."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""

    def receive(self, mailbox: queue.SimpleQueue[Any], timeout_ms: int) -> Any | None:
        """Return the next event of a mailbox; None when ``timeout_ms`` have passed without one."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """See :class:`Clock`."""
        return time.time_ns() // 1_000_000

    def receive(self, mailbox: queue.SimpleQueue[Any], timeout_ms: int) -> Any | None:
        """See :class:`Clock`."""
        try:
            return mailbox.get(timeout=timeout_ms / 1000)
        except queue.Empty:
            return None
