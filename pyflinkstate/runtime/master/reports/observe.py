"""What a job reports about itself while it runs and at its end."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import attrs

from pyflinkstate import notebook
from pyflinkstate.api.safe_repr import safe_repr, short_repr
from pyflinkstate.api.values import JobID
from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.master.reports.checkpoint_stats import CheckpointPart, CheckpointStats
from pyflinkstate.runtime.master.reports.description import JobDescription
from pyflinkstate.runtime.settings import JobStatus
from pyflinkstate.runtime.sources import RejectedRecord
from pyflinkstate.runtime.wire import MetricValues, SlotOutput, SubtaskStatus, TaskReport, added_up

_slots_log = logging.getLogger("pyflinkstate.slots")
_job_log = logging.getLogger("pyflinkstate.job")


def log_output(output: SlotOutput) -> None:
    """Log in the driver what user code printed or logged in a slot."""
    for level, line in output.lines:
        _slots_log.log(level, "%s: %s", output.slot, line)


@attrs.frozen
class EpochStats:
    """Statistics of one epoch. ``records`` counts the records from the source."""

    epoch: int
    records: int
    duration_ms: int
    restarts: int


class JobListener:
    """Override the methods for the events you want. They are called in the driver, between epochs.

    The job waits for each of them. What one raises is logged, and the job goes on, as in Flink.
    """

    def on_epoch(self, stats: EpochStats) -> None:
        """An epoch has run."""

    def on_checkpoint(self, stats: CheckpointStats) -> None:
        """A checkpoint or a savepoint is complete."""

    def on_checkpoint_failed(self, stats: CheckpointStats) -> None:
        """A checkpoint or a savepoint was aborted; ``stats.failure`` says why."""

    def on_end(self, status: JobStatus) -> None:
        """The job has ended."""

    def on_restart(self, attempt: int, error: PyFlinkStateError) -> None:
        """The job has failed with ``error``, and goes back to its last checkpoint.

        This is told at once, before the delay of the restart strategy.

        Args:
            attempt: the number of the restart, from 1.
            error: the failure.
        """


@attrs.frozen
class EpochReport:
    """All that is known about an epoch whose output is prepared.

    Attributes:
        stats: its statistics.
        phases_ms: how many milliseconds each phase took; see
            :mod:`pyflinkstate.runtime.master.reports.timeline`.
        counts: by task, the records that it counted in this epoch, by ``"<operator>.<what>"``. The task of a
            state slot is ``"<operator id>[<subtask>]"``.
        totals: the record counts of the whole job up to this epoch, as in :class:`JobExecutionResult`.
        watermarks: by the ids of assigners and operators.
        metrics: by task, the metrics of functions so far.
        statuses: by the task of each state slot, where its time went, its memory and its timers.
        samples: by the ids of streams that somebody looks at, a few records of the epoch as texts.
    """

    stats: EpochStats
    phases_ms: dict[str, int]
    counts: dict[str, dict[str, int]]
    totals: dict[str, int]
    watermarks: dict[str, int]
    metrics: dict[str, MetricValues]
    statuses: dict[str, SubtaskStatus] = attrs.Factory(dict)
    samples: dict[str, list[str]] = attrs.Factory(dict)


class JobObserver(JobListener):
    """A listener that is also told what costs a little to find out; a job without one does not.

    As with any listener, the methods are called on the thread of the job, which waits for them.
    """

    def on_start(self, job: JobDescription) -> None:
        """The job starts."""

    def on_epoch_report(self, report: EpochReport) -> None:
        """An epoch has run; this comes after :meth:`on_epoch`."""

    def on_commit(self, epoch: int, duration_ms: int) -> None:
        """The output up to an epoch is committed, which took ``duration_ms``."""

    def on_checkpoint_written(self, checkpoint_id: int, parts: tuple[CheckpointPart, ...]) -> None:
        """A checkpoint is complete; this comes before :meth:`on_checkpoint`."""

    def on_output(self, output: SlotOutput) -> None:
        """User code has printed or logged lines in a state slot."""

    def on_failure(self, error: BaseException) -> None:
        """The job has failed and does not restart; this comes before :meth:`on_end`."""


_L = TypeVar("_L", bound=JobListener)


def tell_each(listeners: Iterable[_L], tell: Callable[[_L], None]) -> None:
    """Tell each listener something. What one of them raises is logged, and costs nobody else anything."""
    for listener in listeners:
        try:
            tell(listener)
        except Exception:  # noqa: BLE001 - as in Flink, no error of a listener concerns the job
            _job_log.exception("listener %s has raised an error; the job goes on", safe_repr(listener))


@attrs.frozen
class JobExecutionResult:
    """The result of a job that has ended (PyFlink: ``JobExecutionResult``).

    Attributes:
        job_id: the id of the job, which is the folder of its checkpoints.
        accumulators: record counts by ``"<operator>.<what>"``, exact over restarts and restores:
            ``records_out`` and ``records_malformed`` of sources, ``records_dropped`` of filters,
            ``records_in`` and ``records_out`` of keyed operators, ``side_output.<tag>`` of operators that
            emit to side outputs.
        rejected: malformed rows that the policy ``collect`` removed in this run.
        checkpoints: the checkpoints and savepoints that this run completed, in order; of all that completed
            or failed, only the last 10,000 are kept.
        epochs: the number of the last epoch.
        restarts: number of times this run went back to a checkpoint.
        failed_checkpoints: the checkpoints that were aborted, in order, including those pending at the end,
            as far as they are among these 10,000.
        metrics: the metrics of functions by ``"<operator>.<group>.<name>"``, summed over all subtasks; they
            are not exact over restarts.
        net_runtime_ms: the duration of this run in milliseconds, so far if the job is still running.
    """

    job_id: str
    accumulators: dict[str, int] = attrs.field(repr=short_repr)
    rejected: tuple[RejectedRecord, ...] = attrs.field(repr=short_repr)
    checkpoints: tuple[CheckpointStats, ...] = attrs.field(repr=short_repr)
    epochs: int
    restarts: int
    failed_checkpoints: tuple[CheckpointStats, ...] = attrs.field(default=(), repr=short_repr)
    metrics: MetricValues = attrs.field(factory=dict, repr=short_repr)
    net_runtime_ms: int = 0

    def _repr_html_(self) -> str:
        last = self.checkpoints[-1] if self.checkpoints else None
        about = notebook.facts(
            f"job {self.job_id}",
            [
                ("epochs", self.epochs),
                ("restarts", self.restarts),
                ("ran for", f"{self.net_runtime_ms / 1000:.1f} s"),
                ("checkpoints", f"{len(self.checkpoints)}, {len(self.failed_checkpoints)} failed"),
                ("last checkpoint", None if last is None else last.uri),
                ("rejected rows", len(self.rejected) or None),
            ],
        )
        return about + notebook.table("records", ["count", "number"], sorted(self.accumulators.items()))

    def get_job_id(self) -> JobID:
        """Return the job's id."""
        return JobID(self.job_id)

    def get_net_runtime(self) -> int:
        """Return how long this run took, in milliseconds, from its start to its end."""
        return self.net_runtime_ms

    def get_all_accumulator_results(self) -> dict[str, int]:
        """Return all counts."""
        return dict(self.accumulators)

    def get_accumulator_result(self, accumulator_name: str) -> int:
        """Return one count, or 0 if nothing was counted."""
        return self.accumulators.get(accumulator_name, 0)


class Accumulators:
    """Record counts by epoch and task, so that a replayed epoch or a retried task replaces itself."""

    def __init__(self) -> None:
        self._base: Counter[str] = Counter()
        self._base_epoch = 0
        self._counts: dict[tuple[int, str], dict[str, int]] = {}
        self._rejected: dict[tuple[int, str], tuple[Any, ...]] = {}
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
