"""Where event time stands, epoch by epoch: the job master's part of it."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pyflinkstate.runtime.messages import TaskReport
from pyflinkstate.runtime.watermarks import MAX_WATERMARK, NO_WATERMARK


@attrs.frozen
class EventTimeProgress:
    """What tasks must know when an epoch begins.

    Attributes:
        watermarks: of assigners and operators, by their ids.
        idle: the assigners whose stream has been silent for longer than it may hold back others.
    """

    watermarks: dict[str, int] = attrs.Factory(dict)
    idle: frozenset[str] = frozenset()


class EventTimeTracker:
    """Gathers watermarks from tasks, and knows them for each epoch that may be gone back to.

    Args:
        idle_timeouts_ms: of the assigners that have one, by their ids.
        now_ms: the time since 1970.
    """

    def __init__(self, idle_timeouts_ms: dict[str, int], now_ms: Callable[[], int]) -> None:
        self._idle_timeouts_ms = idle_timeouts_ms
        self._now_ms = now_ms
        self._at: dict[int, dict[str, int]] = {}
        self._reported: dict[str, list[int]] = {}
        self._last_record_ms: dict[str, int] = {}

    def begin(self, epoch: int, watermarks: dict[str, int]) -> None:
        """An attempt begins at the end of ``epoch``, where watermarks stood as given."""
        self._at = {epoch: dict(watermarks)}
        self._reported.clear()
        self._last_record_ms = dict.fromkeys(self._idle_timeouts_ms, self._now_ms())

    def progress(self, epoch: int) -> EventTimeProgress:
        """Return what the tasks of the epoch after ``epoch`` must know."""
        self._reported.clear()
        now_ms = self._now_ms()
        idle = frozenset(
            assigner
            for assigner, timeout_ms in self._idle_timeouts_ms.items()
            if now_ms - self._last_record_ms[assigner] >= timeout_ms
        )
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
