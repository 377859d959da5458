"""What a job tells: listeners and observers, the log, and whoever asks for its result.

What only observers hear of is not computed for a job that has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.master.deployment import RestorePoint
from pyflinkstate.runtime.master.job_log import JobLog
from pyflinkstate.runtime.master.observe import (
    CheckpointPart,
    CheckpointStats,
    EpochReport,
    EpochStats,
    JobExecutionResult,
    JobListener,
    JobObserver,
    describe,
    log_output,
    tell_each,
)
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.settings import JobStatus
from pyflinkstate.runtime.tasks import MOST_RECORDS
from pyflinkstate.runtime.wire import Clock, MetricValues, SlotOutput, SubtaskStatus, TaskReport, added_up

PHASES = ("planning", "reading", "slots", "finishing", "preparing")


class EpochTimeline:
    """Notes when each phase of the running epoch ends; ``now_ms`` is monotonic.

    Args:
        now_ms: tells the time.
        sources: the names of the sources.
    """

    def __init__(self, now_ms: Callable[[], int], sources: Collection[str]) -> None:
        self._now_ms = now_ms
        self._sources = frozenset(sources)
        self._ends = [0] * (len(PHASES) + 1)
        #: The attempt and the number of the running epoch.
        self._running = (0, 0)
        #: By slot: what it knew of itself at its end of the epoch.
        self.statuses: dict[str, SubtaskStatus] = {}
        #: By attempt and epoch, and stream: a few records.
        self._samples: dict[tuple[int, int], dict[str, list[str]]] = {}

    def begin(self) -> None:
        """The job asks the source for the next epoch."""
        self._ends = [self._now_ms()] * len(self._ends)
        self.statuses = {}

    def started(self, attempt: int, number: int) -> None:
        """The engine starts epoch ``number``."""
        self._running = (attempt, number)
        self._samples = {self._running: self.samples}
        self._note(1)

    def reported(self, report: TaskReport) -> None:
        """A task has ended. One of a later epoch, which is read ahead, counts only for that epoch."""
        of_epoch = (report.attempt, report.epoch)
        for stream, records in report.samples.items():
            known = self._samples.setdefault(of_epoch, {}).setdefault(stream, [])
            known.extend(records[: MOST_RECORDS - len(known)])
        if of_epoch == self._running:
            self._ended(report)

    @property
    def samples(self) -> dict[str, list[str]]:
        """By stream: a few records of the epoch."""
        return self._samples.get(self._running, {})

    def _ended(self, report: TaskReport) -> None:
        if report.status is not None:
            self.statuses[report.task] = report.status
        if report.is_slot:
            self._note(3)
        elif report.task.rpartition("[")[0] in self._sources:
            self._note(2)

    def ran(self) -> None:
        """The engine has ended the epoch."""
        self._note(4)

    def prepared(self) -> dict[str, int]:
        """Return the milliseconds that each phase took, now that the output is prepared."""
        self._note(5)
        return {phase: self._ends[n + 1] - self._ends[n] for n, phase in enumerate(PHASES)}

    def _note(self, phase: int) -> None:
        """A phase ends now, and so have those before it, at the latest; none after it has begun."""
        self._ends[phase:] = [self._now_ms()] * (len(self._ends) - phase)


class Accumulators:
    """Record counts by epoch and task, so that a replayed epoch or a retried task replaces itself."""

    def __init__(self) -> None:
        self._base: Counter[str] = Counter()
        self._base_epoch = 0
        self._counts: dict[tuple[int, str], dict[str, int]] = {}
        self._rejected: dict[tuple[int, str], tuple[object, ...]] = {}
        #: By slot: all its metrics so far. By Spark task: the sums over its runs.
        self._slot_metrics: dict[str, MetricValues] = {}
        self._task_metrics: dict[str, MetricValues] = {}

    def metrics(self) -> MetricValues:
        """Return the metrics summed over all tasks and slots."""
        return added_up([*self._slot_metrics.values(), *map(dict, list(self._task_metrics.values()))])

    def reset(self, epoch: int, counters: dict[str, int]) -> None:
        """Go to the end of ``epoch``, where the counts were ``counters``."""
        self._base, self._base_epoch = Counter(counters), epoch
        self._counts.clear()
        self._rejected = {key: rows for key, rows in self._rejected.items() if key[0] <= epoch}

    def add(self, report: TaskReport) -> None:
        """Add the report of a task of the running attempt."""
        key = (report.epoch, report.task)
        if report.metrics and report.is_slot:
            self._slot_metrics[report.task] = report.metrics
        elif report.metrics:
            known = self._task_metrics.setdefault(report.task, {})
            for name, value in report.metrics.items():
                known[name] = known[name].then(value) if name in known else value
        if report.counts:
            self._counts[key] = report.counts
        if report.rejected:
            self._rejected[key] = report.rejected

    def fold(self, epoch: int) -> None:
        """Fold the counts of ``epoch``, which is final, into one sum."""
        self._base = self._sum(epoch)
        self._base_epoch = epoch
        self._counts = {key: counts for key, counts in self._counts.items() if key[0] > epoch}

    def total(self, epoch: int) -> dict[str, int]:
        """Return the counts of all epochs up to ``epoch``."""
        return dict(self._sum(epoch))

    def of_epoch(self, epoch: int, name: str) -> int:
        """Return one count of one epoch that is not folded yet."""
        return sum(counts.get(name, 0) for key, counts in self._counts.items() if key[0] == epoch)

    def of_tasks(self, epoch: int) -> dict[str, dict[str, int]]:
        """Return the counts of each task in an epoch that is not folded yet."""
        return {task: counts for (number, task), counts in self._counts.items() if number == epoch}

    def metrics_of_tasks(self) -> dict[str, MetricValues]:
        """Return the metrics of each task and slot."""
        return {**{task: dict(own) for task, own in self._task_metrics.items()}, **self._slot_metrics}

    def rejected(self, epoch: int) -> tuple[Any, ...]:
        """Return the rows that were rejected up to ``epoch``, in the order of epochs and tasks."""
        known = [key for key in list(self._rejected) if key[0] <= epoch]
        in_order = sorted(known, key=lambda key: (key[0], len(key[1]), key[1]))
        return tuple(row for key in in_order for row in self._rejected[key])

    def _sum(self, epoch: int) -> Counter[str]:
        total = Counter(self._base)
        for (counted_epoch, _), counts in list(self._counts.items()):  # a client may ask meanwhile
            if self._base_epoch < counted_epoch <= epoch:
                total.update(counts)
        return total


class JobReporter:
    """Takes in what tasks report, and tells others about the job, on the job's thread.

    Args:
        plan: what the job runs.
        job_id: the id of the job.
        name: its name.
        listeners: receive the reports.
        clock: tells the time.
    """

    def __init__(
        self, plan: JobPlan, job_id: str, name: str, listeners: Sequence[JobListener], clock: Clock
    ) -> None:
        self._plan = plan
        self._job_id = job_id
        self._name = name
        self._listeners = listeners
        self._observers = [one for one in listeners if isinstance(one, JobObserver)]
        self._clock = clock
        sources = [source.name for source in plan.sources]
        #: The counts of records that sources have read.
        self._read = {f"{source}.records_out" for source in sources}
        #: When the phases of the running epoch have ended.
        self.timeline = EpochTimeline(clock.monotonic_ms, sources)
        #: Until when somebody looks at a stream; it is replaced as a whole, as other threads do that.
        self._sampled: dict[str, int] = {}
        self._began_ms: int | None = None
        self._ended_ms: int | None = None
        self.accumulators = Accumulators()
        self.log = JobLog(name, job_id)

    # --- the job as a whole --------------------------------------------------------------------------

    def begin(self) -> None:
        """Note that the job begins."""
        self._began_ms = self._clock.monotonic_ms()

    def end(self) -> None:
        """Note that the job has ended."""
        self._ended_ms = self._clock.monotonic_ms()

    def started(self, restore: RestorePoint | None) -> None:
        """Tell observers what the job consists of."""
        if self._observers:
            described = describe(
                self._plan, self._job_id, self._name, None if restore is None else restore.uri
            )
            tell_each(self._observers, lambda one: one.on_start(described))

    def restarts(self, attempt: int, error: PyFlinkStateError, restore: RestorePoint | None) -> None:
        """Tell that attempt number ``attempt`` will begin, because of ``error``."""
        self.log.restarts(attempt, error, restore)
        tell_each(self._listeners, lambda one: one.on_restart(attempt, error))

    def ended(self, status: JobStatus, cause: BaseException | None) -> None:
        """Tell how the job has ended."""
        if status is JobStatus.FAILED and cause is not None:
            tell_each(self._observers, lambda one: one.on_failure(cause))
        tell_each(self._listeners, lambda one: one.on_end(status))

    def result(self, epoch: int, restarts: int, checkpoints: Sequence[CheckpointStats]) -> JobExecutionResult:
        """Return what is known about the job at the end of ``epoch``."""
        return JobExecutionResult(
            job_id=self._job_id,
            accumulators=self.accumulators.total(epoch),
            rejected=self.accumulators.rejected(epoch),
            checkpoints=tuple(stats for stats in checkpoints if stats.failure is None),
            epochs=epoch,
            restarts=restarts,
            failed_checkpoints=tuple(stats for stats in checkpoints if stats.failure is not None),
            metrics=self.accumulators.metrics(),
            net_runtime_ms=self._runtime_ms(),
        )

    def _runtime_ms(self) -> int:
        """Return for how long the job has run, or ran."""
        if self._began_ms is None:
            return 0
        return (self._clock.monotonic_ms() if self._ended_ms is None else self._ended_ms) - self._began_ms

    # --- its epochs ----------------------------------------------------------------------------------

    def task_reported(self, report: TaskReport) -> None:
        """Count what a task reports at its end."""
        self.accumulators.add(report)
        self.timeline.reported(report)
        self.log.counted(report)

    def epoch_prepared(self, epoch: int, duration_ms: int, restarts: int, watermarks: dict[str, int]) -> None:
        """Tell of an epoch whose output is prepared."""
        stats = EpochStats(
            epoch, sum(self.accumulators.of_epoch(epoch, name) for name in self._read), duration_ms, restarts
        )
        self.log.epoch_ended(epoch)
        tell_each(self._listeners, lambda one: one.on_epoch(stats))
        if self._observers:
            report = self._report(stats, watermarks)
            tell_each(self._observers, lambda one: one.on_epoch_report(report))

    def _report(self, stats: EpochStats, watermarks: dict[str, int]) -> EpochReport:
        accumulators, timeline = self.accumulators, self.timeline
        return EpochReport(
            stats=stats,
            phases_ms=timeline.prepared(),
            counts=accumulators.of_tasks(stats.epoch),
            totals=accumulators.total(stats.epoch),
            watermarks=watermarks,
            metrics=accumulators.metrics_of_tasks(),
            statuses=timeline.statuses,
            samples=timeline.samples,
        )

    def committed(self, epoch: int, duration_ms: int) -> None:
        """Tell observers that the output up to an epoch is committed."""
        tell_each(self._observers, lambda one: one.on_commit(epoch, duration_ms))

    # --- its checkpoints -----------------------------------------------------------------------------

    def checkpoint_written(self, checkpoint_id: int, parts: Iterable[CheckpointPart]) -> None:
        """Tell observers what each subtask contributed to a checkpoint that is complete."""
        if self._observers:
            told = tuple(parts)
            tell_each(self._observers, lambda one: one.on_checkpoint_written(checkpoint_id, told))

    def checkpoint_ended(self, stats: CheckpointStats) -> None:
        """Tell of a checkpoint that is complete, or was aborted."""
        if stats.failure is None:
            tell_each(self._listeners, lambda one: one.on_checkpoint(stats))
        else:
            tell_each(self._listeners, lambda one: one.on_checkpoint_failed(stats))

    # --- what passes through -------------------------------------------------------------------------

    def printed(self, output: SlotOutput) -> None:
        """Pass on what user code has printed or logged in a slot."""
        log_output(output)
        tell_each(self._observers, lambda one: one.on_output(output))

    def sample(self, stream: str, for_ms: int) -> None:
        """Let observers see a few records of a stream, from any thread; see :meth:`Job.sample`."""
        self._sampled = {**self._sampled, stream: self._clock.monotonic_ms() + for_ms}

    def sampled_now(self) -> frozenset[str]:
        """Return the streams of which somebody wants to see a few records in the next epoch."""
        now_ms = self._clock.monotonic_ms()
        return frozenset(stream for stream, until_ms in self._sampled.items() if now_ms < until_ms)
