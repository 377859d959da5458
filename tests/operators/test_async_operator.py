"""Keyed functions that await: keys side by side, one record of a key at a time, each with its own key."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st
from support_runtime import raising

from pyflinkstate import KeyedProcessFunction, OutputTag, RuntimeContext, Types, ValueStateDescriptor
from pyflinkstate.errors import NoCurrentKeyError, UserFunctionError
from pyflinkstate.runtime.operators import Output
from pyflinkstate.runtime.operators.async_operator import MAX_KEYS_IN_FLIGHT
from pyflinkstate.testing import KeyedOneInputOperatorHarness, StreamRecord

SIDE = OutputTag("side")


def harness(function: Any, **options: Any) -> KeyedOneInputOperatorHarness:
    return KeyedOneInputOperatorHarness(function, lambda value: value[0], **options)


def feed(
    made: KeyedOneInputOperatorHarness, values: Sequence[Any], timestamps: Sequence[int] | None = None
) -> Output:
    """Process all values as one frame."""
    output = Output()
    for _, frame in made._split[0](list(values), None if timestamps is None else list(timestamps)):
        made.subtask.process_frame(frame, output)
    return output


class Sums(KeyedProcessFunction):
    """Adds up the numbers of a key; waits between the read and the write, ``wait`` seconds."""

    def __init__(self, wait: float = 0.0) -> None:
        self.wait = wait
        self.running: Counter[Any] = Counter()
        self.peak = self.peak_of_key = 0
        self.loops: set[Any] = set()
        self.passed = 0.0

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    async def asks(self, key: Any) -> None:
        self.running[key] += 1
        self.peak = max(self.peak, sum(self.running.values()))
        self.peak_of_key = max(self.peak_of_key, *self.running.values())
        self.loops.add(asyncio.get_running_loop())
        await asyncio.sleep(self.wait)
        self.passed = asyncio.get_running_loop().time()
        self.running[key] -= 1

    async def process_element(self, value: Any, ctx: Any) -> Any:
        before = self.sum.value() or 0
        await self.asks(value[0])
        self.sum.update(before + value[1])
        return [(ctx.get_current_key(), ctx.timestamp(), self.sum.value())]


def test_of_one_key_there_is_one_record_at_a_time_and_in_order() -> None:
    function = Sums(1.0)
    made = harness(function)
    found = feed(made, [("a", 1), ("b", 10), ("a", 2), ("a", 3), ("b", 20)], [1, 2, 3, 4, 5])
    of_key = defaultdict(list)
    for (key, timestamp, total), stamped in zip(found.values, found.timestamps, strict=True):
        assert timestamp == stamped
        of_key[key].append((timestamp, total))
    assert of_key == {"a": [(1, 1), (3, 3), (4, 6)], "b": [(2, 10), (5, 30)]}
    assert (function.peak, function.peak_of_key) == (2, 1)


def test_so_many_keys_are_under_way_and_no_more() -> None:
    function = Sums(1.0)
    feed(harness(function), [(key, 1) for key in range(2 * MAX_KEYS_IN_FLIGHT + 50)])
    assert (function.peak, function.peak_of_key) == (MAX_KEYS_IN_FLIGHT, 1)
    assert round(function.passed, 6) == 3.0


def test_a_frame_leaves_nothing_under_way_and_the_loop_stays() -> None:
    function = Sums(1.0)
    made = harness(function)
    for _ in range(3):
        feed(made, [("a", 1), ("b", 1)])
        assert sum(function.running.values()) == 0
    assert len(function.loops) == 1


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 5)), max_size=30), st.integers(0, 2**32))
def test_each_key_has_what_it_would_have_without_waiting(records: list[Any], seed: int) -> None:
    class Random(Sums):
        async def asks(self, key: Any) -> None:
            nonlocal seed
            for _ in range(seed % 4):
                seed = seed * 6364136223846793005 + 1 & 2**64 - 1
                await asyncio.sleep(seed % 3)

    sums: Counter[str] = Counter()
    expected = defaultdict(list)
    for key, number in records:
        sums[key] += number
        expected[key].append(sums[key])
    found = defaultdict(list)
    for key, _, total in feed(harness(Random()), records).values:
        found[key].append(total)
    assert found == expected


# --- what a function gives ---------------------------------------------------------------------------


class Gives(KeyedProcessFunction):
    async def process_element(self, value: Any, ctx: Any) -> Any:
        await asyncio.sleep(1)
        return value[1]


@pytest.mark.parametrize(("given", "results"), [(None, []), ([], []), ([1, 2], [1, 2]), ((3,), [3])])
def test_what_is_returned(given: Any, results: list[Any]) -> None:
    assert harness(Gives()).process_element(("a", given)) == results


def test_what_is_returned_may_read_state_late() -> None:
    class Lazy(Sums):
        async def process_element(self, value: Any, ctx: Any) -> Any:
            self.sum.update(value[1])
            await asyncio.sleep(1)
            return (self.sum.value() for _ in range(2))

    assert feed(harness(Lazy()), [("a", 1), ("b", 2)]).values == [1, 1, 2, 2]


def test_what_is_yielded_is_isolated_and_goes_to_side_outputs() -> None:
    class Yields(KeyedProcessFunction):
        async def process_element(self, value: Any, ctx: Any) -> AsyncIterator[Any]:
            seen: list[int] = []
            for number in range(3):
                seen.append(number)
                await asyncio.sleep(1)
                yield seen
            yield SIDE, value

    made = harness(Yields())
    assert made.process_element(("a", 1), 5) == [[0], [0, 1], [0, 1, 2]]
    assert made.get_side_output(SIDE) == [StreamRecord(("a", 1), 5)]
    assert made.get_output() == [StreamRecord(list(range(n)), 5) for n in (1, 2, 3)]


# --- keys, state and timers --------------------------------------------------------------------------


def test_what_the_function_starts_as_a_task_of_its_own_has_no_key() -> None:
    class Gathers(Sums):
        async def reads(self) -> Any:
            return self.sum.value()

        async def process_element(self, value: Any, ctx: Any) -> Any:
            (outcome,) = await asyncio.gather(asyncio.ensure_future(self.reads()), return_exceptions=True)
            self.sum.update(value[1])
            return [type(outcome), self.sum.value()]

    assert feed(harness(Gathers()), [("a", 1), ("b", 2)]).values == [
        *(NoCurrentKeyError, 1),
        *(NoCurrentKeyError, 2),
    ]


def test_a_handler_of_an_error_has_its_key_too() -> None:
    class Catches(Sums):
        async def process_element(self, value: Any, ctx: Any) -> Any:
            try:
                await asyncio.wait_for(asyncio.sleep(100), 1)
            except asyncio.TimeoutError:
                self.sum.update(value[1])
            finally:
                await asyncio.sleep(value[1])
                self.sum.update(self.sum.value() * 10)
            return [(ctx.get_current_key(), self.sum.value())]

    assert feed(harness(Catches()), [("a", 2), ("b", 1)]).values == [("b", 10), ("a", 20)]


class Alarms(Sums):
    """Sets a timer after it has waited; the timer waits, and adds up."""

    async def process_element(self, value: Any, ctx: Any) -> None:
        await asyncio.sleep(value[1])
        self.sum.update(value[1])
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)
        ctx.timer_service().register_processing_time_timer(500)

    async def on_timer(self, timestamp: int, ctx: Any) -> AsyncIterator[Any]:
        before = self.sum.value()
        await asyncio.sleep(1)
        self.sum.update(before + 1)
        yield ctx.get_current_key(), timestamp, ctx.time_domain().name, ctx.timestamp(), self.sum.value()


def test_timers_belong_to_the_key_that_set_them_and_may_wait_as_well() -> None:
    made = harness(Alarms())
    feed(made, [("a", 3), ("b", 2), ("c", 1)], [100, 200, 300])
    assert made.process_watermark(210) == [
        ("a", 110, "EVENT_TIME", 110, 4),
        ("b", 210, "EVENT_TIME", 210, 3),
    ]
    assert sorted(made.set_processing_time(500)) == [
        ("a", 500, "PROCESSING_TIME", 500, 5),
        ("b", 500, "PROCESSING_TIME", 500, 4),
        ("c", 500, "PROCESSING_TIME", 500, 2),
    ]
    assert [record.timestamp for record in made.get_output() if isinstance(record, StreamRecord)] == [
        *(110, 210),
        *(None, None, None),
    ]


def test_one_of_the_two_methods_may_be_plain() -> None:
    class PlainElement(Alarms):
        def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:  # type: ignore[override]
            self.sum.update(value[1])
            ctx.timer_service().register_event_time_timer(10)
            yield value

    class PlainTimer(Alarms):
        def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:  # type: ignore[override]
            return [(ctx.get_current_key(), timestamp, ctx.time_domain().name)]

    made = harness(PlainElement())
    assert feed(made, [("a", 1), ("b", 2)]).values == [("a", 1), ("b", 2)]
    assert sorted(key for key, *_ in made.process_watermark(10)) == ["a", "b"]
    made = harness(PlainTimer())
    feed(made, [("a", 1)], [0])
    assert made.process_watermark(10) == [("a", 10, "EVENT_TIME")]


# --- what is wrong -----------------------------------------------------------------------------------


class Breaks(Sums):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.cancelled: list[Any] = []

    async def process_element(self, value: Any, ctx: Any) -> Any:
        try:
            await asyncio.sleep(value[1])
        except asyncio.CancelledError:
            self.cancelled.append((ctx.get_current_key(), self.sum.value()))
            raise
        if value[0] == "bad":
            raise self.error
        self.sum.update(7)
        await asyncio.sleep(100)


@pytest.mark.parametrize("error", [LookupError("gone"), SystemExit(1), asyncio.CancelledError()])
def test_an_error_names_key_and_record_and_ends_what_is_under_way(error: BaseException) -> None:
    function = Breaks(error)
    made = harness(function)
    with pytest.raises(UserFunctionError) as caught:
        feed(made, [("good", 1), ("bad", 2), ("late", 3)])
    text = str(caught.value)
    assert text.startswith(type(error).__name__)
    assert "operator 'Breaks', key 'bad', record ('bad', 2)" in text
    assert "in process_element" in text
    assert function.cancelled == [("late", None)]
    made.close()


def test_a_timer_that_raises_names_its_key() -> None:
    class Bad(Alarms):
        async def on_timer(self, timestamp: int, ctx: Any) -> Any:
            await asyncio.sleep(1)
            raise LookupError("gone")

    made = harness(Bad())
    feed(made, [("a", 1)], [0])
    place = r"LookupError: gone\s+in operator 'Bad', key 'a', in on_timer"
    with pytest.raises(UserFunctionError, match=place):
        made.process_watermark(10)


def test_what_is_left_is_cancelled_before_the_function_is_closed() -> None:
    class Leaves(KeyedProcessFunction):
        calls: tuple[str, ...] = ()

        async def stays(self) -> None:
            try:
                await asyncio.sleep(10**9)
            finally:
                self.calls += ("cancelled",)

        async def process_element(self, value: Any, ctx: Any) -> None:
            self.task = asyncio.ensure_future(self.stays())
            await asyncio.sleep(0)

        def close(self) -> None:
            self.calls += ("closed",)

    function = Leaves()
    with harness(function) as made:
        made.process_element(("a", 1))
        assert function.calls == ()
    assert function.calls == ("cancelled", "closed")


def test_a_loop_that_does_not_end_keeps_no_function_from_closing() -> None:
    class Closes(Sums):
        is_closed = False

        def close(self) -> None:
            self.is_closed = True

    function = Closes()
    made = harness(function)
    made.subtask._operator._loop.close = raising(OSError("the loop is broken"))
    with pytest.raises(UserFunctionError, match=r"the loop is broken[\s\S]*in close\(\)"):
        made.close()
    assert function.is_closed
