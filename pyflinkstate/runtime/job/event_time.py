"""Where event time stands, epoch by epoch: the job master's part of it."""

from __future__ import annotations

from collections.abc import Callable

from pyflinkstate.runtime.plan import AlignedSource
from pyflinkstate.runtime.wire import MAX_WATERMARK, NO_WATERMARK, EventTimeProgress, TaskReport


class EventTimeTracker:
    """Gathers watermarks from tasks, and knows them for each epoch that may be gone back to.

    Args:
        idle_timeouts_ms: of the assigners that have one, by their ids.
        now_ms: monotonic: only how long a stream is silent counts.
        aligned: which source each assigner with an alignment belongs to.
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
        #: Sources that wait for others. That they are silent does not make them idle.
        self._held_back: frozenset[str] = frozenset()
        self._at: dict[int, dict[str, int]] = {}
        self._reported: dict[str, list[int]] = {}
        self._last_record_ms: dict[str, int] = {}

    def begin(self, epoch: int, watermarks: dict[str, int]) -> None:
        """An attempt begins at the end of ``epoch``, where watermarks stood as given."""
        self._at = {epoch: dict(watermarks)}
        self._reported.clear()
        self._last_record_ms = dict.fromkeys(self._idle_timeouts_ms, self._now_ms())
        self._held_back = frozenset()

    def hold_back(self, ended: frozenset[str]) -> frozenset[str]:
        """Return the sources that are too far ahead to read on, and count them as waiting from now on.

        Args:
            ended: the sources that have nothing more; nobody waits for them.
        """
        now_ms = self._now_ms()
        for assigner, aligned in self._aligned.items():
            if aligned.source in self._held_back and assigner in self._last_record_ms:
                self._last_record_ms[assigner] = now_ms
        newest = self._at[max(self._at)]
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

    def progress(self, epoch: int) -> EventTimeProgress:
        """Return what the tasks of the epoch after ``epoch`` must know."""
        self._reported.clear()
        now_ms = self._now_ms()
        idle = frozenset(assigner for assigner in self._idle_timeouts_ms if self._is_idle(assigner, now_ms))
        return EventTimeProgress(self._at[epoch], idle)

    def report(self, report: TaskReport) -> None:
        """A task tells where watermarks stood when it ended."""
        for name, watermark in report.watermarks.items():
            self._reported.setdefault(name, []).append(watermark)

    def ended(self, epoch: int) -> None:
        """The epoch has run, and all of its tasks have reported."""
        watermarks = dict(self._at[epoch - 1])
        for name, found in self._reported.items():
            watermarks[name] = max(min(found), watermarks.get(name, min(found)))
            if name in self._last_record_ms:
                self._last_record_ms[name] = self._now_ms()
        self._at[epoch] = watermarks

    def at(self, epoch: int) -> dict[str, int]:
        """Return the watermarks at the end of ``epoch``, for a checkpoint.

        Those of an input that has ended are left out: whoever restores has more of it, or ends it again.
        """
        known = self._at[epoch].items()
        return {name: watermark for name, watermark in known if NO_WATERMARK < watermark < MAX_WATERMARK}

    def commit(self, epoch: int) -> None:
        """Nobody will go back to before ``epoch``."""
        self._at = {number: watermarks for number, watermarks in self._at.items() if number >= epoch}
