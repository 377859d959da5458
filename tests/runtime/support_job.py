"""What tests of the job master share: a runner that takes Spark's place, and jobs made around it.

The runner does what Spark does and no more: it calls the tasks that ``runtime.spark`` would ship, one
after the other in one thread, and sorts frames between them. Everything else is the real thing.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import attrs
from support_runtime import PATIENCE_S, ManualClock

from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.errors import PyFlinkStateError, SparkJobError
from pyflinkstate.runtime.checkpoint_config import ExternalizedCheckpointRetention
from pyflinkstate.runtime.checkpointing import RestorePoint
from pyflinkstate.runtime.control import ControlServer, Endpoint
from pyflinkstate.runtime.coordinator import CheckpointSettings
from pyflinkstate.runtime.epochs import EpochEnded, EpochRequest, EpochRunner
from pyflinkstate.runtime.frames import FrameKey, Router
from pyflinkstate.runtime.job import Job, JobSettings
from pyflinkstate.runtime.observe import CheckpointStats, EpochStats, JobListener, JobStatus
from pyflinkstate.runtime.plan import KeyedNode, Node, SinkNode, SourceNode, make_plan, upstream
from pyflinkstate.runtime.restart import FixedDelayRestart, RestartStrategy
from pyflinkstate.runtime.sinks import Sink
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.runtime.storage import CheckpointStorage
from pyflinkstate.runtime.tasks import ChainTask, RouteTask, SinkTask, SlotTask, SourceTask

Partitions = list[list[Any]]
Hook = Callable[[EpochRequest], None]

EVERY_EPOCH = CheckpointSettings(interval_ms=0)
NO_RESTART = FixedDelayRestart(0, 0)


class LocalRunner(EpochRunner):
    """Runs epochs in threads of this process.

    ``before`` and ``after`` are called with each request around its tasks; what they raise fails the
    epoch, as Spark's own failures do.
    """

    def __init__(self) -> None:
        self.requests: list[EpochRequest] = []
        self.cancelled = 0
        self.before: Hook = lambda request: None
        self.after: Hook = lambda request: None

    def start(self, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        self.requests.append(request)
        threading.Thread(target=lambda: done(self._run(request)), daemon=True).start()

    def cancel(self) -> None:
        self.cancelled += 1

    def _run(self, request: EpochRequest) -> EpochEnded:
        try:
            self.before(request)
            stages: dict[Node, Partitions] = {}
            results = [self._sink(request, sink, stages) for sink in request.plan.sinks]
            self.after(request)
        except PyFlinkStateError as error:
            return EpochEnded(None, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, Spark makes text of it
            return EpochEnded(None, SparkJobError(f"{type(error).__name__}: {error}"))
        return EpochEnded(results, None)

    def _sink(self, request: EpochRequest, sink: SinkNode, stages: dict[Node, Partitions]) -> list[Any]:
        chain, partitions = self._chain(request, sink.parent, stages)
        task = SinkTask(chain, sink.name, sink.sink.writer(request.link.epoch))
        return [result for number, records in enumerate(partitions) for result in task(number, records)]

    def _chain(
        self, request: EpochRequest, node: Node, stages: dict[Node, Partitions]
    ) -> tuple[ChainTask, Partitions]:
        stage, operators = upstream(node)
        if stage not in stages:
            made = self._source if isinstance(stage, SourceNode) else self._keyed
            stages[stage] = made(request, stage, stages)
        chain = ChainTask(
            request.link, stage.name, operators, len(stages[stage]), isinstance(stage, KeyedNode)
        )
        return chain, stages[stage]

    def _source(self, request: EpochRequest, node: SourceNode, _: Any) -> Partitions:
        if request.epoch is None:
            return [[]]
        task = SourceTask(request.link, node.name, request.epoch.read)
        return [list(task(number, [split])) for number, split in enumerate(request.epoch.splits)]

    def _keyed(self, request: EpochRequest, node: KeyedNode, stages: dict[Node, Partitions]) -> Partitions:
        operator = request.plan.operator_of(node)
        chain, partitions = self._chain(request, node.parent, stages)
        router = Router(
            operator.name, node.select_key, node.key_type, operator.parallelism, operator.max_parallelism
        )
        frames: dict[int, list[tuple[FrameKey, bytes]]] = defaultdict(list)
        for number, records in enumerate(partitions):
            for key, data in RouteTask(chain, operator.operator_id, router)(number, records):
                frames[key[0]].append((key, data))
        task = SlotTask(request.link, operator.operator_id, operator.name, request.barrier, request.addresses)
        return [list(task(subtask, sorted(frames[subtask]))) for subtask in range(operator.parallelism)]


@attrs.define
class Heard(JobListener):
    """Notes what a listener is told; completed checkpoints can also be waited for."""

    epochs: list[EpochStats] = attrs.Factory(list)
    checkpoints: list[CheckpointStats] = attrs.Factory(list)
    failed: list[CheckpointStats] = attrs.Factory(list)
    restarts: list[tuple[int, PyFlinkStateError]] = attrs.Factory(list)
    ended: list[JobStatus] = attrs.Factory(list)
    _completed: queue.SimpleQueue[CheckpointStats] = attrs.Factory(queue.SimpleQueue)

    def await_checkpoint(self) -> CheckpointStats:
        """Return the next completed checkpoint; called from the runner's thread."""
        return self._completed.get(timeout=PATIENCE_S)

    def on_epoch(self, stats: EpochStats) -> None:
        self.epochs.append(stats)

    def on_checkpoint(self, stats: CheckpointStats) -> None:
        self.checkpoints.append(stats)
        self._completed.put(stats)

    def on_checkpoint_failed(self, stats: CheckpointStats) -> None:
        self.failed.append(stats)

    def on_restart(self, attempt: int, error: PyFlinkStateError) -> None:
        self.restarts.append((attempt, error))

    def on_end(self, status: JobStatus) -> None:
        self.ended.append(status)


