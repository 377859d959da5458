"""An event loop whose time jumps, so that tests do not wait for delays and timeouts."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from pyflinkstate.api.type_variables import T


class JumpingEventLoop(asyncio.SelectorEventLoop):
    """If all tasks wait for time only, it jumps to the next delay or timeout; else it passes as usual.

    The time starts at 0 s. It is independent of the clock of the harness, which is the processing time.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the number of seconds that have passed."""
        return self._jumping.passed_s

    def run_in_executor(  # type: ignore[override]  # it takes the same, in other words
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run ``func`` in a thread; the time does not jump until it has ended."""
        self._jumping.in_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._jumping.left_thread)
        return future


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for files and measures time."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0
        self.in_threads = 0

    def left_thread(self, _: object) -> None:
        self.in_threads -= 1

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        # The loop always registers one file of its own, which other threads use to wake it.
        if len(self.get_map()) > 1 or self.in_threads:
            return self._waited(timeout)
        events = super().select(0)
        if not events:
            self.passed_s += timeout
        return events

    def _waited(self, timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        began_s = time.monotonic()
        events = super().select(timeout)
        self.passed_s += time.monotonic() - began_s
        return events
