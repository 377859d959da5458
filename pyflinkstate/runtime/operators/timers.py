"""The event-time and processing-time timers of one subtask."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import attrs

from pyflinkstate.api.timers import TimerService
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.backends.heap import TIMER_STATE_PREFIX, HeapKeyedStateBackend, Timer, TimerQueue
from pyflinkstate.backends.types import VOID_NAMESPACE, VOID_NAMESPACE_TYPE
from pyflinkstate.errors import NoCurrentKeyError, StateValueError
from pyflinkstate.runtime.wire import MAX_WATERMARK, NO_WATERMARK, shorten

__all__ = ["MAX_WATERMARK", "NO_WATERMARK", "InternalTimerService", "SubtaskTime", "UserTimerService"]

#: Flink's names for the timer services of user functions and of windows.
USER_TIMERS = "user-timers"
WINDOW_TIMERS = "window-timers"


@attrs.define
class SubtaskTime:
    """The processing time and the watermark of a subtask; all that needs the time shares this object."""

    #: Returns the processing time in ms since 1970.
    now_ms: Callable[[], int]
    watermark: int = NO_WATERMARK


class InternalTimerService:
    """The timers of the current key, each in a namespace (Flink: ``InternalTimerService``).

    A queue is created on first use, or if one was restored.

    Args:
        name: the name of the service, as a subtask may have several.
        backend: keeps the queues, and knows the current key.
        time: the processing time and the watermark.
        namespace_type: the type of namespaces.
    """

    def __init__(
        self,
        name: str,
        backend: HeapKeyedStateBackend,
        time: SubtaskTime,
        namespace_type: TypeInformation = VOID_NAMESPACE_TYPE,
    ) -> None:
        self._backend = backend
        self._time = time
        self._processing = _Timers(f"processing_{name}", backend, namespace_type)
        self._event = _Timers(f"event_{name}", backend, namespace_type)

    def current_processing_time(self) -> int:
        """Return the processing time in ms since 1970."""
        return self._time.now_ms()

    def current_watermark(self) -> int:
        """Return the watermark; :data:`NO_WATERMARK` before the first one."""
        return self._time.watermark

    def register_processing_time_timer(self, namespace: Hashable, timestamp: int) -> None:
        """Let a timer fire when the processing time is ``timestamp`` or later.

        Raises:
            StateValueError: ``timestamp`` is not a 64-bit int, the only kind that a checkpoint can store.
            NoCurrentKeyError: no key is set.
        """
        self._processing.add(self._timer(namespace, timestamp))

    def delete_processing_time_timer(self, namespace: Hashable, timestamp: int) -> None:
        """Delete a timer if it exists."""
        self._processing.remove(self._timer(namespace, timestamp))

    def register_event_time_timer(self, namespace: Hashable, timestamp: int) -> None:
        """Let a timer fire when the watermark is ``timestamp`` or later.

        Raises:
            StateValueError: ``timestamp`` is not a 64-bit int, the only kind that a checkpoint can store.
            NoCurrentKeyError: no key is set.
        """
        self._event.add(self._timer(namespace, timestamp))

    def delete_event_time_timer(self, namespace: Hashable, timestamp: int) -> None:
        """Delete a timer if it exists."""
        self._event.remove(self._timer(namespace, timestamp))

    def _timer(self, namespace: Hashable, timestamp: int) -> Timer:
        if self._backend.key_context.map_index < 0:
            raise NoCurrentKeyError(
                "timers belong to keys, and no key is set: they can only be set and deleted for records of "
                "keyed streams"
            )
        key = self._backend.get_current_key()
        if type(timestamp) is not int or not NO_WATERMARK <= timestamp <= MAX_WATERMARK:
            raise _unfit(timestamp, key)
        return Timer(timestamp, key, namespace)

    def take_processing_time(self, now_ms: int) -> Timer | None:
        """Remove and return the first processing-time timer that is due at ``now_ms``."""
        return self._processing.take(now_ms)

    def take_event_time(self, watermark: int) -> Timer | None:
        """Remove and return the first event-time timer that is due at ``watermark``."""
        return self._event.take(watermark)

    def next_processing_time_ms(self) -> int | None:
        """Return when the next processing-time timer is due, or None if there is none."""
        return self._processing.first()


def _unfit(timestamp: object, key: Hashable) -> StateValueError:
    return StateValueError(
        f"key {shorten(key)}: a timer's timestamp must be a whole number of milliseconds from -2**63 to "
        f"2**63 - 1, not {shorten(timestamp)} ({type(timestamp).__name__})",
        key=shorten(key),
        timestamp=shorten(timestamp),
    )


class _Timers:
    """One timer queue, which is created on first use."""

    def __init__(self, name: str, backend: HeapKeyedStateBackend, namespace_type: TypeInformation) -> None:
        self._name = name
        self._backend = backend
        self._namespace_type = namespace_type
        restored = f"{TIMER_STATE_PREFIX}/{name}" in backend.registered_queues
        self._queue = self._made() if restored else None

    def _made(self) -> TimerQueue:
        return self._backend.create_timer_queue(self._name, self._namespace_type)

    def add(self, timer: Timer) -> None:
        if self._queue is None:
            self._queue = self._made()
        self._queue.add(timer, self._current_key_group())

    def remove(self, timer: Timer) -> None:
        if self._queue is not None:
            self._queue.remove(timer, self._current_key_group())

    def _current_key_group(self) -> int:
        return self._backend.key_context.map_index + self._backend.key_group_range.start

    def take(self, time: int) -> Timer | None:
        return None if self._queue is None else self._queue.poll(time)

    def first(self) -> int | None:
        first = None if self._queue is None else self._queue.peek()
        return None if first is None else first.timestamp_ms


class UserTimerService(TimerService):
    """The timer service of user functions, whose timers have no namespace."""

    def __init__(self, timers: InternalTimerService) -> None:
        self._timers = timers

    def current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def current_watermark(self) -> int:
        return self._timers.current_watermark()

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._timers.register_processing_time_timer(VOID_NAMESPACE, timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._timers.delete_processing_time_timer(VOID_NAMESPACE, timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        self._timers.register_event_time_timer(VOID_NAMESPACE, timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._timers.delete_event_time_timer(VOID_NAMESPACE, timestamp)
