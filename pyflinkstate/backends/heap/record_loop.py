"""The loops over the records of a frame, and over the timers that are due. Every record of a job goes through
them, so they are compiled.

With event time, the timestamp of each result is appended to a column beside the results. Side outputs are not
told from results here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyflinkstate.backends.bound_state import KeyContext
from pyflinkstate.backends.heap.timer_queue import TimerQueue, Timestamp
from pyflinkstate.backends.values.isolation import take_isolated


class RecordLoop:
    """Processes records one by one, each under its key."""

    def __init__(self, key_context: KeyContext) -> None:
        self._key_context = key_context
        self._position = -1

    def run(
        self,
        records: tuple[list[int], Sequence[object], Sequence[object]],
        process: Callable[[object, object], Iterable[object] | None],
        context: object,
        results: list[object],
    ) -> None:
        """Process records.

        Args:
            records: columns of the same length: the indexes of the keys' maps, keys, and values.
            process: called with each value and ``context``.
            context: passed to the function with each value.
            results: receives the results of ``process``, isolated from the function's own objects.
        """
        key_context = self._key_context
        indexes, keys, values = records
        self._position = -1
        if not len(indexes) == len(keys) == len(values):
            raise ValueError("the columns of a frame differ in length")
        for index, key, value in zip(indexes, keys, values):  # noqa: B905 - mypyc knows no strict
            self._position += 1
            key_context.select(key, index)
            produced = process(value, context)
            if produced is not None:
                take_isolated(results, produced, process)

    def run_timed(
        self,
        records: tuple[list[int], Sequence[object], Sequence[object], Sequence[Timestamp]],
        process: Callable[[object, object], Iterable[object] | None],
        context: Any,
        results: list[object],
        timestamps: list[Any],
    ) -> None:
        """Process records that have timestamps, as :meth:`run` does.

        Args:
            records: the same columns, and the timestamps.
            process: called with each value and ``context``.
            context: its ``current_timestamp`` is set to the timestamp of each record.
            results: receives the results of ``process``, isolated from the function's own objects.
            timestamps: receives the timestamp of each result.
        """
        key_context = self._key_context
        indexes, keys, values, times = records
        self._position = -1
        if not len(indexes) == len(keys) == len(values) == len(times):
            raise ValueError("the columns of a frame differ in length")
        for index, key, value, timestamp in zip(indexes, keys, values, times):  # noqa: B905 - as above
            self._position += 1
            key_context.select(key, index)
            context.current_timestamp = timestamp
            produced = process(value, context)
            if produced is not None:
                take_isolated(results, produced, process)
                while len(timestamps) < len(results):
                    timestamps.append(timestamp)

    def fire(
        self,
        queue: TimerQueue,
        until_ms: Timestamp,
        on_timer: Callable[[object, object], Iterable[object] | None],
        context: Any,
        results: list[object],
        timestamps: list[Any],
        by_event_time: bool,
    ) -> None:
        """Fire the timers that are due, each under its key, in order; the function may add and delete some.

        Args:
            queue: has the timers; the attributes that tell which was taken last tell which is firing.
            until_ms: fire the timers of this time and before.
            on_timer: called with the timestamp of each timer and ``context``.
            context: its ``current_timestamp`` is set to the timestamp of each timer.
            results: receives the results of ``on_timer``, isolated from the function's own objects.
            timestamps: receives the timestamp of each result.
            by_event_time: whether results have the timestamp of their timer, or none.
        """
        key_context = self._key_context
        while queue.take(until_ms):
            key_context.select(queue.key, queue.map_index)
            timestamp = queue.timestamp_ms
            context.current_timestamp = timestamp
            produced = on_timer(timestamp, context)
            if produced is not None:
                take_isolated(results, produced, on_timer)
                if not by_event_time:
                    timestamp = None
                while len(timestamps) < len(results):
                    timestamps.append(timestamp)

    def under_way(self, *columns: Sequence[object]) -> list[object]:
        """Return each column's entry for the record that ``run`` was processing; None before the first."""
        at = self._position
        return [column[at] if at >= 0 else None for column in columns]
