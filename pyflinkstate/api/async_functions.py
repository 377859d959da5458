"""Async functions, whose calls overlap, and when a call is retried (``pyflink.datastream.AsyncFunction``)."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic

import attrs

from pyflinkstate.api.context import RuntimeContext
from pyflinkstate.api.functions import Function
from pyflinkstate.api.time import Time
from pyflinkstate.api.values import IN, OUT, T
from pyflinkstate.errors import ConfigurationError

#: Returns whether to retry a call that gave these results.
ResultPredicate = Callable[[list[T]], bool]
#: Returns whether to retry a call that raised this error.
ExceptionPredicate = Callable[[Exception], bool]


class AsyncRetryPredicate(ABC, Generic[T]):
    """Decides for which results and which exceptions a call is retried."""

    @abstractmethod
    def result_predicate(self) -> ResultPredicate[T] | None:
        """Return the predicate on results; None if results never cause a retry."""

    @abstractmethod
    def exception_predicate(self) -> ExceptionPredicate | None:
        """Return the predicate on exceptions; None if exceptions never cause a retry."""


class AsyncRetryStrategy(ABC, Generic[T]):
    """Decides whether a call is retried, and after which delay."""

    @abstractmethod
    def can_retry(self, current_attempts: int, /) -> bool:
        """Return whether another attempt is allowed after ``current_attempts``; the first call is 1."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int, /) -> int:
        """Return the delay in ms before the attempt that follows ``current_attempts``."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[T]:
        """Return the predicates that decide whether a call is retried at all."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy:
        """Return the strategy that never retries."""
        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> FixedDelayRetryStrategy:
        """Return a strategy that retries after a fixed delay; see :class:`FixedDelayRetryStrategy`."""
        return FixedDelayRetryStrategy(
            max_attempts, backoff_time_millis, result_predicate, exception_predicate
        )

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> ExponentialBackoffDelayRetryStrategy:
        """Return a strategy with growing delays; see :class:`ExponentialBackoffDelayRetryStrategy`."""
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


@attrs.frozen
class RetryPredicate(AsyncRetryPredicate[T]):
    """A pair of predicates."""

    _result_predicate: ResultPredicate[T] | None
    _exception_predicate: ExceptionPredicate | None

    def result_predicate(self) -> ResultPredicate[T] | None:
        return self._result_predicate

    def exception_predicate(self) -> ExceptionPredicate | None:
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy[T]):
    """Never retries."""

    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[T]:
        return RetryPredicate(None, None)


