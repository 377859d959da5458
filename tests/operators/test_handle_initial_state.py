"""``handle_initial_state``: what it may do, and what it is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from pyflinkstate import (
    KeyedProcessFunction,
    RuntimeContext,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.errors import BadRecordError, ConfigurationError, FunctionResultError, UserFunctionError
from pyflinkstate.runtime.operators import KeyedMap, KeyState
from pyflinkstate.runtime.program.dataframes.options import check_method
from pyflinkstate.testing import KeyedOneInputOperatorHarness


def user_of(value: Any) -> Any:
    return value[0]


class Total(KeyedProcessFunction):
    """Emits the key's total; it begins with what the key had before."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("total", Types.LONG())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(100)).build())
        self.total = runtime_context.get_state(descriptor)

    def handle_initial_state(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        assert ctx.get_current_key() == value[0]
        assert ctx.timestamp() is None
        self.total.update((self.total.value() or 0) + value[1])
        ctx.timer_service().register_processing_time_timer(1_000)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self.total.update((self.total.value() or 0) + value[1])
        yield value[0], self.total.value()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), "timer"


class AsyncTotal(Total):
    async def process_element(self, value: Any, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) + value[1])
        return [(value[0], self.total.value())]


@pytest.mark.parametrize("function", [Total(), AsyncTotal()], ids=["plain", "async"])
def test_rows_fill_the_state_of_their_keys(function: Total) -> None:
    harness = KeyedOneInputOperatorHarness(function, user_of)
    for row in [("ann", 10), ("bob", 20), ("ann", 1)]:
        harness.process_initial_state(row)
    assert harness.num_processing_time_timers() == 2
    assert harness.process_element(("ann", 1)) == [("ann", 12)]
    assert harness.process_element(("eve", 1)) == [("eve", 1)]
    assert harness.process_element(("bob", 1)) == [("bob", 21)]
    assert sorted(harness.set_processing_time(1_000)) == [("ann", "timer"), ("bob", "timer")]


def test_state_that_expires_was_written_when_the_row_was_read() -> None:
    harness = KeyedOneInputOperatorHarness(Total(), user_of)
    harness.set_processing_time(50)
    harness.process_initial_state(("ann", 10))
    harness.set_processing_time(149)
    assert harness.process_element(("ann", 1)) == [("ann", 11)]
    harness.set_processing_time(249)
    assert harness.process_element(("ann", 1)) == [("ann", 1)]


class Returns(Total):
    def handle_initial_state(self, value: Any, ctx: Any) -> Any:
        return [value]


class Raises(Total):
    def handle_initial_state(self, value: Any, ctx: Any) -> None:
        raise LookupError("no")


def test_it_returns_nothing() -> None:
    harness = KeyedOneInputOperatorHarness(Returns(), user_of)
    with pytest.raises(FunctionResultError, match=r"handle_initial_state.*returns nothing"):
        harness.process_initial_state(("ann", 10))


def test_what_it_raises_names_the_row_and_its_key() -> None:
    harness = KeyedOneInputOperatorHarness(Raises(), user_of)
    with pytest.raises(UserFunctionError, match=r"(?s)ann.*LookupError"):
        harness.process_initial_state(("ann", 10))


class Yields(Total):
    def handle_initial_state(self, value: Any, ctx: Any) -> Any:
        yield value


class Awaits(Total):
    async def handle_initial_state(self, value: Any, ctx: Any) -> Any:
        """Nobody would await it."""


class Without(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Without(), r"define handle_initial_state\(self, value, ctx\) in Without"),
        (Yields(), r"Yields.handle_initial_state\(\) yields"),
        (Awaits(), r"Awaits.handle_initial_state\(\) is 'async def'"),
        (len, r"needs a KeyedProcessFunction"),
    ],
)
def test_functions_that_take_no_initial_state(function: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_method(function)


def test_functions_that_do() -> None:
    check_method(Total())
    check_method(AsyncTotal())


def shown(key: str, rows: Iterator[Any], state: KeyState) -> Iterator[tuple[str, Any, int]]:
    yield key, state.get(), len(list(rows))


def test_a_plain_function_finds_the_value_of_the_column() -> None:
    operator = KeyedMap(shown, ValueStateDescriptor("state", Types.LONG()), "total")
    harness = KeyedOneInputOperatorHarness(operator, lambda row: row["user"])
    harness.process_initial_state({"user": "ann", "total": 10})
    harness.process_initial_state({"user": "bob", "total": None})
    harness.process_element({"user": "ann", "n": 1})
    harness.process_element({"user": "bob", "n": 1})
    found = [value for output in harness.subtask.finish_epoch() for value in output.values]
    assert found == [("ann", 10, 1), ("bob", None, 1)]
    with pytest.raises(BadRecordError, match=r"several rows for this key.*group the DataFrame"):
        harness.process_initial_state({"user": "ann", "total": 11})


def exits(key: str, rows: Iterator[Any], state: KeyState) -> Iterator[Any]:
    yield key
    raise SystemExit(3)


def test_sys_exit_at_the_end_of_an_epoch_names_the_key() -> None:
    operator = KeyedMap(exits, ValueStateDescriptor("state", Types.LONG()))
    harness = KeyedOneInputOperatorHarness(operator, user_of)
    harness.process_element(("ann", 1))
    with pytest.raises(UserFunctionError, match=r"SystemExit: 3\s+in operator .*, key 'ann', at the end"):
        list(harness.subtask.finish_epoch())
