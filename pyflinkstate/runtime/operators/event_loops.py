"""The event loop of an async function: created on first use, closed together with the function.

The function has the same loop from its first record to its last, so it can keep a client session open.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from pyflinkstate.api.values import T

#: Creates an event loop. Tests pass one whose time is not that of the machine.
NewEventLoop = Callable[[], asyncio.AbstractEventLoop]
#: How long cancelled tasks have to end; a task that takes longer is left behind.
GRACE_S = 5.0


class FunctionLoop:
    """Runs coroutines in the calling thread, one call after the other.

    Args:
        new_event_loop: creates the loop. Default: asyncio's own.
    """

    def __init__(self, new_event_loop: NewEventLoop | None = None) -> None:
        self._new_event_loop = new_event_loop or asyncio.new_event_loop
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
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


async def end_tasks() -> None:
    """Cancel all other tasks of the running loop and wait for them, at most ``GRACE_S``."""
    await end(asyncio.all_tasks() - {asyncio.current_task()})
    await asyncio.get_running_loop().shutdown_asyncgens()


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for them, at most ``GRACE_S``; their errors are ignored."""
    cancelled = [task for task in tasks if not task.done()]
    for task in cancelled:
        task.cancel()
        task.add_done_callback(hear_out)
    if cancelled:
        await asyncio.wait(cancelled, timeout=GRACE_S)


def hear_out(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of a task, because asyncio logs errors that nobody retrieves."""
    if not task.cancelled():
        task.exception()
