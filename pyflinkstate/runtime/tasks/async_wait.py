"""The operator that runs an ``AsyncFunction`` inside a chain, with many records in flight at a time.

The task's thread takes records, starts a call for each on an event loop in another thread, and yields the
results. It takes a record only while fewer than ``capacity`` records are in flight. A record whose results
wait for their turn is still in flight. At the end of the epoch the operator waits for all calls, so nothing
is in flight at a barrier and checkpoints hold no records of this operator.

Each result has the timestamp of its record, and the watermark behind the operator never passes a record in
flight. With ordered results it is the watermark that preceded the record. With unordered results the
records are divided into *segments*, each with one watermark. Results can overtake each other within a
segment, but not across segments.
"""

from __future__ import annotations

import asyncio
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs

from pyflinkstate.api import AsyncFunctionDescriptor, Record, safe_repr
from pyflinkstate.backends.values import take_isolated
from pyflinkstate.errors import BadRecordError, RuntimeFailure
from pyflinkstate.runtime.operators import async_operator
from pyflinkstate.runtime.plan import ChainedOperator
from pyflinkstate.runtime.wire import TaskTime, next_of, user_failure, wait_for

#: A segment takes this many records before a new watermark ends it.
SEGMENT_RECORDS = 4096

#: A watermark, and whether the stream is idle.
Moment = tuple[int, bool]


@attrs.define(eq=False)
class _Call:
    """A record in flight."""

    record: Record
    timestamp: int | None
    #: The watermark and idleness behind the results.
    moment: Moment
    #: None until the call has ended.
    results: list[Record] | None = None
    error: BaseException | None = None
    #: Held here because a loop holds its tasks by weak references.
    task: asyncio.Task[None] | None = None


