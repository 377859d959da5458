"""The fast way of tumbling and sliding event-time windows that fire at their end.

Elements take it in frames. Everything that the general way finds out for each element, and that is the same
for all elements of a window, is found out once for each window: its object, its end, the time of its
clean-up, and that it fits the type of namespaces. These are a *pane*, which is found by the start of the
window, a number. Contents are reached with one call, and no trigger is asked, because it is known what
``EventTimeTrigger`` says:

* The watermark does not change within a frame, so whether a window is late is a comparison of two numbers.
* A window that is not over has a timer at its end and one at its clean-up. Both are set when it gets its
  first contents, and no event-time timer is deleted before it fires. So they are there already if there are
  contents. Restored contents may come from a program with another trigger or lateness; for their windows
  timers are set with each element, as the general way does.
* When a window is cleaned up the timer at its end has fired, so ``EventTimeTrigger.clear`` finds nothing to
  delete.

An element that is out of the ordinary (no timestamp, a value of None, a time near the bounds of 64 bits)
takes the general way. Both ways keep the same state, so each element is free to take either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pyflinkstate.api.interval import Interval
from pyflinkstate.api.values import AnyWindow
from pyflinkstate.api.windows import MAX_LONG_VALUE
from pyflinkstate.backends.bound_state import KeyContext
from pyflinkstate.backends.heap.heap_state import HeapState
from pyflinkstate.runtime.operators.windows.window_results import WindowResults

#: Times beyond these take the general way, so that a time plus a length is a 64-bit integer.
EARLIEST_MS: Final = -(2**61)
LATEST_MS: Final = 2**61

#: When this many panes are known all are forgotten. Each that is still in use is made again.
MAX_PANES: Final = 4096


class Pane:
    """One window, for all keys."""

    __slots__ = ("cleanup_ms", "end_ms", "is_checked", "is_restored", "window")

    def __init__(self, window: AnyWindow, end_ms: int, cleanup_ms: int, is_restored: bool) -> None:
        self.window = window
        #: The last timestamp of the window.
        self.end_ms = end_ms
        self.cleanup_ms = cleanup_ms
        #: Whether there may be contents from before a restore.
        self.is_restored = is_restored
        #: Whether the window is known to fit the type of namespaces.
        self.is_checked = False


class AlignedWindows:
    """Runs frames of elements, and fires windows.

    Args:
        results: the contents of windows, and their results.
        key_context: the current key.
        operator: the window operator, for what is rare.
        timers: the timer service.
        make_window: makes a window of start and end.
        alignment: size, slide and offset of the windows in ms; the first two are equal if windows tumble.
        lateness_ms: how long after its end a window accepts late elements.
        purges: whether contents are dropped when a window fires.
        restored: the windows that had contents before a restore.
    """

    __slots__ = (
        "_contents",
        "_key_context",
        "_lateness_ms",
        "_make_window",
        "_offset",
        "_operator",
        "_panes",
        "_position",
        "_purges",
        "_register",
        "_restored",
        "_results",
        "_size",
        "_slide",
        "_timers",
    )

    def __init__(
        self,
        results: WindowResults,
        key_context: KeyContext,
        operator: Any,
        timers: Any,
        make_window: Callable[[int, int], AnyWindow],
        alignment: tuple[int, int, int],
        lateness_ms: int,
        purges: bool,
        restored: set[AnyWindow],
    ) -> None:
        self._results = results
        self._contents: HeapState = results.contents
        self._key_context = key_context
        self._operator = operator
        self._timers = timers
        self._register: Callable[[Any, int], Any] = timers.register_event_time_timer
        self._make_window = make_window
        self._size, self._slide, self._offset = alignment
        self._lateness_ms = lateness_ms
        self._purges = purges
        self._restored = restored
        self._panes: dict[int, Pane] = {}
        self._position = -1

    def run(
        self, records: tuple[Sequence[Any], Sequence[Any], Sequence[Any], Sequence[Any]], output: Any
    ) -> None:
        """Put the elements of a frame into their windows.

        Args:
            records: columns of the same length: the indexes of the keys' maps, keys, values, and timestamps.
            output: takes the results of windows that fire at once.
        """
        key_context, general = self._key_context, self._operator.process_element
        indexes, keys, values, timestamps = records
        watermark: int = self._timers.current_watermark()
        self._position = -1
        for index, key, value, timestamp in zip(indexes, keys, values, timestamps):  # noqa: B905
            self._position += 1
            key_context.select(key, index)
            if type(timestamp) is not int or value is None:
                general(value, timestamp, output)
                continue
            time: int = timestamp
            if time < EARLIEST_MS or time > LATEST_MS:
                general(value, timestamp, output)
            elif self._put(value, time, watermark, output):
                self._operator.refuse_late(value, time, output)

    def under_way(self, *columns: Sequence[Any]) -> list[Any]:
        """Return each column's entry for the record that ``run`` was processing; None before the first."""
        at = self._position
        return [column[at] if at >= 0 else None for column in columns]

    def _put(self, value: Any, time: int, watermark: int, output: Any) -> bool:
        """Add an element to its windows; return whether all are late, and the element too."""
        slide, before = self._slide, time - self._size
        start = time - (time - self._offset) % slide
        is_skipped = True
        while start > before:
            pane = self._panes.get(start)
            if pane is None:
                pane = self._new_pane(start)
            if pane.cleanup_ms > watermark:
                is_skipped = False
                self._add(pane, value, watermark, output)
            start -= slide
        return is_skipped and time + self._lateness_ms <= watermark

    def _new_pane(self, start: int) -> Pane:
        if len(self._panes) >= MAX_PANES:
            self._panes.clear()
        window = self._make_window(start, start + self._size)
        end_ms = start + self._size - 1
        pane = Pane(window, end_ms, end_ms + self._lateness_ms, window in self._restored)
        self._panes[start] = pane
        return pane

    def _add(self, pane: Pane, value: Any, watermark: int, output: Any) -> None:
        window = pane.window
        if not pane.is_checked:
            self._contents.set_current_namespace(window)
            pane.is_checked = True
        sets_timers = self._contents.add_in(window, value) or pane.is_restored
        if pane.end_ms <= watermark:
            self._emit(pane.window, pane.end_ms, output, not self._purges)
        elif sets_timers:
            self._register(window, pane.end_ms)
        if sets_timers and self._lateness_ms != 0:
            self._register(window, pane.cleanup_ms)

    def _emit(self, window: AnyWindow, end_ms: int, output: Any, stays: bool) -> None:
        self._results.emit(window, window, end_ms, output, stays)
        if self._purges:
            self._contents.clear_in(window)

    def fire(self, timestamp_ms: int, window: Interval, output: Any) -> None:
        """Handle an event-time timer of the current key."""
        end: int = window.to_ms
        end_ms = end - 1
        is_last = timestamp_ms == min(end_ms + self._lateness_ms, MAX_LONG_VALUE)
        if timestamp_ms == end_ms:
            self._emit(window, end_ms, output, not (is_last or self._purges))
        if is_last:
            self._contents.clear_in(window)
            self._operator.clear_function(window)
