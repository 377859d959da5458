"""Where the time of a subtask goes: processing, waiting for input, waiting until its output is taken.

In stages a task takes the output of a slot: all of the time that this needs is waiting. In the pipelined
engine the chain behind an operator runs in its slot, which is work; only its :class:`Waits` for the sockets
of the next vertices are waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

from pyflinkstate.api import T


class Waits:
    """Measures how long any thread waits; ``with`` surrounds each wait. Overlapping waits count once.

    Args:
        now_ns: a monotonic clock in ns.
    """

    def __init__(self, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._waiting = 0
        self._since = self._waited = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._waiting:
                self._since = self._now_ns()
            self._waiting += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._waiting -= 1
            if not self._waiting:
                self._waited += self._now_ns() - self._since

    def take(self) -> int:
        """Return the ns since this was last called in which a thread waited."""
        with self._lock:
            if self._waiting:
                since, self._since = self._since, self._now_ns()
                self._waited += self._since - since
            waited, self._waited = self._waited, 0
            return waited


class TimeShares:
    """Splits time into three, which together are all of it since it was last taken.

    The clock is read a few times for each frame, and never for a record.

    Args:
        now_ns: a monotonic clock in ns.

    Attributes:
        sends: measures the waits of whatever takes the output in this process; None if another process
            takes it.
    """

    def __init__(self, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self.sends: Waits | None = None
        self._now_ns = now_ns
        self._since = now_ns()
        self._idle = self._busy = self._back_pressured = 0

    def waited(self) -> None:
        """All until now was spent waiting for input."""
        self._idle += self._lap()

    def processed(self) -> None:
        """All until now was spent processing."""
        self._busy += self._lap()

    def sent(self, idle_ns: int = 0) -> None:
        """All until now was spent handing over output: in this process, that is work except for its waits.

        Args:
            idle_ns: how much of this time, apart from these waits, was spent waiting for input.
        """
        lap = self._lap()
        blocked = lap if self.sends is None else min(lap, self.sends.take())
        idle = min(lap - blocked, idle_ns)
        self._back_pressured += blocked
        self._idle += idle
        self._busy += lap - blocked - idle

    def received(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items of input: waiting for them is waiting, and what is done with each of them is work."""
        for item in items:
            self.waited()
            yield item
            self.sent()
        self.waited()

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
