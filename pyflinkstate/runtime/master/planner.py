"""Plans epochs: where the source begins and is at the end of each, the next epoch, and epochs for timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from pyflinkstate.api.values import Offset
from pyflinkstate.runtime.master.deployment import RestorePoint
from pyflinkstate.runtime.master.event_time import EventTimeTracker
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.sources import Available, Epoch, GuardedSource, Source, SourceSet
from pyflinkstate.runtime.wire import Clock, SlotId, TaskReport


@attrs.frozen
class Step:
    """The input of an epoch.

    Attributes:
        epoch: what to read; None for an empty epoch, which is run for its barrier or for timers.
        is_last: whether the source has no more after it.
        end: the position of the source at its end.
        is_full: whether the source is likely to have more at once.
    """

    epoch: Epoch | None
    is_last: bool
    end: Offset = None
    is_full: bool = False


class EpochPlanner:
    """Cuts the source into epochs; an epoch that is run again is cut the same way.

    Args:
        source: the source to cut.
        log: writes down where an epoch ends before it runs, if that must outlive the program.
        whole: whether a bounded input is one epoch.
    """

    def __init__(
        self, source: Source, log: Callable[[int, Offset], None] | None, whole: bool = False
    ) -> None:
        self._source = source
        self._log = log
        self._whole = whole
        #: Where epochs end that have run or begun to, in this attempt or an earlier one.
        self._planned: dict[int, Offset] = {}
        #: Whether the source had ended when it was last asked.
        self.is_over = False

    def remember(self, planned: Mapping[int, Offset]) -> None:
        """Take over the ends of epochs that an earlier run planned and may not have completed."""
        self._planned = dict(planned)

    def next(self, number: int, start: Offset) -> Step | None:
        """Return the input of epoch ``number``, or None if there is none (``is_over``: ever again)."""
        found, end = self._find(number, start)
        if end != start:
            return self._step(found, start, end)
        self.is_over = found.is_last
        return Step(None, False, end, found.is_full or end != found.end) if number in self._planned else None

    def ahead(self, number: int, before: Step) -> Step | None:
        """Plan epoch ``number``, while the epoch before it runs; None if the source has to be asked later.

        A source whose last epoch was not full is not asked: it has nothing now, or not yet all of an epoch.
        """
        if not before.is_full:
            return None
        found, end = self._find(number, before.end)
        is_settled = found.is_settled or number in self._planned
        return self._step(found, before.end, end) if is_settled and end != before.end else None

    def _find(self, number: int, start: Offset) -> tuple[Available, Offset]:
        found = self._source.latest_offset(start, self._whole)
        return found, self._planned.get(number, found.end)

    def _step(self, found: Available, start: Offset, end: Offset) -> Step:
        is_own = end == found.end
        return Step(self._source.plan(start, end), found.is_last and is_own, end, found.is_full or not is_own)

    def begin(self, number: int, step: Step) -> None:
        """Write down where epoch ``number`` ends, before it runs: it ends there again if it runs again."""
        if number not in self._planned and self._log is not None:
            self._log(number, step.end)
        self._planned[number] = step.end

    def commit(self, number: int, end: Offset) -> None:
        """Forget the ends of epochs up to ``number``, which are final."""
        self._source.commit(end)
        self._planned = {n: end for n, end in self._planned.items() if n > number}


def track_event_time(plan: JobPlan, now_ms: Callable[[], int]) -> EventTimeTracker:
    """Return the tracker of the plan's watermarks, which also makes aligned sources wait for each other."""
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
        """Forget all timers. Restored ones are not known yet, so an epoch is run soon to find them."""
        self._due_ms = {}
        if are_restored and self._plan.uses_timers:
            self._due_ms = {
                str(SlotId(operator.operator_id, subtask)): 0
                for operator in self._plan.operators
                for subtask in range(operator.parallelism)
            }

    def set_due(self, slot: str, due_ms: int | None) -> None:
        """Record when a slot's next timer is due, or None if it has none."""
        self._due_ms.pop(slot, None)
        if due_ms is not None:
            self._due_ms[slot] = due_ms

    def are_due(self, now_ms: int) -> bool:
        """Return whether a timer is due."""
        return bool(self._due_ms) and min(self._due_ms.values()) <= now_ms


class Input:
    """The source of a job, and what depends on how far it is read: plans, event time, timers.

    Args:
        plan: what the job runs.
        source: the source that it reads.
        may_drop: whether a checkpoint may have positions of sources that the program no longer has.
        whole: see :class:`EpochPlanner`.
        clock: tells the time.
        log: see :class:`EpochPlanner`.
    """

    def __init__(
        self,
        plan: JobPlan,
        source: GuardedSource,
        may_drop: bool,
        whole: bool,
        clock: Clock,
        log: Callable[[int, Offset], None] | None,
    ) -> None:
        self.source = source
        self.planner = EpochPlanner(source, log, whole)
        self.event_time = track_event_time(plan, clock.monotonic_ms)
        self.timers = NextTimers(plan)
        self._plan = plan
        self._may_drop = may_drop
        #: Asked for once, so that a restart without a checkpoint begins there again.
        self._initial: Offset | None = None

    def begin(self, restore: RestorePoint | None, is_final: bool) -> tuple[int, Step]:
        """Go to a checkpoint, or to the beginning; return the number of its epoch, and where that ends.

        Args:
            restore: the checkpoint, or None.
            is_final: no other checkpoint will be restored instead; the source may drop what is before.
        """
        epoch, watermarks = 0, {}
        if restore is not None:
            metadata = restore.metadata
            epoch = metadata.epoch
            watermarks = self._plan.watermarks_of(metadata.watermarks, metadata.source_position)
        position = self._restored(restore)
        if position is not None and is_final:
            self.source.commit(position)
        if position is None and self._initial is None:
            self._initial = self.source.initial_offset()
        position = self._initial if position is None else position
        self.planner.is_over = False
        self.event_time.begin(watermarks)
        self.timers.begin_attempt(are_restored=restore is not None)
        return epoch, Step(None, False, position)

    def check(self, restore: RestorePoint | None) -> None:
        """Compare a checkpoint that will be restored with the source, which may drop what is before."""
        position = self._restored(restore)
        if position is not None:
            self.source.check_restored(position)
            self.source.commit(position)

    def _restored(self, restore: RestorePoint | None) -> Offset | None:
        """Return where the sources go on; None if there is no checkpoint, or one that was seeded."""
        position = None if restore is None else restore.metadata.source_position
        return None if position is None else self.source.restored(position, self._may_drop)

    def count(self, report: TaskReport) -> None:
        """Note the watermarks and the next timer that a task has reported."""
        self.event_time.report(report)
        if report.is_slot:
            self.timers.set_due(report.task, report.next_timer_ms)
