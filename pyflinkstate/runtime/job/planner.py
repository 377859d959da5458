"""Where the source stands, epoch by epoch, what the next epoch is, and when timers want one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from pyflinkstate.runtime.job.event_time import EventTimeTracker
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.sources import Epoch, Source, SourceSet
from pyflinkstate.runtime.wire import SlotId


@attrs.frozen
class Step:
    """What to run next: ``epoch``, or an empty one (None) for the sake of its barrier or of timers."""

    epoch: Epoch | None
    is_last: bool


class EpochPlanner:
    """Cuts the source into epochs; one that has to be run again is cut the same way.

    Args:
        source: what is cut.
        log: notes where an epoch ends before it is run, where that must outlive the program.
    """

    def __init__(self, source: Source, log: Callable[[int, Any], None] | None) -> None:
        self._source = source
        self._log = log
        self._positions: dict[int, Any] = {}
        self._planned: dict[int, Any] = {}
        #: At the last look nothing was left, nor would anything ever come.
        self.is_over = False

    def begin(self, epoch: int, position: Any) -> None:
        """An attempt begins at the end of ``epoch``, where the source stands at ``position``."""
        self._positions = {epoch: position}
        self.is_over = False

    def remember(self, planned: dict[int, Any]) -> None:
        """Take over where epochs ended that an earlier run may not have completed."""
        self._planned = dict(planned)

    def next(self, epoch: int, whole: bool) -> Step | None:
        """Return the epoch after ``epoch``; None where the source has nothing (``is_over``: or ever will)."""
        start = self._positions[epoch]
        found = self._source.latest_offset(start, whole)
        end = self._planned.get(epoch + 1, found.end)
        if end == start:
            self.is_over = found.is_last
            return Step(None, False) if epoch + 1 in self._planned else None
        self._note(epoch + 1, end)
        return Step(self._source.plan(start, end), found.is_last and end == found.end)

    def empty(self, epoch: int) -> Step:
        """Return an epoch of nothing after ``epoch``; run again, it is one of nothing as well."""
        self._note(epoch + 1, self._positions[epoch])
        return Step(None, self.is_over)

    def _note(self, number: int, end: Any) -> None:
        if number not in self._planned and self._log is not None:
            self._log(number, end)
        self._planned[number] = end

    def ended(self, number: int) -> None:
        """Epoch ``number`` has run."""
        self._positions[number] = self._planned[number]

    def position(self, epoch: int) -> Any:
        """Return where the source stood at the end of ``epoch``."""
        return self._positions[epoch]

    def commit(self, epoch: int) -> None:
        """Epochs up to ``epoch`` are final."""
        self._source.commit(self._positions[epoch])
        self._positions = {n: position for n, position in self._positions.items() if n >= epoch}
        self._planned = {n: end for n, end in self._planned.items() if n > epoch}


def track_event_time(plan: JobPlan, now_ms: Callable[[], int]) -> EventTimeTracker:
    """Return what knows where the plan's event time stands, and makes its sources wait for each other."""
    tracker = EventTimeTracker(plan.idle_timeouts_ms(), now_ms, plan.aligned_sources())
    if isinstance(plan.source.source, SourceSet):
        plan.source.source.align(tracker.hold_back)
    return tracker


class NextTimers:
    """When the next processing-time timer of each slot is due."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._due_ms: dict[str, int] = {}

    def begin_attempt(self, are_restored: bool) -> None:
        """Forget all. Restored ones are not known yet: an epoch, as soon as may be, finds them out."""
        self._due_ms = {}
        if are_restored and self._plan.uses_timers:
            self._due_ms = {
                str(SlotId(operator.operator_id, subtask)): 0
                for operator in self._plan.operators
                for subtask in range(operator.parallelism)
            }

    def heard(self, slot: str, due_ms: int | None) -> None:
        """A slot says when its next timer is due; None where it has none."""
        self._due_ms.pop(slot, None)
        if due_ms is not None:
            self._due_ms[slot] = due_ms

    def are_due(self, now_ms: int) -> bool:
        """Return whether a timer is to fire."""
        return bool(self._due_ms) and min(self._due_ms.values()) <= now_ms
