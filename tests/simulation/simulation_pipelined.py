"""The pipelined engine in the failure simulation: tasks that stay, channels between them and the slots.

The script of an attempt, the graph, the programs and the alignment are production's. Instead of sockets
there are lines: each keeps the order of its messages, two of them keep none between each other, and one may
stand still. A process may die at each step: with what it has been told, or has still to say.
"""

from __future__ import annotations

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

from pyflinkstate.errors import PyFlinkStateError, SlotLostError
from pyflinkstate.runtime.engine import EpochEnded, EpochRequest, SlotsRequest
from pyflinkstate.runtime.pipelined import crew, programs, vertices
from pyflinkstate.runtime.pipelined.crew import Crew, PartId
from pyflinkstate.runtime.pipelined.processes import SOURCES
from pyflinkstate.runtime.pipelined.programs import CODES, EpochPart, Flow, Rank
from pyflinkstate.runtime.pipelined.runner import Attempt, PipelinedRunner
from pyflinkstate.runtime.pipelined.vertices import Part
from pyflinkstate.runtime.slots.inputs import BARRIER, Alignment, Host
from pyflinkstate.runtime.slots.slot_service import SlotService
from pyflinkstate.runtime.tasks.tasks import TaskLink
from pyflinkstate.runtime.wire.messages import HeartbeatSettings, SlotId
from pyflinkstate.runtime.wire.transport import Address


class StandingLink(SimulatedLink):
    """A task's way to the driver; one for each attempt."""

    def acquire_slot(self, slot: SlotId) -> Address:
        address = self.control._registry.addresses().get(slot)
        if address is None:
            raise SlotLostError(f"slot {slot} is gone")
        return address


class SimulatedPipelined(PipelinedRunner):
    """Runs epochs for one driver."""

    control: SimulatedControl

    def __init__(self, cluster: Cluster, mailbox: Mailbox) -> None:
        self._cluster = cluster
        self._mailbox = mailbox
        self._links: dict[int, StandingLink] = {}
        spark: Any = SimulatedTasks(cluster)
        endpoint: Any = None
        super().__init__(spark, endpoint, cluster.draw("source tasks").choice([1, 2, 3]), HeartbeatSettings())

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
            crew = SimulatedCrew(self._cluster, self._parallelism)
            thread = self._thread = SimulatedThread(self._cluster, self._spark, crew, request)  # type: ignore[assignment]
        return thread.attempt  # type: ignore[no-any-return]


class SimulatedTasks:
    """Does what ``SparkRunner`` does for the engine."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def start_slots(self, request: SlotsRequest, done: Callable[[EpochEnded], None]) -> None:
        SlotsJob(self._cluster, request, done).start()

    def start_tasks(self, crew: SimulatedCrew, *_: object) -> None:
        crew.start_tasks()

    def await_end(self, timeout_s: float) -> bool:
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
        while not self._has_ended:
            self._step()


class SimulatedCrew:
    """The driver's connections to the processes; as a ``Crew``."""

    def __init__(self, cluster: Cluster, parallelism: int) -> None:
        self._cluster = cluster
        self.parallelism = parallelism
        self.woken: Callable[[], None] = lambda: None
        self.failure: PyFlinkStateError | None = None
        self.vertices: dict[SlotId, Vertex] = {}
        self._joined = 0
        self._parts: dict[PartId, EpochPart] = {}
        self._is_over = False

    def task(self) -> SimulatedCrew:
        return self

    def start_tasks(self) -> None:
        for subtask in range(self.parallelism):
            task = Process(f"source task {subtask}")
            self._cluster.tasks.append(task)
            self._add(SlotId(SOURCES, subtask), task, None)
            self._cluster.slowly(self._join)

    def _join(self) -> None:
        self._joined += 1
        self.wake_up()

    def is_complete(self) -> bool:
        return self._joined == self.parallelism

    def drive(self, slot: SlotId, address: Address) -> None:
        process: Any = address.host
        self._add(slot, process, process.service)

    def _add(self, name: SlotId, process: Process, service: SlotService | None) -> None:
        self.vertices[name] = Vertex(self._cluster, self, name, process, service)

    def send(self, request: EpochRequest, part: Part) -> PartId:
        CODES.value.update(request.code.codes)
        vertex = self.vertices[part.vertex]
        if vertex.process.dead:
            raise SlotLostError(f"{part.vertex} died")
        vertex.orders_line.put((request.link.epoch, part))
        return request.link.epoch, part.vertex

    def take(self, part: EpochPart) -> None:
        """A process has ended its part."""
        self._parts[part.epoch, part.vertex] = part
        self.wake_up()

    def lose(self, vertex: Vertex) -> None:
        """A connection has ended."""
        if not self._is_over:
            self.failure = SlotLostError(f"{vertex.name} died")
            self.wake_up()

    def beat(self, now_s: float) -> None: ...

    have_ended = Crew.have_ended
    check = Crew.check
    ended = Crew.ended

    def wake_up(self) -> None:
        self.woken()

    def shut_down(self) -> None:
        self.wake_up()
        for vertex in self.vertices.values():
            vertex.is_cut_off = True

    def close(self) -> None:
        self._is_over = True
        self.shut_down()


