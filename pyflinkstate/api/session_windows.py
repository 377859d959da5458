"""Sessions: windows that end after a gap without elements, and merge when an element closes the gap."""

from __future__ import annotations

import numbers
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable

from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import Record
from pyflinkstate.api.window_assigners import (
    ByEventTime,
    ByProcessingTime,
    MergingWindowAssigner,
    TimeSource,
    WindowAssigner,
)
from pyflinkstate.api.windows import Length, MergeCallback, TimeWindow, TimeWindowSerializer, length_ms
from pyflinkstate.errors import BadRecordError, ConfigurationError


class SessionWindowTimeGapExtractor(ABC):
    """Returns the gap that ends a session, for each element."""

    @abstractmethod
    def extract(self, element: Record) -> int:
        """Return the gap after ``element`` in ms; it must be positive."""


class _Sessions(TimeSource, MergingWindowAssigner[Record, TimeWindow]):
    """The base of all kinds of sessions."""

    def merge_windows(self, windows: Iterable[TimeWindow], callback: MergeCallback[TimeWindow]) -> None:
        TimeWindow.merge_windows(windows, callback)

    def get_window_serializer(self) -> TypeInformation:
        return TimeWindowSerializer()


class _StaticSessions(_Sessions):
    """Sessions that end after a fixed gap without elements."""

    def __init__(self, session_gap: Length) -> None:
        self._session_gap = length_ms(session_gap)
        if self._session_gap <= 0:
            raise ConfigurationError(
                f"{type(self).__name__} parameters must satisfy 0 < size, not a gap of {self._session_gap} ms"
            )

    def assign_windows(
        self, element: Record, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        time = self._time(timestamp, context)
        return [TimeWindow(time, time + self._session_gap)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session_gap})"


class _DynamicSessions(_Sessions):
    """Sessions whose gap depends on the element."""

    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        if not callable(getattr(session_window_time_gap_extractor, "extract", None)):
            raise ConfigurationError(
                f"{type(self).__name__}: a SessionWindowTimeGapExtractor is needed, not "
                f"{session_window_time_gap_extractor!r}"
            )
        self._extractor = session_window_time_gap_extractor

    def assign_windows(
        self, element: Record, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        time = self._time(timestamp, context)
        return [TimeWindow(time, time + self._gap(element))]

    def _gap(self, element: Record) -> int:
        gap: object = self._extractor.extract(element)
        if not isinstance(gap, numbers.Integral) or isinstance(gap, bool) or gap <= 0:
            raise BadRecordError(
                f"{self!r}: a session's gap is a positive number of milliseconds, and "
                f"{type(self._extractor).__name__}.extract() gave {safe_repr(gap)}"
            )
        return operator.index(gap)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._extractor).__name__})"


class EventTimeSessionWindows(ByEventTime, _StaticSessions):
    """Sessions: windows that end after a ``session_gap`` of event time without elements.

    An element at the very end of a session still belongs to it.

    Raises:
        ConfigurationError: the gap is not positive.
    """

    @staticmethod
    def with_gap(size: Length) -> EventTimeSessionWindows:
        """Return an assigner."""
        return EventTimeSessionWindows(size)

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows:
        """Return an assigner whose gap depends on the element."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(ByProcessingTime, _StaticSessions):
    """Like :class:`EventTimeSessionWindows`, in processing time."""

    @staticmethod
    def with_gap(size: Length) -> ProcessingTimeSessionWindows:
        """Return an assigner."""
        return ProcessingTimeSessionWindows(size)

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows:
        """Return an assigner whose gap depends on the element."""
        return DynamicProcessingTimeSessionWindows(extractor)


class DynamicEventTimeSessionWindows(ByEventTime, _DynamicSessions):
    """Sessions in event time whose gap depends on the element. A gap that is not positive is a bad record."""

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows:
        """Return an assigner."""
        return DynamicEventTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(ByProcessingTime, _DynamicSessions):
    """Like :class:`DynamicEventTimeSessionWindows`, in processing time."""

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows:
        """Return an assigner."""
        return DynamicProcessingTimeSessionWindows(extractor)


def session_gap_of(assigner: WindowAssigner) -> int | Callable[[Record], int] | None:
    """Return the gap, in ms, of the sessions of a built-in event-time assigner, or None for other assigners.

    It is a function of the element if each has its own. The runtime need not ask an assigner about which
    this is known. A subclass may assign other windows.
    """
    if type(assigner) is EventTimeSessionWindows:
        return assigner._session_gap
    if type(assigner) is DynamicEventTimeSessionWindows:
        return assigner._gap
    return None
