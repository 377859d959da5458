"""Functions over a stream and one that is broadcast (``pyflink.datastream.functions``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from pyflinkstate.api.descriptors import MapStateDescriptor, StateDescriptor
from pyflinkstate.api.functions import Function
from pyflinkstate.api.state import BroadcastState, ReadOnlyBroadcastState
from pyflinkstate.api.timers import TimeDomain, TimerService


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
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
            """Return a broadcast state that the stream was broadcast with; else ``StateAccessError``."""

    class ReadOnlyContext(BaseContext):
        """What ``process_element`` is given."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> ReadOnlyBroadcastState[Any, Any]:
            """Return a broadcast state, to be read."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction):
    """A stream without keys meets one that every subtask sees all of."""

    @abstractmethod
    def process_element(
        self, value: Any, ctx: BaseBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any] | None:
        """Return or yield the results for a record of the stream that is not broadcast; None is none."""

    @abstractmethod
    def process_broadcast_element(
        self, value: Any, ctx: BaseBroadcastProcessFunction.Context
    ) -> Iterable[Any] | None:
        """Take a broadcast record, on every subtask in the same way."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction):
    """A stream with keys meets one that every subtask sees all of."""

    class Context(BaseBroadcastProcessFunction.Context):
        """What ``process_broadcast_element`` is given."""

        @abstractmethod
        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], None]
        ) -> None:
            """Call ``function(key, state)`` for every key that has an entry of a keyed state."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """What ``process_element`` is given."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key of the record."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return what tells the time and keeps timers."""

    class OnTimerContext(ReadOnlyContext):
        """What ``on_timer`` is given."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return which time the timer went by."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ReadOnlyContext) -> Iterable[Any] | None:
        """Return or yield the results for a record with a key; None is none."""

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Take a broadcast record, on every subtask in the same way. No key is set."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """A timer of the current key is due: return or yield results; None is none."""
        return None
