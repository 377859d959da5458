"""The clock that is passed to the runtime, and waits that end when the other side is gone.

It has two readings. Wall-clock time says when something happened, for people and for files; it is also the
processing time of timers and time to live, and can be set back or forward. Monotonic time says how long
something took: intervals, timeouts and delays use it.

Tests pass another clock.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from typing import Protocol

from pyflinkstate.api.values import T
from pyflinkstate.backends.wall_clock import wall_clock_ms


class Clock(Protocol):
    """Returns the time and waits for events."""

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
        return next_of(mailbox)(timeout_ms / 1000)


#: How long a wait lasts before it checks whether the other side is still alive.
LOOK_EVERY_S = 1.0


def wait_for(
    look: Callable[[float], T | None],
    lost: Callable[[], BaseException | None],
    look_every_s: float = LOOK_EVERY_S,
) -> T:
    """Return what ``look`` finds. Between two looks, check that the other side is still alive.

    Args:
        look: waits for up to this many seconds, and returns None if nothing has come.
        lost: returns the error to raise if nothing can come any more, otherwise None.
        look_every_s: how long one look waits.
    """
    while (found := look(look_every_s)) is None:
        error = lost()
        if error is None:
            continue
        found = look(0)  # it may have come just before the other side ended
        if found is None:
            raise error
        break
    return found


def next_of(mailbox: queue.SimpleQueue[T]) -> Callable[[float], T | None]:
    """Return a ``look`` for :func:`wait_for` that takes the next item of a queue."""

    def look(timeout_s: float) -> T | None:
        try:
            return mailbox.get(timeout=timeout_s)
        except queue.Empty:
            return None

    return look


def result_of(future: Future[T], lost: Callable[[], BaseException | None]) -> T:
    """Return the result of a future, or raise its error, or that of ``lost``; see :func:`wait_for`."""
    wait_for(lambda timeout_s: bool(futures.wait([future], timeout_s).done) or None, lost)
    return future.result(timeout=0)


def steady(clock: Clock) -> Callable[[], int]:
    """Return a function that tells wall-clock time in ms and ignores later changes of the clock."""
    began_ms = clock.now_ms() - clock.monotonic_ms()
    return lambda: began_ms + clock.monotonic_ms()
