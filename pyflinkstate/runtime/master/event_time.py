"""The master's part of event time: the watermarks at the end of each epoch."""

from __future__ import annotations

from collections.abc import Callable

from pyflinkstate.runtime.plan import AlignedSource
from pyflinkstate.runtime.wire import MAX_WATERMARK, NO_WATERMARK, EventTimeProgress, TaskReport


class EventTimeTracker:
    """Collects watermarks from tasks, epoch by epoch.

    Args:
        idle_timeouts_ms: the idle timeouts of assigners that have one, by their ids.
        now_ms: returns monotonic time, as only the time since the last record of a stream counts.
        aligned: the source of each assigner that has an alignment.
    """

    def __init__(
        self,
        idle_timeouts_ms: dict[str, int],
        now_ms: Callable[[], int],
        aligned: dict[str, AlignedSource] | None = None,
    ) -> None:
        self._idle_timeouts_ms = idle_timeouts_ms
        self._now_ms = now_ms
        self._aligned = aligned or {}
        #: Sources that wait for others, and do not become idle meanwhile.
        self._held_back: frozenset[str] = frozenset()
        #: The watermarks at the end of the last epoch that has run.
        self._at: dict[str, int] = {}
        #: By epoch: what its tasks have reported.
        self._reported: dict[int, dict[str, list[int]]] = {}
        self._last_record_ms: dict[str, int] = {}

    def begin(self, watermarks: dict[str, int]) -> None:
        """Begin an attempt at the end of an epoch, with the watermarks of that moment."""
        self._at = dict(watermarks)
        self._reported.clear()
        self._last_record_ms = dict.fromkeys(self._idle_timeouts_ms, self._now_ms())
        self._held_back = frozenset()

    def hold_back(self, ended: frozenset[str]) -> frozenset[str]:
        """Return the sources that are too far ahead to read on, which count as waiting from now on.

        Args:
            ended: the sources that have ended, for which no other waits.
        """
        now_ms = self._now_ms()
        for assigner, aligned in self._aligned.items():
            if aligned.source in self._held_back and assigner in self._last_record_ms:
                self._last_record_ms[assigner] = now_ms
        newest = self._at
        least: dict[str, int] = {}
        for assigner, aligned in self._aligned.items():
            if aligned.source not in ended and not self._is_idle(assigner, now_ms):
                group, watermark = aligned.alignment.group, newest.get(assigner, NO_WATERMARK)
                least[group] = min(least.get(group, watermark), watermark)
        self._held_back = frozenset(
            aligned.source
            for assigner, aligned in self._aligned.items()
            if newest.get(assigner, NO_WATERMARK)
            > least.get(aligned.alignment.group, MAX_WATERMARK) + aligned.alignment.max_drift_ms
        )
        return self._held_back

    def _is_idle(self, assigner: str, now_ms: int) -> bool:
        timeout_ms = self._idle_timeouts_ms.get(assigner)
        return timeout_ms is not None and now_ms - self._last_record_ms[assigner] >= timeout_ms

    def progress(self) -> EventTimeProgress:
        """Return what the tasks of the next epoch must know about event time."""
        now_ms = self._now_ms()
        idle = frozenset(assigner for assigner in self._idle_timeouts_ms if self._is_idle(assigner, now_ms))
        return EventTimeProgress(self._at, idle)

    def report(self, report: TaskReport) -> None:
        """Record the watermarks at the end of a task."""
        of_epoch = self._reported.setdefault(report.epoch, {})
        for name, watermark in report.watermarks.items():
            of_epoch.setdefault(name, []).append(watermark)

    def ended(self, epoch: int) -> dict[str, int]:
        """Combine the reports of an epoch whose tasks have all ended; return the watermarks for a checkpoint.

        Those of an input that has ended are left out: after a restore it has more records, or ends again. Who
        reads it begins with the watermark with which its channels open (:meth:`WatermarkMerger.open`).
        """
        self._at = dict(self._at)  # the tasks of the epoch have the one before
        for name, found in self._reported.pop(epoch, {}).items():
            self._at[name] = max(min(found), self._at.get(name, min(found)))
            if name in self._last_record_ms:
                self._last_record_ms[name] = self._now_ms()
        known = self._at.items()
        return {name: watermark for name, watermark in known if NO_WATERMARK < watermark < MAX_WATERMARK}
