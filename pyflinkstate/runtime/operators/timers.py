"""The event-time and processing-time timers of one subtask, most of which is compiled in the heap backend."""

from __future__ import annotations

from pyflinkstate.backends.heap import InternalTimerService, KindOfTimers, SubtaskTime, UserTimerService
from pyflinkstate.runtime.wire import MAX_WATERMARK, NO_WATERMARK

__all__ = [
    "MAX_WATERMARK",
    "NO_WATERMARK",
    "USER_TIMERS",
    "WINDOW_TIMERS",
    "InternalTimerService",
    "KindOfTimers",
    "SubtaskTime",
    "UserTimerService",
]

#: Flink's names for the timer services of user functions and of windows.
USER_TIMERS = "user-timers"
WINDOW_TIMERS = "window-timers"
