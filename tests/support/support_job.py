"""What tests of the job master share: a runner that takes Spark's place, and jobs made around it.

The runner does what Spark does and no more: it calls the tasks that ``runtime.spark`` would ship, one
after the other in one thread, and sorts frames between them. Everything else is the real thing.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

import attrs
import pytest
from support_runtime import PATIENCE_S, ManualClock

from pyflinkstate import HashMapStateBackend
from pyflinkstate.errors import PyFlinkStateError, SparkJobError
from pyflinkstate.runtime.engine import EpochEnded, EpochGraph, EpochRequest, EpochRunner, SlotsRequest, Task
from pyflinkstate.runtime.master import (
    CheckpointStats,
    EpochStats,
    FlowSettings,
    Job,
    JobListener,
    JobParts,
    JobSettings,
    RestorePoint,
)
from pyflinkstate.runtime.plan import Node, SinkNode, SourceNode, make_plan
from pyflinkstate.runtime.settings import (
    CheckpointSettings,
    ExternalizedCheckpointRetention,
    JobStatus,
    StopSettings,
)
from pyflinkstate.runtime.settings.restart import FixedDelayRestart, RestartStrategy
from pyflinkstate.runtime.sinks import DriverSink, Sink
from pyflinkstate.runtime.slots import ControlServer, Endpoint
from pyflinkstate.runtime.sources import Available, CollectionSource, Epoch, RddEpoch, Source, SplitEpoch
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.tasks import StartSlotsTask

Partitions = list[list[Any]]
Hook = Callable[[EpochRequest], object]
Failure = TypeVar("Failure", bound=BaseException)

EVERY_EPOCH = CheckpointSettings(interval_ms=0)
NO_RESTART = FixedDelayRestart(0, 0)


class LocalRunner(EpochRunner):
    """Runs epochs in threads of this process.

    ``before`` and ``after`` are called with each request around its tasks; what they raise fails the
    epoch, as Spark's own failures do.
    """

    def __init__(self) -> None:
        self.requests: list[EpochRequest] = []
        self.started: list[SlotsRequest] = []
        self.cancelled = 0
        self._gives_up = threading.Event()
        self.thread: threading.Thread
        self.before: Hook = lambda request: None
        self.after: Hook = lambda request: None
        self.starts: Callable[[SlotsRequest], None] = self.start_each
        #: The requests for epochs that were to be shuffled ahead, and what is kept of the last one.
        self.requests_ahead: list[EpochRequest] = []
        self.before_ahead: Hook = lambda request: None
        self.after_ahead: Hook = lambda request: None
        self._taken = self._ahead = LocalAhead()
        #: Set when what is shuffled ahead is cancelled.
        self.gives_up_ahead = threading.Event()

    def start(self, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        self.requests.append(request)
        self._taken, self._ahead = self._ahead, LocalAhead()
        self._in_thread(lambda: self._run(request), done)

    def shuffle_ahead(self, request: EpochRequest, done: Callable[[], None]) -> None:
        self.requests_ahead.append(request)
        self._ahead = LocalAhead()
        self.gives_up_ahead = self._ahead.gives_up

        def told() -> None:
            done()
            self.after_ahead(request)

        self._ahead.start(request, lambda: self.before_ahead(request), told)

    def start_slots(self, request: SlotsRequest, done: Callable[[EpochEnded], None]) -> None:
        self.started.append(request)
        self._in_thread(lambda: self._start(request), done)

    def start_each(self, request: SlotsRequest) -> None:
        """Start the slots of a request, one after the other."""
        for number, slot in enumerate(request.slots):
            list(StartSlotsTask(request.link)(number, [slot]))

    def cancel(self) -> None:
        self.cancelled += 1
        self._gives_up.set()
        self.gives_up_ahead.set()

    def lost(self) -> PyFlinkStateError | None:
        return None if self.thread.is_alive() else SparkJobError("its thread ended without a result")

    def _in_thread(self, work: Callable[[], list[list[Any]]], done: Callable[[EpochEnded], None]) -> None:
        self._gives_up = threading.Event()
        self.thread = threading.Thread(target=lambda: done(_ended(work)), daemon=True)
        self.thread.start()

    def _run(self, request: EpochRequest) -> list[list[Any]]:
        self.before(request)
        results = self._results(request)
        self.after(request)
        return results

    def _start(self, request: SlotsRequest) -> list[list[Any]]:
        self.starts(request)
        return []

    def _results(self, request: EpochRequest) -> list[list[Any]]:
        graph = self._taken.graph_for(request) or LocalGraph(request)
        graph.gives_up = self._gives_up
        return [list(chain.from_iterable(graph.written(sink))) for sink in request.plan.sinks]


def _ended(work: Callable[[], list[list[Any]]]) -> EpochEnded:
    try:
        return EpochEnded(work(), None)
    except PyFlinkStateError as error:
        return EpochEnded(None, error)
    except Exception as error:  # noqa: BLE001 - whatever it is, Spark makes text of it
        return EpochEnded(None, SparkJobError(f"{type(error).__name__}: {error}"))


class LocalAhead:
    """The map side of an epoch, run while the epoch before it runs."""

    def __init__(self) -> None:
        self.gives_up = threading.Event()
        self._thread = threading.Thread()
        self._graph: LocalGraph | None = None

    def start(self, request: EpochRequest, before: Callable[[], None], done: Callable[[], None]) -> None:
        """Run it in a thread of its own."""
        graph = LocalGraph(request)
        graph.gives_up = self.gives_up

        def run() -> None:
            try:
                before()
                graph.shuffled_ahead()
                self._graph = graph
            except Exception:  # noqa: BLE001 - the epoch does it again, and tells what is wrong
                pass
            finally:
                done()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def graph_for(self, request: EpochRequest) -> LocalGraph | None:
        """Wait for its end; returns the graph if it belongs to the request."""
        if self._thread.ident is not None:
            self._thread.join()
        graph, self._graph = self._graph, None
        if graph is None or graph.request.epoch is not request.epoch or graph.request.link != request.link:
            return None
        graph.request = request
        return graph


class LocalGraph(EpochGraph[Partitions]):
    """The tasks of one epoch, run one after the other in this process; ``gives_up`` ends them."""

    def __init__(self, request: EpochRequest) -> None:
        super().__init__(request)
        self.gives_up = threading.Event()

    def read(self, epoch: SplitEpoch | RddEpoch | None) -> Partitions:
        return [[]] if epoch is None else [[split] for split in epoch.splits]  # type: ignore[union-attr]

    def transform(self, data: Partitions, task: Task, name: str) -> Partitions:
        return [list(self._until_cancelled(task(number, records))) for number, records in enumerate(data)]

    def _until_cancelled(self, results: Iterator[Any]) -> Iterator[Any]:
        assert isinstance(results, Generator)
        with closing(results):  # an error that a test keeps would keep its connections open
            for result in results:
                if self.gives_up.is_set():
                    raise SparkJobError("the epoch was cancelled")
                yield result

    def concatenate(self, parts: list[Partitions]) -> Partitions:
        return list(chain.from_iterable(parts))

    def shuffle(self, data: Partitions, parallelism: int) -> Partitions:
        frames: Partitions = [[] for _ in range(parallelism)]
        for key, payload in chain.from_iterable(data):
            frames[key[0]].append((key, payload))
        return [sorted(own, key=itemgetter(0)) for own in frames]

    def keep(self, data: Partitions) -> Partitions:
        return data

    def partitions(self, data: Partitions) -> int:
        return len(data)


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


class Mailbox(queue.SimpleQueue[Any]):
    """A job's mailbox that also tells the test of events of one kind."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self._kind = kind
        self._noted: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item)
        if isinstance(item, self._kind):
            self._noted.put(item)

    def await_event(self) -> Any:
        """Return the next event of the kind; the job gets it before whatever is put from now on."""
        return self._noted.get(timeout=PATIENCE_S)


