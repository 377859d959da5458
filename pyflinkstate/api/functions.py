"""Functions that users write, rich or plain. Names are PyFlink's (``pyflink.datastream.functions``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Awaitable, Iterable
from typing import ClassVar, Generic

from pyflinkstate.api.context import RuntimeContext
from pyflinkstate.api.output_tag import SideOutput
from pyflinkstate.api.timers import TimeDomain, TimerService
from pyflinkstate.api.type_variables import ACC, IN, KEY, OUT, K_co, T
from pyflinkstate.api.values import Record
from pyflinkstate.errors import StateAccessError

#: The results of a method that can be ``async def``.
Results = Iterable[T] | Awaitable[Iterable[T] | None] | AsyncIterable[T] | None


class Function(ABC):  # noqa: B024 - the base of all functions, abstract by intent
    """A rich function: it has a life cycle and a runtime context.

    One instance lives in each subtask. On a keyed stream it lives as long as the subtask's state;
    elsewhere it is opened and closed by every Spark task that runs it.
    """

    _runtime_context: ClassVar[RuntimeContext | None] = None

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027 - optional to override
        """Called once before the first record. This is the place to ask for state."""

    def close(self) -> None:  # noqa: B027 - optional to override
        """Called once after the last record."""

    def get_runtime_context(self) -> RuntimeContext:
        """Return the runtime context, which is available from ``open`` on, and in ``initialize_state``.

        Raises:
            StateAccessError: the function is not running.
        """
        if self._runtime_context is None:
            raise StateAccessError(f"{type(self).__name__} has no runtime context: it has one from open() on")
        return self._runtime_context

    def set_runtime_context(self, runtime_context: RuntimeContext) -> None:
        """Called by the runtime before everything else (Flink: ``RichFunction.setRuntimeContext``)."""
        self.__dict__["_runtime_context"] = runtime_context


class MapFunction(Function, Generic[IN, OUT]):
    """One result for each record."""

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """Return the result for ``value``."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """Any number of results for each record."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT] | None:
        """Return or yield the results for ``value``; None means no results."""


class FilterFunction(Function, Generic[IN]):
    """Keeps or drops each record."""

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """Return whether ``value`` is kept."""


class KeySelector(Function, Generic[IN, K_co]):
    """Returns the key of each record."""

    @abstractmethod
    def get_key(self, value: IN) -> K_co:
        """Return the key of ``value``."""


class Partitioner(Function, Generic[KEY]):
    """Chooses the partition for the records of a key."""

    @abstractmethod
    def partition(self, key: KEY, num_partitions: int) -> int:
        """Return the number of a partition, from 0 to ``num_partitions`` - 1."""


class ReduceFunction(Function, Generic[T]):
    """Combines two values into one of the same kind."""

    @abstractmethod
    def reduce(self, value1: T, value2: T) -> T:
        """Combine the stored value (``value1``) with a new one (``value2``)."""


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """Adds values to an accumulator, from which a result is computed."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return a new, empty accumulator."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """Return ``accumulator`` with ``value`` added; it may be changed in place."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """Return the result of ``accumulator``."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Return two accumulators merged into one."""


class ProcessFunction(Function, Generic[IN, OUT]):
    """Any number of results for each record of a stream that is not keyed."""

    class Context(ABC):
        """The context of ``process_element``."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the record's timestamp in milliseconds, or None if it has none."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the service that tells the time; timers need a keyed stream."""

    @abstractmethod
    def process_element(self, value: IN, ctx: Context) -> Iterable[OUT | SideOutput] | None:
        """Return or yield the results for ``value``; None means no results."""


class KeyedProcessFunction(Function, Generic[KEY, IN, OUT]):
    """Any number of results for each record of a keyed stream, with keyed state.

    ``process_element`` and ``on_timer`` can be ``async def``, with ``yield`` or with ``return``. While one
    record waits, the subtask processes records of up to 100 other keys. It processes the records of one key
    one after the other. It waits for all records in flight before timers, watermarks and barriers.
    """

    class Context(ABC, Generic[K_co]):
        """The context of ``process_element``."""

        @abstractmethod
        def get_current_key(self) -> K_co:
            """Return the key of the record."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the record's timestamp in milliseconds, or None if it has none."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the service that tells the time and keeps timers."""

    class OnTimerContext(Context[K_co]):
        """The context of ``on_timer``."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return whether the timer was for event time or processing time."""

    @abstractmethod
    def process_element(self, value: IN, ctx: Context[KEY]) -> Results[OUT | SideOutput]:
        """Return or yield the results for ``value``; None means no results."""

    def handle_initial_state(self, value: Record, ctx: Context[KEY]) -> None:
        """Put a row of initial state into the state of its key, which is the current key.

        It is called for each row of the DataFrame that ``keyed_process`` is given as ``initial_state``,
        before the first record. It may register timers, and emits nothing. It cannot be ``async def``. A
        function without initial state does not need it. Flink has no such method; that of Spark's
        ``StatefulProcessor`` is ``handleInitialState``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no handle_initial_state()")

    def on_timer(self, timestamp: int, ctx: OnTimerContext[KEY]) -> Results[OUT | SideOutput]:
        """A timer of the current key is due: return or yield results; None means no results."""
        return None
