"""Retry strategies of async functions: how often, after how long, and why."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from pyflinkstate.datastream import AsyncRetryPredicate, AsyncRetryStrategy
from pyflinkstate.datastream.async_retry_predicates import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from pyflinkstate.datastream.async_retry_strategies import NO_RETRY_STRATEGY, NoRetryStrategy
from pyflinkstate.errors import ConfigurationError

#: (initial delay, greatest delay, multiplier), and the delays that PyFlink 2.3 gives for attempts 1 to 8.
PYFLINK_DELAYS = [
    ((100, 1000, 2.0), [100, 200, 400, 800, 1000, 1000, 1000, 1000]),
    ((10, 1000, 1.5), [10, 15, 22, 33, 49, 73, 109, 163]),
    ((3, 10**9, 1.1), [3, 3, 3, 3, 3, 3, 3, 3]),
    ((100, 50, 2.0), [100, 50, 50, 50, 50, 50, 50, 50]),
    ((1000, 5000, 0.5), [1000, 500, 250, 125, 62, 31, 15, 7]),
    ((1, 1000, 0.5), [1, 0, 0, 0, 0, 0, 0, 0]),
]


def exponential(initial: int, greatest: int, multiplier: float) -> AsyncRetryStrategy:
    return AsyncRetryStrategy.exponential_backoff(5, initial, greatest, multiplier, None, None)


@pytest.mark.parametrize(("numbers", "delays"), PYFLINK_DELAYS)
def test_delays_are_those_of_pyflink(numbers: tuple[int, int, float], delays: list[int]) -> None:
    strategy = exponential(*numbers)
    assert [strategy.get_backoff_time_millis(attempt) for attempt in range(1, 9)] == delays


def test_records_under_way_do_not_change_each_others_delays() -> None:
    strategy = exponential(100, 10_000, 2.0)
    assert [strategy.get_backoff_time_millis(attempt) for attempt in (3, 1, 2, 2, 4, 1)] == [
        400, 100, 200, 200, 800, 100,
    ]  # fmt: skip


def test_many_attempts_take_no_longer_to_count() -> None:
    assert exponential(1, 1000, 1.5).get_backoff_time_millis(10**15) == 1
    assert exponential(2, 1000, 1.5).get_backoff_time_millis(10**15) == 1000


@pytest.mark.parametrize(
    "strategy", [AsyncRetryStrategy.fixed_delay(2, 7, None, None), exponential(7, 7, 1.0)]
)
def test_there_are_so_many_attempts_after_the_first(strategy: AsyncRetryStrategy) -> None:
    most = 2 if strategy.can_retry(2) and not strategy.can_retry(3) else 5
    assert [strategy.can_retry(attempts) for attempts in (1, most, most + 1)] == [True, True, False]
    assert strategy.get_backoff_time_millis(1) == 7


def test_a_strategy_keeps_its_predicates() -> None:
    strategy = AsyncRetryStrategy.fixed_delay(1, 1, empty_result_predicate, has_exception_predicate)
    predicate = strategy.get_retry_predicate()
    assert isinstance(predicate, AsyncRetryPredicate)
    assert predicate.result_predicate() is empty_result_predicate
    assert predicate.exception_predicate() is has_exception_predicate


def test_no_retries() -> None:
    assert isinstance(NO_RETRY_STRATEGY, NoRetryStrategy)
    assert AsyncRetryStrategy.no_restart() is NO_RETRY_STRATEGY
    predicate = NO_RETRY_STRATEGY.get_retry_predicate()
    assert (predicate.result_predicate(), predicate.exception_predicate()) == (None, None)
    assert (NO_RETRY_STRATEGY.can_retry(1), NO_RETRY_STRATEGY.get_backoff_time_millis(1)) == (False, -1)


def test_predicates() -> None:
    assert [empty_result_predicate(result) for result in ([], [0])] == [True, False]
    assert [has_exception_predicate(error) for error in (None, ValueError())] == [False, True]
    is_timeout = partial(exception_type_predicate, expected_error_type=TimeoutError)
    assert [is_timeout(error) for error in (TimeoutError(), OSError())] == [True, False]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("fixed_delay", (0, 1, None, None), "max_attempts must be greater than 0, not 0"),
        ("fixed_delay", (1, -1, None, None), "backoff_time_millis must be greater than 0, not -1"),
        ("fixed_delay", (1, "1 s", None, None), "backoff_time_millis must be greater than 0, not '1 s'"),
        ("fixed_delay", (1, 1, [], None), r"result_predicate is a function or None, not \[\]"),
        ("exponential_backoff", (1, 0, 1, 1.0, None, None), "initial_delay must"),
        ("exponential_backoff", (1, 1, 0, 1.0, None, None), "max_retry_delay must"),
        ("exponential_backoff", (1, 1, 1, 0.0, None, None), "multiplier must"),
        ("exponential_backoff", (1, 1, 1, 1.0, None, 5), "exception_predicate is a function or None, not 5"),
    ],
)
def test_what_is_no_strategy(name: str, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        getattr(AsyncRetryStrategy, name)(*arguments)
