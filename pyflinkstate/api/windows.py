"""Windows, and the types by which they are namespaces of state (``pyflink.datastream.window``).

A window is a value: hashable, comparable and never changed. It is the namespace under which its state is
kept, so it must be found again after a restore; its type says how it is written.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Generic, TypeAlias

import attrs

from pyflinkstate.api.basic_types import TypeInformation, misfit
from pyflinkstate.api.checks import as_int, safe_repr
from pyflinkstate.api.interval import Interval
from pyflinkstate.api.time import LengthOfTime, milliseconds_of
from pyflinkstate.api.values import Reduced, TypedValue, W

#: Flink's ``Long.MIN_VALUE``: as a timestamp it means that there is no timestamp.
MIN_LONG_VALUE = -(2**63)
#: Flink's ``Long.MAX_VALUE``: the end of time.
MAX_LONG_VALUE = 2**63 - 1

_START_AND_END = operator.attrgetter("start", "end")

#: A length of time; a plain int is in milliseconds.
Length: TypeAlias = LengthOfTime | int


def length_ms(length: Length) -> int:
    """Return a length of time in whole milliseconds.

    Raises:
        ConfigurationError: ``length`` is not a length of time.
    """
    whole = as_int(length)
    return milliseconds_of(length) if whole is None else whole  # type: ignore[arg-type]


class MergeCallback(ABC, Generic[W]):
    """Called with the windows to merge into one (``MergingWindowAssigner.MergeCallback``)."""

    @abstractmethod
    def merge(self, to_be_merged: Iterable[W], merge_result: W) -> None:
        """Merge the windows ``to_be_merged`` into ``merge_result``.

        Lists are concatenated in the order of ``to_be_merged``.
        """


class Window(ABC):
    """A bucket of elements.

    A user-defined class must be hashable, comparable with ``==`` and, if it has no type of its own,
    picklable.
    """

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """Return the last timestamp that still belongs to the window, in ms since 1970."""


class TimeWindow(Interval, Window):
    """The time from ``start`` (included) to ``end`` (excluded), in ms since 1970.

    >>> TimeWindow(0, 10).max_timestamp(), TimeWindow(0, 10) < TimeWindow(0, 20)
    (9, True)
    """

    __slots__ = ()
    __match_args__ = ("start", "end")

    if TYPE_CHECKING:

        def __init__(self, start: int, end: int) -> None: ...

        @property
        def start(self) -> int:
            """The first timestamp of the window."""

        @property
        def end(self) -> int:
            """The end, which no longer belongs to the window."""

    else:
        start = property(operator.attrgetter("from_ms"), doc="The first timestamp of the window.")
        end = property(operator.attrgetter("to_ms"), doc="The end, which no longer belongs to the window.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(start={self.start!r}, end={self.end!r})"

    def __reduce__(self) -> Reduced:
        return type(self), (self.start, self.end)

    def __setstate__(self, state: dict[str, int]) -> None:
        """Read what earlier versions pickled."""
        Interval.__init__(self, state["start"], state["end"])

    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Return whether the windows overlap, or one begins where the other ends."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that covers both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Return the start of the window that contains ``timestamp``.

        >>> TimeWindow.get_window_start_with_offset(8, 3, 7)
        3
        """
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: MergeCallback[TimeWindow]) -> None:
        """Call ``callback`` for each group of windows that overlap or touch, in the order of time."""
        groups: list[tuple[TimeWindow, list[TimeWindow]]] = []
        for window in sorted(set(windows), key=_START_AND_END):
            if groups and groups[-1][0].intersects(window):
                cover, together = groups[-1]
                groups[-1] = (cover.cover(window), [*together, window])
            else:
                groups.append((window, [window]))
        for cover, together in groups:
            if len(together) > 1:
                callback.merge(together, cover)


@attrs.frozen(order=True)
class CountWindow(Window):
    """A window of a number of elements; ``id`` counts from 0 for each key. It lasts until the end of time."""

    id: int

    def max_timestamp(self) -> int:
        return MAX_LONG_VALUE


@attrs.frozen(order=True, repr=False)
class GlobalWindow(Window):
    """The one window for all elements of a key. It lasts until the end of time."""

    @staticmethod
    def get() -> GlobalWindow:
        """Return the window."""
        return _GLOBAL_WINDOW

    def max_timestamp(self) -> int:
        return MAX_LONG_VALUE

    def __repr__(self) -> str:
        return "GlobalWindow"


_GLOBAL_WINDOW = GlobalWindow()


@attrs.frozen
class WindowSerializer(TypeInformation):
    """The base of the types of windows.

    They refuse subclasses of a window, which a restore would not give back.
    """

    window_class: ClassVar[type[Window]]
    spelled: ClassVar[str]

    @property
    def name(self) -> str:
        return self.spelled

    def check(self, value: TypedValue) -> TypedValue:
        if type(value) is not self.window_class:
            raise misfit(value, self.name)
        return value


def _is_long(value: object) -> bool:
    return type(value) is int and MIN_LONG_VALUE <= value <= MAX_LONG_VALUE


@attrs.frozen
class TimeWindowSerializer(WindowSerializer):
    """The type of :class:`TimeWindow`: two 64-bit integers."""

    window_class = TimeWindow
    spelled = "TIME_WINDOW"

    def check(self, value: TypedValue) -> TypedValue:
        if type(value) is not TimeWindow:
            raise misfit(value, self.name)
        if not (_is_long(value.start) and _is_long(value.end)):
            raise ValueError(f"{safe_repr(value)} does not begin and end at 64-bit integers")
        return value


@attrs.frozen
class CountWindowSerializer(WindowSerializer):
    """The type of :class:`CountWindow`: a 64-bit integer."""

    window_class = CountWindow
    spelled = "COUNT_WINDOW"

    def check(self, value: TypedValue) -> TypedValue:
        if type(value) is not CountWindow or not _is_long(value.id):
            raise misfit(value, self.name)
        return value


@attrs.frozen
class GlobalWindowSerializer(WindowSerializer):
    """The type of :class:`GlobalWindow`."""

    window_class = GlobalWindow
    spelled = "GLOBAL_WINDOW"
