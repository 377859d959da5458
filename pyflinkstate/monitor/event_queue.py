"""A queue with a bound in bytes: it refuses events that do not fit, and never blocks the job."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable

from pyflinkstate.api.values import JsonObject

MakeEvent = Callable[[], JsonObject]
#: The bytes that the smallest event takes, with overhead.
LEAST_BYTES = 1024

_Weighed = tuple[MakeEvent | None, int]


class EventQueue(queue.Queue[_Weighed]):
    """Holds events to be made later, each with its estimated size in bytes.

    ``queue.Queue`` compares its size with its bound; here both are bytes.
    """

    def __init__(self, most_bytes: int) -> None:
        super().__init__(most_bytes)

    def add(self, make: MakeEvent | None, size: int = 0) -> bool:
        """Add an event, or None for the end; return False if there is no room."""
        try:
            self.put_nowait((make, max(size, LEAST_BYTES)))
        except queue.Full:
            return False
        return True

    def take(self, timeout_s: float | None = None) -> MakeEvent | None:
        """Return the oldest event, or None for the end.

        Raises:
            queue.Empty: none came in time.
        """
        return self.get(timeout=timeout_s)[0]

    def _init(self, maxsize: int) -> None:
        self.queue: deque[_Weighed] = deque()
        self._size = 0

    def _qsize(self) -> int:
        return self._size

    def _put(self, item: _Weighed) -> None:
        self.queue.append(item)
        self._size += item[1]

    def _get(self) -> _Weighed:
        item = self.queue.popleft()
        self._size -= item[1]
        return item
