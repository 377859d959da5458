"""PyFlink's ``pyflink.datastream.async_data_stream``."""

from __future__ import annotations

from pyflinkstate.api import (
    IN,
    NO_RETRY_STRATEGY,
    AsyncFunction,
    AsyncFunctionDescriptor,
    AsyncRetryStrategy,
    LengthOfTime,
    OutputType,
    T,
    Time,
    check_kind,
    milliseconds_of,
    positive,
)
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.operators import awaits
from pyflinkstate.runtime.program import DataStream

__all__ = ["AsyncDataStream"]

_Mode = AsyncFunctionDescriptor.OutputMode


class AsyncDataStream:
    """Applies async functions to streams. Results have no keys, and the timestamp of their record."""

    @staticmethod
    def unordered_wait(
        data_stream: DataStream[IN],
        async_function: AsyncFunction[IN, T],
        timeout: LengthOfTime,
        capacity: int = 100,
        output_type: OutputType[T] | None = None,
    ) -> DataStream[T]:
        """Call ``async_function`` for each record; the results come as calls end.

        Args:
            data_stream: the input stream.
            async_function: the function to call for each record.
            timeout: the time limit of a call, after which ``async_function.timeout`` is called; 0 means none.
            capacity: the maximum number of records in flight in each subtask.
            output_type: the type that results are checked against.

        Raises:
            ConfigurationError: ``async_invoke`` is not ``async def``, or ``capacity`` is less than 1.
        """
        return AsyncDataStream.unordered_wait_with_retry(
            data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type
        )

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream[IN],
        async_function: AsyncFunction[IN, T],
        timeout: LengthOfTime,
        async_retry_strategy: AsyncRetryStrategy[T],
        capacity: int = 100,
        output_type: OutputType[T] | None = None,
    ) -> DataStream[T]:
        """Call ``async_function`` for each record and retry calls; the results come as calls end.

        Args:
            data_stream: the input stream.
            async_function: the function to call for each record.
            timeout: the time limit of all attempts and the delays between them; it must be more than 0.
            async_retry_strategy: decides which calls are retried, how many times, and after which delay.
            capacity: the maximum number of records in flight in each subtask.
            output_type: the type that results are checked against.

        Raises:
            ConfigurationError: see :meth:`unordered_wait`; or the timeout is 0, or the strategy has no
                predicate.
        """
        descriptor = _described(async_function, timeout, capacity, async_retry_strategy, _Mode.UNORDERED)
        return data_stream.async_wait(descriptor, output_type)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream[IN],
        async_function: AsyncFunction[IN, T],
        timeout: LengthOfTime,
        capacity: int = 100,
        output_type: OutputType[T] | None = None,
    ) -> DataStream[T]:
        """Call ``async_function`` for each record; the results come in the order of the records.

        See :meth:`unordered_wait`.
        """
        return AsyncDataStream.ordered_wait_with_retry(
            data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type
        )

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream[IN],
        async_function: AsyncFunction[IN, T],
        timeout: LengthOfTime,
        async_retry_strategy: AsyncRetryStrategy[T],
        capacity: int = 100,
        output_type: OutputType[T] | None = None,
    ) -> DataStream[T]:
        """Call and retry like :meth:`unordered_wait_with_retry`; the results come in record order."""
        descriptor = _described(async_function, timeout, capacity, async_retry_strategy, _Mode.ORDERED)
        return data_stream.async_wait(descriptor, output_type)


def _described(
    function: AsyncFunction,
    timeout: LengthOfTime,
    capacity: int,
    strategy: AsyncRetryStrategy,
    mode: AsyncFunctionDescriptor.OutputMode,
) -> AsyncFunctionDescriptor:
    check_kind("an AsyncFunction is needed", function, AsyncFunction)
    if not awaits(function.async_invoke):
        raise ConfigurationError(
            f"async_invoke() of {type(function).__name__} must be declared 'async def': what it returns is "
            f"awaited"
        )
    limit = Time.milliseconds(milliseconds_of(timeout))
    check_kind("an AsyncRetryStrategy is needed", strategy, AsyncRetryStrategy)
    if strategy is not NO_RETRY_STRATEGY and limit.to_milliseconds() <= 0:
        raise ConfigurationError(f"retries need a timeout, which limits all attempts together, not {limit}")
    records = positive("capacity", capacity)
    return AsyncFunctionDescriptor(function, limit, records, strategy, mode)
