"""What listeners and observers are told about a job, and its result: plain values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

import attrs

from pyflinkstate import notebook
from pyflinkstate.api import JobID, safe_repr, short_repr
from pyflinkstate.backends.format import OperatorSubtaskState
from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.plan import (
    CHECK,
    Branch,
    ChainNode,
    Exchange,
    JobPlan,
    SinkNode,
    SourceNode,
    StatefulNode,
)
from pyflinkstate.runtime.settings import JobStatus
from pyflinkstate.runtime.sinks import SinkTotals
from pyflinkstate.runtime.sources import RejectedRecord
from pyflinkstate.runtime.wire import MetricValues, SlotId, SlotOutput, SubtaskStatus


@attrs.frozen
class JobEdge:
    """Records of one vertex go to another one.

    Attributes:
        source: the id of the vertex that they come from.
        target: the id of the vertex that they go to.
        chain: the names of the operators without state that they pass on the way, in order.
        side_output: the id of the side output; None for the main output.
    """

    source: str
    target: str
    chain: tuple[str, ...] = ()
    side_output: str | None = None


@attrs.frozen
class JobVertex:
    """A stage of a job (Flink: ``JobVertex``).

    Attributes:
        id: unique in the job. For an operator with state it is the id in checkpoints.
        name: the name that the program chose, under which records are counted.
        kind: ``source``, ``exchange``, ``chain``, ``keyed`` or ``sink``. ``keyed`` are all operators that
            live in state slots.
        parallelism: the number of its subtasks; None for the number of partitions of its input.
        max_parallelism: the number of its key groups; None if it has none.
    """

    id: str
    name: str
    kind: str
    parallelism: int | None = None
    max_parallelism: int | None = None


@attrs.frozen
class JobDescription:
    """What a job consists of.

    Attributes:
        job_id: the id of the job.
        name: its name.
        vertices: its stages; each comes after those that it reads.
        edges: which stage reads which.
        restored_from: the URI of the checkpoint that it starts from; None if it starts from the beginning.
    """

    job_id: str
    name: str
    vertices: tuple[JobVertex, ...]
    edges: tuple[JobEdge, ...]
    restored_from: str | None = None


_Vertex = SourceNode | StatefulNode | ChainNode | Exchange | SinkNode


def describe(plan: JobPlan, job_id: str, name: str, restored_from: str | None = None) -> JobDescription:
    """Return what a plan consists of."""
    nodes: list[_Vertex] = [*plan.stages, *plan.sinks]
    vertices = {node: _vertex(plan, node) for node in nodes}
    edges = [
        JobEdge(vertices[branch.stage].id, vertices[head].id, _names(branch), branch.tag_id)
        for head in plan.heads()
        for branch in plan.branches(head)
        if branch.stage in vertices
    ]
    return JobDescription(job_id, name, tuple(vertices.values()), tuple(edges), restored_from)


def _vertex(plan: JobPlan, node: _Vertex) -> JobVertex:
    if isinstance(node, StatefulNode):
        settled = plan.operator_of(node)
        return JobVertex(
            settled.operator_id, settled.name, "keyed", settled.parallelism, settled.max_parallelism
        )
    vertex_id = plan.vertex_id(node)
    if isinstance(node, Exchange):
        return JobVertex(vertex_id, node.name, "exchange", node.parallelism)
    kind = {SourceNode: "source", SinkNode: "sink"}.get(type(node), "chain")
    return JobVertex(vertex_id, node.name, kind, getattr(node, "parallelism", None))


def _names(branch: Branch) -> tuple[str, ...]:
    return tuple(operator.name for operator in branch.operators if operator.kind != CHECK)


#: So many operators are named in one line.
MOST_NAMES = 12


def outline(plan: JobPlan, page: str | None) -> str:
    """Return the names of all that a plan consists of in one line, and where the page of the job is."""
    names = [one.name for of_kind in (plan.sources, plan.operators, plan.sinks) for one in of_kind]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return " → ".join(names[:MOST_NAMES]) + more + (f"; {page}" if page else "")


@attrs.frozen
class CheckpointStats:
    """Statistics of one checkpoint or savepoint that has completed or failed.

    Attributes:
        checkpoint_id: the ``n`` of its folder ``chk-n``.
        epoch: the last epoch that it covers.
        sync_ms: the longest synchronous part of any subtask, during which records waited.
        async_ms: the longest asynchronous part of any subtask, during which records went on.
        size_bytes: the total size of the state files that a restore from it reads (Flink: full size). With
            incremental checkpoints, it grows with each increment, and falls when all state is written again.
        checkpointed_bytes: the total size of the state files that were written for it.
        triggered_ms: when it was triggered, in ms since 1970.
        duration_ms: the time from the moment when the first subtask reached its barrier until it completed
            or was aborted. Both parts of every subtask are in it.
        is_incremental: whether only changes were written.
        is_savepoint: whether it is a savepoint.
        uri: its folder; None if it failed, as the folder is then deleted.
        failure: why it failed; None if it completed.
    """

    checkpoint_id: int
    epoch: int
    sync_ms: float = 0.0
    async_ms: float = 0.0
    size_bytes: int = 0
    checkpointed_bytes: int = 0
    triggered_ms: int = 0
    duration_ms: int = 0
    is_incremental: bool = False
    is_savepoint: bool = False
    uri: str | None = None
    failure: str | None = None

    def _repr_html_(self) -> str:
        kind = "savepoint" if self.is_savepoint else "checkpoint"
        return notebook.facts(
            f"{kind} {self.checkpoint_id}",
            [
                ("failure", self.failure),
                ("epoch", self.epoch),
                ("size", None if self.failure else notebook.size(self.size_bytes)),
                ("written", None if self.failure else notebook.size(self.checkpointed_bytes)),
                ("took", f"{self.duration_ms} ms, records waited {self.sync_ms:.1f} ms"),
                ("folder", self.uri),
            ],
        )


@attrs.frozen
class CheckpointPart:
    """What one subtask contributed to a completed checkpoint.

    Attributes:
        slot: the subtask.
        sync_ms: its synchronous part, during which its records waited.
        async_ms: its asynchronous part, during which its records went on.
        checkpointed_bytes: the size of what it wrote for this checkpoint.
        state: handles of all its state, with what it wrote for earlier checkpoints.
    """

    slot: SlotId
    sync_ms: float
    async_ms: float
    checkpointed_bytes: int
    state: OperatorSubtaskState


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

    def on_epoch(self, stats: EpochStats, /) -> None:
        """An epoch has run."""

    def on_checkpoint(self, stats: CheckpointStats, /) -> None:
        """A checkpoint or a savepoint is complete."""

    def on_checkpoint_failed(self, stats: CheckpointStats, /) -> None:
        """A checkpoint or a savepoint was aborted; ``stats.failure`` says why."""

    def on_end(self, status: JobStatus, /) -> None:
        """The job has ended."""

    def on_restart(self, attempt: int, error: PyFlinkStateError, /) -> None:
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
            :mod:`pyflinkstate.runtime.master.job_reporter`.
        counts: by task, the records that it counted in this epoch, by ``"<operator>.<what>"``. The task of a
            state slot is ``"<operator id>[<subtask>]"``.
        totals: the record counts of the whole job up to this epoch, as in :class:`JobExecutionResult`.
        watermarks: by the ids of assigners and operators.
        metrics: by task, the metrics of functions so far.
        statuses: by the task of each state slot, where its time went, its memory and its timers. In the
            pipelined engine source tasks are among them.
        samples: by the ids of streams that somebody looks at, a few records of the epoch as texts.
        latencies_ms: by task and the id of a source, how long markers of latency were on their way.
        in_flight: how many epochs were planned or running when this one ended, itself included.
    """

    stats: EpochStats
    phases_ms: dict[str, int]
    counts: dict[str, dict[str, int]]
    totals: dict[str, int]
    watermarks: dict[str, int]
    metrics: dict[str, MetricValues]
    statuses: dict[str, SubtaskStatus] = attrs.Factory(dict)
    samples: dict[str, list[str]] = attrs.Factory(dict)
    latencies_ms: dict[str, dict[str, list[float]]] = attrs.Factory(dict)
    in_flight: int = 1


class JobObserver(JobListener):
    """A listener that is also told what costs a little to find out; a job without one does not.

    As with any listener, the methods are called on the thread of the job, which waits for them.
    """

    def on_start(self, job: JobDescription) -> None:
        """The job starts."""

    def on_epoch_report(self, report: EpochReport) -> None:
        """An epoch has run; this comes after :meth:`on_epoch`."""

    def on_commit(self, epoch: int, duration_ms: int, sinks: SinkTotals) -> None:
        """The output up to an epoch is committed, which took ``duration_ms``; ``sinks``: by their names."""

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