class AsyncWait:
    """Runs one async function over one run of records.

    Args:
        operator: its function is an ``AsyncFunctionDescriptor``.
        before: the time of the record that was taken last.
        after: set to the time of each result that is yielded.
        thread: returns the thread of the event loop; called for the first time when there is a record.
    """

    def __init__(
        self,
        operator: ChainedOperator,
        before: TaskTime,
        after: TaskTime,
        thread: Callable[[], async_operator.LoopThread],
    ) -> None:
        self._name = operator.name
        self._descriptor: AsyncFunctionDescriptor = operator.function
        self._before = before
        self._after = after
        self._thread = thread
        self._ended: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._in_flight = _InFlight(
            self._descriptor.output_mode is AsyncFunctionDescriptor.OutputMode.ORDERED
        )

    def run(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the results for ``records``."""
        for record in records:
            self._start(record)
            yield from self._results(self._descriptor.capacity - 1)
        yield from self._results(0)
        self._after.watermark, self._after.is_idle = self._before.watermark, self._before.is_idle

    def _start(self, record: Record) -> None:
        time = self._before
        call = _Call(record, time.timestamp, (time.watermark, time.is_idle))
        self._in_flight.add(call)
        thread = self._thread()
        thread.call(_Attempts(self._descriptor, call, self._ended.put).start, thread.loop)

    def _results(self, most: int) -> Iterator[Record]:
        """Yield finished results, and wait until at most ``most`` records are in flight."""
        while (call := self._next(most)) is not None:
            assert call.results is not None
            self._after.timestamp = call.timestamp
            self._after.watermark, self._after.is_idle = call.moment
            yield from call.results

    def _next(self, most: int) -> _Call | None:
        """Return the call whose results come next; None if there is none and at most ``most`` are left."""
        while not self._ended.empty():
            self._note(self._ended.get_nowait())
        look = next_of(self._ended)
        while (call := self._in_flight.take()) is None and len(self._in_flight) > most:
            self._note(wait_for(look, self._lost))
        return call

    def _lost(self) -> RuntimeFailure | None:
        if self._thread().is_alive():
            return None
        return RuntimeFailure(
            f"the event loop of the async function {self._name!r} has ended while records were in flight: "
            f"the function must not stop or close the loop that it runs on"
        )

    def _note(self, call: _Call) -> None:
        if call.error is not None:
            raise user_failure(call.error, self._name, call.record) from call.error
        self._in_flight.end(call)


class _Attempts:
    """All attempts to call the function for one record; everything here runs on the event loop."""

    def __init__(
        self, descriptor: AsyncFunctionDescriptor, call: _Call, tell: Callable[[_Call], None]
    ) -> None:
        self._function = descriptor.async_function
        self._strategy = descriptor.async_retry_strategy
        self._timeout_ms = descriptor.timeout.to_milliseconds()
        self._call = call
        self._tell = tell
        self._has_ended = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the first attempt. ``tell`` is called once, when the call has ended."""
        self._timer: asyncio.TimerHandle | None = None
        if self._timeout_ms > 0:
            self._timer = loop.call_later(self._timeout_ms / 1000, self._time_out)
        self._call.task = loop.create_task(self._all())

    async def _all(self) -> None:
        try:
            results, error = await self._last_results(), None
        except BaseException as raised:  # noqa: BLE001 - also sys.exit(), which would end the loop
            results, error = None, raised
        if self._timer is not None:
            self._timer.cancel()
        self._end(results, error)

    async def _last_results(self) -> Record:
        attempts = 1
        while True:
            results, error = await self._one_attempt()
            if not (self._is_reason(results, error) and self._strategy.can_retry(attempts)):
                if error is not None:
                    raise error
                return results
            await asyncio.sleep(self._strategy.get_backoff_time_millis(attempts) / 1000)
            attempts += 1

    async def _one_attempt(self) -> tuple[Record, Exception | None]:
        try:
            return await self._function.async_invoke(self._call.record), None
        except Exception as error:  # noqa: BLE001 - a predicate says what becomes of it
            return None, error

    def _is_reason(self, results: Any, error: Exception | None) -> bool:
        """Return whether the outcome is a reason to retry."""
        predicate = self._strategy.get_retry_predicate()
        if error is not None:
            of_error = predicate.exception_predicate()
            return of_error is not None and bool(of_error(error))
        of_results = predicate.result_predicate()
        return results is not None and of_results is not None and bool(of_results(results))

    def _time_out(self) -> None:
        assert self._call.task is not None
        self._call.task.cancel()
        try:
            results, error = self._function.timeout(self._call.record), None
        except BaseException as raised:  # noqa: BLE001 - see _all()
            results, error = None, raised
        self._end(results, error)

    def _end(self, results: Record, error: BaseException | None) -> None:
        """Report the outcome; only the first one counts, so results after a timeout are dropped."""
        if self._has_ended:
            return
        self._has_ended = True
        self._call.error = error
        if error is None:
            try:
                self._call.results = _checked(results)
            except BaseException as raised:  # noqa: BLE001 - an iterator may be user code
                self._call.error = raised
        self._tell(self._call)


def _checked(results: Record) -> list[Record]:
    """Return isolated results, because the function may change them later."""
    if not isinstance(results, Iterable) or isinstance(results, (str, bytes, dict)):
        wrong = "cannot be none" if results is None else "should be of list type"
        raise BadRecordError(
            f"The result of AsyncFunction {wrong}: async_invoke() and timeout() return a list of results, "
            f"which may be empty, not {safe_repr(results)}; for one result return [result]"
        )
    taken: list[Record] = []
    take_isolated(taken, results)
    return taken


@attrs.define(eq=False)
class _Segment:
    """Records between two watermarks."""

    moment: Moment
    #: The number of its records, and of those whose calls still run.
    records: int = 0
    running: int = 0
    ended: deque[_Call] = attrs.Factory(deque)


@attrs.define(eq=False)
class _InFlight:
    """The records in flight: calls that run, and calls whose results were not yet passed on.

    The results come as calls end, segment by segment. If they are to be ordered, each record is a segment.
    """

    _is_ordered: bool
    _segments: deque[_Segment] = attrs.field(init=False, factory=deque)
    _of: dict[_Call, _Segment] = attrs.field(init=False, factory=dict)
    _number: int = attrs.field(init=False, default=0)

    def __len__(self) -> int:
        return self._number

    def add(self, call: _Call) -> None:
        """Add a call that is about to start."""
        segment = self._segment_for(call.moment)
        watermark, is_idle = segment.moment
        segment.moment = watermark, is_idle and call.moment[1]
        segment.records += 1
        segment.running += 1
        self._of[call] = segment
        self._number += 1

    def _segment_for(self, moment: Moment) -> _Segment:
        """Return the last segment, or a new one if nothing is in flight or the last one is full."""
        if self._segments and not self._is_ordered:
            last = self._segments[-1]
            if moment == last.moment or (self._number and last.records < SEGMENT_RECORDS):
                return last
        self._segments.append(_Segment(moment))
        return self._segments[-1]

    def end(self, call: _Call) -> None:
        """Note that a call has its results."""
        segment = self._of.pop(call)
        segment.running -= 1
        segment.ended.append(call)

    def take(self) -> _Call | None:
        """Remove and return the call whose results come next; None if it still runs."""
        while self._segments:
            first = self._segments[0]
            if first.ended:
                self._number -= 1
                call = first.ended.popleft()
                call.moment = first.moment
                return call
            if first.running:
                return None
            self._segments.popleft()
        return None
