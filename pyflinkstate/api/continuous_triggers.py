"""Triggers that fire again and again before a window ends."""

from __future__ import annotations

from pyflinkstate.api.descriptors import ReducingStateDescriptor
from pyflinkstate.api.functions import ReduceFunction
from pyflinkstate.api.state import ReducingState
from pyflinkstate.api.triggers import QuietTrigger, Trigger, TriggerResult
from pyflinkstate.api.types import Types
from pyflinkstate.api.values import Record
from pyflinkstate.api.windows import Length, Window, length_ms
from pyflinkstate.errors import BadRecordError, ConfigurationError


class Min(ReduceFunction):
    """Returns the lesser of two values."""

    def reduce(self, value1: int, value2: int) -> int:
        return min(value1, value2)


class _ContinuousTrigger(QuietTrigger[Window]):
    """The base of both continuous triggers: the time of the next firing is state."""

    def __init__(self, interval: Length) -> None:
        self.interval = length_ms(interval)
        if self.interval <= 0:
            raise ConfigurationError(
                f"{type(self).__name__}: the interval must be positive, not {self.interval} ms"
            )
        self.state_desc = ReducingStateDescriptor("fire-time", Min(), Types.LONG())

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

    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        raise NotImplementedError

    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None:
        raise NotImplementedError


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