class GivenInputs:
    """The frames of an epoch, which have all come."""

    def __init__(self, frames: list[bytes]) -> None:
        self._frames = frames

    def epoch(self, senders: Collection[str], openings: int, _: object = None) -> Iterator[bytes]:
        return iter(self._frames)


class InlineFlow:
    """Runs a flow when its end is waited for, not on a thread: the order of all is the simulation's."""

    def __init__(self, flow: Flow, items: Iterator[Rank]) -> None:
        self._flow, self._items = flow, items

    def end(self) -> None:
        self._flow.run([self._items])


class Vertex:
    """A vertex in its process, and its channels."""

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
        self.orders_line = Line(cluster, self._take_order)
        self._to_driver = Line(cluster, lambda part: crew.take(part))  # type: ignore[arg-type]
        self._lines: dict[SlotId, Line] = {}
        self._orders: deque[Any] = deque()
        self._arrived: dict[str, deque[bytes]] = defaultdict(deque)
        self._alignment: Alignment | None = None
        self._frames: list[bytes] = []
        self._is_busy = False

    def _take_order(self, order: object) -> None:
        self._orders.append(order)
        self._go_on()

    def receive(self, sender: str, data: bytes) -> None:
        """Something has come in a channel."""
        self._arrived[sender].append(data)
        self._go_on()

    def _go_on(self) -> None:
        """Take what may be taken of the epoch whose turn it is; run it when its barriers are aligned."""
        if self.process.dead or self._is_busy or not self._orders:
            return
        if self._cluster.chaos.strikes("kill a task") and self._service is None:
            self.process.dead = True
            self._cluster.slowly(lambda: self._crew.lose(self))
            return
        epoch, part = self._orders[0]
        if not hasattr(part.program, "senders"):
            self._begin(epoch, part, [])
            return
        if self._alignment is None:
            self._alignment, self._frames = Alignment(part.program.senders, part.program.openings), []
        for sender in sorted(self._alignment.waiting):
            while self._arrived[sender] and sender in self._alignment.waiting:
                self._frames += self._alignment.take(sender, self._arrived[sender].popleft())
        if not self._alignment.waiting:
            self._alignment, frames = None, self._frames
            self._cluster.seen["aligned"] += 1
            self._begin(epoch, part, frames)

    def _begin(self, epoch: int, part: Part, frames: list[bytes]) -> None:
        self._orders.popleft()
        self._is_busy = True
        self._cluster.soon(lambda: self._run(epoch, part, frames))

    def _run(self, epoch: int, part: Part, frames: list[bytes]) -> None:
        ended = self._cluster.run(self.process, self._part, epoch, part, frames)
        self._is_busy = False
        if ended is None:  # the process is dead
            self._cluster.slowly(lambda: self._crew.lose(self))
        elif not self.is_cut_off:
            self._to_driver.put(ended)
            self._go_on()

    def _part(self, epoch: int, part: Part, frames: list[bytes]) -> EpochPart | None:
        program: Any = part.program
        inputs: Any = GivenInputs(frames)
        try:
            results = program.run(Host(self.name, inputs, self._service), self)
            for target in part.behind:
                self.send(target, BARRIER)
        except PyFlinkStateError as error:
            return EpochPart(self.name, epoch, error=error)
        except ConnectionError:  # the driver is gone
            return None
        return EpochPart(self.name, epoch, results)

    # --- as ``Outputs`` ------------------------------------------------------------------------------

    def open(self, peers: Mapping[SlotId, object]) -> None: ...

    def send(self, target: SlotId, frame: bytes) -> None:
        vertex = self._crew.vertices[target]
        if vertex.process.dead or self.is_cut_off:
            raise SlotLostError(f"{target} died or was cut off")
        if target not in self._lines:
            sender = str(self.name)
            self._lines[target] = Line(self._cluster, lambda data: vertex.receive(sender, data))  # type: ignore[arg-type]
        self._lines[target].put(frame)


@contextmanager
def unpickled() -> Iterator[None]:
    """Hand over programs and results as they are: nothing leaves the process of the simulation."""
    with (
        patch.object(vertices, "dumps_by_value", _same),
        patch.object(vertices, "collecting", _same),
        patch.object(programs, "loads", _same),
        patch.object(programs, "_FlowThread", InlineFlow),
        patch.object(crew, "loads", _same),
    ):
        yield


def _same(value: Any) -> Any:
    return value
