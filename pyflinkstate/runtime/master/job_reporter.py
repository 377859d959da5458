"""What a job tells: listeners and observers, the log, and whoever asks for its result.

Under ``pyflinkstate.checkpoints`` it logs each of its checkpoints.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from pyflinkstate.errors import JobCancelledError, PyFlinkStateError
from pyflinkstate.runtime.master.deployment import RestorePoint
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
from pyflinkstate.runtime.operators import LATE_RECORDS_DROPPED
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.settings import CheckpointSettings, JobStatus
from pyflinkstate.runtime.sinks import SinkTotals
from pyflinkstate.runtime.tasks import MOST_RECORDS
from pyflinkstate.runtime.wire import (
    Address,
    Clock,
    MetricValues,
    SlotOutput,
    SubtaskStatus,
    TaskReport,
    added_up,
)

_log = logging.getLogger("pyflinkstate.job")

_LATE_SUFFIX = f".{LATE_RECORDS_DROPPED}"


class JobLog:
    """The log of one job.

    Args:
        name: of the job.
        job_id: the folder of its checkpoints.
    """

    def __init__(self, name: str, job_id: str) -> None:
        self._job = f"job {name!r} ({job_id})"
        #: By operator and slot: the late records that the slot has dropped.
        self._late: dict[str, dict[str, int]] = {}
        self._told_late: set[str] = set()

    def started(self, address: Address, restore: RestorePoint | None) -> None:
        """Its driver listens at ``address``."""
        begin = "from the beginning" if restore is None else f"from {restore.uri}"
        _log.info("%s starts %s; its driver listens at %s:%d", self._job, begin, address.host, address.port)

    def restarts(self, attempt: int, error: PyFlinkStateError, restore: RestorePoint | None) -> None:
        """Its attempt number ``attempt`` begins, because of ``error``."""
        begin = "from the beginning" if restore is None else f"from {restore.uri}"
        _log.warning("%s restarts %s, restart %d, because of %s", self._job, begin, attempt, _whole(error))

    def falls_back(self, error: PyFlinkStateError, uri: str) -> None:
        """A checkpoint is damaged, and the job goes back to the one before it."""
        _log.warning("%s: %s; going back to %s", self._job, error, uri)

    def not_ahead(self, epoch: int, error: PyFlinkStateError) -> None:
        """An epoch could not be planned while the one before it runs; it is tried again in its turn."""
        _log.debug("%s: epoch %d is not read ahead: %s", self._job, epoch, _whole(error))

    def counted(self, report: TaskReport) -> None:
        """A slot tells its metrics: note the late records among them."""
        for name, value in report.metrics.items():
            if value.count and name.endswith(_LATE_SUFFIX):
                self._late.setdefault(name.removesuffix(_LATE_SUFFIX), {})[report.task] = value.count

    def epoch_ended(self, epoch: int) -> None:
        """Say once of each operator that it drops late records."""
        for operator in self._late.keys() - self._told_late:
            self._told_late.add(operator)
            _log.warning(
                "%s: operator %r has dropped %d late records up to epoch %d, and goes on to drop them; "
                "side_output_late_data() collects them, allowed_lateness() still takes them, and the metric "
                "%s%s counts them",
                self._job,
                operator,
                sum(self._late[operator].values()),
                epoch,
                operator,
                _LATE_SUFFIX,
            )

    def failed_late(self, error: PyFlinkStateError) -> None:
        """Something has failed when all results were committed."""
        _log.warning("%s has ended, but: %s", self._job, error)

    def source_not_closed(self, error: BaseException) -> None:
        """Its source could not be closed at the end of a job that had not ended well anyway."""
        _log.warning("%s: its source could not be closed: %s", self._job, _whole(error))

    def ended(
        self,
        status: JobStatus,
        epoch: int,
        error: BaseException | None,
        is_heard: bool,
        restore: RestorePoint | None = None,
    ) -> None:
        """It has ended.

        Args:
            status: how.
            epoch: the last one that has run.
            error: why, unless well.
            is_heard: whether the error is raised where somebody waits for it. Otherwise this log has it.
            restore: the checkpoint from which it goes on, if it is started again.
        """
        late = sum(sum(slots.values()) for slots in self._late.values())
        ran = f"{self._job} is {status.name} after epoch {epoch}" + (
            f", {late} late records dropped" * bool(late)
        )
        if (by := told_to_end_by(error)) and status is JobStatus.CANCELED:
            goes_on = "" if restore is None else f"; it goes on from {restore.uri}"
            _log.warning("%s, by %s%s", ran, by, goes_on)
        elif status is not JobStatus.FAILED or error is None:
            _log.info("%s", ran)
        elif is_heard:
            _log.info("%s: %s", ran, _whole(error).splitlines()[0])
        else:
            _log.error("%s: %s", ran, _whole(error))


def told_to_end_by(error: BaseException | None) -> str:
    """Return the signal or exception by which the program is told to end; empty if it is not."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return type(error).__name__
    return str(error.context.get("by", "")) if isinstance(error, JobCancelledError) else ""


