"""The fast way of event-time windows that fire at their end: tumbling, sliding, and sessions.

Elements take it in frames. Contents are reached with one call, and no trigger is asked, because it is known
what ``EventTimeTrigger`` says. An element that is out of the ordinary (no timestamp, a value of None, a time
near the bounds of 64 bits) takes the general way, which is the window operator's. Both ways keep the same
state, so each element is free to take either.

Every record of such a window goes through this file, so it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pyflinkstate.api import MAX_LONG_VALUE, AnyWindow, OutputTag
from pyflinkstate.api.interval import Interval
from pyflinkstate.backends.bound_state import KeyContext
from pyflinkstate.backends.heap.heap_state import HeapState
from pyflinkstate.backends.heap.timer_queue import TimerQueue
from pyflinkstate.backends.heap.timer_service import InternalTimerService, KindOfTimers
from pyflinkstate.backends.values.isolation import isolated

#: Times and lengths beyond these take the general way, so that a time plus a length is a 64-bit integer.
EARLIEST_MS: Final = -(2**61)
LATEST_MS: Final = 2**61

#: When this many panes are known all are forgotten. Each that is still in use is made again.
MAX_PANES: Final = 4096

#: Stand for the index of a session: the element touches none, or it must take the general way.
NONE: Final = -1
GENERAL: Final = -2

#: Window and state window. The length is left open: mypyc would take each pair apart and check both.
Pair = tuple[Any, ...]


class FastWindows:
    """Runs frames of elements, and fires windows.

    Args:
        operator: the window operator, which is open.
        make_window: makes a window of start and end.
        purges: whether contents are dropped when a window fires.

    Attributes:
        event_timers: the timers at the ends of windows.
    """

    def __init__(self, operator: Any, make_window: Callable[[int, int], AnyWindow], purges: bool) -> None:
        running = operator.running
        self._operator = operator
        self._make_window = make_window
        self._purges = purges
        self._lateness_ms: int = operator.allowed_lateness_ms
        self._is_list: bool = operator.contents.is_list
        self._evaluate: Any = operator.evaluate
        self._given_by: object = operator.given_by
        self._context: Any = running.context
        self._contents: HeapState = running.contents
        self._key_context: KeyContext = running.key_context
        self._timers: InternalTimerService = running.timers
        self.event_timers: KindOfTimers = running.timers.event
        self._watermark: int = 0
        self._position = -1

    def run(
        self,
        records: tuple[Sequence[Any], Sequence[object], Sequence[object], Sequence[object]],
        output: object,
    ) -> None:
        """Put the elements of a frame into their windows.

        Args:
            records: columns of the same length: the indexes of the keys' maps, keys, values, and timestamps.
            output: takes the results of windows that fire at once.
        """
        key_context, general = self._key_context, self._operator.process_element
        indexes, keys, values, timestamps = records
        self._watermark = self._timers.current_watermark()
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
            else:
                self._put(value, time, output)

    def under_way(self, *columns: Sequence[object]) -> list[object]:
        """Return each column's entry for the record that ``run`` was processing; None before the first."""
        at = self._position
        return [column[at] if at >= 0 else None for column in columns]

    def _put(self, value: object, time: int, output: object) -> None:
        """Put an element into its windows."""
        raise NotImplementedError

    def fire_until(self, queue: TimerQueue, watermark: int, output: object) -> None:
        """Fire the event-time timers that are due, in order; ``queue`` tells which was the last."""
        key_context = self._key_context
        while queue.take(watermark):
            key_context.select(queue.key, queue.map_index)
            window: Any = queue.namespace
            self._handle(queue.timestamp_ms, window, output)

    def _handle(self, timestamp_ms: int, window: Interval, output: object) -> None:
        """Handle an event-time timer of the current key."""
        raise NotImplementedError

    def _fire(
        self, timestamp_ms: int, window: Interval, state_window: AnyWindow, end_ms: int, output: object
    ) -> bool:
        """Fire a window at its end and clear it when its lateness is over; return whether it is."""
        is_last = timestamp_ms == min(end_ms + self._lateness_ms, MAX_LONG_VALUE)
        if timestamp_ms == end_ms:
            self._emit(window, state_window, end_ms, output, is_last)
        if is_last:
            self._contents.clear_in(state_window)
            self._operator.clear_function(window)
        return is_last

    def _emit(
        self, window: AnyWindow, state_window: AnyWindow, end_ms: int, output: object, is_last: bool
    ) -> None:
        """Emit the result of a window for the current key, if it has contents.

        Args:
            window: the window that fires.
            state_window: the window under which its contents are.
            end_ms: the last timestamp of the window.
            output: takes the results.
            is_last: whether the contents are dropped next.
        """
        stored = self._contents.result_in(state_window)
        if stored is not None:
            self._collect(window, stored, end_ms, output, not (is_last or self._purges))
        if self._purges:
            self._contents.clear_in(state_window)

    def _collect(self, window: AnyWindow, stored: Any, end_ms: int, output: Any, stays: bool) -> None:
        """Emit what the window function makes of contents, or the reduced or aggregated value itself."""
        if self._evaluate is not None:
            self._context.bind(window)
            elements = list(stored) if self._is_list else [isolated(stored) if stays else stored]
            results = self._evaluate(self._key_context.key, self._context, elements)
            output.collect(results, end_ms, self._given_by)
        elif OutputTag.exists:
            output.collect([stored], end_ms)
        else:
            output.values.append(isolated(stored))
            output.timestamps.append(end_ms)


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


