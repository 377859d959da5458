"""The event loop of a function that awaits: made when it is first needed, ended with the function.

It is the same one from the first record to the last, so what a function opens on it, such as a client's
session, can be used for all of them.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from pyflinkstate.api.type_variables import T

#: Makes a loop; tests give one whose time is not the machine's.
NewEventLoop = Callable[[], asyncio.AbstractEventLoop]
#: What was cancelled may take so long to end; what takes longer is left behind.
GRACE_S = 5.0


class FunctionLoop:
    """Runs coroutines in the thread that asks for it, one call after the other.

    Args:
        new_event_loop: makes the loop.
    """

    def __init__(self, new_event_loop: NewEventLoop | None = None) -> None:
        self._new_event_loop = new_event_loop or asyncio.new_event_loop
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what ``coroutine`` returns; tasks that it leaves behind go on in the next call."""
        if self._loop is None:
            self._loop = self._new_event_loop()
            weakref.finalize(self, self._loop.close)
        return self._loop.run_until_complete(coroutine)

    def close(self) -> None:
        """Cancel what is left, and close the loop."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.run_until_complete(end_tasks())
            self._loop.close()


async def end_tasks() -> None:
    """Cancel all other tasks of the running loop, and wait until they have ended, though not for ever."""
    await end(asyncio.all_tasks() - {asyncio.current_task()})
    await asyncio.get_running_loop().shutdown_asyncgens()


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended, though not for ever; what they raise is of no interest."""
    cancelled = [task for task in tasks if not task.done()]
    for task in cancelled:
        task.cancel()
        task.add_done_callback(hear_out)
    if cancelled:
        await asyncio.wait(cancelled, timeout=GRACE_S)


def hear_out(task: asyncio.Task[Any]) -> None:
    """Look at what a task raised, or else asyncio logs that nobody did."""
    if not task.cancelled():
        task.exception()