def control(secret: bytes, events: queue.SimpleQueue[Any], deployment_of: Any) -> ControlServer:
    """Return the real endpoint, on this host."""
    return ControlServer(Endpoint(), secret, events, deployment_of)


@attrs.define
class JobRun:
    """One job, and all that a test may look at or change before it runs it."""

    end: Node
    #: What the sink has been given, in order, if it is none of the test's own.
    out: list[Any] = attrs.field(factory=list, kw_only=True)
    sink: Sink = attrs.Factory(lambda self: collecting(self.out), takes_self=True)
    storage: CheckpointFolders | None = None
    restore: RestorePoint | None = None
    name: str = "orders"
    parallelism: int = 1
    max_parallelism: int | None = None
    checkpoints: CheckpointSettings = EVERY_EPOCH
    restart: RestartStrategy = NO_RESTART
    state_backend: HashMapStateBackend = attrs.Factory(HashMapStateBackend)
    own_state_backends: dict[str, HashMapStateBackend] = attrs.Factory(dict)
    retention: ExternalizedCheckpointRetention | None = None
    allow_non_restored_state: bool = False
    fall_back: bool = False
    epochs_ahead: int = 1
    runner: LocalRunner = attrs.Factory(LocalRunner)
    clock: ManualClock = attrs.Factory(ManualClock)
    heard: Heard = attrs.Factory(Heard)
    mailbox: queue.SimpleQueue[Any] | None = None
    #: Further listeners beside ``heard``.
    listeners: tuple[JobListener, ...] = ()
    is_encrypted: bool = False
    latency_interval_ms: int = 0
    stopping: StopSettings = attrs.Factory(StopSettings)
    #: Further sinks beside ``sink``.
    others: list[SinkNode] = attrs.Factory(list)
    _job: Job | None = attrs.field(default=None, init=False)

    def settled(self) -> bool:
        """Whether every epoch so far has had its checkpoint, completed or given up."""
        return len(self.runner.requests) == len(self.heard.checkpoints) + len(self.heard.failed)

    def job(self) -> Job:
        """Return the job, as the settings were when it was first asked for."""
        if self._job is None:
            self._job = self._make_job()
        return self._job

    @property
    def job_id(self) -> str:
        return self.job().job_id

    def _make_job(self) -> Job:
        plan = make_plan(
            [SinkNode(self.end, self.sink, "sink"), *self.others], self.parallelism, self.max_parallelism
        )
        settings = JobSettings(
            name=self.name,
            checkpoints=self.checkpoints,
            restart=self.restart,
            listeners=(self.heard, *self.listeners),
            state_backend=self.state_backend,
            own_state_backends=self.own_state_backends,
            retention=self.retention,
            allow_non_restored_state=self.allow_non_restored_state,
            fall_back=self.fall_back,
            is_encrypted=self.is_encrypted,
            flow=FlowSettings(self.epochs_ahead, latency_interval_ms=self.latency_interval_ms),
            stopping=self.stopping,
        )
        mailbox = queue.SimpleQueue() if self.mailbox is None else self.mailbox
        parts = JobParts(
            plan, settings, self.runner, control, self.clock, self.storage, self.restore, mailbox
        )
        return Job(parts)

    def run(self) -> Job:
        """Run to the end; returns the job that has ended."""
        job = self.job()
        for _ in job.run():
            pass
        return job

    def results(self) -> list[Any]:
        """Run to the end; returns what the sink has been given."""
        self.run()
        return self.out

    def fails(self, kind: type[Failure] | tuple[type[Failure], ...], match: str | None = None) -> Failure:
        """Run to the end, which is a failure; returns it."""
        with pytest.raises(kind, match=match) as caught:
            self.run()
        return caught.value


