"""Functions over a stream and one that is broadcast (``pyflink.datastream.functions``)."""

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
    """What the functions with a broadcast input share."""

    class BaseContext(ABC):
        """What the function knows of the record beside its value."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the record's timestamp in milliseconds, or None where it has none."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the time of the machine, in milliseconds since 1970."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark."""

    class Context(BaseContext):
        """What ``process_broadcast_element`` is given."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
            """Return a broadcast state that the stream was broadcast with; else ``StateAccessError``."""

    class ReadOnlyContext(BaseContext):
        """What ``process_element`` is given."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor[K, V]
        ) -> ReadOnlyBroadcastState[K, V]:
            """Return a broadcast state, to be read."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """A stream without keys meets one that every subtask sees all of."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: BaseBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[OUT | SideOutput] | None:
        """Return or yield the results for a record of the stream that is not broadcast; None is none."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: BaseBroadcastProcessFunction.Context
    ) -> Iterable[OUT | SideOutput] | None:
        """Take a broadcast record, on every subtask in the same way."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """A stream with keys meets one that every subtask sees all of."""

    class Context(BaseBroadcastProcessFunction.Context):
        """What ``process_broadcast_element`` is given."""

        @abstractmethod
        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor[S], function: Callable[[Any, S], None]
        ) -> None:
            """Call ``function(key, state)`` for every key that has an entry of a keyed state."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, Generic[K_co]):
        """What ``process_element`` is given."""

        @abstractmethod
        def get_current_key(self) -> K_co:
            """Return the key of the record."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return what tells the time and keeps timers."""

    class OnTimerContext(ReadOnlyContext[K_co]):
        """What ``on_timer`` is given."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return which time the timer went by."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: ReadOnlyContext[KEY]) -> Iterable[OUT | SideOutput] | None:
        """Return or yield the results for a record with a key; None is none."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: Context) -> Iterable[OUT | SideOutput] | None:
        """Take a broadcast record, on every subtask in the same way. No key is set."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext[KEY]) -> Iterable[OUT | SideOutput] | None:
        """A timer of the current key is due: return or yield results; None is none."""
        return None
