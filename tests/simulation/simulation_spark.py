"""Spark in the failure simulation: stages, tasks, retries, speculative copies, and tasks that linger.

A stage begins when all tasks of the one before have ended. A task that fails is tried again, the result
of the first copy that succeeds counts, and what has lost goes on for a while. The tasks are production's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import closing
from functools import cached_property
from itertools import chain
from typing import Any

import attrs
import simulation_model
from simulation_cluster import Cluster, Mailbox
from simulation_slots import SimulatedControl
from simulation_storage import Killed, Process

from pyflinkstate.errors import PyFlinkStateError, SlotBusyError, SparkJobError
from pyflinkstate.runtime.engine import EpochEnded, EpochRequest, EpochRunner, SlotsRequest
from pyflinkstate.runtime.plan.job_plan import SettledOperator
from pyflinkstate.runtime.plan.nodes import StatefulNode
from pyflinkstate.runtime.sinks.sinks import KeptRddSink
from pyflinkstate.runtime.tasks.router import Router
from pyflinkstate.runtime.tasks.tasks import ChainTask, RouteTask, SinkTask, SlotTask, SourceTask, TaskLink
from pyflinkstate.runtime.wire.frames import FrameKey
from pyflinkstate.runtime.wire.messages import AcquireSlot, SlotId, TaskReport

#: Steps of a task: it yields where others may go on, and returns its result.
Steps = Generator[None, None, Any]
Frames = dict[int, list[tuple[FrameKey, bytes]]]

MAX_TASK_FAILURES = 3
#: So often the first stage of an epoch fails while the epoch before it runs, and so often its files are lost.
GIVEN_UP = 0.1
LOST = 0.1


class SimulatedLink:
    """A task's way to the driver; as a ``DriverLink``."""

    job_parameters: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    keeps_functions = False

    def __init__(self, control: SimulatedControl, mailbox: Mailbox, attempt: int) -> None:
        self.control = control
        self.address = control.address
        self.secret = b""
        self.attempt = attempt
        self._mailbox = mailbox

    def report(self, report: TaskReport) -> None:
        if self.control.driver.dead:
            raise ConnectionRefusedError("the driver is gone")
        self._mailbox.put(report)


@attrs.frozen
class KeptFrames:
    """An RDD of frames that is kept on the cluster."""

    frames: tuple[Any, ...]

    def unpersist(self) -> None:
        return


