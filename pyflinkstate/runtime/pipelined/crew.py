"""The driver's connections to the processes of one attempt: its tasks and its slots."""

from __future__ import annotations

import queue
import select
import socket
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import chain

from pyflinkstate.errors import ConfigurationError, SlotLostError
from pyflinkstate.runtime.engine import CodeBook, EpochEnded, EpochRequest
from pyflinkstate.runtime.pipelined.processes import ENGINE, SOURCES, DriveSlot, JoinEngine, ResidentTask
from pyflinkstate.runtime.pipelined.programs import (
    EpochPart,
    Peer,
    RunEpoch,
    SinkResults,
    cut_off_as_error,
)
from pyflinkstate.runtime.pipelined.vertices import Part
from pyflinkstate.runtime.slots import Endpoint
from pyflinkstate.runtime.tasks import DriverLink
from pyflinkstate.runtime.wire import (
    Address,
    Channel,
    Heartbeat,
    HeartbeatSettings,
    Server,
    ServerName,
    SlotId,
    connect,
    listen_on_tcp,
    loads,
    wait_for,
)

#: An epoch, and a vertex that has a part in it.
PartId = tuple[int, SlotId]


class Heartbeats:
    """Which processes have answered, and when."""

    def __init__(self, settings: HeartbeatSettings) -> None:
        self._settings = settings
        self._next_s = 0.0
        self._heard_s: dict[SlotId, float] = {}
        #: Who was heard since that was last looked at.
        self.answered: set[SlotId] = set()

    def are_due(self, now_s: float) -> bool:
        """Return whether it is time to ask; then that is noted."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._settings.interval_ms / 1000
        return True

    def check(self, process: SlotId, now_s: float) -> None:
        """Raise ``SlotLostError`` if a process has been asked, and not heard for too long."""
        if process in self.answered:
            self.answered.remove(process)
            self._heard_s[process] = now_s
        silent_ms = 1000 * (now_s - self._heard_s.setdefault(process, now_s))
        if silent_ms > self._settings.timeout_ms:
            raise SlotLostError(f"source task {process.subtask} has not answered for {silent_ms:.0f} ms")


class Crew:
    """The processes, of which the driver's thread of the engine takes care.

    Args:
        endpoint: where the driver listens.
        link: how the tasks of the attempt reach the job.
        parallelism: how many tasks there are.
        heartbeat: how often they are asked whether they live. Slots answer elsewhere.
    """

    def __init__(
        self, endpoint: Endpoint, link: DriverLink, parallelism: int, heartbeat: HeartbeatSettings
    ) -> None:
        self.parallelism = parallelism
        self._heartbeats = Heartbeats(heartbeat)
        self._link = link
        self._channels: dict[SlotId, Channel] = {}
        self._peers: dict[SlotId, Peer] = {}
        #: By process: the code book whose functions it knows.
        self._known: dict[SlotId, CodeBook] = {}
        self._parts: dict[PartId, EpochPart] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._arrivals: queue.SimpleQueue[tuple[JoinEngine, Channel]] = queue.SimpleQueue()
        listener = listen_on_tcp(endpoint.bind_host, endpoint.port + 1 if endpoint.port else 0)
        self._address = Address(endpoint.host, listener.getsockname()[1])
        self._server = Server([listener], self._address, ENGINE, link.secret, self._serve)
        self._server.start()
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)

    # --- the beginning -------------------------------------------------------------------------------

    def task(self) -> ResidentTask:
        """Return what Spark runs in each task."""
        return ResidentTask(self._address, self._link.secret, self._link.attempt)

    def _serve(self, channel: Channel) -> None:
        """Take a task, and keep its connection open.

        If Spark runs a task twice, the copy that comes later waits until the attempt is over: if it ended,
        Spark would end the other one.
        """
        join = channel.recv()
        assert isinstance(join, JoinEngine)
        self._arrivals.put((join, channel))
        self.wake_up()
        wait_for(lambda timeout_s: self._over.wait(timeout_s) or None, lambda: None)

    def missing_tasks(self) -> int:
        """Take those that have come; return how many tasks are not connected."""
        while not self._arrivals.empty():
            join, channel = self._arrivals.get_nowait()
            name = SlotId(SOURCES, join.subtask)
            if name not in self._channels:
                self._add(name, channel, join.peer)
        return sum(SlotId(SOURCES, number) not in self._channels for number in range(self.parallelism))

    def too_few(self, seconds: float) -> ConfigurationError:
        """Return the error that not all tasks have started within some seconds."""
        return ConfigurationError(
            f"{self.parallelism - self.missing_tasks()} of {self.parallelism} source tasks have started "
            f"within {seconds} s. Each keeps one of Spark's cores as long as the job runs: give Spark more "
            f"cores, lower the parallelism, or choose the engine STAGES"
        )

    def drive(self, slot: SlotId, address: Address) -> None:
        """Connect to a slot."""
        server = ServerName.of_slot(slot, self._link.attempt)
        with cut_off_as_error(slot):
            channel = connect(address, server, self._link.secret)
            self._add(slot, channel, Peer(address, server))
            channel.send(DriveSlot(self._link.secret))

    def _add(self, name: SlotId, channel: Channel, peer: Peer) -> None:
        with self._lock:
            self._channels[name], self._peers[name] = channel, peer
        channel.watch(self._poll, select.POLLIN)

    # --- epochs --------------------------------------------------------------------------------------

    def send(self, request: EpochRequest, part: Part) -> PartId:
        """Send a process its part of an epoch."""
        process = self._process_of(part.vertex)
        codes = {} if self._known.get(process) is request.code else request.code.codes
        behind = {target: self._peers[self._process_of(target)] for target in part.behind}
        epoch = request.link.epoch
        with cut_off_as_error(process):
            self._channels[process].send(
                RunEpoch(part.vertex, self._link.attempt, epoch, part.operators, part.program, codes, behind)
            )
        self._known[process] = request.code
        return epoch, part.vertex

    def _process_of(self, vertex: SlotId) -> SlotId:
        """Return the slot itself, or the task that hosts a subtask of an exchange."""
        known = vertex in self._channels
        return vertex if known else SlotId(SOURCES, vertex.subtask % self.parallelism)

    def receive(self, timeout_s: float) -> None:
        """Take what has come from processes, or wait until something comes, or it is woken up.

        Raises:
            SlotLostError: a process is gone.
        """
        ready = {descriptor for descriptor, _ in self._poll.poll(timeout_s * 1000)}
        if self._woken.fileno() in ready:
            self._woken.recv(4096)
        for name, channel in self._channels.items():
            if channel.fileno() in ready:
                self._heartbeats.answered.add(name)
                with cut_off_as_error(name):
                    self._take(channel)

    def _take(self, channel: Channel) -> None:
        message = channel.recv()
        if isinstance(message, EpochPart):
            self._parts[message.epoch, message.vertex] = message
        if channel.poll():  # an encrypted connection may hold more than the system shows
            self._take(channel)

    def beat(self, now_s: float) -> None:
        """Ask the tasks whether they live, if it is time to.

        Raises:
            SlotLostError: one has not answered for too long.
        """
        if not self._heartbeats.are_due(now_s):
            return
        self.receive(0)  # this process may have stood still itself
        for task in (SlotId(SOURCES, number) for number in range(self.parallelism)):
            self._heartbeats.check(task, now_s)
            with cut_off_as_error(task):
                self._channels[task].try_send(Heartbeat())

    def wake_up(self) -> None:
        """Make :meth:`receive` return, from any thread."""
        with self._lock:
            if not self._over.is_set():
                with suppress(BlockingIOError):  # it was woken up often enough
                    self._waker.send(b"w")

    def have_ended(self, parts: Collection[PartId]) -> bool:
        """Return whether all of some parts have ended, well or not."""
        return all(part in self._parts for part in parts)

    def check(self, parts: Iterable[PartId]) -> None:
        """Raise the error of a part that has failed."""
        for part in parts:
            ended = self._parts.get(part)
            if ended is not None and ended.error is not None:
                raise ended.error

    def ended(self, parts: Collection[PartId], sinks: int) -> EpochEnded:
        """Return the end of an epoch, with what the writers of each sink returned, in order of partitions."""
        found: dict[int, list[SinkResults]] = defaultdict(list)
        ended = [self._parts.pop(part) for part in parts]
        for results in chain.from_iterable(loads(part.results) for part in ended):
            found[results.sink].append(results)
        for of_sink in found.values():
            of_sink.sort(key=lambda results: results.partition)
        return EpochEnded(
            [[*chain.from_iterable(part.results for part in found[sink])] for sink in range(sinks)],
            None,
            reports=tuple(chain.from_iterable(part.reports for part in ended)),
        )

    # --- the end -------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """End all connections, from any thread."""
        self.wake_up()
        with self._lock:
            for channel in self._channels.values():
                channel.shut_down()

    def close(self) -> None:
        """End all connections, and let nobody connect any more."""
        self.shut_down()
        self._server.close()
        with self._lock:
            self._over.set()
            self._waker.close()
            self._woken.close()
            for channel in self._channels.values():
                channel.close()
