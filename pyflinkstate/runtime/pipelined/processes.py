"""The processes of the pipelined engine: a Spark task that stays, and a slot, as the driver drives them.

A process hosts vertices. A slot hosts itself. A task hosts one vertex that reads the sources, and the
subtasks of exchanges that fall to it, each on a thread of its own with channels of its own, as barriers of a
vertex must not wait for those of another. The sources are read on the thread that Spark knows, so what hangs
there ends with its process.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import attrs

from pyflinkstate.runtime.operators import close_all
from pyflinkstate.runtime.pipelined.programs import (
    CODES,
    Outputs,
    Peer,
    RunEpoch,
    part_of,
    taken_reports,
)
from pyflinkstate.runtime.slots import Host, Inputs, OpenChannel, Visitor
from pyflinkstate.runtime.wire import (
    KEPT,
    Address,
    Channel,
    Server,
    ServerName,
    SlotId,
    connect,
    joined,
    listen_near_and_far,
    next_of,
    wait_for,
)

#: The name under which tasks reach the engine in the driver.
ENGINE = ServerName("engine", "pipelined")
#: The name of the vertex that reads the sources.
SOURCES = "sources"


@attrs.frozen
class DriveSlot(Visitor):
    """The first message of the driver's connection to a slot: it says what each epoch does."""

    secret: bytes = attrs.field(repr=False)

    def serve(self, host: Host, channel: Channel) -> None:
        """See :class:`Visitor`."""
        outputs = Outputs(str(host.vertex), self.secret)
        KEPT.stay()
        try:
            while True:
                order = channel.recv()
                assert isinstance(order, RunEpoch)
                CODES.value.update(order.codes)
                channel.send(part_of(order, host, outputs))
        finally:
            outputs.close()


@attrs.frozen
class JoinEngine:
    """The first message of a task to the engine in the driver.

    Attributes:
        subtask: the number of the task.
        peer: where it takes channels.
    """

    subtask: int
    peer: Peer


@attrs.frozen
class ResidentTask:
    """A task that stays: it runs what the driver sends it, epoch by epoch, until the attempt ends.

    Attributes:
        engine: where the engine listens in the driver.
        secret: the secret of the job.
        attempt: the number of the attempt.
    """

    engine: Address
    secret: bytes = attrs.field(repr=False)
    attempt: int

    def __call__(self, partition: int, _: Iterable[object]) -> Iterator[object]:
        taken_reports()  # of another job that this worker has run
        KEPT.stay()
        with suppress(EOFError, OSError), connect(self.engine, ENGINE, self.secret) as driver:
            _TaskProcess(self, partition, driver).run()
        yield from ()


@attrs.define(eq=False)
class _TaskProcess:
    """The vertices that a task hosts."""

    _task: ResidentTask
    _subtask: int
    _driver: Channel
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)
    _vertices: dict[SlotId, _Vertex] = attrs.field(init=False, factory=dict)
    _threads: list[threading.Thread] = attrs.field(init=False, factory=list)

    def run(self) -> None:
        """Run what the driver orders until it ends the connection."""
        server, peer = self._listen()
        sources = self._vertex(SlotId(SOURCES, self._subtask))
        server.start()
        try:
            self._driver.send(JoinEngine(self._subtask, peer))
            self._in_a_thread(self._read_orders)
            sources.run()
        finally:
            self._end()
            server.close()
            for thread in self._threads:
                wait_for(joined(thread), lambda: None)
            close_all(*KEPT.take_all())

    def _listen(self) -> tuple[Server, Peer]:
        listeners, address = listen_near_and_far(self._driver.host())
        name = ServerName("task", f"{self._subtask} of attempt {self._task.attempt}")
        return Server(listeners, address, name, self._task.secret, self._serve), Peer(address, name)

    def _serve(self, channel: Channel) -> None:
        opened = channel.recv()
        assert isinstance(opened, OpenChannel)
        opened.serve(self._vertex(opened.target).host, channel)

    def _read_orders(self) -> None:
        """Hand the driver's orders to their vertices, none of which waits for another."""
        try:
            while True:
                order = self._driver.recv()
                if isinstance(order, RunEpoch):
                    CODES.value.update(order.codes)  # the first order has them for all vertices
                    self._vertex(order.vertex).orders.put(order)
                else:  # a heartbeat
                    self._driver.send(order)
        except (EOFError, OSError):
            pass
        finally:
            self._end()

    def _vertex(self, name: SlotId) -> _Vertex:
        with self._lock:
            if name not in self._vertices:
                made = self._vertices[name] = _Vertex(name, self._driver, self._task.secret)
                if name.operator_id != SOURCES:
                    self._in_a_thread(made.run)
            return self._vertices[name]

    def _in_a_thread(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _end(self) -> None:
        self._driver.shut_down()
        with self._lock:
            for vertex in self._vertices.values():
                vertex.end()


class _Vertex:
    """One vertex of a task, which runs on one thread."""

    def __init__(self, name: SlotId, driver: Channel, secret: bytes) -> None:
        self.host = Host(name, Inputs(self._lost))
        #: The orders to run; None wakes up who waits for one.
        self.orders: queue.SimpleQueue[RunEpoch | None] = queue.SimpleQueue()
        self._driver = driver
        self._outputs = Outputs(str(name), secret)
        self._is_over = False

    def run(self) -> None:
        """Run the orders until there will be none any more."""
        try:
            look = next_of(self.orders)
            while True:
                order = wait_for(look, self._lost)
                self._driver.send(part_of(order, self.host, self._outputs))
        except (EOFError, OSError):
            pass  # the attempt is over
        finally:
            self._driver.shut_down()  # or it would wait for this vertex
            self._outputs.close()

    def end(self) -> None:
        """End it soon, from any thread."""
        self._is_over = True
        self.orders.put(None)
        self.host.inputs.wake_up()
        self._outputs.shut_down()

    def _lost(self) -> EOFError | None:
        return EOFError("the attempt is over") if self._is_over else None