class AlignedWindows(FastWindows):
    """Tumbling and sliding windows.

    Everything that the general way finds out for each element, and that is the same for all elements of a
    window, is found out once for each window: its object, its end, the time of its clean-up, and that it fits
    the type of namespaces. These are a *pane*, which is found by the start of the window, a number.

    * The watermark does not change within a frame, so two numbers tell whether a window is late.
    * A window that is not over has a timer at its end and one at its clean-up. Both are set when it gets its
      first contents, and no event-time timer is deleted before it fires. So they are there already if there
      are contents. Restored contents may come from a program with another trigger or lateness; for their
      windows timers are set with each element, as the general way does.
    * When a window is cleaned up the timer at its end has fired, so ``EventTimeTrigger.clear`` finds nothing
      to delete.

    Args:
        alignment: size, slide and offset of the windows in ms; the first two are equal if windows tumble.
        restored: the windows that had contents before a restore.
    """

    def __init__(
        self,
        operator: object,
        make_window: Callable[[int, int], AnyWindow],
        purges: bool,
        alignment: tuple[int, int, int],
        restored: set[AnyWindow],
    ) -> None:
        super().__init__(operator, make_window, purges)
        self._size, self._slide, self._offset = alignment
        self._restored = restored
        self._panes: dict[int, Pane] = {}

    def _put(self, value: object, time: int, output: object) -> None:
        slide, before, watermark = self._slide, time - self._size, self._watermark
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
        if is_skipped and time + self._lateness_ms <= watermark:
            self._operator.refuse_late(value, time, output)

    def _new_pane(self, start: int) -> Pane:
        if len(self._panes) >= MAX_PANES:
            self._panes.clear()
        window = self._make_window(start, start + self._size)
        end_ms = start + self._size - 1
        pane = Pane(window, end_ms, end_ms + self._lateness_ms, window in self._restored)
        self._panes[start] = pane
        return pane

    def _add(self, pane: Pane, value: object, watermark: int, output: object) -> None:
        window = pane.window
        if not pane.is_checked:
            self._contents.set_current_namespace(window)
            pane.is_checked = True
        sets_timers = self._contents.add_in(window, value) or pane.is_restored
        if pane.end_ms <= watermark:
            self._emit(window, window, pane.end_ms, output, False)
        elif sets_timers:
            self.event_timers.register(window, pane.end_ms)
        if sets_timers and self._lateness_ms != 0:
            self.event_timers.register(window, pane.cleanup_ms)

    def _handle(self, timestamp_ms: int, window: Interval, output: object) -> None:
        end: int = window.to_ms
        self._fire(timestamp_ms, window, window, end - 1, output)


