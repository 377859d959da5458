"""Async functions in a chain: order, capacity, time, timeouts, retries, errors and the end."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from pyflinkstate import AsyncFunction, AsyncFunctionDescriptor, RuntimeContext, Time
from pyflinkstate.api import MAX_WATERMARK, NO_RETRY_STRATEGY, NO_WATERMARK, AsyncRetryStrategy
from pyflinkstate.errors import BadRecordError, UserFunctionError
from pyflinkstate.runtime.plan import ASYNC, ChainedOperator
from pyflinkstate.runtime.tasks import Chain, TaskInfo, async_wait
from pyflinkstate.testing.harness import JumpingEventLoop

MODES = AsyncFunctionDescriptor.OutputMode
BOTH = pytest.mark.parametrize("mode", MODES)


class After(AsyncFunction):
    """The call for a record ends after those for the others that it is told to wait for."""

    def __init__(self, waits: dict[int, list[int]] | None = None) -> None:
        self.waits = waits or {}
        self.calls: list[str] = []
        self.running = self.peak = 0
        self.ended: dict[int, asyncio.Event] = {}

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls.append("open")

    def close(self) -> None:
        self.calls.append("close")

    def event(self, value: int) -> asyncio.Event:
        return self.ended.setdefault(value, asyncio.Event())

    async def async_invoke(self, value: int) -> list[int]:
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            for other in self.waits.get(value, ()):
                await self.event(other).wait()
        except asyncio.CancelledError:
            self.calls.append(f"cancelled {value}")
            raise
        finally:
            self.running -= 1
        self.event(value).set()
        return [value]


class Takes(AsyncFunction):
    """Each call takes so many seconds, by the loop's time; notes when attempts began."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.attempts: list[float] = []

    async def async_invoke(self, value: Any) -> Any:
        self.attempts.append(round(asyncio.get_running_loop().time(), 3))
        await asyncio.sleep(self.seconds)
        return await self.outcome(value)

    async def outcome(self, value: Any) -> Any:
        return [value]


def operator(
    function: AsyncFunction,
    mode: Any = MODES.ORDERED,
    timeout_ms: int = 0,
    capacity: int = 100,
    retries: AsyncRetryStrategy = NO_RETRY_STRATEGY,
) -> ChainedOperator:
    timeout = Time.milliseconds(timeout_ms)
    descriptor = AsyncFunctionDescriptor(function, timeout, capacity, retries, mode)
    return ChainedOperator(ASYNC, "ask", descriptor)


def chain(*operators: ChainedOperator, jumps: bool = True) -> Chain:
    loop = JumpingEventLoop if jumps else asyncio.new_event_loop
    return Chain(operators, TaskInfo(0, 1, 0, new_event_loop=loop), Counter())


def run(function: AsyncFunction, records: Iterable[Any], **options: Any) -> list[Any]:
    return list(chain(operator(function, **options)).run(records))


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "async calls"]


# --- order and capacity ------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "expected"), [(MODES.ORDERED, [1, 2, 3]), (MODES.UNORDERED, [2, 3, 1])])
def test_results_come_in_the_order_of_the_records_or_as_calls_end(mode: Any, expected: list[int]) -> None:
    assert run(After({1: [3]}), [1, 2, 3], mode=mode) == expected


@BOTH
def test_a_call_may_give_any_number_of_results(mode: Any) -> None:
    class Times(AsyncFunction):
        async def async_invoke(self, value: int) -> Iterable[int]:
            return (value for _ in range(value))

    assert run(Times(), [2, 0, 3, 1], mode=mode) == [2, 2, 3, 3, 3, 1]


@BOTH
def test_no_more_records_are_under_way_than_the_capacity(mode: Any) -> None:
    """Each call but the last ends after the next one has: two must run at once, and never three do."""
    function = After({1: [2], 3: [4], 5: [6]})
    assert sorted(run(function, range(1, 7), mode=mode, capacity=2)) == [1, 2, 3, 4, 5, 6]
    assert function.peak == 2


def test_results_that_wait_for_their_turn_count_as_under_way() -> None:
    taken: list[int] = []

    def records() -> Iterator[int]:
        for record in (1, 2, 3, 4):
            taken.append(record)
            yield record

    gate = threading.Event()

    class First(AsyncFunction):
        async def async_invoke(self, value: int) -> list[int]:
            if value == 1:
                while not gate.is_set():
                    await asyncio.sleep(0)
            elif value == 3:
                gate.set()
            return [value]

    found = list(chain(operator(First(), capacity=3), jumps=False).run(records()))
    assert found == taken == [1, 2, 3, 4]


