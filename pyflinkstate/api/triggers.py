"""Triggers: when a window's contents go to its function, and when they are dropped (``Trigger``)."""

from __future__ import annotations

import enum
import operator
from abc import ABC, abstractmethod
from typing import Any, Generic

from pyflinkstate.api.checks import check_kind, positive
from pyflinkstate.api.metrics import MetricGroup
from pyflinkstate.api.state import ReducingState, ReducingStateDescriptor, StateDescriptor
from pyflinkstate.api.types import Types
from pyflinkstate.api.values import IN, Record, S, T, W, W_contra
from pyflinkstate.api.windows import Length, TimeWindow, Window, length_ms
from pyflinkstate.errors import BadRecordError, ConfigurationError


class TriggerResult(enum.Enum):
    """What to do with a window: nothing, call its function, drop its contents, or both.

    A window without contents does not fire.
    """

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Return whether the window function is called."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Return whether the contents are dropped."""
        return self.value[1]


class Trigger(ABC, Generic[IN, W_contra]):
    """Decides for each window of each key when it fires.

    One object serves all keys and windows of a subtask, so a trigger keeps what it must remember in the state
    of the context. For merging windows ``can_merge`` must return True, and ``on_merge`` must merge the state.
    """

    class TriggerContext(ABC):
        """Time, timers and state of the current key and window."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in ms since 1970."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """Return the operator's metrics."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the watermark, or the least possible one before the first."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Call ``on_processing_time`` when the processing time is ``time`` or later."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Call ``on_event_time`` when the watermark is ``time`` or later."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Delete the timer if there is one."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Delete the timer if there is one."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor[S]) -> S:
            """Return state of the current key and window. It shares its names with per-window state."""

    class OnMergeContext(TriggerContext):
        """The context of ``on_merge``."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge the state of the windows that were merged into that of the resulting window.

            Raises:
                ConfigurationError: the state is not a list, reducing or aggregating state.
            """

    @abstractmethod
    def on_element(
        self, element: IN, timestamp: int, window: W_contra, ctx: Trigger.TriggerContext, /
    ) -> TriggerResult:
        """An element was added to the window. ``timestamp`` is None if it has none."""

    @abstractmethod
    def on_processing_time(
        self, time: int, window: W_contra, ctx: Trigger.TriggerContext, /
    ) -> TriggerResult:
        """A processing-time timer is due."""

    @abstractmethod
    def on_event_time(self, time: int, window: W_contra, ctx: Trigger.TriggerContext, /) -> TriggerResult:
        """An event-time timer is due."""

    def can_merge(self) -> bool:
        """Return whether the trigger works with merging windows."""
        return False

    @abstractmethod
    def on_merge(self, window: W_contra, ctx: Trigger.OnMergeContext, /) -> None:
        """Several windows are now one, ``window``: merge their state and register its timers.

        Afterwards ``clear`` is called for each of the windows that were merged.
        """

    @abstractmethod
    def clear(self, window: W_contra, ctx: Trigger.TriggerContext, /) -> None:
        """The window is gone: delete timers and clear state."""


class QuietTrigger(Trigger[Any, W_contra]):
    """A trigger whose methods do nothing unless they are overridden."""

    def on_element(
        self, element: Record, timestamp: int, window: W_contra, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: W_contra, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: W_contra, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: W_contra, ctx: Trigger.OnMergeContext) -> None:
        """Do nothing."""

    def clear(self, window: W_contra, ctx: Trigger.TriggerContext) -> None:
        """Do nothing."""


class NeverTrigger(QuietTrigger[Window]):
    """Never fires. This is the default trigger of global windows."""


class EventTimeTrigger(QuietTrigger[TimeWindow]):
    """Fires when the watermark passes the end of the window, and after that for each late element."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """Return a trigger."""
        return EventTimeTrigger()

    def on_element(
        self, element: Record, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        # If the watermark has passed the end, the element that merged the windows makes the window fire.
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(QuietTrigger[TimeWindow]):
    """Fires when the processing time passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """Return a trigger."""
        return ProcessingTimeTrigger()

    def on_element(
        self, element: Record, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


class CountTrigger(QuietTrigger[Window]):
    """Fires after every ``window_size`` elements; the window keeps all of them.

    Raises:
        ConfigurationError: ``window_size`` is not a positive int.
    """

    def __init__(self, window_size: int) -> None:
        self._window_size = positive("CountTrigger: the window size", window_size)
        self._count_state_descriptor = ReducingStateDescriptor("count", operator.add, Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """Return a trigger."""
        return CountTrigger(window_size)

    def on_element(
        self, element: Record, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        count = ctx.get_partitioned_state(self._count_state_descriptor)
        count.add(1)
        if (count.get() or 0) < self._window_size:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._count_state_descriptor)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self._count_state_descriptor).clear()


class PurgingTrigger(Trigger[T, W]):
    """Drops a window's contents whenever another trigger makes it fire."""

    def __init__(self, nested_trigger: Trigger[T, W]) -> None:
        check_kind("PurgingTrigger: a trigger is needed", nested_trigger, Trigger)
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[T, W]) -> PurgingTrigger[T, W]:
        """Return a trigger."""
        return PurgingTrigger(nested_trigger)

    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        self.nested_trigger.clear(window, ctx)