class SessionWindows(FastWindows):
    """Sessions.

    What a key has in flight is a short list of pairs, window and state window, which is the state of
    ``MergingWindowSet``. Three things can happen to an element whose window, from its time to the end of the
    gap after it, is laid beside those in flight:

    * It touches none: it is a session of its own.
    * It lies in one: that session stays as it is, and so do its timers.
    * It touches one and goes beyond it: the session grows. Its pair is replaced, its contents stay under the
      same state window, and its timers move to the new end.

    An element that touches several merges them: it takes the general way. Timers are set before old ones are
    deleted, because the general way does so.

    Windows in flight lie apart, as windows that touch have been merged, and are in order, so what an element
    touches is found by halving. Those that were restored are looked at first: they may come from another
    assigner, or from Flink.

    Args:
        gap_ms: the gap, or a function that returns it for an element.
        in_flight: the list state of pairs.
        is_restored: whether there may be sessions from before a restore.
    """

    def __init__(
        self,
        operator: object,
        make_window: Callable[[int, int], AnyWindow],
        purges: bool,
        gap_ms: int | Callable[[object], int],
        in_flight: HeapState,
        is_restored: bool,
    ) -> None:
        super().__init__(operator, make_window, purges)
        self._gap_ms: int = gap_ms if isinstance(gap_ms, int) else 0
        self._gap_of: Any = None if isinstance(gap_ms, int) else gap_ms
        self._in_flight = in_flight
        self._is_restored = is_restored

    def _put(self, value: object, time: int, output: object) -> None:
        gap_ms = self._gap_ms
        if self._gap_of is not None:
            gap_ms = self._gap_of(value)
        end = time + gap_ms
        pairs: list[Pair] | None = self._in_flight.get_internal()
        touched = NONE if pairs is None else self._touched(pairs, time, end)
        if touched == GENERAL or gap_ms > LATEST_MS:
            self._operator.process_assigned([self._make_window(time, end)], value, time, output)
        elif pairs is None or touched == NONE:
            self._begin(pairs, value, time, end, output)
        else:
            self._join(pairs, touched, value, time, end, output)

    def _touched(self, pairs: list[Pair], start: int, end: int) -> int:
        """Return the index of the session that an element touches, or :data:`NONE`, or :data:`GENERAL`."""
        if self._is_restored and not _are_in_order(pairs):
            return GENERAL
        at = _number_up_to(pairs, end) - 1
        if at < 0:
            return NONE
        window_end: int = pairs[at][0].to_ms
        if window_end < start:
            return NONE
        last = window_end if window_end > end else end
        # A session that is over is still there only if a program with another lateness left it.
        if last - 1 + self._lateness_ms <= self._watermark:
            return GENERAL
        return at if at == 0 or pairs[at - 1][0].to_ms < start else GENERAL

    def _begin(self, pairs: list[Pair] | None, value: object, time: int, end: int, output: object) -> None:
        """Begin a session, unless it is over already."""
        if end - 1 + self._lateness_ms <= self._watermark:
            if time + self._lateness_ms <= self._watermark:
                self._operator.refuse_late(value, time, output)
            return
        window = self._make_window(time, end)
        self._contents.set_current_namespace(window)
        if pairs is None:
            self._in_flight.update_internal([(window, window)])
        else:
            pairs.insert(_number_up_to(pairs, time), (window, window))
        self._contents.add_in(window, value)
        self._set_timers(window, window, end - 1, output)

    def _join(self, pairs: list[Pair], at: int, value: object, time: int, end: int, output: object) -> None:
        """Add an element to the session at an index of ``pairs``, which may grow."""
        pair = pairs[at]
        window: Interval = pair[0]
        state_window: AnyWindow = pair[1]
        window_start: int = window.from_ms
        window_end: int = window.to_ms
        if window_start <= time and window_end >= end:
            self._contents.add_in(state_window, value)
            if window_end - 1 <= self._watermark or self._is_restored:
                self._set_timers(window, state_window, window_end - 1, output)
            return
        start = window_start if window_start < time else time
        if window_end > end:
            end = window_end
        grown = self._make_window(start, end)
        if end - 1 > self._watermark:
            self.event_timers.register(grown, end - 1)
        self.event_timers.delete(window, window_end - 1)
        if self._lateness_ms != 0:
            self.event_timers.delete(window, window_end - 1 + self._lateness_ms)
        pairs[at] = (grown, state_window)
        self._contents.add_in(state_window, value)
        if end - 1 <= self._watermark:
            self._emit(grown, state_window, end - 1, output, False)
        if self._lateness_ms != 0:
            self.event_timers.register(grown, end - 1 + self._lateness_ms)

    def _set_timers(self, window: AnyWindow, state_window: AnyWindow, end_ms: int, output: object) -> None:
        """Do what the trigger does for an element, and set the timer for the clean-up."""
        if end_ms <= self._watermark:
            self._emit(window, state_window, end_ms, output, False)
        else:
            self.event_timers.register(window, end_ms)
        if self._lateness_ms != 0:
            self.event_timers.register(window, end_ms + self._lateness_ms)

    def _handle(self, timestamp_ms: int, window: Interval, output: object) -> None:
        start: int = window.from_ms
        end: int = window.to_ms
        pairs: list[Pair] | None = self._in_flight.get_internal()
        at = -1 if pairs is None else _index_of(pairs, start, end)
        if pairs is None or at < 0:
            return  # the session has become another one
        if not self._fire(timestamp_ms, window, pairs[at][1], end - 1, output):
            return
        if len(pairs) == 1:
            self._in_flight.clear()
        else:
            del pairs[at]


def _index_of(pairs: list[Pair], start: int, end: int) -> int:
    """Return where the window with these bounds is, or -1."""
    for at in range(len(pairs)):
        window: Interval = pairs[at][0]
        window_start: int = window.from_ms
        window_end: int = window.to_ms
        if window_start == start and window_end == end:
            return at
    return -1


def _number_up_to(pairs: list[Pair], time: int) -> int:
    """Return how many windows start at a time or before; they are in order."""
    low, high = 0, len(pairs)
    while low < high:
        middle = (low + high) // 2
        start: int = pairs[middle][0].from_ms
        if start <= time:
            low = middle + 1
        else:
            high = middle
    return low


def _are_in_order(pairs: list[Pair]) -> bool:
    """Return whether each window ends before the next one starts."""
    return all(pairs[at][0].to_ms < pairs[at + 1][0].from_ms for at in range(len(pairs) - 1))
