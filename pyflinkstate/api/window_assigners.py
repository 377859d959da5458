"""Window assigners: which windows an element belongs to (``pyflink.datastream.window``).

Sizes, slides, offsets and gaps are ``Time``, ``Duration`` or ``timedelta``; a plain int is in milliseconds.
"""

from __future__ import annotations

import numbers
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Any, Generic

from pyflinkstate.api.checks import positive, safe_repr
from pyflinkstate.api.context import RuntimeContext
from pyflinkstate.api.state import ValueStateDescriptor
from pyflinkstate.api.triggers import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
)
from pyflinkstate.api.types import TypeInformation, Types
from pyflinkstate.api.values import Record, T, W
from pyflinkstate.api.windows import (
    MIN_LONG_VALUE,
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    Length,
    MergeCallback as WindowMergeCallback,
    TimeWindow,
    TimeWindowSerializer,
    length_ms,
)
from pyflinkstate.errors import BadRecordError, ConfigurationError


class WindowAssigner(ABC, Generic[T, W]):
    """Assigns windows to elements."""

    class WindowAssignerContext(ABC):
        """The context of an assigner."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in ms since 1970; it is fixed while one element is handled."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """Return the runtime context, which provides state of the current key."""

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext, /
    ) -> Collection[W]:
        """Return the windows of ``element``, or an empty list to drop it.

        ``timestamp`` is in ms since 1970, or None if the element has none.
        """

    @abstractmethod
    def get_default_trigger(self, env: object, /) -> Trigger:
        """Return the trigger of windows for which none is set. ``env`` may be None."""

    @abstractmethod
    def get_window_serializer(self) -> TypeInformation:
        """Return the type of the windows; it cannot change once there is state."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Return whether windows end by event time, so that elements can be late."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows can be merged, such as sessions."""

    MergeCallback = WindowMergeCallback

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: WindowMergeCallback[W], /) -> None:
        """Call ``callback`` for each group of ``windows`` to be merged into one."""


class TimeSource:
    """The part of an assigner that determines the time of an element, and so has windows of time."""

    def get_window_serializer(self) -> TypeInformation:
        return TimeWindowSerializer()

    @abstractmethod
    def _time(self, timestamp: int | None, context: WindowAssigner.WindowAssignerContext) -> int:
        """Return the time in ms since 1970, or raise ``BadRecordError`` if the element has none."""


class ByEventTime(TimeSource):
    """The part of an assigner that uses timestamps."""

    def is_event_time(self) -> bool:
        return True

    def get_default_trigger(self, env: object) -> Trigger:
        return EventTimeTrigger()

    def _time(self, timestamp: int | None, context: WindowAssigner.WindowAssignerContext) -> int:
        if timestamp is None or timestamp <= MIN_LONG_VALUE:
            raise BadRecordError(
                f"{self!r} needs timestamps, and the record has none: call "
                f"assign_timestamps_and_watermarks() before key_by(), or use processing-time windows"
            )
        return timestamp


class ByProcessingTime(TimeSource):
    """The part of an assigner that uses processing time."""

    def is_event_time(self) -> bool:
        return False

    def get_default_trigger(self, env: object) -> Trigger:
        return ProcessingTimeTrigger()

    def _time(self, timestamp: int | None, context: WindowAssigner.WindowAssignerContext) -> int:
        return context.get_current_processing_time()


class _TumblingWindows(TimeSource, WindowAssigner[Any, TimeWindow]):
    """The base of both kinds of tumbling windows."""

    def __init__(self, size: Length, offset: Length = 0) -> None:
        self._size = length_ms(size)
        self._offset = length_ms(offset)
        if abs(self._offset) >= self._size:
            raise ConfigurationError(
                f"{type(self).__name__} parameters must satisfy abs(offset) < size, not size "
                f"{self._size} ms, offset {self._offset} ms"
            )

    def assign_windows(
        self, element: Record, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        time = self._time(timestamp, context)
        start = time - (time - self._offset) % self._size
        return [TimeWindow(start, start + self._size)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size}, {self._offset})"


class TumblingEventTimeWindows(ByEventTime, _TumblingWindows):
    """Windows of a fixed size that follow each other without a gap, in event time.

    Args:
        size: the length of a window.
        offset: how long after 1970 a window begins; less than ``size``. Default: 0.

    Raises:
        ConfigurationError: the offset is not less than the size.
    """

    @staticmethod
    def of(size: Length, offset: Length | None = None) -> TumblingEventTimeWindows:
        """Return an assigner."""
        return TumblingEventTimeWindows(size, 0 if offset is None else offset)


class TumblingProcessingTimeWindows(ByProcessingTime, _TumblingWindows):
    """Like :class:`TumblingEventTimeWindows`, in processing time."""

    @staticmethod
    def of(size: Length, offset: Length | None = None) -> TumblingProcessingTimeWindows:
        """Return an assigner."""
        return TumblingProcessingTimeWindows(size, 0 if offset is None else offset)


class _SlidingWindows(TimeSource, WindowAssigner[Any, TimeWindow]):
    """The base of both kinds of sliding windows."""

    def __init__(self, size: Length, slide: Length, offset: Length = 0) -> None:
        self._size = length_ms(size)
        self._slide = length_ms(slide)
        self._offset = length_ms(offset)
        if abs(self._offset) >= self._slide or self._size <= 0:
            raise ConfigurationError(
                f"{type(self).__name__} parameters must satisfy abs(offset) < slide and size > 0, not size "
                f"{self._size} ms, slide {self._slide} ms, offset {self._offset} ms"
            )

    def assign_windows(
        self, element: Record, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        time = self._time(timestamp, context)
        last_start = time - (time - self._offset) % self._slide
        starts = range(last_start, time - self._size, -self._slide)
        return [TimeWindow(start, start + self._size) for start in starts]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size}, {self._slide}, {self._offset})"


class SlidingEventTimeWindows(ByEventTime, _SlidingWindows):
    """Windows of a fixed size, one of which begins every ``slide``, in event time.

    They overlap if ``slide`` is less than ``size``; if it is greater, elements between them are dropped.

    Args:
        size: the length of a window.
        slide: the time from the beginning of one window to that of the next.
        offset: how long after 1970 a window begins; less than ``slide``. Default: 0.

    Raises:
        ConfigurationError: the size is not positive, or the offset is not less than the slide.
    """

    @staticmethod
    def of(size: Length, slide: Length, offset: Length | None = None) -> SlidingEventTimeWindows:
        """Return an assigner."""
        return SlidingEventTimeWindows(size, slide, 0 if offset is None else offset)


class SlidingProcessingTimeWindows(ByProcessingTime, _SlidingWindows):
    """Like :class:`SlidingEventTimeWindows`, in processing time."""

    @staticmethod
    def of(size: Length, slide: Length, offset: Length | None = None) -> SlidingProcessingTimeWindows:
        """Return an assigner."""
        return SlidingProcessingTimeWindows(size, slide, 0 if offset is None else offset)


def alignment_of(assigner: WindowAssigner) -> tuple[int, int, int] | None:
    """Return size, slide and offset, in ms, of the windows of a built-in event-time assigner, or None.

    Tumbling windows slide by their size. The runtime need not ask an assigner about which this is known. A
    subclass may assign other windows.
    """
    if type(assigner) is TumblingEventTimeWindows:
        return assigner._size, assigner._size, assigner._offset
    if type(assigner) is SlidingEventTimeWindows:
        return assigner._size, assigner._slide, assigner._offset
    return None


class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """One window for all elements of a key. Set a trigger: the default one never fires."""

    @staticmethod
    def create() -> GlobalWindows:
        """Return an assigner."""
        return GlobalWindows()

    def assign_windows(
        self, element: Record, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: object) -> Trigger:
        return NeverTrigger()

    def get_window_serializer(self) -> TypeInformation:
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "GlobalWindows()"


class _CountWindows(WindowAssigner[Any, CountWindow]):
    """The base of both kinds of count windows: state that counts the elements of each key."""

    _window_size: int
    _count_descriptor: ValueStateDescriptor

    def _next_number(self, context: WindowAssigner.WindowAssignerContext) -> int:
        """Return how many elements of the key came before this one."""
        count = context.get_runtime_context().get_state(self._count_descriptor)
        number: int = count.value() or 0
        count.update(number + 1)
        return number

    def get_default_trigger(self, env: object) -> Trigger:
        return PurgingTrigger(CountTrigger(self._window_size))

    def get_window_serializer(self) -> TypeInformation:
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        return False


class CountTumblingWindowAssigner(_CountWindows):
    """Windows of ``window_size`` elements of a key, one after the other.

    A window is never used again once it has fired, so it is purged then. PyFlink keeps its elements for ever.
    """

    def __init__(self, window_size: int) -> None:
        self._window_size = positive("CountTumblingWindowAssigner: the window size", window_size)
        self._count_descriptor = ValueStateDescriptor("tumble-count-assigner", Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Return an assigner."""
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(
        self, element: Record, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        return [CountWindow(self._next_number(context) // self._window_size)]

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self._window_size})"


class CountSlidingWindowAssigner(_CountWindows):
    """Windows of ``window_size`` elements of a key, one beginning every ``window_slide`` elements.

    The first window fires when it is full, as in PyFlink; Java's ``countWindow(size, slide)`` already fires
    after the first ``slide`` elements. Windows are purged like those of :class:`CountTumblingWindowAssigner`.
    """

    def __init__(self, window_size: int, window_slide: int) -> None:
        self._window_size = positive("CountSlidingWindowAssigner: the window size", window_size)
        self._window_slide = positive("CountSlidingWindowAssigner: the slide", window_slide)
        self._count_descriptor = ValueStateDescriptor("slide-count-assigner", Types.LONG())

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Return an assigner."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: Record, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        number = self._next_number(context)
        last = number // self._window_slide
        # Window n has the elements from n * slide up to, but not including, n * slide + size.
        first = max(0, (number - self._window_size) // self._window_slide + 1)
        return [CountWindow(window_id) for window_id in range(last, first - 1, -1)]

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner({self._window_size}, {self._window_slide})"


class SessionWindowTimeGapExtractor(ABC):
    """Returns the gap that ends a session, for each element."""

    @abstractmethod
    def extract(self, element: Record, /) -> int:
        """Return the gap after ``element`` in ms; it must be positive."""


class _Sessions(TimeSource, MergingWindowAssigner[Any, TimeWindow]):
    """The base of all kinds of sessions."""

    def merge_windows(self, windows: Iterable[TimeWindow], callback: WindowMergeCallback[TimeWindow]) -> None:
        TimeWindow.merge_windows(windows, callback)


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


def session_gap_of(assigner: WindowAssigner) -> int | Callable[[Any], int] | None:
    """Return the gap, in ms, of the sessions of a built-in event-time assigner, or None for other assigners.

    It is a function of the element if each has its own. The runtime need not ask an assigner about which
    this is known. A subclass may assign other windows.
    """
    if type(assigner) is EventTimeSessionWindows:
        return assigner._session_gap
    if type(assigner) is DynamicEventTimeSessionWindows:
        return assigner._gap
    return None
