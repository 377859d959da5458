"""Functions over a stream and a broadcast stream (``pyflink.datastream.functions``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic

from pyflinkstate.api.descriptors import MapStateDescriptor, StateDescriptor
from pyflinkstate.api.functions import Function
from pyflinkstate.api.output_tag import SideOutput
from pyflinkstate.api.state import BroadcastState, ReadOnlyBroadcastState
from pyflinkstate.api.timers import TimeDomain, TimerService
from pyflinkstate.api.type_variables import IN1, IN2, KEY, OUT, K, K_co, S, V


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
        self, value: IN1, ctx: BaseBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[OUT | SideOutput] | None:
        """Return or yield the results for a record that is not broadcast; None means no results."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: BaseBroadcastProcessFunction.Context
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
    def process_element(self, value: IN1, ctx: ReadOnlyContext[KEY]) -> Iterable[OUT | SideOutput] | None:
        """Return or yield the results for a record with a key; None means no results."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: Context) -> Iterable[OUT | SideOutput] | None:
        """Handle a broadcast record; every subtask must handle it in the same way. No key is set."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext[KEY]) -> Iterable[OUT | SideOutput] | None:
        """A timer of the current key is due: return or yield results; None means no results."""
        return None
