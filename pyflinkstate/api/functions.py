"""What a user writes: functions, rich or plain. Names are PyFlink's (``pyflink.datastream.functions``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from pyflinkstate.api.context import RuntimeContext
from pyflinkstate.api.timers import TimeDomain, TimerService
from pyflinkstate.errors import StateAccessError


class Function(ABC):  # noqa: B024 - the base of all functions, abstract by intent
    """A rich function: it has a life cycle and a runtime context.

    One instance lives in each subtask. On a keyed stream it lives as long as the subtask's state;
    elsewhere it is opened and closed by every Spark task that runs it.
    """

    _runtime_context: ClassVar[RuntimeContext | None] = None

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027 - optional to override
        """Called once before the first record: the place to ask for state."""

    def close(self) -> None:  # noqa: B027 - optional to override
        """Called once after the last record."""

    def get_runtime_context(self) -> RuntimeContext:
        """Return the runtime context, from ``open`` on.

        Raises:
            StateAccessError: the function is not running.
        """
        if self._runtime_context is None:
            raise StateAccessError(
                f"{type(self).__name__} has no runtime context: it is there from open() on"
            )
        return self._runtime_context

    def set_runtime_context(self, runtime_context: RuntimeContext) -> None:
        """Called by the runtime before ``open`` (Flink: ``RichFunction.setRuntimeContext``)."""
        self.__dict__["_runtime_context"] = runtime_context


class MapFunction(Function):
    """One result for each record."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """Return the result for ``value``."""


class FlatMapFunction(Function):
    """Any number of results for each record."""

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """Return or yield the results for ``value``; None is none."""


class FilterFunction(Function):
    """Keeps or drops each record."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Return whether ``value`` is kept."""


class KeySelector(Function):
    """Gives the key of each record."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """Return the key of ``value``."""


class Partitioner(Function):
    """Says which partition the records of a key go to."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """Return a partition, from 0 to before ``num_partitions``."""


class ReduceFunction(Function):
    """Combines two values into one of the same kind."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """Combine what is stored (``value1``) with what is new (``value2``)."""


class AggregateFunction(Function):
    """Feeds values into an accumulator."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """Return a new, empty accumulator."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Return ``accumulator`` with ``value`` in it; changing it in place is allowed."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """Return the result of ``accumulator``."""

    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Return one accumulator out of two."""


class ProcessFunction(Function):
    """Any number of results for each record of a stream that is not keyed."""

    class Context(ABC):
        """What ``process_element`` knows of the record beside its value."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the record's timestamp in milliseconds, or None where it has none."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return what tells the time; timers are for streams with keys."""

    @abstractmethod
    def process_element(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results for ``value``; None is none."""


class KeyedProcessFunction(Function):
    """Any number of results for each record of a keyed stream, with keyed state."""

    class Context(ABC):
        """What ``process_element`` knows of the record beside its value."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key of the record."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the record's timestamp in milliseconds, or None where it has none."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return what tells the time and keeps timers."""

    class OnTimerContext(Context):
        """What ``on_timer`` knows beside the timer's timestamp."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return which time the timer went by."""

    @abstractmethod
    def process_element(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results for ``value``; None is none."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """A timer of the current key is due: return or yield results; None is none."""
        return None
