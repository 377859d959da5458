"""Timers of a keyed function (``pyflink.datastream.TimerService``, ``TimeDomain``)."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod


class TimeDomain(enum.Enum):
    """The kind of time that a timer is for."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class TimerService(ABC):
    """Provides the time and the timers of the current key. Times are milliseconds since 1970.

    A key has at most one timer for a timestamp, however often it is registered. Timers are state: they are
    part of checkpoints, and move with their keys when the parallelism changes.

    A timestamp that is not a 64-bit int is refused with a :class:`~pyflinkstate.errors.StateValueError`.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the processing time: the machine's clock."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the watermark, or the least possible one as long as no watermark has arrived."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call ``on_timer`` when the processing time is ``timestamp`` or later.

        Timers that are not yet due when bounded input ends do not fire, as in Flink.
        """

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call ``on_timer`` when the watermark next advances and is then ``timestamp`` or later.

        At the end of bounded input the watermark passes all timestamps, and every remaining timer fires.
        """

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete the timer if there is one."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete the timer if there is one."""
