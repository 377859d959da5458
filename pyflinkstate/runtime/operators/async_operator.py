"""The operator for keyed functions with ``async def process_element`` or ``async def on_timer``.

While one record waits for an answer, the operator processes records of other keys. It never processes two
records of one key at a time, so state that a function has read does not change before the function writes
it, and the results of a key come in the order of its records. The records of a frame are queued by key.
Workers, which are tasks of one event loop, process one queue after the other. The loop runs in the thread
that processes the frame until all records are done. So nothing is in flight when a timer fires, when the
watermark advances, at the barrier, and when the next frame comes.

A backend has one current key. So the operator drives the coroutine of each record step by step: it sets the
key before each step and clears it afterwards. A task that the function itself starts has no key. If it uses
state it gets an error, and never the state of another record's key.

Event loops, also that of async functions in a chain (:class:`LoopThread`), are created on first use and
closed together with the function. A function has the same loop from its first record to its last, so it can
keep a client session open.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import weakref
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import TimeoutError as WaitedTooLong
from typing import Any

import attrs

from pyflinkstate.api import Key, Record, T, TimeDomain
from pyflinkstate.backends.bound_state import KeyContext
from pyflinkstate.backends.heap import InternalTimerService, Timer
from pyflinkstate.backends.values import isolated, take_isolated
from pyflinkstate.runtime.operators.function_operators import FunctionOperator, KeyedContext
from pyflinkstate.runtime.operators.operators import KeyedRecord, OperatorSetup, Output, awaits, close_all
from pyflinkstate.runtime.wire import user_failure

#: Creates an event loop. Tests pass one whose time is not that of the machine.
NewEventLoop = Callable[[], asyncio.AbstractEventLoop]
#: How long cancelled tasks have to end; a task that takes longer is left behind.
GRACE_S = 5.0
#: The number of keys of a subtask that can have a record in flight at a time.
MAX_KEYS_IN_FLIGHT = 100

_log = logging.getLogger("pyflinkstate.tasks")

#: The result of calling an ``async def`` method, with and without ``yield``.
Call = AsyncIterable[Record] | Awaitable[Iterable[Record] | None]


class AsyncFunctionOperator(FunctionOperator):
    """Runs a ``KeyedProcessFunction`` with an async ``process_element`` or ``on_timer``."""

    def open(self, setup: OperatorSetup) -> None:
        super().open(setup)
        self._setup = setup
        self._loop = FunctionLoop(setup.new_event_loop)
        self.overlaps = awaits(self.function.process_element)
        self.fires_one_by_one = awaits(self.on_timer)

    def close(self) -> None:
        close_all(self._loop.close, super().close)

    def process_overlapping(self, records: Iterable[KeyedRecord], output: Output) -> None:
        queues: dict[Key, list[KeyedRecord]] = {}
        for record in records:
            queues.setdefault(record[0], []).append(record)
        self._loop.run(self._process_queues(queues, output))

    async def _process_queues(self, queues: dict[Key, list[KeyedRecord]], output: Output) -> None:
        ahead = iter(queues.values())
        workers = [
            asyncio.ensure_future(self._work(ahead, output))
            for _ in range(min(len(queues), MAX_KEYS_IN_FLIGHT))
        ]
        try:
            await asyncio.gather(*workers)  # raises the first error
        finally:
            await end(workers)

    async def _work(self, ahead: Iterator[list[KeyedRecord]], output: Output) -> None:
        for queue in ahead:
            for record in queue:
                await self._process(record, output)

    async def _process(self, record: KeyedRecord, output: Output) -> None:
        key, index, value, timestamp = record
        context = self._context_of(key, timestamp)
        try:
            call = self.function.process_element(value, context)
            results = await _UnderKey(self._setup.backend.key_context, key, index, _results_of(call))
        except BaseException as error:  # also sys.exit(), which would stop the loop
            raise user_failure(error, self._setup.context.task_name, value, key) from error
        begin = len(output.values)
        output.values.extend(results)
        output.settle(begin, timestamp)

    def _context_of(self, key: Key, timestamp: int | None) -> _RecordContext:
        context = _RecordContext(self._setup, self.timers, key)
        context.current_timestamp = timestamp
        return context

    def _fire(self, timer: Timer, domain: TimeDomain, timestamp: int | None, output: Output) -> None:
        if not self.fires_one_by_one:
            super()._fire(timer, domain, timestamp, output)
            return
        keys = self._setup.backend.key_context
        context = self._context_of(timer.key, timer.timestamp_ms)
        context.domain = domain
        call = self.function.on_timer(timer.timestamp_ms, context)
        results = self._loop.run(_UnderKey(keys, timer.key, keys.map_index, _results_of(call)))
        begin = len(output.values)
        output.values.extend(results)
        output.settle(begin, timestamp)


class _RecordContext(KeyedContext):
    """The context of one record; it stays valid while other records are processed."""

    def __init__(self, setup: OperatorSetup, timers: InternalTimerService, key: Key) -> None:
        super().__init__(setup, timers)
        self._key = key

    def get_current_key(self) -> Key:
        return self._key


async def _results_of(call: Call) -> list[Record]:
    """Return all results of a call; each is isolated when the function gives it."""
    results: list[Record] = []
    if isinstance(call, AsyncIterable):
        async for result in call:
            results.append(isolated(result))
    else:
        returned = await call
        if returned is not None:
            take_isolated(results, returned)
    return results


@attrs.frozen
class _UnderKey(Awaitable[T]):
    """Awaits a coroutine, with its key as the current key whenever it runs, and only then."""

    keys: KeyContext
    key: Key
    map_index: int
    coroutine: Coroutine[object, object, T]

    def __await__(self) -> Generator[object, object, T]:
        step: Callable[[Any], object] = self.coroutine.send
        argument: object = None
        while True:
            self.keys.select(self.key, self.map_index)
            try:
                awaited = step(argument)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                self.keys.clear()
            try:
                argument, step = (yield awaited), self.coroutine.send
            except BaseException as error:  # noqa: BLE001 - the coroutine must also see a cancellation
                argument, step = error, self.coroutine.throw


class FunctionLoop:
    """Waits for coroutines and the like in the calling thread, one call after the other.

    Args:
        new_event_loop: creates the loop. Default: asyncio's own.
    """

    def __init__(self, new_event_loop: NewEventLoop | None = None) -> None:
        self._new_event_loop = new_event_loop or asyncio.new_event_loop
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, awaitable: Awaitable[T]) -> T:
        """Return the result of ``awaitable``; tasks that it leaves behind continue in the next call."""
        if self._loop is None:
            self._loop = self._new_event_loop()
            weakref.finalize(self, self._loop.close)
        return self._loop.run_until_complete(awaitable)

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
    while True:
        try:
            loop.run_forever()
            break
        except BaseException:  # noqa: BLE001 - sys.exit() in a task that a user function has started
            _log.warning("a task of an async function wanted to end the process", exc_info=True)
    loop.close()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is already closed
        loop.call_soon_threadsafe(loop.stop)


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