def _whole(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


_checkpoint_log = logging.getLogger("pyflinkstate.checkpoints")

#: What takes less is not slow, however short the interval is.
SLOW_MS = 1000


class CheckpointLog:
    """The log of one job's checkpoints.

    A checkpoint is slow if it took more than a second after its epoch had ended, and more than the interval
    or than half of its timeout. The first slow one in a row is a warning.
    """

    def __init__(self, job_name: str, settings: CheckpointSettings) -> None:
        self._job_name = job_name
        self._settings = settings
        self._is_slow = False

    def completed(self, stats: CheckpointStats, after_epoch_ms: int) -> None:
        """It exists, ``after_epoch_ms`` after its epoch had ended."""
        why = self._slowness(stats, after_epoch_ms)
        level = logging.WARNING if why and not self._is_slow else logging.INFO
        self._is_slow = bool(why)
        _checkpoint_log.log(
            level,
            "job %r: %s is complete after %d ms%s (synchronous part %.1f ms, asynchronous part %.0f ms, "
            "%d bytes written, %d to restore)",
            self._job_name,
            _name(stats),
            stats.duration_ms,
            f", {after_epoch_ms} ms of it after its epoch, which is {why}" if why else "",
            stats.sync_ms,
            stats.async_ms,
            stats.checkpointed_bytes,
            stats.size_bytes,
        )

    def failed(self, stats: CheckpointStats) -> None:
        """It could not be written."""
        _checkpoint_log.warning("job %r: %s has failed: %s", self._job_name, _name(stats), stats.failure)

    def given_up(self, stats: CheckpointStats) -> None:
        """It is not needed any more, or the attempt that it belongs to is over."""
        _checkpoint_log.info("job %r: %s was given up: %s", self._job_name, _name(stats), stats.failure)

    def _slowness(self, stats: CheckpointStats, after_epoch_ms: int) -> str:
        interval_ms, timeout_ms = self._settings.interval_ms, self._settings.timeout_ms
        if after_epoch_ms <= SLOW_MS:
            return ""
        if after_epoch_ms * 2 > timeout_ms:
            return f"more than half of its timeout of {timeout_ms} ms"
        if interval_ms and after_epoch_ms > interval_ms and not stats.is_savepoint:
            return f"more than the interval of {interval_ms} ms"
        return ""


def _name(stats: CheckpointStats) -> str:
    kind = "savepoint" if stats.is_savepoint else "checkpoint"
    return f"{kind} {stats.checkpoint_id} of epoch {stats.epoch}"


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
        #: By slot or source task: what it knew of itself at its end of the epoch.
        self.statuses: dict[str, SubtaskStatus] = {}
        #: By slot: the latencies of markers, by the ids of sources.
        self.latencies_ms: dict[str, dict[str, list[float]]] = {}
        #: How many epochs were planned or running when this one ended.
        self.in_flight = 1
        #: By attempt and epoch, and stream: a few records.
        self._samples: dict[tuple[int, int], dict[str, list[str]]] = {}

    def begin(self) -> None:
        """The job asks the source for the next epoch."""
        self._ends = [self._now_ms()] * len(self._ends)
        self.statuses, self.latencies_ms = {}, {}

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
        if report.vertex is not None:
            self.latencies_ms[report.task] = report.vertex.latencies_ms
            if report.vertex.status is not None:
                self.statuses[report.task] = report.vertex.status
        elif report.slot is not None:
            if report.slot.status is not None:
                self.statuses[report.task] = report.slot.status
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
        #: By slot, or task whose functions stay open: all metrics so far. By other tasks: the sums over runs.
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
        if report.metrics and report.are_totals:
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


class Progress:
    """Notes when a job made progress last; any thread may ask.

    A job makes progress if it runs an epoch that it has not run before, commits, or has nothing to do.

    Args:
        now_ms: returns the monotonic time.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._at_ms = now_ms()
        self._furthest = 0

    def made(self) -> None:
        """Note that the job makes progress."""
        self._at_ms = self._now_ms()

    def reached(self, epoch: int) -> None:
        """Note that an epoch has run; one that is run again after a failure does not count."""
        if epoch > self._furthest:
            self._furthest = epoch
            self.made()

    def missing_ms(self) -> int:
        """Return for how long the job has made no progress."""
        return self._now_ms() - self._at_ms


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
        self.progress = Progress(clock.monotonic_ms)

    # --- the job as a whole --------------------------------------------------------------------------

    def begin(self) -> None:
        """Note that the job begins."""
        self._began_ms = self._clock.monotonic_ms()
        self.progress.made()

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
        self.progress.reached(epoch)
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
            latencies_ms=timeline.latencies_ms,
            in_flight=timeline.in_flight,
        )

    def committed(self, epoch: int, duration_ms: int, sinks: SinkTotals) -> None:
        """Tell observers that the output up to an epoch is committed."""
        self.progress.made()
        tell_each(self._observers, lambda one: one.on_commit(epoch, duration_ms, sinks))

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
