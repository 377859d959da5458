"""Async functions on streams: what is put into the plan, and what is refused."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from pyflinkstate import (
    AggregateFunction,
    CheckpointedFunction,
    Duration,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    Time,
    Types,
)
from pyflinkstate.api import AsyncFunctionDescriptor
from pyflinkstate.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    DataStream,
    KeyedCoProcessFunction,
    ProcessWindowFunction,
)
from pyflinkstate.datastream.async_retry_strategies import NO_RETRY_STRATEGY
from pyflinkstate.datastream.window import CountTumblingWindowAssigner
from pyflinkstate.errors import BadRecordError, ConfigurationError, UserFunctionError
from pyflinkstate.runtime.plan import ASYNC, ChainNode
from pyflinkstate.testing import OneInputOperatorHarness, harness_of

MODES = AsyncFunctionDescriptor.OutputMode
RETRY = AsyncRetryStrategy.fixed_delay(3, 10, None, lambda error: True)
SECOND = Time.seconds(1)


class Doubles(AsyncFunction):
    async def async_invoke(self, value: int) -> list[int]:
        return [2 * value]


CALLS: dict[str, tuple[Any, ...]] = {
    "ordered_wait": (MODES.ORDERED, NO_RETRY_STRATEGY),
    "unordered_wait": (MODES.UNORDERED, NO_RETRY_STRATEGY),
    "ordered_wait_with_retry": (MODES.ORDERED, RETRY),
    "unordered_wait_with_retry": (MODES.UNORDERED, RETRY),
}


def wait(
    name: str, stream: Any, function: Any, timeout: Any = SECOND, *more: Any, **options: Any
) -> DataStream:
    retries = (RETRY,) if name.endswith("retry") else ()
    found: DataStream = getattr(AsyncDataStream, name)(stream, function, timeout, *retries, *more, **options)
    return found


@pytest.mark.parametrize("name", CALLS)
def test_each_call_adds_an_operator(name: str) -> None:
    def build(numbers: DataStream) -> DataStream:
        built = wait(name, numbers, Doubles(), capacity=5, output_type=Types.LONG())
        node = built._node
        assert isinstance(node, ChainNode)
        assert (node.kind, node.name, built.get_type()) == (ASYNC, "Doubles", Types.LONG())
        described = node.function
        assert (described.timeout, described.capacity) == (SECOND, 5)
        assert (described.output_mode, described.async_retry_strategy) == CALLS[name]
        return built

    with harness_of(build) as harness:
        assert harness.process_element(3, 10) == [6]


def test_a_hundred_records_are_under_way_unless_told_otherwise() -> None:
    def build(numbers: DataStream) -> DataStream:
        built = AsyncDataStream.ordered_wait(numbers.key_by(str), Doubles(), SECOND)
        assert built._node.function.capacity == 100  # type: ignore[union-attr]
        assert not built.is_keyed
        return built

    with harness_of(build) as harness:
        assert harness.process_element(3) == [6]


@pytest.mark.parametrize(
    ("timeout", "ms"),
    [
        (Time.seconds(2), 2000),
        (Duration.of_millis(5), 5),
        (datetime.timedelta(seconds=1), 1000),
        (Time.seconds(0), 0),
    ],
)
def test_timeouts_are_lengths_of_time(timeout: Any, ms: int) -> None:
    def build(numbers: DataStream) -> DataStream:
        built = AsyncDataStream.unordered_wait(numbers, Doubles(), timeout)
        assert built._node.function.timeout == Time.milliseconds(ms)  # type: ignore[union-attr]
        return built

    harness_of(build).close()


def test_results_are_checked_against_their_type() -> None:
    with (
        harness_of(
            lambda numbers: AsyncDataStream.ordered_wait(numbers, Doubles(), SECOND, output_type=Types.INT())
        ) as harness,
        pytest.raises(BadRecordError, match="operator 'Doubles': result does not fit"),
    ):
        harness.process_element("a")


def test_the_function_knows_where_it_runs() -> None:
    class Tells(AsyncFunction):
        async def async_invoke(self, value: Any) -> list[Any]:
            return [self.get_runtime_context().get_task_name()]

    with harness_of(
        lambda numbers: AsyncDataStream.ordered_wait(numbers, Tells(), SECOND).name("ask")
    ) as harness:
        assert harness.process_element(1) == ["ask"]


def test_a_harness_does_not_wait_for_time() -> None:
    class Slow(AsyncFunction):
        async def async_invoke(self, value: Any) -> Any:
            import asyncio

            await asyncio.sleep(10**6)

    with (
        harness_of(lambda numbers: AsyncDataStream.ordered_wait(numbers, Slow(), Time.days(1))) as harness,
        pytest.raises(UserFunctionError, match="TimeoutError: Async function call has timed out"),
    ):
        harness.process_element(1)


# --- what is refused ---------------------------------------------------------------------------------


class NotAsync(AsyncFunction):
    def async_invoke(self, value: int) -> list[int]:  # type: ignore[override]
        return [value]


class Checkpointed(Doubles, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None: ...

    def snapshot_state(self, context: Any) -> None: ...


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a checkpointed function": (
        lambda s: AsyncDataStream.ordered_wait(s, Checkpointed(), SECOND),
        "Checkpointed is a CheckpointedFunction",
    ),
    "a harness of single functions": (lambda s: OneInputOperatorHarness(Doubles()), r"harness_of\(\)"),
    "a plain function": (
        lambda s: AsyncDataStream.ordered_wait(s, len, SECOND),  # type: ignore[arg-type]
        "an AsyncFunction is needed, not <built-in function len>",
    ),
    "async_invoke is plain": (
        lambda s: AsyncDataStream.ordered_wait(s, NotAsync(), SECOND),
        r"async_invoke\(\) of NotAsync must be declared 'async def'",
    ),
    "no timeout": (
        lambda s: AsyncDataStream.ordered_wait(s, Doubles(), 1000),  # type: ignore[arg-type]
        "a Time, Duration or timedelta is needed, not 1000",
    ),
    "capacity": (
        lambda s: AsyncDataStream.unordered_wait(s, Doubles(), SECOND, 0),
        "capacity must be a whole number, at least 1, not 0",
    ),
    "no strategy": (
        lambda s: AsyncDataStream.unordered_wait_with_retry(s, Doubles(), SECOND, None),  # type: ignore[arg-type]
        "an AsyncRetryStrategy is needed, not None",
    ),
    "retries without a timeout": (
        lambda s: AsyncDataStream.unordered_wait_with_retry(s, Doubles(), Time.seconds(0), RETRY),
        "retries need a timeout, which limits all attempts together, not 0 ms",
    ),
    "side outputs": (
        lambda s: AsyncDataStream.ordered_wait(s, Doubles(), SECOND).get_side_output("late"),  # type: ignore[arg-type]
        "takes an OutputTag",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_called(case: str) -> None:
    build, message = REFUSED[case]
    with pytest.raises(ConfigurationError, match=message):
        harness_of(build)


async def plain(*arguments: Any) -> Any:
    return arguments


async def yields(*arguments: Any) -> Any:
    yield arguments


def awaiting(base: type, name: str, method: Any = plain) -> Any:
    """Return a function of the user's of which one method awaits."""
    awaits = FunctionType(method.__code__, {}, name)
    awaits.__qualname__ = f"Async{base.__name__}.{name}"
    methods = {**dict.fromkeys(base.__abstractmethods__, lambda *_: None), name: awaits}  # type: ignore[attr-defined]
    return type(f"Async{base.__name__}", (base,), methods)()


