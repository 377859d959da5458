"""Functions that users write, rich or plain. Names are PyFlink's (``pyflink.datastream.functions``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from pyflinkstate.api.values import ACC, IN, IN1, IN2, KEY, OUT, K, K_co, S, T, V, W_co, W_contra
from pyflinkstate.errors import StateAccessError

if TYPE_CHECKING:
    from pyflinkstate.api.context import KeyedStateStore, RuntimeContext, TimeDomain, TimerService
    from pyflinkstate.api.output_tag import SideOutput
    from pyflinkstate.api.state import (
        BroadcastState,
        MapStateDescriptor,
        ReadOnlyBroadcastState,
        StateDescriptor,
    )

#: The results of a method that can be ``async def``.
Results = Iterable[T] | Awaitable[Iterable[T] | None] | AsyncIterable[T] | None


class Function(ABC):  # noqa: B024 - the base of all functions, abstract by intent
    """A rich function: it has a life cycle and a runtime context.

    One instance lives in each subtask. On a keyed stream it lives as long as the subtask's state;
    elsewhere it is opened and closed by every Spark task that runs it.
    """

    _runtime_context: ClassVar[RuntimeContext | None] = None

    def open(self, runtime_context: RuntimeContext, /) -> None:  # noqa: B027 - optional to override
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
    def map(self, value: IN, /) -> OUT:
        """Return the result for ``value``."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """Any number of results for each record."""

    @abstractmethod
    def flat_map(self, value: IN, /) -> Iterable[OUT] | None:
        """Return or yield the results for ``value``; None means no results."""


class FilterFunction(Function, Generic[IN]):
    """Keeps or drops each record."""

    @abstractmethod
    def filter(self, value: IN, /) -> bool:
        """Return whether ``value`` is kept."""


class KeySelector(Function, Generic[IN, K_co]):
    """Returns the key of each record."""

    @abstractmethod
    def get_key(self, value: IN, /) -> K_co:
        """Return the key of ``value``."""


class Partitioner(Function, Generic[KEY]):
    """Chooses the partition for the records of a key."""

    @abstractmethod
    def partition(self, key: KEY, num_partitions: int, /) -> int:
        """Return the number of a partition, from 0 to ``num_partitions`` - 1."""


class ReduceFunction(Function, Generic[T]):
    """Combines two values into one of the same kind."""

    @abstractmethod
    def reduce(self, value1: T, value2: T, /) -> T:
        """Combine the stored value (``value1``) with a new one (``value2``)."""


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """Adds values to an accumulator, from which a result is computed."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return a new, empty accumulator."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC, /) -> ACC:
        """Return ``accumulator`` with ``value`` added; it may be changed in place."""

    @abstractmethod
    def get_result(self, accumulator: ACC, /) -> OUT:
        """Return the result of ``accumulator``."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC, /) -> ACC:
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
    def process_element(self, value: IN, ctx: Context, /) -> Iterable[OUT | SideOutput] | None:
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
    def process_element(self, value: IN, ctx: Context[KEY], /) -> Results[OUT | SideOutput]:
        """Return or yield the results for ``value``; None means no results."""

    def handle_initial_state(self, value: Any, ctx: Context[KEY], /) -> None:
        """Put a row of initial state into the state of its key, which is the current key.

        It is called for each row of the DataFrame that ``keyed_process`` is given as ``initial_state``,
        before the first record. It may register timers, and emits nothing. It cannot be ``async def``. A
        function without initial state does not need it. Flink has no such method; that of Spark's
        ``StatefulProcessor`` is ``handleInitialState``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no handle_initial_state()")

    def on_timer(self, timestamp: int, ctx: OnTimerContext[KEY], /) -> Results[OUT | SideOutput]:
        """A timer of the current key is due: return or yield results; None means no results."""
        return None


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """At most one result for each record of either stream: None is no result, as in PyFlink."""

    @abstractmethod
    def map1(self, value: IN1, /) -> OUT | None:
        """Return the result for a record of the first stream; None means no result."""

    @abstractmethod
    def map2(self, value: IN2, /) -> OUT | None:
        """Return the result for a record of the second stream; None means no result."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of results for each record of either stream."""

    @abstractmethod
    def flat_map1(self, value: IN1, /) -> Iterable[OUT] | None:
        """Return or yield the results for a record of the first stream; None means no results."""

    @abstractmethod
    def flat_map2(self, value: IN2, /) -> Iterable[OUT] | None:
        """Return or yield the results for a record of the second stream; None means no results."""


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of results for each record of two streams; if these have keys, they share keyed state."""

    class Context(ProcessFunction.Context, ABC):
        """The timestamp and the timer service for a record."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: Context, /) -> Iterable[OUT | SideOutput] | None:
        """Return or yield the results for a record of the first stream; None means no results."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: Context, /) -> Iterable[OUT | SideOutput] | None:
        """Return or yield the results for a record of the second stream; None means no results."""


class KeyedCoProcessFunction(Function, Generic[KEY, IN1, IN2, OUT]):
    """Any number of results for each record of two streams with keys, which share state and timers."""

    class Context(KeyedProcessFunction.Context[K_co], ABC):
        """The timestamp and the timer service for a record."""

    class OnTimerContext(KeyedProcessFunction.OnTimerContext[K_co], Context[K_co], ABC):
        """The context of ``on_timer``."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: Context[KEY], /) -> Iterable[OUT | SideOutput] | None:
        """Return or yield the results for a record of the first stream; None means no results."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: Context[KEY], /) -> Iterable[OUT | SideOutput] | None:
        """Return or yield the results for a record of the second stream; None means no results."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext[KEY], /) -> Iterable[OUT | SideOutput] | None:
        """A timer of the current key is due: return or yield results; None means no results."""
        return None


