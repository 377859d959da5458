"""The timers of the current key: what functions and windows register and delete.

Every record of many jobs registers a timer, so this file is compiled. It looks the current key up where the
states find it too.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from pyflinkstate.api import MAX_WATERMARK, NO_WATERMARK, TimerService, TypeInformation, safe_repr
from pyflinkstate.backends.bound_state import KeyContext
from pyflinkstate.backends.heap.timer_queue import TIMER_STATE_PREFIX, Timer, TimerQueue, Timestamp
from pyflinkstate.backends.types import VOID_NAMESPACE, VOID_NAMESPACE_TYPE
from pyflinkstate.errors import NoCurrentKeyError, StateValueError

if TYPE_CHECKING:
    from pyflinkstate.backends.heap.backend import HeapKeyedStateBackend

#: The bounds of a timestamp. Compiled code has them at hand here, and would look up what is imported.
_LEAST: Final = NO_WATERMARK
_GREATEST: Final = MAX_WATERMARK


class SubtaskTime:
    """The processing time and the watermark of a subtask; all that needs the time shares this object.

    Attributes:
        now_ms: returns the processing time in ms since 1970.
        watermark: the watermark, in ms since 1970.
    """

    def __init__(self, now_ms: Callable[[], int], watermark: Timestamp = _LEAST) -> None:
        self.now_ms = now_ms
        self.watermark: Timestamp = watermark


class KindOfTimers:
    """The timers of one service for one kind of time; their queue is created on first use.

    Attributes:
        queue: the queue, or None if there is none yet.
    """

    def __init__(self, name: str, backend: HeapKeyedStateBackend, namespace_type: TypeInformation) -> None:
        self._name = name
        self._backend = backend
        self._key_context: KeyContext = backend.key_context
        self._namespace_type = namespace_type
        restored = f"{TIMER_STATE_PREFIX}/{name}" in backend.registered_queues
        self.queue: TimerQueue | None = self._made() if restored else None

    def _made(self) -> TimerQueue:
        return self._backend.create_timer_queue(self._name, self._namespace_type)

    def register(self, namespace: Hashable, timestamp: Timestamp) -> None:
        """Add a timer of the current key if there is no such timer yet; it fires at ``timestamp`` or later.

        Raises:
            StateValueError: ``timestamp`` is not a 64-bit int, the only kind that a checkpoint can store.
            NoCurrentKeyError: no key is set.
        """
        context = self._key_context
        if context.map_index < 0 or type(timestamp) is not int or not _LEAST <= timestamp <= _GREATEST:
            timestamp = _accepted(context, timestamp)
        queue = self.queue
        if queue is None:
            queue = self.queue = self._made()
        queue.register(timestamp, context.key, namespace, context.map_index)

    def delete(self, namespace: Hashable, timestamp: Timestamp) -> None:
        """Delete a timer of the current key if it exists."""
        context = self._key_context
        if context.map_index < 0 or type(timestamp) is not int or not _LEAST <= timestamp <= _GREATEST:
            timestamp = _accepted(context, timestamp)
        if self.queue is not None:
            self.queue.delete(timestamp, context.key, namespace, context.map_index)

    def poll(self, until_ms: Timestamp) -> Timer | None:
        """Remove and return the first timer of any key if it is due at ``until_ms``."""
        return None if self.queue is None else self.queue.poll(until_ms)


def _accepted(context: KeyContext, timestamp: object) -> Timestamp:
    """Return a timestamp that is a whole number of another kind, such as numpy's, as an int, or raise."""
    if context.map_index >= 0 and isinstance(timestamp, numbers.Integral) and not isinstance(timestamp, bool):
        number = operator.index(timestamp)
        if _LEAST <= number <= _GREATEST:
            return number
    raise _refusal(context, timestamp)


def _refusal(context: KeyContext, timestamp: object) -> Exception:
    if context.map_index < 0:
        return NoCurrentKeyError(
            "timers belong to keys, and no key is set: they can only be set and deleted for records of "
            "keyed streams"
        )
    key, shown = safe_repr(context.key), safe_repr(timestamp)
    return StateValueError(
        f"key {key}: a timer's timestamp must be a whole number of milliseconds from -2**63 to "
        f"2**63 - 1, not {shown} ({type(timestamp).__name__})",
        key=key,
        timestamp=shown,
    )


class InternalTimerService:
    """The timers of the current key, each in a namespace (Flink: ``InternalTimerService``).

    A queue is created on first use, or if one was restored.

    Args:
        name: the name of the service, as a subtask may have several.
        backend: keeps the queues, and knows the current key.
        time: the processing time and the watermark.
        namespace_type: the type of namespaces.

    Attributes:
        event: the event-time timers.
        processing: the processing-time timers.
    """

    def __init__(
        self,
        name: str,
        backend: HeapKeyedStateBackend,
        time: SubtaskTime,
        namespace_type: TypeInformation = VOID_NAMESPACE_TYPE,
    ) -> None:
        self._time = time
        self.processing = KindOfTimers(f"processing_{name}", backend, namespace_type)
        self.event = KindOfTimers(f"event_{name}", backend, namespace_type)

    def current_processing_time(self) -> int:
        """Return the processing time in ms since 1970."""
        return self._time.now_ms()

    def current_watermark(self) -> int:
        """Return the watermark; the least 64-bit int before the first one."""
        watermark: int = self._time.watermark
        return watermark

    def next_processing_time_ms(self) -> int | None:
        """Return when the next processing-time timer is due, or None if there is none."""
        queue = self.processing.queue
        first: int | None = None if queue is None else queue.first_timestamp()
        return first


class UserTimerService:
    """The timer service of user functions, whose timers have no namespace.

    See :class:`~pyflinkstate.api.context.TimerService`, whose subclass it is registered as; inheriting from
    it would make compiled code slow.
    """

    def __init__(self, timers: InternalTimerService) -> None:
        self._timers = timers

    def current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def current_watermark(self) -> int:
        return self._timers.current_watermark()

    def register_processing_time_timer(self, timestamp: Timestamp) -> None:
        self._timers.processing.register(VOID_NAMESPACE, timestamp)

    def delete_processing_time_timer(self, timestamp: Timestamp) -> None:
        self._timers.processing.delete(VOID_NAMESPACE, timestamp)

    def register_event_time_timer(self, timestamp: Timestamp) -> None:
        self._timers.event.register(VOID_NAMESPACE, timestamp)

    def delete_event_time_timer(self, timestamp: Timestamp) -> None:
        self._timers.event.delete(VOID_NAMESPACE, timestamp)


TimerService.register(UserTimerService)
