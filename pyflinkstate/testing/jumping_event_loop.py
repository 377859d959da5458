"""An event loop whose time jumps: a test waits neither for delays nor for timeouts."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from pyflinkstate.api.type_variables import T


class JumpingEventLoop(asyncio.SelectorEventLoop):
    """When all that is awaited is time, it passes at once; else as long as what is awaited takes.

    Time begins at 0 s. It is of no concern to the harness's clock, which is processing time.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the seconds that have passed."""
        return self._jumping.passed_s

    def run_in_executor(  # type: ignore[override]  # it takes the same, in other words
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run ``func`` in a thread; time does not jump until it has ended."""
        self._jumping.in_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._jumping.left_thread)
        return future


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for files, and lets time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0
        self.in_threads = 0

    def left_thread(self, _: object) -> None:
        self.in_threads -= 1

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        # One file is always there: the loop's own, by which other threads wake it.
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
