"""What a job tells: listeners and observers, the log, and whoever asks for its result.

What only observers hear of is not computed for a job that has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.master.deployment import RestorePoint
from pyflinkstate.runtime.master.reports.checkpoint_stats import CheckpointPart, CheckpointStats
from pyflinkstate.runtime.master.reports.description import describe
from pyflinkstate.runtime.master.reports.job_log import JobLog
from pyflinkstate.runtime.master.reports.observe import (
    Accumulators,
    EpochReport,
    EpochStats,
    JobExecutionResult,
    JobListener,
    JobObserver,
    log_output,
    tell_each,
)
from pyflinkstate.runtime.master.reports.timeline import EpochTimeline
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.settings import JobStatus
from pyflinkstate.runtime.wire import Clock, SlotOutput, TaskReport


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
            restored = None if restore is None else restore.uri
            described = describe(self._plan, self._job_id, self._name, restored)
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
        records = sum(self.accumulators.of_epoch(epoch, name) for name in self._read)
        stats = EpochStats(epoch, records, duration_ms, restarts)
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
