"""What a process of the pipelined engine does in an epoch: steps, and where their results go.

A *program* is what one process runs in one epoch. It is a tree of steps, each a task as the stage engine runs
it, over the records that the process reads or the frames of its slot's results. A branch of the tree ends at
a target: the slots of the next operator, which get its frames at once, or a sink, whose results go back to
the driver. Records are pulled through the steps, so a slow target holds back all that is before it. Where the
tree forks, each branch pulls on a thread of its own, from a queue that holds a few items.
"""

from __future__ import annotations

import queue
import random
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from heapq import merge
from itertools import chain
from typing import TYPE_CHECKING, cast

import attrs

from pyflinkstate.errors import PyFlinkStateError, SlotLostError, SparkJobError
from pyflinkstate.runtime.pipelined.measures import Markers, Marking, idling
from pyflinkstate.runtime.slots import (
    BARRIER,
    Encode,
    Host,
    OpenChannel,
    Waits,
    resident_bytes,
)
from pyflinkstate.runtime.tasks import DriverLink, SlotTask
from pyflinkstate.runtime.wire import (
    Address,
    Channel,
    EpochRefused,
    FrameKey,
    ServerName,
    SlotId,
    SubtaskStatus,
    TaskReport,
    ValuesFrame,
    VertexReport,
    connect,
    dumps,
    encoded_frames,
    joined,
    loads,
    wait_for,
)

if TYPE_CHECKING:  # a slot need not load the plan of the job, with all sources and sinks
    from pyflinkstate.runtime.engine import Task

#: How many items wait for a branch behind a fork.
_FORKED_AHEAD = 4
#: Where an item stands in the order in which those of several partitions are taken.
Rank = tuple[int, ...]


@attrs.define(eq=False)
class ToSubtasks:
    """Frames go to the slots of an operator, or to the subtasks of an exchange."""

    operator_id: str = ""


@attrs.frozen
class ToSink:
    """What a writer returns goes to the driver, for the sink with this number."""

    sink: int


@attrs.define(eq=False)
class Step:
    """A task, and what takes its results.

    Attributes:
        task: called with the number of the partition and its items.
        first: the number of the process's first partition among all that the task has.
        then: what takes the results; there are several if the tree forks.
    """

    task: Task
    first: int
    then: list[Step | ToSubtasks | ToSink] = attrs.Factory(list)


Steps = list[Step | ToSubtasks | ToSink]


@attrs.frozen
class SinkResults:
    """What the writer of a sink has returned for a partition."""

    sink: int
    partition: int
    results: list[object]


@attrs.frozen
class Peer:
    """Where a slot or a subtask of an exchange takes channels: a server, and its name."""

    address: Address
    server: ServerName


@attrs.define(eq=False)
class Outputs:
    """The channels of one vertex to the subtasks behind it; they stay open for the whole attempt.

    Args:
        sender: the name of the vertex.
        secret: the secret of the job.

    Attributes:
        waits: measures how long sending takes.
        markers: the markers of latency.
    """

    _sender: str
    _secret: bytes = attrs.field(repr=False)
    _channels: dict[SlotId, Channel] = attrs.field(init=False, factory=dict)
    waits: Waits = attrs.field(init=False, factory=Waits)
    markers: Markers = attrs.field(init=False, factory=Markers)

    def open(self, peers: Mapping[SlotId, Peer]) -> None:
        """Connect to the subtasks to which there is no channel yet."""
        for target, peer in peers.items():
            if target not in self._channels:
                with cut_off_as_error(target):
                    channel = connect(peer.address, peer.server, self._secret)
                    self._channels[target] = channel
                    channel.send(OpenChannel(self._sender, target))

    def send(self, target: SlotId, frame: bytes) -> None:
        """Send a frame; waits while the subtask is behind.

        Raises:
            SlotLostError: the subtask is gone.
        """
        with cut_off_as_error(target), self.waits:
            self._channels[target].send_bytes(frame)

    def mark(self, target: SlotId, marking: Marking) -> None:
        """Send a marker of latency before a frame, if one is due."""
        marker = self.markers.due(marking, target.operator_id)
        if marker is not None:
            self.send(target, marker)

    def pass_on(self, marker: bytes) -> None:
        """Note a marker that has come, and send it to a subtask of each operator behind."""
        self.markers.note(marker)
        targets = random.sample([*self._channels], len(self._channels))
        for target in {target.operator_id: target for target in targets}.values():
            self.send(target, marker)

    def end_epoch(self, targets: Iterable[SlotId]) -> None:
        """Send the barrier to subtasks."""
        for target in targets:
            self.send(target, BARRIER)

    def shut_down(self) -> None:
        """End all channels, from any thread."""
        for channel in [*self._channels.values()]:
            channel.shut_down()

    def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            channel.close()


