"""Processing-time timers of one subtask."""

from __future__ import annotations

from collections.abc import Callable

from pyflinkstate.api.timers import TimerService
from pyflinkstate.backends.heap.backend import TIMER_STATE_PREFIX, HeapKeyedStateBackend
from pyflinkstate.backends.heap.timer_queue import Timer, TimerQueue
from pyflinkstate.errors import StateValueError, UnsupportedFeatureError

#: Flink's name of a user's timers that go by processing time.
QUEUE = "processing_user-timers"
#: Flink's ``Long.MIN_VALUE``: no watermark has come.
NO_WATERMARK = -(2**63)


class ProcessingTimeService(TimerService):
    """See :class:`~pyflinkstate.api.timers.TimerService`. The queue is made when it is first needed."""

    def __init__(self, backend: HeapKeyedStateBackend, now_ms: Callable[[], int]) -> None:
        self._backend = backend
        self._now_ms = now_ms
        restored = f"{TIMER_STATE_PREFIX}/{QUEUE}" in backend.registered_queues
        self._queue = backend.create_timer_queue(QUEUE) if restored else None

    def current_processing_time(self) -> int:
        return self._now_ms()

    def current_watermark(self) -> int:
        return NO_WATERMARK

    def register_processing_time_timer(self, timestamp: int) -> None:
        timer, key_group = self._timer(timestamp)
        self._made().add(timer, key_group)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        timer, key_group = self._timer(timestamp)
        if self._queue is not None:
            self._queue.remove(timer, key_group)

    def register_event_time_timer(self, timestamp: int) -> None:
        raise _no_event_time()

    def delete_event_time_timer(self, timestamp: int) -> None:
        raise _no_event_time()

    def _timer(self, timestamp: int) -> tuple[Timer, int]:
        if type(timestamp) is not int:
            raise StateValueError(f"a timer's timestamp is a whole number of milliseconds, not {timestamp!r}")
        key = self._backend.get_current_key()
        return Timer(
            timestamp, key
        ), self._backend.key_context.map_index + self._backend.key_group_range.start

    def _made(self) -> TimerQueue:
        if self._queue is None:
            self._queue = self._backend.create_timer_queue(QUEUE)
        return self._queue

    def take_due(self, now_ms: int) -> Timer | None:
        """Take out the first timer that is due at ``now_ms``."""
        return None if self._queue is None else self._queue.poll(now_ms)

    def next_ms(self) -> int | None:
        """Return when the next timer is due; None without timers."""
        first = None if self._queue is None else self._queue.peek()
        return None if first is None else first.timestamp_ms


def _no_event_time() -> UnsupportedFeatureError:
    return UnsupportedFeatureError("this version has no event time, and so no timers that go by it")
