"""Where the time of a subtask goes: processing, waiting for input, waiting until its output is taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from pyflinkstate.api import T


class TimeShares:
    """Splits time into three, which together are all of it since it was last taken.

    The clock is read a few times for each frame, and never for a record.

    Args:
        now_ns: a monotonic clock in ns.
    """

    def __init__(self, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now_ns = now_ns
        self._since = now_ns()
        self._idle = self._busy = self._back_pressured = 0

    def waited(self) -> None:
        """All until now was spent waiting for input."""
        self._idle += self._lap()

    def processed(self) -> None:
        """All until now was spent processing."""
        self._busy += self._lap()

    def sent(self) -> None:
        """All until now was spent handing over output."""
        self._back_pressured += self._lap()

    def of(self, results: Iterator[T]) -> Iterator[T]:
        """Yield results that are made from input that has just come: making them is work."""
        self.waited()
        for result in results:
            self.processed()
            yield result
            self.sent()
        self.processed()

    def take(self) -> tuple[int, int, int]:
        """Return the ns of work, of waiting for input and of handing over output, and begin again."""
        taken = self._busy, self._idle, self._back_pressured
        self._idle = self._busy = self._back_pressured = 0
        return taken

    def _lap(self) -> int:
        since, self._since = self._since, self._now_ns()
        return self._since - since
