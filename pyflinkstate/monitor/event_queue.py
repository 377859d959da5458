"""A queue with a bound in bytes: it refuses events that do not fit, and never blocks the job."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from pyflinkstate.api.values import JsonObject

MakeEvent = Callable[[], JsonObject]
#: The bytes that the smallest event takes, with overhead.
LEAST_BYTES = 1024


class EventQueue:
    """Holds events that are still to be made, each with the bytes that it is thought to take."""

    def __init__(self, most_bytes: int) -> None:
        self._left_bytes = most_bytes
        self._lock = threading.Lock()
        self._events: queue.SimpleQueue[tuple[MakeEvent | None, int]] = queue.SimpleQueue()

    def add(self, make: MakeEvent | None, size: int = 0) -> bool:
        """Add an event, or None for the end; return False if there is no room."""
        size = max(size, LEAST_BYTES)
        with self._lock:
            if self._left_bytes <= 0:
                return False
            self._left_bytes -= size
        self._events.put((make, size))
        return True

    def take(self, timeout_s: float | None = None) -> MakeEvent | None:
        """Return the oldest event, or None for the end.

        Raises:
            queue.Empty: none came in time.
        """
        make, size = self._events.get(timeout=timeout_s)
        with self._lock:
            self._left_bytes += size
        return make

    def empty(self) -> bool:
        """Return whether nothing waits."""
        return self._events.empty()