def windows(stream: DataStream) -> Any:
    return stream.key_by(str).window(CountTumblingWindowAssigner.of(2))


AWAITED_NOWHERE: dict[str, Callable[[Any], Any]] = {
    "plain": lambda s: s.map(plain),
    "plain flat_map": lambda s: s.flat_map(plain),
    "plain on keys": lambda s: s.key_by(str).filter(plain),
    "AsyncMapFunction.map": lambda s: s.map(awaiting(MapFunction, "map")),
    "AsyncMapFunction.map on keys": lambda s: s.key_by(str).map(awaiting(MapFunction, "map")),
    "AsyncKeySelector.get_key": lambda s: s.key_by(awaiting(KeySelector, "get_key")),
    "AsyncReduceFunction.reduce": lambda s: s.key_by(str).reduce(awaiting(ReduceFunction, "reduce")),
    "AsyncProcessFunction.process_element": lambda s: s.process(
        awaiting(ProcessFunction, "process_element", yields)
    ),
    "AsyncKeyedCoProcessFunction.process_element1": lambda s: (
        s.connect(s).key_by(str, str).process(awaiting(KeyedCoProcessFunction, "process_element1", yields))
    ),
    "AsyncProcessWindowFunction.process": lambda s: windows(s).process(
        awaiting(ProcessWindowFunction, "process", yields)
    ),
    "AsyncAggregateFunction.add": lambda s: windows(s).aggregate(awaiting(AggregateFunction, "add")),
    "AsyncReduceFunction.reduce in windows": lambda s: windows(s).reduce(awaiting(ReduceFunction, "reduce")),
}


@pytest.mark.parametrize("case", AWAITED_NOWHERE)
def test_what_nobody_would_await_is_refused(case: str) -> None:
    name = case.split(" ")[0]
    with pytest.raises(
        ConfigurationError, match=rf"{name}\(\) is 'async def', and nobody would await it here"
    ):
        harness_of(AWAITED_NOWHERE[case])


def test_a_keyed_function_that_awaits_is_not_refused() -> None:
    class Keyed(KeyedProcessFunction):
        async def process_element(self, value: Any, ctx: Any) -> list[Any]:
            return [value]

    harness = harness_of(lambda s: s.key_by(str).process(Keyed()))
    assert harness.process_element(1) == [1]