def test_calls_go_on_while_the_next_record_is_waited_for() -> None:
    has_ended = threading.Event()

    class Tells(AsyncFunction):
        async def async_invoke(self, value: int) -> list[int]:
            await asyncio.sleep(0)
            has_ended.set()
            return [value]

    def records() -> Iterator[int]:
        yield 1
        assert has_ended.wait(60)
        yield 2

    assert list(chain(operator(Tells()), jumps=False).run(records())) == [1, 2]


def test_several_async_functions_share_a_loop() -> None:
    first, second = After({1: [2]}), After({2: [1]})
    made = chain(operator(first, MODES.UNORDERED), operator(second, MODES.ORDERED))
    assert list(made.run([1, 2])) == [2, 1]
    assert threads() == []


# --- event time --------------------------------------------------------------------------------------


def told(made: Chain, moments: Iterable[tuple[int, int]]) -> list[tuple[int, int | None, int]]:
    """Feed records 0, 1, ... with (timestamp, watermark before); return results as the next sees them."""

    def records() -> Iterator[int]:
        for record, (timestamp, watermark) in enumerate(moments):
            made.source_time.timestamp, made.source_time.watermark = timestamp, watermark
            yield record
        made.source_time.watermark = MAX_WATERMARK

    return [(record, made.time.timestamp, made.time.watermark) for record in made.run(records())]


