"""The fast way of event-time sessions that fire at their end.

Elements take it in frames. What a key has in flight is a short list of pairs, window and state window, which
is the state of ``MergingWindowSet``. Three things can happen to an element whose window, from its time to
the end of the gap after it, is laid beside those in flight:

* It touches none: it is a session of its own.
* It lies in one: that session stays as it is, and so do its timers.
* It touches one and goes beyond it: the session grows. Its pair is replaced, its contents stay under the
  same state window, and its timers move to the new end.

An element that touches several merges them: it takes the general way, as do those without a timestamp, with
a value of None, or with a time near the bounds of 64 bits. Both ways keep the same state. A pair that is
replaced goes to the end of the list, and timers are set before old ones are deleted, because the general way
does so.

Windows in flight lie apart, since windows that touch have been merged. Those that were restored may come
from another assigner and are therefore looked at first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pyflinkstate.api.interval import Interval
from pyflinkstate.api.values import AnyWindow
from pyflinkstate.api.windows import MAX_LONG_VALUE
from pyflinkstate.backends.bound_state import KeyContext
from pyflinkstate.backends.heap.heap_state import HeapState
from pyflinkstate.backends.heap.timer_service import InternalTimerService, KindOfTimers
from pyflinkstate.runtime.operators.windows.window_results import WindowResults

#: Times and gaps beyond these take the general way, so that their sum is a 64-bit integer.
EARLIEST_MS: Final = -(2**61)
LATEST_MS: Final = 2**61

#: Stand for the index of a session: the element touches none, or it must take the general way.
NONE: Final = -1
GENERAL: Final = -2

#: Window and state window. The length is left open: mypyc would take each pair apart and check both.
Pair = tuple[Any, ...]


class SessionWindows:
    """Runs frames of elements, and fires sessions.

    Args:
        results: the contents of windows, and their results.
        in_flight: the list state of pairs.
        key_context: the current key.
        operator: the window operator, for what is rare.
        timers: the timer service.
        make_window: makes a window of start and end.
        gap_ms: the gap, or a function that returns it for an element.
        lateness_ms: how long after its end a session accepts late elements.
        purges: whether contents are dropped when a session fires.
        is_restored: whether there may be sessions from before a restore.
    """

    __slots__ = (
        "_contents",
        "_event_timers",
        "_gap_ms",
        "_gap_of",
        "_in_flight",
        "_is_restored",
        "_key_context",
        "_lateness_ms",
        "_make_window",
        "_operator",
        "_position",
        "_purges",
        "_results",
        "_timers",
        "_watermark",
    )

    def __init__(
        self,
        results: WindowResults,
        in_flight: HeapState,
        key_context: KeyContext,
        operator: Any,
        timers: InternalTimerService,
        make_window: Callable[[int, int], AnyWindow],
        gap_ms: int | Callable[[Any], int],
        lateness_ms: int,
        purges: bool,
        is_restored: bool,
    ) -> None:
        self._results = results
        self._contents: HeapState = results.contents
        self._in_flight = in_flight
        self._key_context = key_context
        self._operator = operator
        self._timers = timers
        self._event_timers: KindOfTimers = timers.event
        self._make_window = make_window
        self._gap_ms: int = gap_ms if isinstance(gap_ms, int) else 0
        self._gap_of: Any = None if isinstance(gap_ms, int) else gap_ms
        self._lateness_ms = lateness_ms
        self._purges = purges
        self._is_restored = is_restored
        self._watermark = 0
        self._position = -1

    def run(
        self, records: tuple[Sequence[Any], Sequence[Any], Sequence[Any], Sequence[Any]], output: Any
    ) -> None:
        """Put the elements of a frame into sessions.

        Args:
            records: columns of the same length: the indexes of the keys' maps, keys, values, and timestamps.
            output: takes the results of sessions that fire at once.
        """
        key_context = self._key_context
        indexes, keys, values, timestamps = records
        self._watermark = self._timers.current_watermark()
        self._position = -1
        for index, key, value, timestamp in zip(indexes, keys, values, timestamps):  # noqa: B905
            self._position += 1
            key_context.select(key, index)
            if type(timestamp) is int and value is not None:
                self._put(value, timestamp, output)
            else:
                self._operator.process_element(value, timestamp, output)

    def under_way(self, *columns: Sequence[Any]) -> list[Any]:
        """Return each column's entry for the record that ``run`` was processing; None before the first."""
        at = self._position
        return [column[at] if at >= 0 else None for column in columns]

    def _put(self, value: Any, time: int, output: Any) -> None:
        """Put an element into its session."""
        if time < EARLIEST_MS or time > LATEST_MS:
            self._operator.process_element(value, time, output)
            return
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
        if self._is_restored and not _lie_apart(pairs):
            return GENERAL
        touched = NONE
        for at in range(len(pairs)):
            window: Interval = pairs[at][0]
            window_start: int = window.from_ms
            window_end: int = window.to_ms
            if window_start <= end and window_end >= start:
                last = window_end if window_end > end else end
                # A session that is over is still there only if a program with another lateness left it.
                if touched != NONE or last - 1 + self._lateness_ms <= self._watermark:
                    return GENERAL
                touched = at
        return touched

    def _begin(self, pairs: list[Pair] | None, value: Any, time: int, end: int, output: Any) -> None:
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
            pairs.append((window, window))
        self._contents.add_in(window, value)
        self._set_timers(window, window, end - 1, output)

    def _join(self, pairs: list[Pair], at: int, value: Any, time: int, end: int, output: Any) -> None:
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
            self._event_timers.register(grown, end - 1)
        self._event_timers.delete(window, window_end - 1)
        if self._lateness_ms != 0:
            self._event_timers.delete(window, window_end - 1 + self._lateness_ms)
        del pairs[at]
        pairs.append((grown, state_window))
        self._contents.add_in(state_window, value)
        if end - 1 <= self._watermark:
            self._emit(grown, state_window, end - 1, output, not self._purges)
        if self._lateness_ms != 0:
            self._event_timers.register(grown, end - 1 + self._lateness_ms)

    def _set_timers(self, window: AnyWindow, state_window: AnyWindow, end_ms: int, output: Any) -> None:
        """Do what the trigger does for an element, and set the timer for the clean-up."""
        if end_ms <= self._watermark:
            self._emit(window, state_window, end_ms, output, not self._purges)
        else:
            self._event_timers.register(window, end_ms)
        if self._lateness_ms != 0:
            self._event_timers.register(window, end_ms + self._lateness_ms)

    def _emit(
        self, window: AnyWindow, state_window: AnyWindow, end_ms: int, output: Any, stays: bool
    ) -> None:
        self._results.emit(window, state_window, end_ms, output, stays)
        if self._purges:
            self._contents.clear_in(state_window)

    def fire(self, timestamp_ms: int, window: Interval, output: Any) -> None:
        """Handle an event-time timer of the current key."""
        start: int = window.from_ms
        end: int = window.to_ms
        pairs: list[Pair] | None = self._in_flight.get_internal()
        at = -1 if pairs is None else _index_of(pairs, start, end)
        if pairs is None or at < 0:
            return  # the session has become another one
        state_window = pairs[at][1]
        end_ms = end - 1
        is_last = timestamp_ms == min(end_ms + self._lateness_ms, MAX_LONG_VALUE)
        if timestamp_ms == end_ms:
            self._emit(window, state_window, end_ms, output, not (is_last or self._purges))
        if is_last:
            self._contents.clear_in(state_window)
            self._operator.clear_function(window)
            self._retire(pairs, at)

    def _retire(self, pairs: list[Pair], at: int) -> None:
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


def _lie_apart(pairs: list[Pair]) -> bool:
    """Return whether no two windows overlap or touch."""
    windows = sorted((window.from_ms, window.to_ms) for window, _ in pairs)
    return all(windows[at][1] < windows[at + 1][0] for at in range(len(windows) - 1))