@contextmanager
def cut_off_as_error(name: object) -> Iterator[None]:
    """Turn the end of a connection into an error that names the other side."""
    try:
        yield
    except (EOFError, OSError) as error:
        if isinstance(error, PyFlinkStateError):
            raise
        raise SlotLostError(f"{name} died or was cut off: {error!r}") from error


@attrs.define(eq=False)
class Flow:
    """Runs a program's steps, and collects what its sinks return.

    Args:
        outputs: the channels to the slots behind.
        marking: which markers of latency go with the frames.
    """

    _outputs: Outputs
    _marking: Marking | None = None
    results: list[SinkResults] = attrs.field(init=False, factory=list)

    def run(self, flows: Iterable[Iterator[Rank]]) -> None:
        """Run the flows of several partitions together: those that are behind go first."""
        for _ in merge(*flows):
            pass

    def through(self, steps: Steps, partition: int, items: Iterable[object]) -> Iterator[Rank]:
        """Pull items through steps; yields the rank of each item that has arrived."""
        number = partition
        while len(steps) == 1 and isinstance(step := steps[0], Step):
            items, steps, number = step.task(step.first + partition, items), step.then, step.first + partition
        if len(steps) == 1:
            return self._into(steps[0], number, items)
        return self._forked(steps, partition, items)

    def _into(
        self, target: Step | ToSubtasks | ToSink, partition: int, items: Iterable[object]
    ) -> Iterator[Rank]:
        if isinstance(target, ToSubtasks):
            for (subtask, *rank), frame in cast("Iterable[tuple[FrameKey, bytes]]", items):
                slot = SlotId(target.operator_id, subtask)
                if self._marking is not None:
                    self._outputs.mark(slot, self._marking)
                self._outputs.send(slot, frame)
                yield tuple(rank)
        elif isinstance(target, ToSink):
            results: list[object] = []
            for result in items:
                results.append(result)
                yield (1, 0, partition)
            self.results.append(SinkResults(target.sink, partition, results))

    def _forked(self, steps: Steps, partition: int, items: Iterable[object]) -> Iterator[Rank]:
        branches = [_Branch(self, step, partition) for step in steps]
        try:
            for item in items:
                for branch in branches:
                    branch.put((item,))
                yield (1, 0, partition)
            for branch in branches:
                branch.end()
        finally:
            for branch in branches:
                branch.is_abandoned = True


class _FlowThread:
    """Runs one flow on a thread of its own, as it must not wait for others."""

    def __init__(self, flow: Flow, items: Iterator[Rank]) -> None:
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(flow, items), daemon=True)
        self._thread.start()

    def _run(self, flow: Flow, items: Iterator[Rank]) -> None:
        try:
            flow.run([items])
        except BaseException as error:  # noqa: BLE001 - it is raised where the end is waited for
            self.error = error

    def end(self) -> None:
        """Wait for its end. Raises its error."""
        wait_for(joined(self._thread), lambda: None)
        if self.error is not None:
            raise self.error


