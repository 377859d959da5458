"""The operator around a keyed function that awaits: ``async def process_element``, ``async def on_timer``.

While one record waits for an answer, records of other keys are processed. Of one key there are never two at
a time, so what a function has read of its state is still so when it writes, and results of a key come in
the order of its records. The records of a frame are put in line by key, and some workers, tasks of one
event loop, take line after line. The loop runs in the thread of the frame until all is done: whatever comes
next (a timer, a watermark, the barrier, another frame) finds nothing under way.

A backend knows one current key. So a record's coroutine is driven step by step: its key is set before each
step, and taken away behind it. What the function starts as a task of its own has no key, and is refused
state instead of being given that of another record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from typing import Any

import attrs

from pyflinkstate.api.timers import TimeDomain
from pyflinkstate.api.type_variables import T
from pyflinkstate.api.values import Key, Record
from pyflinkstate.backends.heap import KeyContext, Timer
from pyflinkstate.backends.values import isolated, take_isolated
from pyflinkstate.runtime.operators.context import awaits
from pyflinkstate.runtime.operators.event_loops import FunctionLoop, end, hear_out
from pyflinkstate.runtime.operators.function_operators import FunctionOperator, KeyedContext
from pyflinkstate.runtime.operators.operators import KeyedRecord, OperatorSetup, Output
from pyflinkstate.runtime.operators.timers import InternalTimerService
from pyflinkstate.runtime.wire import user_failure

#: So many keys have a record under way at a time, in each subtask.
MAX_KEYS_UNDER_WAY = 100

#: What ``async def`` makes of a method: with ``yield`` the one, without the other.
Call = AsyncIterable[Record] | Awaitable[Iterable[Record] | None]


class AsyncFunctionOperator(FunctionOperator):
    """Runs a ``KeyedProcessFunction`` of which ``process_element`` or ``on_timer`` is ``async def``."""

    def open(self, setup: OperatorSetup) -> None:
        super().open(setup)
        self._setup = setup
        self._loop = FunctionLoop(setup.new_event_loop)
        self.overlaps = awaits(self.function.process_element)
        self._awaits_timers = awaits(self._on_timer)

    def close(self) -> None:
        self._loop.close()
        super().close()

    def process_overlapping(self, records: Iterable[KeyedRecord], output: Output) -> None:
        lines: dict[Key, list[KeyedRecord]] = {}
        for record in records:
            lines.setdefault(record[0], []).append(record)
        self._loop.run(self._process_lines(lines, output))

    async def _process_lines(self, lines: dict[Key, list[KeyedRecord]], output: Output) -> None:
        ahead = iter(lines.values())
        workers = [
            asyncio.ensure_future(self._work(ahead, output))
            for _ in range(min(len(lines), MAX_KEYS_UNDER_WAY))
        ]
        for worker in workers:
            worker.add_done_callback(hear_out)
        done, left = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        await end(left)
        for worker in done:
            worker.result()

    async def _work(self, ahead: Iterator[list[KeyedRecord]], output: Output) -> None:
        for line in ahead:
            for record in line:
                await self._process(record, output)

    async def _process(self, record: KeyedRecord, output: Output) -> None:
        key, index, value, timestamp = record
        context = self._context_of(key, timestamp)
        try:
            call = self.function.process_element(value, context)
            results = await _UnderKey(self._setup.backend.key_context, key, index, _results_of(call))
        except BaseException as error:  # also sys.exit(), which would end the loop
            raise user_failure(error, self._setup.context.task_name, value, key) from error
        begin = len(output.values)
        output.values.extend(results)
        output.settle(begin, timestamp)

    def _context_of(self, key: Key, timestamp: int | None) -> _RecordContext:
        context = _RecordContext(self._setup, self.timers, key)
        context.current_timestamp = timestamp
        return context

    def _fire(self, timer: Timer, domain: TimeDomain, timestamp: int | None, output: Output) -> None:
        if not self._awaits_timers:
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
    """What a function is given beside one record: it stays with it while others are processed."""

    def __init__(self, setup: OperatorSetup, timers: InternalTimerService, key: Key) -> None:
        super().__init__(setup, timers)
        self._key = key

    def get_current_key(self) -> Key:
        return self._key


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def _results_of(call: Call) -> list[Record]:
    """Return all results of a call, each isolated as it is given."""
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
    """Awaits a coroutine; its key is the current one whenever it runs, and only then."""

    keys: KeyContext
    key: Key
    map_index: int
    coroutine: Coroutine[Any, Any, T]

    def __await__(self) -> Generator[Any, Any, T]:
        step: Callable[[Any], Any] = self.coroutine.send
        argument: Any = None
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
            except BaseException as error:  # noqa: BLE001 - a cancellation too is the coroutine's to see
                argument, step = error, self.coroutine.throw