def _positive(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or value <= 0:  # type: ignore[operator]
        raise ConfigurationError(f"{attribute.name.lstrip('_')} must be greater than 0, not {value!r}")


def _predicate(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not callable(value):
        raise ConfigurationError(f"{attribute.name.lstrip('_')} is a function or None, not {value!r}")


@attrs.frozen
class FixedDelayRetryStrategy(AsyncRetryStrategy[T]):
    """Retries after a fixed delay.

    Args:
        max_attempts: the maximum number of retries after the first call.
        backoff_time_millis: the delay in ms.
        result_predicate: called with the results of a call; the call is retried if it returns true.
        exception_predicate: the same for the exception of a call.

    Raises:
        ConfigurationError: a number is not greater than 0, or a predicate is not callable.
    """

    _max_attempts: int = attrs.field(validator=_positive)
    _backoff_time_millis: int = attrs.field(validator=_positive)
    _result_predicate: ResultPredicate[T] | None = attrs.field(validator=_predicate)
    _exception_predicate: ExceptionPredicate | None = attrs.field(validator=_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return self._backoff_time_millis

    def get_retry_predicate(self) -> AsyncRetryPredicate[T]:
        return RetryPredicate(self._result_predicate, self._exception_predicate)


@attrs.frozen
class ExponentialBackoffDelayRetryStrategy(AsyncRetryStrategy[T]):
    """Retries after growing delays.

    Args:
        max_attempts: the maximum number of retries after the first call.
        initial_delay: the first delay in ms.
        max_retry_delay: the maximum of all later delays in ms.
        multiplier: the factor from each delay to the next one, which is rounded down to whole ms.
        result_predicate: called with the results of a call; the call is retried if it returns true.
        exception_predicate: the same for the exception of a call.

    Raises:
        ConfigurationError: a number is not greater than 0, or a predicate is not callable.

    Examples:
        >>> strategy = AsyncRetryStrategy.exponential_backoff(4, 100, 300, 1.5, None, None)
        >>> [strategy.get_backoff_time_millis(attempt) for attempt in (1, 2, 3, 4)]
        [100, 150, 225, 300]
    """

    _max_attempts: int = attrs.field(validator=_positive)
    _initial_delay: int = attrs.field(validator=_positive)
    _max_retry_delay: int = attrs.field(validator=_positive)
    _multiplier: float = attrs.field(validator=_positive)
    _result_predicate: ResultPredicate[T] | None = attrs.field(validator=_predicate)
    _exception_predicate: ExceptionPredicate | None = attrs.field(validator=_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        delay = self._initial_delay
        for _ in range(current_attempts - 1):
            longer = int(min(delay * self._multiplier, self._max_retry_delay))
            if longer == delay:
                break
            delay = longer
        return delay

    def get_retry_predicate(self) -> AsyncRetryPredicate[T]:
        return RetryPredicate(self._result_predicate, self._exception_predicate)


#: The strategy that never retries.
NO_RETRY_STRATEGY: AsyncRetryStrategy = NoRetryStrategy()


def empty_result_predicate(result: list[T]) -> bool:
    """Return whether a call gave no results."""
    return result is None or len(result) == 0


def has_exception_predicate(error: Exception | None) -> bool:
    """Return whether a call raised any exception."""
    return error is not None


def exception_type_predicate(error: Exception, expected_error_type: type[Exception]) -> bool:
    """Return whether a call raised ``expected_error_type``; bind it with ``functools.partial``."""
    return isinstance(error, expected_error_type)


class AsyncFunction(Function, Generic[IN, OUT]):
    """Makes an asynchronous call for each record, such as a request; many calls are in flight at a time.

    All calls of a subtask run on one event loop. Its thread is not the one that calls ``open`` and
    ``close``. A function that blocks without ``await`` delays all other calls.
    """

    @abstractmethod
    async def async_invoke(self, value: IN, /) -> Iterable[OUT]:
        """Return a list of results for ``value``, which may be empty. An error fails the job."""

    def timeout(self, value: IN, /) -> Iterable[OUT]:
        """Return the results for a ``value`` whose call took too long; the call is cancelled.

        Raises:
            TimeoutError: unless it is overridden; that fails the job.
        """
        raise TimeoutError(f"Async function call has timed out for input: {value}")


@attrs.frozen
class AsyncFunctionDescriptor(Function):
    """An async function and its settings; ``AsyncDataStream`` puts it into the plan.

    Attributes:
        async_function: the function, called for each record.
        timeout: the time limit of a call with all its attempts; 0 or less means no limit.
        capacity: the maximum number of records in flight.
        async_retry_strategy: decides which calls are retried.
        output_mode: the order of the results.
    """

    class OutputMode(enum.Enum):
        """The order of the results."""

        #: The results come in the order of the records.
        ORDERED = 0
        #: The results come as calls end; records and watermarks do not overtake each other.
        UNORDERED = 1

    async_function: AsyncFunction
    timeout: Time
    capacity: int
    async_retry_strategy: AsyncRetryStrategy
    output_mode: OutputMode

    def set_runtime_context(self, runtime_context: RuntimeContext) -> None:
        self.async_function.set_runtime_context(runtime_context)

    def open(self, runtime_context: RuntimeContext) -> None:
        self.async_function.open(runtime_context)

    def close(self) -> None:
        self.async_function.close()