class BaseBroadcastProcessFunction(Function):
    """The base of functions with a broadcast input."""

    class BaseContext(ABC):
        """The timestamp of a record, and the current times."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the record's timestamp in milliseconds, or None if it has none."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time: the machine's clock, in milliseconds since 1970."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark."""

    class Context(BaseContext):
        """The context of ``process_broadcast_element``."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
            """Return a broadcast state; ``StateAccessError`` if the stream was not broadcast with it."""

    class ReadOnlyContext(BaseContext):
        """The context of ``process_element``, which may only read broadcast state."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor[K, V]
        ) -> ReadOnlyBroadcastState[K, V]:
            """Return a broadcast state, for reading only."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """Combines a stream without keys with a broadcast stream, all of which every subtask sees."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: BaseBroadcastProcessFunction.ReadOnlyContext, /
    ) -> Iterable[OUT | SideOutput] | None:
        """Return or yield the results for a record that is not broadcast; None means no results."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: BaseBroadcastProcessFunction.Context, /
    ) -> Iterable[OUT | SideOutput] | None:
        """Handle a broadcast record; every subtask must handle it in the same way."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """Combines a keyed stream with a broadcast stream, all of which every subtask sees."""

    class Context(BaseBroadcastProcessFunction.Context):
        """The context of ``process_broadcast_element``."""

        @abstractmethod
        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor[S], function: Callable[[Any, S], None]
        ) -> None:
            """Call ``function(key, state)`` for every key that has an entry in a keyed state."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, Generic[K_co]):
        """The context of ``process_element``, which may only read broadcast state."""

        @abstractmethod
        def get_current_key(self) -> K_co:
            """Return the key of the record."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the service that tells the time and keeps timers."""

    class OnTimerContext(ReadOnlyContext[K_co]):
        """The context of ``on_timer``."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return whether the timer was for event time or processing time."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: ReadOnlyContext[KEY], /) -> Iterable[OUT | SideOutput] | None:
        """Return or yield the results for a record with a key; None means no results."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: Context, /) -> Iterable[OUT | SideOutput] | None:
        """Handle a broadcast record; every subtask must handle it in the same way. No key is set."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext[KEY], /) -> Iterable[OUT | SideOutput] | None:
        """A timer of the current key is due: return or yield results; None means no results."""
        return None


class WindowFunction(Function, Generic[IN, OUT, KEY, W_contra]):
    """Any number of results for the contents of a window of a key."""

    @abstractmethod
    def apply(self, key: KEY, window: W_contra, inputs: Iterable[IN], /) -> Iterable[OUT] | None:
        """Return or yield the results; None means no results.

        ``inputs`` is a list of all elements, or of the one value to which they were reduced or aggregated.
        """


class AllWindowFunction(Function, Generic[IN, OUT, W_contra]):
    """Any number of results for the contents of a window of a stream that is not keyed."""

    @abstractmethod
    def apply(self, window: W_contra, inputs: Iterable[IN], /) -> Iterable[OUT] | None:
        """Return or yield the results; see :meth:`WindowFunction.apply`."""


class _WindowContext(ABC, Generic[W_co]):
    """The base of the contexts of both process functions."""

    @abstractmethod
    def window(self) -> W_co:
        """Return the window."""

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """Return the store of state for this key and window.

        ``clear`` must clear that state. Merging windows have none: asking for it raises
        ``ConfigurationError``.
        """

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """Return the store of state for this key, which all its windows share."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W_contra]):
    """Like :class:`WindowFunction`, with access to time and state."""

    class Context(_WindowContext[W_co]):
        """The context of ``process``: the window, the current times, and state."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time in ms since 1970."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark, or the least possible one before the first."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W_contra], elements: Iterable[IN], /
    ) -> Iterable[OUT] | None:
        """Return or yield the results; None means no results.

        ``elements`` is a list of all elements, or of the one value to which they were reduced or aggregated.
        """

    def clear(self, context: ProcessWindowFunction.Context[W_contra], /) -> None:
        """The window is gone: clear the per-window state."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W_contra]):
    """Like :class:`AllWindowFunction`, with access to state."""

    class Context(_WindowContext[W_co]):
        """The context of ``process``: the window, the current times, and state."""

    @abstractmethod
    def process(
        self, context: ProcessAllWindowFunction.Context[W_contra], elements: Iterable[IN], /
    ) -> Iterable[OUT] | None:
        """Return or yield the results; see :meth:`ProcessWindowFunction.process`."""

    def clear(self, context: ProcessAllWindowFunction.Context[W_contra], /) -> None:
        """The window is gone: clear the per-window state."""
