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
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from typing import Any

import attrs

from pyflinkstate.api.context import TimeDomain
from pyflinkstate.api.values import Key, Record, T
from pyflinkstate.backends.bound_state import KeyContext
from pyflinkstate.backends.heap import InternalTimerService, Timer
from pyflinkstate.backends.values import isolated, take_isolated
from pyflinkstate.runtime.operators.context import awaits, close_all
from pyflinkstate.runtime.operators.event_loops import FunctionLoop, end, hear_out
from pyflinkstate.runtime.operators.function_operators import FunctionOperator, KeyedContext
from pyflinkstate.runtime.operators.operators import KeyedRecord, OperatorSetup, Output
from pyflinkstate.runtime.wire import user_failure

#: The number of keys of a subtask that can have a record in flight at a time.
MAX_KEYS_IN_FLIGHT = 100

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
        for worker in workers:
            worker.add_done_callback(hear_out)
        done, left = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        await end(left)
        for worker in done:
            await worker  # raises what it has raised

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
        results = self._loop.run(_awaited(_UnderKey(keys, timer.key, keys.map_index, _results_of(call))))
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


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


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
