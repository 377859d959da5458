"""An event loop in its own thread, so that calls make progress while the task waits for the next record."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import TimeoutError as WaitedTooLong

from pyflinkstate.runtime.operators import GRACE_S, NewEventLoop, end_tasks

_log = logging.getLogger("pyflinkstate.tasks")


class LoopThread:
    """Runs callbacks and tasks on an event loop until it is closed or garbage collected.

    Args:
        new_event_loop: makes the event loop. Default: asyncio's own.
    """

    def __init__(self, new_event_loop: NewEventLoop | None = None) -> None:
        self.loop = (new_event_loop or asyncio.new_event_loop)()
        self._thread = threading.Thread(target=_run, args=(self.loop,), name="async calls", daemon=True)
        self._thread.start()
        self._stop = weakref.finalize(self, _stop, self.loop)

    def call(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call ``callback`` on the loop as soon as possible."""
        self.loop.call_soon_threadsafe(callback, *arguments)

    def is_alive(self) -> bool:
        """Return whether the loop still runs what it is given."""
        return self._thread.is_alive() and not self.loop.is_closed()

    def close(self) -> None:
        """Cancel all tasks and end the thread. A thread that user code blocks is left behind."""
        if self._stop.alive:
            ended = asyncio.run_coroutine_threadsafe(end_tasks(), self.loop)
            with contextlib.suppress(WaitedTooLong):
                ended.result(2 * GRACE_S)
            self._stop()
            self._thread.join(GRACE_S)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    while not _has_stopped(loop):
        continue
    loop.close()


def _has_stopped(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        loop.run_forever()
    except BaseException:  # noqa: BLE001 - sys.exit() in a task that a user function has started
        _log.warning("a task of an async function wanted to end the process", exc_info=True)
        return False
    return True


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is already closed
        loop.call_soon_threadsafe(loop.stop)
