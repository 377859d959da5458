"""The event loops of async functions: created on first use, closed together with the function.

A function has the same loop from its first record to its last, so it can keep a client session open.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import TimeoutError as WaitedTooLong

from pyflinkstate.api.values import T

#: Creates an event loop. Tests pass one whose time is not that of the machine.
NewEventLoop = Callable[[], asyncio.AbstractEventLoop]
#: How long cancelled tasks have to end; a task that takes longer is left behind.
GRACE_S = 5.0
_log = logging.getLogger("pyflinkstate.tasks")


class FunctionLoop:
    """Runs coroutines in the calling thread, one call after the other.

    Args:
        new_event_loop: creates the loop. Default: asyncio's own.
    """

    def __init__(self, new_event_loop: NewEventLoop | None = None) -> None:
        self._new_event_loop = new_event_loop or asyncio.new_event_loop
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run ``coroutine`` and return its result; tasks that it leaves behind continue in the next call."""
        if self._loop is None:
            self._loop = self._new_event_loop()
            weakref.finalize(self, self._loop.close)
        return self._loop.run_until_complete(coroutine)

    def close(self) -> None:
        """Cancel the remaining tasks and close the loop."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.run_until_complete(end_tasks())
            self._loop.close()


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


async def end_tasks() -> None:
    """Cancel all other tasks of the running loop and wait for them, at most ``GRACE_S``."""
    await end(asyncio.all_tasks() - {asyncio.current_task()})
    await asyncio.get_running_loop().shutdown_asyncgens()


async def end(tasks: Iterable[asyncio.Task[object]]) -> None:
    """Cancel tasks and wait for them, at most ``GRACE_S``; their errors are ignored."""
    cancelled = [task for task in tasks if not task.done()]
    for task in cancelled:
        task.cancel()
        task.add_done_callback(hear_out)
    if cancelled:
        await asyncio.wait(cancelled, timeout=GRACE_S)


def hear_out(task: asyncio.Task[object]) -> None:
    """Retrieve the error of a task, because asyncio logs errors that nobody retrieves."""
    if not task.cancelled():
        task.exception()
