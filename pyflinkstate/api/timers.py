"""Timers of a keyed function (``pyflink.datastream.TimerService``, ``TimeDomain``)."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod


class TimeDomain(enum.Enum):
    """Which time a timer goes by."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class TimerService(ABC):
    """Tells the time and keeps timers of the current key. Times are milliseconds since 1970.

    A key has a timer for a timestamp once, however often it is registered. Timers are state: in
    checkpoints, and dealt out anew with the keys.

    A timestamp that is no int of 64 bits is refused with a :class:`~pyflinkstate.errors.StateValueError`.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the time of the machine."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the watermark; the least there is while nothing gives watermarks."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Have ``on_timer`` called when the machine's time is ``timestamp`` or later.

        Those that are still to come when bounded input ends do not fire, as in Flink.
        """

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Have ``on_timer`` called when the watermark is ``timestamp`` or later: as soon as it next advances.

        At the end of bounded input event time passes, and every timer that is left fires.
        """

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete the timer, if it is there."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete the timer, if it is there."""
