"""The pipelined engine in the failure simulation: tasks that stay, channels between them and the slots.

The script of an attempt, its connections and heartbeats, the graph, the programs, the channels and their
alignment are production's. Instead of sockets there are lines: each keeps the order of its messages, two of
them keep none between each other, and one may stand still or break. A process may die at each step, with what
it has been told or has still to say, or stand still for ever. Spark may start a copy of a task.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import attrs
from simulation_cluster import Cluster, Mailbox
from simulation_slots import Line, SimulatedControl
from simulation_spark import SimulatedLink, SlotsJob
from simulation_storage import Process

from pyflinkstate.errors import PyFlinkStateError, SlotLostError, SparkJobError
from pyflinkstate.runtime.engine import EpochEnded, EpochRequest, SlotsRequest
from pyflinkstate.runtime.pipelined import programs, vertices
from pyflinkstate.runtime.pipelined.crew import Crew, Heartbeats
from pyflinkstate.runtime.pipelined.measures import Markers
from pyflinkstate.runtime.pipelined.processes import SOURCES, JoinEngine
from pyflinkstate.runtime.pipelined.programs import (
    CODES,
    EpochPart,
    Flow,
    Outputs,
    Rank,
    RunEpoch,
    part_of,
    taken_reports,
)
from pyflinkstate.runtime.pipelined.runner import Attempt, PipelinedRunner
from pyflinkstate.runtime.slots.inputs import BARRIER, Host, Inputs, _Gate
from pyflinkstate.runtime.slots.time_shares import Waits
from pyflinkstate.runtime.tasks.slot_client import DriverLink
from pyflinkstate.runtime.tasks.tasks import TaskLink
from pyflinkstate.runtime.wire.messages import HeartbeatSettings, SlotId, TaskReport
from pyflinkstate.runtime.wire.transport import Address

#: How often tasks are asked whether they live.
HEARTBEAT = HeartbeatSettings(interval_ms=200, timeout_ms=600)
#: How often the driver's thread of an attempt looks around if nothing comes.
LOOK_MS = 250


class StandingLink(SimulatedLink):
    """A task's way to the driver; one for each attempt."""

    def acquire_slot(self, slot: SlotId) -> Address:
        address = self.control._registry.addresses().get(slot)
        if address is None:
            raise SlotLostError(f"slot {slot} is gone")
        return address

    def collecting(self) -> CollectedLink:
        """Return the link of tasks that stay."""
        return CollectedLink(self.control, self._mailbox, self.attempt)


class CollectedLink(StandingLink):
    """As a ``CollectingLink``: reports go with the end of a part."""

    def report(self, report: TaskReport) -> None:
        if report.error is not None:
            super().report(report)
        else:
            programs._reports.append(report)