class SimulatedSpark(EpochRunner):
    """Runs epochs for one driver."""

    #: The driver's end of connections; there is one when the job begins to run.
    control: SimulatedControl

    def __init__(self, cluster: Cluster, mailbox: Mailbox) -> None:
        self._cluster = cluster
        self._mailbox = mailbox
        self._running: SparkJob | SlotsJob | None = None
        #: What was shuffled ahead for the next epoch, and what was begun last of this kind.
        self._ahead: MapStage | None = None
        self._last_ahead: MapStage | None = None

    def start(self, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and (ahead.link != request.link or ahead.epoch is not request.epoch):
            ahead = None
        link = self._link(request.link)
        job = self._running = SparkJob(self._cluster, attrs.evolve(request, link=link), done)
        if ahead is None:
            job.start_stage(0)
        else:
            job.start_after(ahead)

    def shuffle_ahead(self, request: EpochRequest, done: Callable[[], None]) -> None:
        assert self._last_ahead is None or self._last_ahead.is_over, "two epochs are shuffled ahead"
        assert self._running is not None, "nothing runs of which it could be ahead"
        self._cluster.seen["shuffled ahead"] += 1
        made = attrs.evolve(request, link=self._made(request.link))
        ahead = self._ahead = self._last_ahead = MapStage(self._cluster, made, request.link, done)
        delay_ms = self._cluster.draw("cancelled after").choice([0, 5, 20, 100])
        self._cluster.at(delay_ms, lambda: None if ahead.is_over else ahead.start_stage(0))
        if self._cluster.draw("given up").random() < GIVEN_UP:
            self._cluster.slowly(ahead.give_up)

    def start_slots(self, request: SlotsRequest, done: Callable[[EpochEnded], None]) -> None:
        link = self._link(request.link)
        job = self._running = SlotsJob(self._cluster, attrs.evolve(request, link=link), done)
        job.start()

    def _link(self, link: TaskLink) -> TaskLink:
        assert self._running is None or self._running.is_over, "the epoch before has not ended"
        ahead = self._last_ahead
        is_stale = ahead is not None and ahead.link.driver.attempt != link.driver.attempt
        assert ahead is None or ahead.is_over or not is_stale, "what was ahead of a failed attempt still runs"
        return self._made(link)

    def _made(self, link: TaskLink) -> TaskLink:
        self.control.driver.check()
        driver: Any = SimulatedLink(self.control, self._mailbox, link.driver.attempt)
        return TaskLink(driver, link.epoch)

    def cancel(self) -> None:
        self.control.driver.check()
        for job in (self._running, self._last_ahead):
            if job is not None and not job.is_unwanted:
                job.is_unwanted = True
                self._cluster.slowly(job.cancel)

    def lost(self) -> PyFlinkStateError | None:
        return None


class AnyJob:
    """A Spark job."""

    #: Whether it was cancelled, and may not have ended yet.
    is_unwanted = False

    def __init__(self, cluster: Cluster, done: Callable[[EpochEnded], None]) -> None:
        self.cluster = cluster
        self._driver = cluster.driver
        self._has_ended = False
        self._done = done
        self._stage: Stage | None = None

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._has_ended or self._driver.dead

    def stage_ended(self, number: int, results: list[Any]) -> None:
        """All tasks of a stage have succeeded."""
        raise NotImplementedError

    def end(self, ended: EpochEnded) -> None:
        """The job is over, well or not."""
        if not self._has_ended:
            self._has_ended = True
            self.cluster.soon(lambda: self._done(ended))

    def cancel(self) -> None:
        """Somebody wants no more of it."""
        self.end(EpochEnded(None, SparkJobError("Spark job was cancelled")))


def acquire(link: TaskLink, slot: SlotId) -> Steps:
    """Do what a task does that needs a slot; returns its address."""
    driver: Any = link.driver
    with closing(driver.control.acquire(AcquireSlot(driver.attempt, slot))) as answers:
        while (address := next(answers)) is None:
            yield
    return address


class SlotsJob(AnyJob):
    """The Spark job that starts slots: one task for each."""

    def __init__(self, cluster: Cluster, request: SlotsRequest, done: Callable[[EpochEnded], None]) -> None:
        super().__init__(cluster, done)
        self._request = request

    def start(self) -> None:
        """Begin."""
        self._stage = Stage(self, 0, [lambda slot=slot: self._start(slot) for slot in self._request.slots])

    def _start(self, slot: SlotId) -> Steps:
        with self._request.link.reporting(str(slot)):
            yield from acquire(self._request.link, slot)

    def stage_ended(self, number: int, results: list[Any]) -> None:
        """See :class:`AnyJob`."""
        self.end(EpochEnded([], None))


class SparkJob(AnyJob):
    """The Spark job of one epoch: reading, then each keyed operator, the last one with the sinks."""

    def __init__(self, cluster: Cluster, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        super().__init__(cluster, done)
        self._request = request
        self._operators = request.plan.operators

    @cached_property
    def _writers(self) -> list[Any]:
        request = self._request
        return [sink.sink.writer(request.link.epoch) for sink in request.plan.sinks]

    def start_after(self, ahead: MapStage) -> None:
        """Begin after the first stage, unless the files of its shuffle are not there, or are lost."""
        if not ahead.is_over:
            self.cluster.seen["joined"] += 1
            ahead.joined_by = self
        elif ahead.frames is None or self.cluster.draw("lost ahead").random() < LOST:
            self.start_stage(0)
        else:
            self.cluster.seen["skipped"] += 1
            self.start_stage(1, ahead.frames)

    def start_stage(self, number: int, frames: Frames | None = None) -> None:
        """Begin a stage; ``frames`` are what the one before wrote."""
        splits = [] if self._request.epoch is None else list(self._request.epoch.splits)  # type: ignore[union-attr]
        if number == 0:
            tasks = [
                lambda partition=partition: self._read(partition, splits, max(1, len(splits)))
                for partition in range(max(1, len(splits)))
            ]
        else:
            assert frames is not None
            operator = self._operators[number - 1]
            tasks = [
                lambda subtask=subtask: self._process(operator, number, subtask, sorted(frames[subtask]))
                for subtask in range(operator.parallelism)
            ]
        self._stage = Stage(self, number, tasks)

    def stage_ended(self, number: int, results: list[Any]) -> None:
        """All tasks of a stage have succeeded."""
        if self.is_over:
            return
        if number < len(self._operators):
            frames = by_subtask(results)
            self.cluster.soon(lambda: None if self.is_over else self.start_stage(number + 1, frames))
            return
        collected: list[list[Any]] = []
        for sink, parts in zip(self._request.plan.sinks, zip(*results, strict=True), strict=True):
            whole = list(chain.from_iterable(parts))
            collected.append([KeptFrames(tuple(whole))] if isinstance(sink.sink, KeptRddSink) else whole)
        self.end(EpochEnded(collected, None))

    # --- what tasks do -----------------------------------------------------------------------------

    def _read(self, partition: int, splits: list[Any], partitions: int) -> Steps:
        request = self._request
        stage = request.plan.source
        records: Any = []
        if request.epoch is not None:
            read = SourceTask(request.link, stage.name, request.epoch.read)  # type: ignore[union-attr]
            records = read(partition, [splits[partition]])
            if not self._operators:
                records = list(map(simulation_model.row_of, records))
        yield
        return self._write(0, ChainTask(request.link, stage.name, (), partitions, False), partition, records)

    def _process(self, operator: SettledOperator, number: int, subtask: int, frames: list[Any]) -> Steps:
        request = self._request
        slot, addresses = SlotId(operator.operator_id, subtask), dict(request.addresses)
        with request.link.reporting(str(slot)):
            if slot not in addresses:
                addresses[slot] = yield from acquire(request.link, slot)
        task = SlotTask(request.link, operator.operator_id, operator.name, request.barrier, addresses)
        results = []
        for item in task(subtask, frames):
            if item is None:
                yield
            else:
                results.append(item)
        chained = ChainTask(request.link, operator.node.name, (), operator.parallelism, True)
        return self._write(number, chained, subtask, results)

    def _write(self, number: int, chained: ChainTask, partition: int, records: Any) -> list[Any]:
        """The map side of the next operator, or the sinks."""
        request = self._request
        if number == len(self._operators):
            return [
                list(SinkTask(chained, f"{sink.name}-{index}", writer)(partition, records))
                for index, (sink, writer) in enumerate(zip(request.plan.sinks, self._writers, strict=True))
            ]
        operator = self._operators[number]
        node: StatefulNode = operator.node
        router = Router(
            operator.name, node.select_key, node.key_type, operator.parallelism, operator.max_parallelism
        )
        return list(RouteTask(chained, operator.operator_id, router)(partition, records))


def by_subtask(results: list[Any]) -> Frames:
    """Return what the map side has written as the reduce side reads it."""
    frames: Frames = defaultdict(list)
    for key, data in chain.from_iterable(results):
        frames[key[0]].append((key, data))
    return frames


class MapStage(SparkJob):
    """The first stage of an epoch alone, while the epoch before it runs."""

    def __init__(
        self, cluster: Cluster, request: EpochRequest, link: TaskLink, done: Callable[[], None]
    ) -> None:
        super().__init__(cluster, request, lambda _: done())
        self.link = link
        self.epoch = request.epoch
        #: What it has written, when it has ended well.
        self.frames: Frames | None = None
        #: The job of the epoch, if that began before this stage had ended.
        self.joined_by: SparkJob | None = None

    def stage_ended(self, number: int, results: list[Any]) -> None:
        """See :class:`AnyJob`."""
        if self.is_over:
            return
        self.frames = by_subtask(results)
        self.end(EpochEnded(None, None))

    def give_up(self) -> None:
        """Fail, unless the epoch itself waits for it."""
        if self.joined_by is None:
            self.end(EpochEnded(None, SparkJobError("its first stage failed")))

    def end(self, ended: EpochEnded) -> None:
        """See :class:`AnyJob`; a stage that fails fails every job that waits for it."""
        if self._has_ended:
            return
        joined, self.joined_by = self.joined_by, None
        super().end(ended)
        self.cluster.seen["failed ahead"] += self.frames is None
        if joined is None or joined.is_over:
            return
        if self.frames is None:
            joined.end(EpochEnded(None, ended.error or SparkJobError("its first stage failed")))
        else:
            joined.start_stage(1, self.frames)


class Stage:
    """The tasks of one stage."""

    def __init__(self, job: AnyJob, number: int, tasks: list[Callable[[], Steps]]) -> None:
        self.job = job
        self._number = number
        self._tasks = tasks
        self._results: dict[int, Any] = {}
        self._failures = [0] * len(tasks)
        self._running: list[set[TaskAttempt]] = [set() for _ in tasks]
        for partition in range(len(tasks)):
            self._launch(partition)
            if job.cluster.chaos.strikes("copy a task"):
                job.cluster.slowly(lambda partition=partition: self._launch(partition))

    def _launch(self, partition: int) -> None:
        if self.wants(partition):
            attempt = TaskAttempt(self, partition, self._tasks[partition]())
            self._running[partition].add(attempt)
            self.job.cluster.soon(attempt.step)

    def wants(self, partition: int) -> bool:
        """Return whether a partition's result is still to come."""
        return not self.job.is_over and partition not in self._results

    def succeeded(self, attempt: TaskAttempt, result: Any) -> None:
        """The first result of a partition counts."""
        self._running[attempt.partition].discard(attempt)
        if not self.wants(attempt.partition):
            return
        self._results[attempt.partition] = result
        if len(self._results) == len(self._tasks):
            self.job.stage_ended(self._number, [self._results[n] for n in range(len(self._tasks))])

    def failed(self, attempt: TaskAttempt, reason: object) -> None:
        """Try again, unless it has been tried often enough; a copy that fails is followed by another one."""
        assert not isinstance(reason, SlotBusyError), "a copy of a task waits for its slot"
        partition = attempt.partition
        self._running[partition].discard(attempt)
        if not self.wants(partition):
            return
        self._failures[partition] += 1
        if self._failures[partition] < MAX_TASK_FAILURES:
            self.job.cluster.slowly(lambda: self._launch(partition))
        else:
            self.job.end(EpochEnded(None, SparkJobError(f"task {partition} failed too often: {reason}")))


class TaskAttempt(Process):
    """One try of one task, in a worker of its own."""

    def __init__(self, stage: Stage, partition: int, steps: Steps) -> None:
        super().__init__(f"task {partition}")
        self.partition = partition
        self._stage = stage
        self._steps = steps
        self._cluster = stage.job.cluster
        self._cluster.tasks.append(self)
        #: It goes on to its end although nobody wants its result.
        self._lingers = False

    def step(self) -> None:
        """Go on a little."""
        if self.dead:
            return
        if not self._is_wanted():
            self.kill()
        elif self._cluster.chaos.strikes("kill a task"):
            self.kill()
            self._stage.failed(self, "its worker was lost")
        else:
            self._go_on()

    def _is_wanted(self) -> bool:
        """Return whether to go on: some do to their end although nobody wants their result."""
        if not self._stage.wants(self.partition) and not self.cut_off:
            self.cut_off = True
            self._lingers = self._cluster.draw("lingers").random() < 0.5
        return self._lingers or not self.cut_off

    def _go_on(self) -> None:
        try:
            with self._cluster.disk.used_by(self):
                next(self._steps)
        except StopIteration as end:
            if self._cluster.chaos.strikes("kill a task"):
                self.kill()
                self._stage.failed(self, "its worker was lost with its result")
            else:
                self._stage.succeeded(self, end.value)
        except Killed:
            self._stage.failed(self, "its worker was killed")
        except (PyFlinkStateError, OSError) as error:
            self._stage.failed(self, error)
        else:
            self._cluster.soon(self.step)

    def kill(self) -> None:
        self.dead = True
        if not self._steps.gi_running:  # it may be killed by what it does
            self._steps.close()