#: What calls wait for, the mode, the capacity, the records of a segment, and what is told of records with
#: watermarks 1, 2, ... and timestamps 10, 20, ...
STORIES: dict[str, tuple[dict[int, list[int]], Any, int, int, list[tuple[int, int, int]]]] = {
    "ordered results meet the watermark that their record met": (
        {0: [2]},
        MODES.ORDERED,
        100,
        4096,
        [(0, 10, 1), (1, 20, 2), (2, 30, 3)],
    ),
    "no watermark passes a record that is under way": (
        {0: [2]},
        MODES.UNORDERED,
        100,
        4096,
        [(1, 20, 1), (2, 30, 1), (0, 10, 1)],
    ),
    "records do not pass a watermark either": (
        {0: [3]},
        MODES.UNORDERED,
        100,
        2,
        [(1, 20, 1), (0, 10, 1), (2, 30, 3), (3, 40, 3)],
    ),
    "a watermark passes where nothing is under way": (
        {},
        MODES.UNORDERED,
        1,
        4096,
        [(0, 10, 1), (1, 20, 2)],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_story(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, mode, capacity, segment, expected = STORIES[name]
    monkeypatch.setattr(async_wait, "SEGMENT_RECORDS", segment)
    made = chain(operator(After(waits), mode, capacity=capacity))
    moments = [(10 * number, number) for number in range(1, len(expected) + 1)]
    assert told(made, moments) == expected
    assert made.time.watermark == MAX_WATERMARK


def test_a_stream_that_wakes_up_is_not_idle_while_its_record_is_under_way() -> None:
    made = chain(operator(After({0: [1]}), MODES.UNORDERED))
    idle: list[bool] = []

    def records() -> Iterator[int]:
        for record, made.source_time.is_idle in ((0, True), (1, False)):
            yield record
        made.source_time.is_idle = True

    for _ in made.run(records()):
        idle.append(made.time.is_idle)
    assert (idle, made.time.is_idle) == ([False, False], True)


@BOTH
def test_time_behind_begins_where_the_source_does(mode: Any) -> None:
    made = chain(operator(After(), mode), operator(After(), mode))
    made.begin_at(7, True)
    assert (made.time.watermark, made.time.is_idle) == (7, True)
    assert list(made.run([])) == []
    assert (made.time.watermark, made.time.is_idle) == (7, True)
    assert chain(operator(After(), mode)).time.watermark == NO_WATERMARK


@given(
    st.data(),
    st.sampled_from(MODES),
    st.integers(1, 5),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=12),
)
def test_whatever_overtakes_what_lateness_stays(
    data: st.DataObject, mode: Any, capacity: int, segment: int, steps: list[tuple[int, int]]
) -> None:
    """No result is behind a watermark that its record was not behind of, and all come."""
    watermark, moments = 0, []
    for timestamp, step in steps:
        watermark += step
        moments.append((timestamp, watermark))
    waits = {
        record: data.draw(st.lists(st.integers(record + 1, record + capacity - 1), max_size=1))
        for record in range(len(steps))
        if capacity > 1 and record % capacity == 0 and record + capacity <= len(steps)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(async_wait, "SEGMENT_RECORDS", segment)
        made = chain(operator(After(waits), mode, capacity=capacity))
        found = told(made, moments)
    assert sorted(record for record, _, _ in found) == list(range(len(steps)))
    assert [timestamp for _, timestamp, _ in found] == [moments[record][0] for record, _, _ in found]
    seen = [watermark for _, _, watermark in found]
    assert seen == sorted(seen)
    for (record, _, _), behind in zip(found, seen, strict=True):
        assert behind <= moments[record][1]
    if mode is MODES.ORDERED:
        assert [(record, watermark) for record, _, watermark in found] == [
            (record, moments[record][1]) for record in range(len(steps))
        ]


# --- timeouts ----------------------------------------------------------------------------------------


class Late(Takes):
    cancelled = 0

    async def outcome(self, value: Any) -> Any:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def timeout(self, value: Any) -> list[Any]:
        return [("late", value)]


@BOTH
def test_a_call_that_takes_too_long_is_cancelled_and_timeout_says_what_comes(mode: Any) -> None:
    function = Late()
    assert run(function, ["a"], mode=mode, timeout_ms=1000) == [("late", "a")]
    assert function.cancelled == 1


def test_without_a_timeout_a_call_may_take_for_ever() -> None:
    assert run(Takes(10**6), ["a"], timeout_ms=0) == ["a"]


def test_a_call_that_ends_in_time_is_not_timed_out() -> None:
    class Counts(Takes):
        def timeout(self, value: Any) -> list[Any]:
            raise AssertionError("it was in time")

    assert run(Counts(0.999), ["a", "b"], timeout_ms=1000) == ["a", "b"]


def test_a_call_that_does_not_let_itself_be_cancelled_comes_too_late() -> None:
    class Stubborn(Late):
        async def outcome(self, value: Any) -> Any:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                return ["real"]

    assert run(Stubborn(), ["a"], timeout_ms=1000) == [("late", "a")]


def test_unless_overridden_a_timeout_fails_the_job() -> None:
    with pytest.raises(
        UserFunctionError, match=r"TimeoutError: .*timed out for input: 7[\s\S]*'ask', record 7"
    ):
        run(Takes(2), [7], timeout_ms=1000)


# --- retries -----------------------------------------------------------------------------------------


class Fails(Takes):
    """The first attempts raise, or give nothing."""

    def __init__(self, times: int, how: type[Exception] | None) -> None:
        super().__init__()
        self.times, self.how = times, how

    async def outcome(self, value: Any) -> Any:
        if len(self.attempts) > self.times:
            return [value]
        if self.how is None:
            return []
        raise self.how(f"attempt {len(self.attempts)}")

    def timeout(self, value: Any) -> Any:
        return [f"late after {len(self.attempts)}"]


def is_empty(results: list[Any]) -> bool:
    return not results


def is_lookup(error: Exception) -> bool:
    return isinstance(error, LookupError)


def fixed(attempts: int) -> AsyncRetryStrategy:
    return AsyncRetryStrategy.fixed_delay(attempts, 2000, is_empty, is_lookup)


def first_of(results: list[Any]) -> bool:
    """A predicate that raises for what is empty."""
    return bool(results[0])


GROWING = AsyncRetryStrategy.exponential_backoff(9, 100, 500, 2.0, None, is_lookup)
#: How many attempts fail, and with what; the strategy, the timeout, when attempts began, and what comes of
#: it: a text is the error.
RETRIES: dict[str, tuple[int, Any, AsyncRetryStrategy, int, list[float], Any]] = {
    "again until it is well": (2, KeyError, fixed(5), 60_000, [0.0, 2.0, 4.0], ["a"]),
    "again until there are results": (2, None, fixed(5), 60_000, [0.0, 2.0, 4.0], ["a"]),
    "delays may grow": (4, KeyError, GROWING, 60_000, [0.0, 0.1, 0.3, 0.7, 1.2], ["a"]),
    "the last results count": (9, None, fixed(2), 60_000, [0.0, 2.0, 4.0], []),
    "the last error counts": (9, KeyError, fixed(2), 60_000, [0.0, 2.0, 4.0], "KeyError: 'attempt 3'"),
    "what is no reason": (9, ValueError, fixed(2), 60_000, [0.0], "ValueError: attempt 1"),
    "the timeout is over all attempts": (9, KeyError, fixed(9), 5000, [0.0, 2.0, 4.0], ["late after 3"]),
    "a predicate that raises": (
        9,
        None,
        AsyncRetryStrategy.fixed_delay(1, 1, first_of, None),
        1000,
        [0.0],
        "IndexError",
    ),
}


@pytest.mark.parametrize("case", RETRIES)
def test_retries(case: str) -> None:
    times, how, retries, timeout_ms, attempts, expected = RETRIES[case]
    function = Fails(times, how)
    is_error = isinstance(expected, str)
    with pytest.raises(UserFunctionError, match=expected) if is_error else nullcontext():
        assert run(function, ["a"], timeout_ms=timeout_ms, retries=retries) == expected
    assert function.attempts == attempts


# --- what is wrong -----------------------------------------------------------------------------------


@attrs.define
class Gives(AsyncFunction):
    """Gives the record, or raises it."""

    async def async_invoke(self, value: Any) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value


@BOTH
@pytest.mark.parametrize(
    "error",
    [ValueError("no"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), StopAsyncIteration()],
)
def test_what_a_call_raises_fails_the_job(mode: Any, error: BaseException) -> None:
    with pytest.raises(
        UserFunctionError, match=rf"{type(error).__name__}[\s\S]*operator 'ask', record"
    ) as caught:
        run(Gives(), [[1], error, [2]], mode=mode)
    assert "in async_invoke" in str(caught.value)
    assert threads() == []


@pytest.mark.parametrize("results", [None, 5, "text", b"bytes", {"a": 1}])
def test_results_are_a_list(results: Any) -> None:
    """The error begins with the words of PyFlink."""
    wrong = "cannot be none" if results is None else "should be of list type"
    advice = r"[\s\S]*return a list of results[\s\S]*return \[result\]"
    with pytest.raises(BadRecordError, match=f"The result of AsyncFunction {wrong}{advice}"):
        run(Gives(), [results])


def test_results_whose_iterator_raises() -> None:
    class Lazy(AsyncFunction):
        async def async_invoke(self, value: Any) -> Any:
            return (1 / number for number in value)

    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        run(Lazy(), [[1, 0]])


def test_an_error_does_not_wait_for_the_records_before_it() -> None:
    function = After({1: [99]})

    class Raises(After):
        async def async_invoke(self, value: int) -> list[int]:
            if value == 2:
                raise LookupError("gone")
            return await function.async_invoke(value)

    with pytest.raises(UserFunctionError, match="LookupError: gone"):
        run(Raises(), [1, 2, 3])
    assert function.calls == ["cancelled 1"]


@BOTH
def test_results_are_what_they_were_when_they_were_given(mode: Any) -> None:
    shared: list[int] = []

    class Appends(After):
        async def async_invoke(self, value: int) -> Any:
            shared.append(value)
            await super().async_invoke(value)
            return [shared]

    assert run(Appends({1: [3]}), [1, 2, 3], mode=mode)[-1 if mode is MODES.UNORDERED else 0] == [1, 2, 3]
    assert {len(found) for found in run(Appends({1: [3]}), [1, 2, 3], mode=mode)} == {5, 6}


def test_a_task_of_the_functions_own_that_wants_to_end_the_process_does_not() -> None:
    class Exits(AsyncFunction):
        async def async_invoke(self, value: int) -> list[int]:
            async def leave() -> None:
                raise SystemExit(1)

            ended, _ = await asyncio.wait([asyncio.ensure_future(leave())])
            # What nobody asks for is logged when it is collected, in the midst of another test.
            assert isinstance(ended.pop().exception(), SystemExit)
            return [value]

    assert run(Exits(), [1, 2]) == [1, 2]


# --- beginning and end -------------------------------------------------------------------------------


def test_a_function_is_opened_and_closed_once_also_without_records() -> None:
    function = After()
    assert run(function, []) == []
    assert function.calls == ["open", "close"]
    assert threads() == []


def test_no_thread_is_started_before_there_is_a_record() -> None:
    made = chain(operator(After()))
    made.open()
    assert list(made.through([])) == []
    assert threads() == []
    assert list(made.through([1])) == [1]
    assert threads() == ["async calls"]
    made.close()
    assert threads() == []


def test_what_nobody_waits_for_any_more_is_cancelled_before_the_function_is_closed() -> None:
    function = After({1: [3], 2: [99]})
    running = chain(operator(function)).run([1, 2, 3])
    assert next(running) == 1
    running.close()
    assert function.calls == ["open", "cancelled 2", "close"]
    assert threads() == []


def test_an_error_further_on_ends_the_calls_too() -> None:
    function = After({2: [99]})
    broken = ChainedOperator("map", "broken", lambda value: 1 // (value - 3))
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        list(chain(operator(function, MODES.UNORDERED), broken).run([1, 2, 3]))
    assert function.calls == ["open", "cancelled 2", "close"]
    assert threads() == []