class SimulatedPipelined(PipelinedRunner):
    """Runs epochs for one driver."""

    control: SimulatedControl

    def __init__(self, cluster: Cluster, mailbox: Mailbox) -> None:
        self._cluster = cluster
        self._mailbox = mailbox
        self._links: dict[int, StandingLink] = {}
        spark: Any = SimulatedTasks(cluster)
        endpoint: Any = None
        super().__init__(spark, endpoint, cluster.draw("source tasks").choice([1, 2, 3]), HEARTBEAT)

    def start(self, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        self.control.driver.check()
        super().start(attrs.evolve(request, link=self._made(request.link)), done)

    def shuffle_ahead(self, request: EpochRequest, done: Callable[[], None]) -> None:
        self._cluster.seen["read ahead"] += 1
        super().shuffle_ahead(attrs.evolve(request, link=self._made(request.link)), done)

    def start_slots(self, request: SlotsRequest, done: Callable[[EpochEnded], None]) -> None:
        super().start_slots(attrs.evolve(request, link=self._made(request.link)), done)

    def _made(self, link: TaskLink) -> TaskLink:
        attempt = link.driver.attempt
        if attempt not in self._links:
            self._links[attempt] = StandingLink(self.control, self._mailbox, attempt)
        driver: Any = self._links[attempt]
        return TaskLink(driver, link.epoch)

    def _attempt_of(self, request: EpochRequest) -> Attempt:
        thread: Any = self._thread
        if thread is None or not thread.attempt.takes(request):
            self._end_attempt()
            crew = SimulatedCrew(self._cluster, request.link.driver, self._parallelism)
            thread = self._thread = SimulatedThread(self._cluster, self._spark, crew, request)  # type: ignore[assignment]
        return thread.attempt  # type: ignore[no-any-return]


class SimulatedTasks:
    """Does what ``SparkRunner`` does for the engine."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._crew: SimulatedCrew | None = None

    def start_slots(self, request: SlotsRequest, done: Callable[[EpochEnded], None]) -> None:
        SlotsJob(self._cluster, request, done).start()

    def start_tasks(self, crew: SimulatedCrew, *_: object) -> None:
        self._crew = crew
        crew.start_tasks()

    def await_end(self, timeout_s: float) -> bool:
        assert self._crew is None or self._crew.is_over, "the tasks do not end: they are connected"
        return True

    def cancel(self) -> None: ...

    def close(self) -> None: ...

    def lost(self) -> None: ...

    def gone(self, at_once: bool = False) -> None: ...


class SimulatedThread:
    """The driver's thread of an attempt: it goes on when something has come."""

    def __init__(self, cluster: Cluster, spark: Any, crew: SimulatedCrew, request: EpochRequest) -> None:
        self._cluster = cluster
        self._driver = cluster.driver
        self._crew = crew
        made: Any = crew
        self.attempt = Attempt(spark, made, request, lambda: cluster.now_ms / 1000)
        self._life: Any = self.attempt.life()
        self._has_ended = False
        crew.woken = lambda: cluster.soon(self._go_on)
        crew.wake_up()
        self._look()

    def _look(self) -> None:
        if not self._driver.dead and not self._has_ended:
            if self._crew.is_awaited():
                self._go_on()
            self._cluster.at(LOOK_MS, self._look)

    def _go_on(self) -> None:
        if self._driver.dead or self._has_ended:
            return
        if self._life.gi_running:  # it is at the storage, and others go on meanwhile
            self._cluster.soon(self._go_on)
        else:
            self._cluster.run(self._driver, self._step)

    def _step(self) -> None:
        failure, self._crew.failure = self._crew.failure, None
        try:
            next(self._life) if failure is None else self._life.throw(failure)
        except StopIteration:
            self._has_ended = True

    def is_alive(self) -> bool:
        return not self._has_ended

    def join(self, _: float) -> None:
        if not self._has_ended:
            self._step()
        assert self._has_ended, "the attempt goes on after its end"


class SimulatedCrew(Crew):
    """The driver's connections to the processes: the real one, with lines for sockets."""

    def __init__(self, cluster: Cluster, link: DriverLink, parallelism: int) -> None:
        self._cluster = cluster
        self._link = link
        self.parallelism = parallelism
        self.woken: Callable[[], None] = lambda: None
        self.failure: PyFlinkStateError | None = None
        self.vertices: dict[SlotId, Vertex] = {}
        self._channels: dict[SlotId, Any] = {}
        self._peers: dict[SlotId, Any] = {}
        self._known = {}
        self._parts = {}
        self._arrivals = queue.SimpleQueue()
        self._heartbeats = Heartbeats(HEARTBEAT)
        self.is_over = False

    def task(self) -> Any:
        return self

    def start_tasks(self) -> None:
        """Spark starts the tasks, and sometimes a copy of one."""
        for subtask in range(self.parallelism):
            self._start_task(subtask)
            if self._cluster.chaos.strikes("copy a task"):
                self._start_task(subtask)

    def _start_task(self, subtask: int) -> None:
        process = Process(f"source task {subtask}")
        self._cluster.tasks.append(process)
        vertex = Vertex(self._cluster, self, SlotId(SOURCES, subtask), process, None)
        self._cluster.slowly(lambda: self._join(subtask, vertex))

    def _join(self, subtask: int, vertex: Vertex) -> None:
        peer: Any = vertex
        self._arrivals.put((JoinEngine(subtask, peer), DriversEnd(vertex)))  # type: ignore[arg-type]
        self.wake_up()

    def drive(self, slot: SlotId, address: Address) -> None:
        process: Any = address.host
        vertex: Any = Vertex(self._cluster, self, slot, process, process.service)
        self._add(slot, DriversEnd(vertex), vertex)  # type: ignore[arg-type]

    def _add(self, name: SlotId, channel: Any, peer: Any) -> None:
        self._channels[name], self._peers[name] = channel, peer
        self.vertices[name] = peer

    def receive_from(self, vertex: Vertex, part: object) -> None:
        """A process has said something."""
        if self.vertices.get(vertex.name) is vertex:
            channel = self._channels[vertex.name]
            self._heartbeats.answered.add(vertex.name)
            channel.arrived.append(part)
            self._take(channel)
            self.wake_up()

    def is_driverless(self) -> bool:
        """Return whether the driver is gone, so that reports cannot reach it."""
        link: Any = self._link
        return bool(link.control.driver.dead)

    def lose(self, vertex: Vertex) -> None:
        """A connection has ended."""
        if not self.is_over and self.vertices.get(vertex.name) is vertex:
            self.failure = SlotLostError(f"{vertex.name} died")
            self.wake_up()

    def receive(self, timeout_s: float) -> None:
        """Nothing waits in a socket: what comes is taken at once."""

    def is_awaited(self) -> bool:
        """Return whether a process stands still, so that it takes time alone to find out."""
        return any(vertex.is_frozen for vertex in self.vertices.values())

    def wake_up(self) -> None:
        self.woken()

    def shut_down(self) -> None:
        self.wake_up()
        for vertex in self.vertices.values():
            vertex.is_cut_off = True

    def close(self) -> None:
        self.is_over = True
        self.shut_down()


class DriversEnd:
    """The driver's end of a connection to a process; as a ``Channel``."""

    def __init__(self, vertex: Vertex) -> None:
        self._vertex = vertex
        self.arrived: deque[object] = deque()

    def send(self, order: object) -> None:
        if self._vertex.process.dead:
            raise BrokenPipeError("the process is gone")
        self._vertex.orders_line.put(order)

    def try_send(self, heartbeat: object) -> None:
        self.send(heartbeat)

    def recv(self) -> object:
        return self.arrived.popleft()

    def poll(self) -> bool:
        return bool(self.arrived)


class SimulatedInputs(Inputs):
    """The channels of a vertex: the real ones, each read a little whenever something is waited for."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(lambda: None)
        self._cluster = cluster
        self._arrived: dict[str, deque[bytes | None]] = defaultdict(deque)
        #: By sender: what has to let its reader go on.
        self._before: dict[str, threading.Semaphore] = {}

    def arrive(self, sender: str, data: bytes | None) -> None:
        """Something has come in a channel; None: it has ended."""
        self._gates.setdefault(sender, _Gate())
        self._arrived[sender].append(data)

    def has_all_of(self, senders: Collection[str]) -> bool:
        """Return whether all barriers of an epoch have come, or one never will."""
        arrived = [self._arrived[sender] for sender in senders]
        return any(None in of_sender for of_sender in arrived) or all(BARRIER in of for of in arrived)

    def _next(self, rest_s: float) -> tuple[str, bytes | None] | None:
        if self._cluster.draw("rest").random() < 0.05:
            return None
        ready = [sender for sender in sorted(self._gates) if self._can_be_read(sender)]
        if not ready and any(None in of for of in self._arrived.values()):  # a channel has ended
            raise SlotLostError("the attempt is over")
        assert ready, "a vertex waits for what will never come"
        sender = self._cluster.draw("channel").choice(ready)
        data = self._arrived[sender].popleft()
        gate = self._gates[sender]
        self._before[sender] = gate.frames if data else gate.epochs
        return sender, data

    def _can_be_read(self, sender: str) -> bool:
        before = self._before.get(sender)
        if before is not None and before.acquire(blocking=False):
            del self._before[sender]
        return sender not in self._before and bool(self._arrived[sender])


class InlineFlow:
    """Runs a flow when its end is waited for, not on a thread: the order of all is the simulation's."""

    def __init__(self, flow: Flow, items: Iterator[Rank]) -> None:
        self._flow, self._items = flow, items

    def end(self) -> None:
        self._flow.run([self._items])


class Vertex:
    """A vertex in its process, and its channels; as ``Outputs``."""

    def __init__(
        self, cluster: Cluster, crew: SimulatedCrew, name: SlotId, process: Process, service: Any
    ) -> None:
        self._cluster = cluster
        self._crew = crew
        self.name = name
        self.process = process
        self._service = service
        #: The driver or the process behind has ended the connections: it will notice.
        self.is_cut_off = False
        #: It stands still for ever, and its connections are open.
        self.is_frozen = False
        self.orders_line = Line(cluster, self._take_order)
        self.inputs = SimulatedInputs(cluster)
        self._host = Host(name, self.inputs, service)
        self.waits, self.markers = Waits(), Markers()
        self._to_driver = Line(cluster, lambda part: crew.receive_from(self, part))
        self._peers: dict[SlotId, Any] = {}
        self._lines: dict[SlotId, Line] = {}
        self._orders: deque[Any] = deque()
        #: The functions of the job that its process knows.
        self._codes: dict[str, bytes] = {}
        self._is_busy = False

    def _take_order(self, order: object) -> None:
        if isinstance(order, RunEpoch):
            self._orders.append(order)
            self._go_on()
        elif not self.is_frozen and not self.process.dead:
            self._to_driver.put(order)  # a heartbeat

    def receive(self, sender: str, data: bytes | None) -> None:
        """Something has come in a channel; None: it has ended."""
        self.inputs.arrive(sender, data)
        self._go_on()

    def _go_on(self) -> None:
        """Run the epoch whose turn it is, when its barriers have come."""
        if self.process.dead or self._is_busy or not self._orders or self.is_frozen:
            return
        if self._service is None and self._cluster.chaos.strikes("freeze a task"):
            self.is_frozen = True
        elif self._cluster.chaos.strikes("kill a task") and self._service is None:
            self._die()
        elif self.inputs.has_all_of(getattr(self._orders[0].program, "senders", ())):
            self._cluster.seen["aligned"] += self._service is not None
            self._is_busy = True
            self._cluster.soon(lambda: self._run(self._orders.popleft()))

    def _die(self) -> None:
        self.process.dead = True
        for line in self._lines.values():
            line.put(None)  # those behind notice
        self._cluster.slowly(lambda: self._crew.lose(self))

    def _run(self, order: RunEpoch) -> None:
        ended = self._cluster.run(self.process, self._part, order)
        self._is_busy = False
        if ended is None:  # the process is dead
            self._cluster.slowly(lambda: self._crew.lose(self))
        elif not self.is_cut_off:
            self._to_driver.put(ended)
            if self._cluster.chaos.strikes("kill a task") and self._service is None:
                self._to_driver.lose_some()
                self._die()
            self._go_on()

    def _part(self, order: RunEpoch) -> EpochPart | None:
        taken_reports()  # of a process that has failed
        outputs: Any = self
        self._codes.update(order.codes)
        with patch.object(CODES, "value", self._codes):
            part = part_of(order, self._host, outputs)
        if isinstance(part.error, SparkJobError) and not self._crew.is_driverless():
            raise AssertionError(f"a fault of the package: {part.error}")
        return part

    # --- as ``Outputs`` ------------------------------------------------------------------------------

    end_epoch: Any = Outputs.end_epoch
    pass_on: Any = Outputs.pass_on

    def open(self, peers: Mapping[SlotId, object]) -> None:
        self._peers.update(peers)

    def send(self, target: SlotId, frame: bytes) -> None:
        vertex = self._peers[target]
        if vertex.process.dead or self.is_cut_off:
            raise SlotLostError(f"{target} died or was cut off")
        if target not in self._lines:
            sender = str(self.name)
            self._lines[target] = Line(self._cluster, lambda data: vertex.receive(sender, data))
        if self._cluster.chaos.strikes("break a channel"):
            self._lines[target].lose_some()
            self._lines[target].put(None)
            raise SlotLostError(f"the channel to {target} is broken")
        self._lines[target].put(frame)


@contextmanager
def unpickled() -> Iterator[None]:
    """Hand over programs and results as they are: nothing leaves the process of the simulation."""
    with (
        patch.object(vertices, "dumps_by_value", _same),
        patch.object(vertices, "collecting", lambda link: link.collecting()),
        patch.object(programs, "loads", _same),
        patch.object(programs, "_FlowThread", InlineFlow),
        patch.object(programs, "resident_bytes", lambda: 0),
    ):
        yield


def _same(value: Any) -> Any:
    return value