class _Branch:
    """One branch behind a fork."""

    def __init__(self, flow: Flow, step: Step | ToSubtasks | ToSink, partition: int) -> None:
        self._items: queue.Queue[tuple[object, ...]] = queue.Queue(_FORKED_AHEAD)
        self.is_abandoned = False
        self._thread = _FlowThread(flow, flow.through([step], partition, self._taken()))

    def put(self, item: tuple[object, ...]) -> None:
        """Hand over an item in a tuple, or an empty tuple at the end; waits while the branch is behind."""
        wait_for(lambda timeout_s: self._try_put(item, timeout_s), lambda: self._thread.error)

    def _try_put(self, item: tuple[object, ...], timeout_s: float) -> bool | None:
        if self._thread.error is not None:
            return None
        with suppress(queue.Full):
            self._items.put(item, timeout=timeout_s)
            return True
        return None

    def end(self) -> None:
        """Wait until the branch has taken all items. Raises its error."""
        self.put(())
        self._thread.end()

    def _taken(self) -> Iterator[object]:
        while item := wait_for(self._try_get, self._abandoned):
            yield item[0]

    def _try_get(self, timeout_s: float) -> tuple[object, ...] | None:
        with suppress(queue.Empty):
            return self._items.get(timeout=timeout_s)
        return None

    def _abandoned(self) -> BaseException | None:
        return SlotLostError("what came before this branch has failed") if self.is_abandoned else None


@attrs.frozen
class CollectingLink(DriverLink):
    """How tasks that stay reach the job: reports go with the end of their part, but errors at once."""

    keeps_functions = True

    def report(self, report: TaskReport) -> None:
        """See :class:`DriverLink`."""
        if report.error is not None:
            super().report(report)
            return
        with _reporting:
            _reports.append(report)


def collecting(link: DriverLink) -> CollectingLink:
    """Return the link of tasks that stay."""
    return CollectingLink(**attrs.asdict(link, recurse=False))


_reporting = threading.Lock()
#: What the vertices of this process have reported since one of them ended its part.
_reports: list[TaskReport] = []


def taken_reports() -> tuple[TaskReport, ...]:
    """Return what was reported in this process since the last call."""
    with _reporting:
        taken = tuple(_reports)
        _reports.clear()
    return taken


class KnownCodes:
    """The pickled functions of the job, as this process knows them."""

    def __init__(self) -> None:
        #: The pickles by digest.
        self.value: dict[str, bytes] = {}

    def __reduce__(self) -> str:
        return "CODES"  # it is pickled by its name


#: Those of this process. Their names are digests of their content, so jobs can share them.
CODES = KnownCodes()


# --- programs ----------------------------------------------------------------------------------------


