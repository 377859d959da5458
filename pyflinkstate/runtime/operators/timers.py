"""The event-time and processing-time timers of one subtask, most of which is compiled in the heap backend."""

from __future__ import annotations

from collections.abc import Callable

from pyflinkstate.api.context import TimerService
from pyflinkstate.backends.heap import InternalTimerService, KindOfTimers, SubtaskTime, UserTimerService
from pyflinkstate.errors import NotKeyedStreamError
from pyflinkstate.runtime.wire import MAX_WATERMARK, NO_WATERMARK, TaskTime

__all__ = [
    "MAX_WATERMARK",
    "NO_WATERMARK",
    "USER_TIMERS",
    "WINDOW_TIMERS",
    "InternalTimerService",
    "KeylessTimerService",
    "KindOfTimers",
    "SubtaskTime",
    "UserTimerService",
]

#: Flink's names for the timer services of user functions and of windows.
USER_TIMERS = "user-timers"
WINDOW_TIMERS = "window-timers"


class KeylessTimerService(TimerService):
    """The timer service of a stream without keys: it has the time and no timers, as in Flink.

    Args:
        time: has the watermark.
        now_ms: returns the processing time in ms since 1970.
    """

    def __init__(self, time: TaskTime | SubtaskTime, now_ms: Callable[[], int]) -> None:
        self._time = time
        self._now_ms = now_ms

    def current_processing_time(self) -> int:
        return self._now_ms()

    def current_watermark(self) -> int:
        watermark: int = self._time.watermark
        return watermark

    def _refuse(self, timestamp: int) -> None:
        raise NotKeyedStreamError("timers belong to keys: they can only be set and deleted after key_by()")

    register_processing_time_timer = _refuse
    register_event_time_timer = _refuse
    delete_processing_time_timer = _refuse
    delete_event_time_timer = _refuse
