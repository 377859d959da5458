"""Plans epochs: where each one ends in the source, the watermarks then, and epochs for timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from pyflinkstate.api import Position
from pyflinkstate.runtime.master.deployment import RestorePoint
from pyflinkstate.runtime.plan import AlignedSource, JobPlan
from pyflinkstate.runtime.sources import Available, Epoch, GuardedSource, SourceSet
from pyflinkstate.runtime.wire import (
    MAX_WATERMARK,
    NO_WATERMARK,
    Clock,
    EventTimeProgress,
    SlotId,
    TaskReport,
)


@attrs.define(eq=False)
class EventTimeTracker:
    """Collects watermarks from tasks, epoch by epoch.

    Args:
        idle_timeouts_ms: the idle timeouts of assigners that have one, by their ids.
        now_ms: returns monotonic time, as only the time since the last record of a stream counts.
        aligned: the source of each assigner that has an alignment.
    """

    _idle_timeouts_ms: dict[str, int]
    _now_ms: Callable[[], int]
    _aligned: dict[str, AlignedSource] = attrs.Factory(dict)
    #: Sources that wait for others, and do not become idle meanwhile.
    _held_back: frozenset[str] = attrs.field(init=False, default=frozenset())
    #: The watermarks at the end of the last epoch that has run.
    _at: dict[str, int] = attrs.field(init=False, factory=dict)
    #: By epoch: what its tasks have reported.
    _reported: dict[int, dict[str, list[int]]] = attrs.field(init=False, factory=dict)
    _last_record_ms: dict[str, int] = attrs.field(init=False, factory=dict)

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
        least: dict[str, int] = {}
        for assigner, aligned in self._aligned.items():
            if aligned.source not in ended and not self._is_idle(assigner, now_ms):
                group, watermark = aligned.alignment.group, self._at.get(assigner, NO_WATERMARK)
                least[group] = min(least.get(group, watermark), watermark)
        self._held_back = frozenset(
            aligned.source
            for assigner, aligned in self._aligned.items()
            if self._at.get(assigner, NO_WATERMARK)
            > least.get(aligned.alignment.group, MAX_WATERMARK) + aligned.alignment.max_drift_ms
        )
        return self._held_back

    def _is_idle(self, assigner: str, now_ms: int) -> bool:
        timeout_ms = self._idle_timeouts_ms.get(assigner)
        return timeout_ms is not None and now_ms - self._last_record_ms[assigner] >= timeout_ms

    def progress(self) -> EventTimeProgress:
        """Return what the tasks of the next epoch must know about event time."""
        now_ms = self._now_ms()
        return EventTimeProgress(
            self._at,
            frozenset(assigner for assigner in self._idle_timeouts_ms if self._is_idle(assigner, now_ms)),
        )

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
        return {
            name: watermark
            for name, watermark in self._at.items()
            if NO_WATERMARK < watermark < MAX_WATERMARK
        }


@attrs.frozen
class Step:
    """The input of an epoch.

    Attributes:
        epoch: what to read; None for an empty epoch, which is run for its barrier or for timers.
        is_last: whether the source has no more after it.
        end: the position of the source at its end.
        is_full: whether the source is likely to have more at once.
        is_live: whether it lasts for some time, after which its end is known.
    """

    epoch: Epoch | None
    is_last: bool
    end: Position = None
    is_full: bool = False
    is_live: bool = False


@attrs.define(eq=False)
class EpochPlanner:
    """Cuts the source into epochs; an epoch that is run again is cut the same way.

    Args:
        source: the source to cut.
        log: writes down where an epoch ends before it runs, if that must outlive the program.
        whole: whether a bounded input is one epoch.
    """

    _source: GuardedSource
    _log: Callable[[int, Position], None] | None
    _whole: bool = False
    #: Where epochs end that have run or begun to, in this attempt or an earlier one.
    _planned: dict[int, Position] = attrs.field(init=False, factory=dict)
    #: What was reached in live epochs: by epoch and source, the position of each partition.
    _reached: dict[int, dict[str, dict[int, Position]]] = attrs.field(init=False, factory=dict)
    #: Whether the source had ended when it was last asked.
    is_over: bool = attrs.field(init=False, default=False)
    #: Whether sources are read live that can be.
    reads_live: bool = attrs.field(init=False, default=False)

    def begin_attempt(self) -> None:
        """Forget what an earlier attempt has read, and not planned."""
        self._reached = {}
        self.is_over = False

    def remember(self, planned: Mapping[int, Position]) -> None:
        """Take over the ends of epochs that an earlier run planned and may not have completed."""
        self._planned = dict(planned)

    def next(self, number: int, start: Position) -> Step | None:
        """Return the input of epoch ``number``, or None if there is none (``is_over``: ever again)."""
        found, end = self._find(number, start)
        if end != start or found.is_live:
            return self._step(found, start, end)
        self.is_over = found.is_last
        return Step(None, False, end, found.is_full or end != found.end) if number in self._planned else None

    def ahead(self, number: int, before: Step) -> Step | None:
        """Plan epoch ``number``, while the epoch before it runs; None if the source has to be asked later.

        A source whose last epoch was not full is not asked: it has nothing now, or not yet all of an epoch.
        """
        if not before.is_full or before.is_live:
            return None
        found, end = self._find(number, before.end)
        is_settled = found.is_settled or number in self._planned
        return self._step(found, before.end, end) if is_settled and end != before.end else None

    def _find(self, number: int, start: Position) -> tuple[Available, Position]:
        # What an earlier attempt has planned holds for all sources, also for those that were not read.
        self._source.read_live(self.reads_live and number not in self._planned)
        found = self._source.latest_offset(start, self._whole)
        return found, self._planned.get(number, found.end)

    def _step(self, found: Available, start: Position, end: Position) -> Step:
        is_own = end == found.end
        epoch = self._source.plan(start, end)
        return Step(epoch, found.is_last and is_own, end, found.is_full or not is_own, found.is_live)

    def begin(self, number: int, step: Step) -> None:
        """Write down where epoch ``number`` ends, before it runs: it ends there again if it runs again.

        If it was read live in an earlier attempt, or is now, it may end elsewhere than it did then. What was
        planned behind that end is forgotten.
        """
        if step.is_live or number not in self._planned:
            self._planned = {n: end for n, end in self._planned.items() if n < number}
        if step.is_live:
            return
        if number not in self._planned and self._log is not None:
            self._log(number, step.end)
        self._planned[number] = step.end

    def note(self, report: TaskReport) -> None:
        """Note what a task has reached in a live epoch."""
        for source, positions in report.reached.items():
            self._reached.setdefault(report.epoch, {}).setdefault(source, {}).update(positions)

    def settled(self, number: int, step: Step) -> Step:
        """Return the input of an epoch that has run, with its end."""
        reached = self._reached.pop(number, {})
        ends = {source: [at[partition] for partition in sorted(at)] for source, at in reached.items()}
        return attrs.evolve(step, end=self._source.settled(step.end, ends)) if ends else step

    def commit(self, number: int, end: Position) -> None:
        """Forget the ends of epochs up to ``number``, which are final."""
        self._source.commit(end)
        self._planned = {n: end for n, end in self._planned.items() if n > number}


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
        log: Callable[[int, Position], None] | None,
    ) -> None:
        self.source = source
        self.planner = EpochPlanner(source, log, whole)
        self.event_time = EventTimeTracker(
            plan.idle_timeouts_ms(), clock.monotonic_ms, plan.aligned_sources()
        )
        if isinstance(plan.source.source, SourceSet):
            plan.source.source.align(self.event_time.hold_back)
        #: When the next processing-time timer of each slot is due; None if it has none.
        self._timers_ms: dict[str, int | None] = {}
        self._plan = plan
        self._may_drop = may_drop
        #: Asked for once, so that a restart without a checkpoint begins there again.
        self._initial: Position | None = None

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
        self.planner.begin_attempt()
        self.event_time.begin(watermarks)
        self._timers_ms = {}
        if restore is not None and self._plan.uses_timers:
            # Restored timers are not known yet, so an epoch is run soon to find them.
            self._timers_ms = {
                str(SlotId(operator.operator_id, subtask)): 0
                for operator in self._plan.operators
                for subtask in range(operator.parallelism)
            }
        return epoch, Step(None, False, position)

    def check(self, restore: RestorePoint | None) -> None:
        """Compare a checkpoint that will be restored with the source, which may drop what is before."""
        position = self._restored(restore)
        if position is not None:
            self.source.check_restored(position)
            self.source.commit(position)

    def _restored(self, restore: RestorePoint | None) -> Position | None:
        """Return where the sources go on; None if there is no checkpoint, or one that was seeded."""
        position = None if restore is None else restore.metadata.source_position
        return None if position is None else self.source.restored(position, self._may_drop)

    def count(self, report: TaskReport) -> None:
        """Note the watermarks and the next timer that a task has reported."""
        self.event_time.report(report)
        self.planner.note(report)
        if report.slot is not None:
            self._timers_ms[report.task] = report.slot.next_timer_ms

    def timers_are_due(self, now_ms: int) -> bool:
        """Return whether a processing-time timer is due."""
        return any(due_ms is not None and due_ms <= now_ms for due_ms in self._timers_ms.values())