def collecting(out: list[Any]) -> DriverSink:
    """Return a sink that appends all that it is given."""
    return DriverSink(lambda _, values: out.extend(values))


def numbers(count: int = 10, records_per_epoch: int = 3) -> SourceNode:
    return SourceNode(CollectionSource(list(range(count)), records_per_epoch), "numbers")


@attrs.define
class StubbornSink(DriverSink):
    """A sink whose commit fails once."""

    error: Exception | None
    seen: list[Any] = attrs.Factory(list)

    def __attrs_post_init__(self) -> None:
        super().__init__(lambda _, values: self.seen.extend(values))

    def commit(self, epoch: int) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error
        super().commit(epoch)


class GrowingSource(Source):
    """The numbers below ``available``; ``when_idle`` is called when it has said that there are none."""

    def __init__(
        self, available: int, when_idle: Callable[[GrowingSource], None], records_per_epoch: int = 3
    ) -> None:
        self.available = available
        self.when_idle = when_idle
        self.records_per_epoch = records_per_epoch
        self.is_over = False
        self.wake_up: Callable[[], None] = lambda: None
        self.committed: list[int] = []
        self.closed: list[BaseException | None] = []

    def open(self, wake_up: Callable[[], None]) -> None:
        self.wake_up = wake_up

    def close(self, error: BaseException | None) -> None:
        self.closed.append(error)

    def initial_offset(self) -> int:
        return 0

    def latest_offset(self, start: int, whole: bool) -> Available:
        end = min(start + self.records_per_epoch, self.available)
        found = Available(end, self.is_over and end == self.available)
        if end == start and not self.is_over:
            self.when_idle(self)
        return found

    def plan(self, start: int, end: int) -> Epoch:
        return SplitEpoch([range(start, end)], lambda split, _: split)

    def commit(self, end: int) -> None:
        self.committed.append(end)


@attrs.define
class PacedSource(Source):
    """Gives no further epoch before it ``may``, so that a test has checkpoints and epochs in turns."""

    inner: Source
    may: Callable[[], bool]

    def initial_offset(self) -> Any:
        return self.inner.initial_offset()

    def check_restored(self, position: Any) -> None:
        self.inner.check_restored(position)

    def latest_offset(self, start: Any, whole: bool) -> Available:
        return self.inner.latest_offset(start, whole) if self.may() else Available(start)

    def plan(self, start: Any, end: Any) -> Epoch:
        return self.inner.plan(start, end)


def latest(storage: CheckpointFolders, name: str = "orders") -> RestorePoint:
    """Return what a job is restored from."""
    return RestorePoint(*storage.load_latest(name))


def restore_point(storage: CheckpointFolders, job_id: str, checkpoint_id: int) -> RestorePoint:
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


def at(epoch: int, action: Callable[[], object]) -> Hook:
    """Return a hook that does something when an epoch runs for the first time."""
    left = [action]

    def act(request: EpochRequest) -> None:
        if request.link.epoch == epoch and left:
            left.pop()()

    return act


def counts(job: Job) -> dict[str, int]:
    """Return what a job counted; what was never met may be there as 0 or not at all."""
    return {name: count for name, count in job.result().accumulators.items() if count}