def control(secret: bytes, events: queue.SimpleQueue[Any], deployments: Any) -> ControlServer:
    """Return the real endpoint, on this host."""
    return ControlServer(Endpoint(), secret, events, deployments)


@attrs.define
class JobRun:
    """One job, and all that a test may look at or change before it runs it."""

    end: Node
    sink: Sink
    storage: CheckpointStorage | None = None
    restore: RestorePoint | None = None
    name: str = "orders"
    parallelism: int = 1
    max_parallelism: int | None = None
    checkpoints: CheckpointSettings = EVERY_EPOCH
    restart: RestartStrategy = NO_RESTART
    state_backend: HashMapStateBackend = attrs.Factory(HashMapStateBackend)
    retention: ExternalizedCheckpointRetention | None = None
    allow_non_restored_state: bool = False
    fall_back: bool = False
    runner: LocalRunner = attrs.Factory(LocalRunner)
    clock: ManualClock = attrs.Factory(ManualClock)
    heard: Heard = attrs.Factory(Heard)

    def job(self) -> Job:
        plan = make_plan([SinkNode(self.end, self.sink, "sink")], self.parallelism, self.max_parallelism)
        settings = JobSettings(
            self.name,
            self.checkpoints,
            self.restart,
            (self.heard,),
            self.state_backend,
            self.retention,
            self.allow_non_restored_state,
            self.fall_back,
        )
        return Job(plan, settings, self.runner, control, self.clock, self.storage, self.restore)

    def run(self) -> Job:
        """Run to the end; returns the job that has ended."""
        job = self.job()
        for _ in job.run():
            pass
        return job


def numbers(count: int = 10, records_per_epoch: int = 3) -> SourceNode:
    return SourceNode(CollectionSource(list(range(count)), records_per_epoch), "numbers")


def latest(storage: CheckpointStorage, name: str = "orders") -> RestorePoint:
    """Return what a job is restored from."""
    metadata = storage.load_latest(name)
    return restore_point(storage, metadata.job_id, metadata.checkpoint_id)


def restore_point(storage: CheckpointStorage, job_id: str, checkpoint_id: int) -> RestorePoint:
    """Return a certain checkpoint as one to restore from."""
    uri = storage.uri_of(job_id, checkpoint_id)
    return RestorePoint(storage.load(uri), uri)


def once(error: PyFlinkStateError, epoch: int, times: int = 1) -> Hook:
    """Return a hook that fails an epoch the first ``times`` times that it is run."""
    left: Iterator[PyFlinkStateError] = iter([error] * times)

    def fail(request: EpochRequest) -> None:
        if request.link.epoch == epoch and (found := next(left, None)) is not None:
            raise found

    return fail


def counts(job: Job) -> dict[str, int]:
    """Return what a job counted; what was never met may be there as 0 or not at all."""
    return {name: count for name, count in job.result().accumulators.items() if count}
