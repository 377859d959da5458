"""Async functions: many calls are in flight at a time (``pyflink.datastream.AsyncFunction``)."""

from __future__ import annotations

import enum
from abc import abstractmethod
from collections.abc import Iterable
from typing import Generic

import attrs

from pyflinkstate.api.async_retries import AsyncRetryStrategy
from pyflinkstate.api.context import RuntimeContext
from pyflinkstate.api.functions import Function
from pyflinkstate.api.time import Time
from pyflinkstate.api.type_variables import IN, OUT


class AsyncFunction(Function, Generic[IN, OUT]):
    """Makes an asynchronous call for each record, such as a request; many calls are in flight at a time.

    All calls of a subtask run on one event loop. Its thread is not the one that calls ``open`` and
    ``close``. A function that blocks without ``await`` delays all other calls.
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> Iterable[OUT]:
        """Return a list of results for ``value``, which may be empty. An error fails the job."""

    def timeout(self, value: IN) -> Iterable[OUT]:
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