@attrs.frozen
class SourceProgram:
    """Reads partitions of sources.

    Attributes:
        steps: the pickle of the steps behind each source.
        parts: the partitions to read: the number of their source, their own number, and their items.
        live: the sources that are read live; a partition of those has a thread of its own.
        markings: the markers of latency of each source, if there are any.
    """

    steps: bytes
    parts: list[tuple[int, int, list[object]]]
    live: frozenset[int] = frozenset()
    markings: dict[int, Marking] = attrs.Factory(dict)

    def run(self, host: Host, outputs: Outputs) -> list[SinkResults]:
        """Return what the writers of sinks have returned."""
        steps: list[Steps] = loads(self.steps)
        flows = [Flow(outputs, self.markings.get(source)) for source in range(len(steps))]
        planned, threads, idle_ns = [], [], list[int]()
        for source, number, items in self.parts:
            flow = flows[source]
            if source in self.live:
                (reading,) = steps[source]
                assert isinstance(reading, Step)
                parts = idling(reading.task(reading.first + number, items), idle_ns)
                threads.append(_FlowThread(flow, flow.through(reading.then, number, parts)))
            else:
                planned.append(flow.through(steps[source], number, items))
        Flow(outputs).run(planned)
        for thread in threads:
            thread.end()
        host.shares.sent(sum(idle_ns) // max(1, len(threads)))
        return [*chain.from_iterable(flow.results for flow in flows)]


@attrs.frozen
class FedProgram:
    """Takes what is sent to one subtask.

    Attributes:
        senders: the vertices that send to it.
        openings: how many openings they send.
        steps: take its frames, or those of its results.
    """

    senders: frozenset[str]
    openings: int
    steps: Steps


@attrs.frozen
class ExchangeProgram(FedProgram):
    """Takes what is sent to a subtask without state."""

    def run(self, host: Host, outputs: Outputs) -> list[SinkResults]:
        """Return what the writers of sinks have returned."""
        flow = Flow(outputs)
        received = host.shares.received(host.inputs.epoch(self.senders, self.openings))
        frames = ((None, frame) for frame in received)
        flow.run([flow.through(self.steps, host.vertex.subtask, frames)])
        return flow.results


@attrs.frozen
class SlotProgram(FedProgram):
    """Feeds a slot.

    Attributes:
        task: what the slot is told about the epoch, and how its end is reported.
    """

    task: SlotTask

    def run(self, host: Host, outputs: Outputs) -> list[SinkResults]:
        """Return what the writers of sinks have returned."""
        assert host.service is not None
        flow = Flow(outputs)
        # If one branch alone reads the results, it may have them as they are.
        encode: Encode = encoded_frames if len(self.steps) > 1 else _as_it_is
        answer = host.service.begin(self.task.begin(), encode)
        if isinstance(answer, EpochRefused):
            raise answer.error
        fed = host.service.fed(host.inputs.epoch(self.senders, self.openings, host.service.rest_s))
        frames = self.task.passed_on(host.vertex.subtask, fed)
        flow.run([flow.through(self.steps, host.vertex.subtask, frames)])
        return flow.results


def _as_it_is(frame: ValuesFrame, _: str) -> Iterator[ValuesFrame]:
    yield frame


@attrs.frozen
class RunEpoch:
    """Run a program; the answer is ``EpochPart``.

    Attributes:
        vertex: the name of the vertex that runs it.
        attempt: the number of the attempt.
        epoch: the number of the epoch.
        operators: the ids of the operators whose subtask it is; a task may read several sources.
        program: the pickled program.
        codes: the pickles of functions that the process does not know yet, by digest.
        behind: the subtasks behind it, each of which gets a barrier at the end.
    """

    vertex: SlotId
    attempt: int
    epoch: int
    operators: tuple[str, ...]
    program: bytes
    codes: dict[str, bytes]
    behind: dict[SlotId, Peer]


@attrs.frozen
class EpochPart:
    """A vertex has run its part of an epoch, or has failed.

    Attributes:
        vertex: the name of the vertex.
        epoch: the number of the epoch.
        results: the pickled list of :class:`SinkResults`.
        reports: what the tasks have reported.
        error: why it has failed, if it has.
    """

    vertex: SlotId
    epoch: int
    results: bytes = b""
    reports: tuple[TaskReport, ...] = ()
    error: PyFlinkStateError | None = None


def part_of(order: RunEpoch, host: Host, outputs: Outputs) -> EpochPart:
    """Run what the driver has ordered; the process knows the order's functions already."""
    host.shares.sends, host.inputs.marked = outputs.waits, outputs.pass_on
    host.shares.waited()
    try:
        outputs.open(order.behind)
        results = loads(order.program).run(host, outputs)
        outputs.end_epoch(order.behind)
    except PyFlinkStateError as error:
        return EpochPart(order.vertex, order.epoch, error=error)
    except Exception as error:  # noqa: BLE001 - a fault of this package, of which the driver should tell
        failure = SparkJobError("".join(traceback.format_exception(error)))
        return EpochPart(order.vertex, order.epoch, error=failure)
    host.shares.sent()
    reports = (*taken_reports(), *_measured(order, host, outputs))
    return EpochPart(order.vertex, order.epoch, dumps(results), reports)


def _measured(order: RunEpoch, host: Host, outputs: Outputs) -> Iterator[TaskReport]:
    """Yield what a vertex has measured; where the time of a slot went is in the report of its own."""
    status = None
    if host.service is None:
        status = SubtaskStatus(*host.shares.take(), resident_bytes(), None, 0)
    report = VertexReport(status, outputs.markers.take())
    if status or report.latencies_ms:
        for operator_id in order.operators:
            task = str(SlotId(operator_id, order.vertex.subtask))
            yield TaskReport(order.attempt, order.epoch, task, vertex=report)
