"""Functions that wait for answers without keeping others waiting (``pyflink.datastream.AsyncFunction``)."""

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
    """Asks somebody else about each record, such as a service; many calls are under way at a time.

    All calls of a subtask run on one event loop, in a thread beside the one that ``open`` and ``close`` are
    called in. A function that waits without ``await`` holds up all of them.
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> Iterable[OUT]:
        """Return the results for ``value``: a list, empty for none. What it raises fails the job."""

    def timeout(self, value: IN) -> Iterable[OUT]:
        """Return the results for a ``value`` whose call took too long; the call is cancelled.

        Raises:
            TimeoutError: unless it is overridden; that fails the job.
        """
        raise TimeoutError(f"Async function call has timed out for input: {value}")


@attrs.frozen
class AsyncFunctionDescriptor(Function):
    """An async function, and how it is called; what ``AsyncDataStream`` puts into a plan.

    Attributes:
        async_function: what is called for each record.
        timeout: how long a call may take with all its attempts; 0 or less for as long as it likes.
        capacity: how many records may be under way at a time.
        async_retry_strategy: which calls are made again.
        output_mode: in which order results are passed on.
    """

    class OutputMode(enum.Enum):
        """In which order results are passed on."""

        #: In the order of the records.
        ORDERED = 0
        #: As calls end; watermarks and records do not overtake each other.
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