def purges_at_end(trigger: Trigger) -> bool | None:
    """Return whether a window is purged when it fires at its end, or None for other triggers.

    The runtime need not ask a trigger about which this is known: the built-in event-time trigger, alone or
    in a :class:`PurgingTrigger`. A subclass may decide otherwise.
    """
    if type(trigger) is EventTimeTrigger:
        return False
    if type(trigger) is PurgingTrigger and type(trigger.nested_trigger) is EventTimeTrigger:
        return True
    return None


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result


class _ContinuousTrigger(QuietTrigger[Window]):
    """The base of both continuous triggers: the time of the next firing is state."""

    def __init__(self, interval: Length) -> None:
        self.interval = length_ms(interval)
        if self.interval <= 0:
            raise ConfigurationError(
                f"{type(self).__name__}: the interval must be positive, not {self.interval} ms"
            )
        self.state_desc = ReducingStateDescriptor("fire-time", min, Types.LONG())

    def can_merge(self) -> bool:
        return True

    def _fire_time(self, ctx: Trigger.TriggerContext) -> ReducingState[int]:
        state: ReducingState[int] = ctx.get_partitioned_state(self.state_desc)
        return state

    def _is_due(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> bool:
        """Return whether the next firing is due at ``time``; if so, set the one after it."""
        fire_time = self._fire_time(ctx)
        if fire_time.get() != time:
            return False
        fire_time.clear()
        self.register_next_fire_timestamp(time, window, ctx, fire_time)
        return True

    def register_next_fire_timestamp(
        self,
        time: int,
        window: Window,
        ctx: Trigger.TriggerContext,
        fire_timestamp_state: ReducingState[int],
    ) -> None:
        """Fire next one interval after ``time``, or at the end of the window if that is earlier."""
        next_fire_timestamp = min(time + self.interval, window.max_timestamp())
        fire_timestamp_state.add(next_fire_timestamp)
        self._register(next_fire_timestamp, ctx)

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.state_desc)
        next_fire_timestamp = self._fire_time(ctx).get()
        if next_fire_timestamp is not None:
            self._register(next_fire_timestamp, ctx)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        fire_time = self._fire_time(ctx)
        next_fire_timestamp = fire_time.get()
        if next_fire_timestamp is not None:
            self._delete(next_fire_timestamp, ctx)
            fire_time.clear()

    @abstractmethod
    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        """Register a timer of the trigger's kind of time."""

    @abstractmethod
    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None:
        """Delete a timer of the trigger's kind of time."""


class ContinuousEventTimeTrigger(_ContinuousTrigger):
    """Fires whenever the watermark has passed another ``interval``, and at the end of the window.

    Intervals begin at multiples of their length, not with the window.

    Args:
        interval: a length of time; a plain int is in milliseconds.
    """

    @staticmethod
    def of(interval: Length) -> ContinuousEventTimeTrigger:
        """Return a trigger."""
        return ContinuousEventTimeTrigger(interval)

    def on_element(
        self, element: Record, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        fire_time = self._fire_time(ctx)
        if fire_time.get() is None:
            if timestamp is None:
                raise BadRecordError("ContinuousEventTimeTrigger needs timestamps, and the record has none")
            self.register_next_fire_timestamp(timestamp - timestamp % self.interval, window, ctx, fire_time)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        if time == window.max_timestamp() or self._is_due(time, window, ctx):
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        # Flink leaves the timer at the end of a window that was merged; it finds no window when it is due.
        ctx.delete_event_time_timer(window.max_timestamp())
        super().clear(window, ctx)

    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_event_time_timer(time)

    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(time)


class ContinuousProcessingTimeTrigger(_ContinuousTrigger):
    """Fires whenever another ``interval`` is over by the machine's time, and at the end of the window.

    Intervals begin at multiples of their length, not with the window.

    Args:
        interval: a length of time; a plain int is in milliseconds.
    """

    @staticmethod
    def of(interval: Length) -> ContinuousProcessingTimeTrigger:
        """Return a trigger."""
        return ContinuousProcessingTimeTrigger(interval)

    def on_element(
        self, element: Record, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        fire_time = self._fire_time(ctx)
        if fire_time.get() is None:
            now = ctx.get_current_processing_time()
            self.register_next_fire_timestamp(now - now % self.interval, window, ctx, fire_time)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if self._is_due(time, window, ctx) else TriggerResult.CONTINUE

    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_processing_time_timer(time)

    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(time)
