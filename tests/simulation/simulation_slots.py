"""State slots and their connections in the failure simulation: the processes that hold the state.

Slot services and the slot registry are production's, and so is what the driver makes of a message. Instead
of sockets there are wires: each keeps the order of its messages, two of them keep none between each other. A
slot that is cut off goes on for a while, as a real one does, and what it still does must harm nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from simulation_cluster import Cluster, Mailbox
from simulation_storage import Process

from pyflinkstate.errors import PyFlinkStateError, SlotLostError
from pyflinkstate.runtime.slots.control import ControlServer, SlotRegistry
from pyflinkstate.runtime.slots.slot_service import SlotHost, SlotService
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.runtime.storage.streams import CheckpointFolder
from pyflinkstate.runtime.tasks.slot_client import Admission
from pyflinkstate.runtime.wire.messages import (
    AcquireSlot,
    BeginEpoch,
    CloseSlot,
    DeploySlot,
    EpochDone,
    EpochFailed,
    EpochRefused,
    RegisterSlot,
    SlotAvailable,
    SlotFailed,
    SlotId,
    SlotReady,
    SlotUnavailable,
    StartSlot,
)
from pyflinkstate.runtime.wire.transport import Address


class SimulatedRegistry(SlotRegistry):
    """The real one; only the wait for slots to close is of simulated time."""

    def __init__(self, attempt: int, control: SimulatedControl) -> None:
        super().__init__(attempt)
        self._control = control

    def close(self, timeout_s: float) -> None:
        cluster, driver = self._control.cluster, self._control.driver
        self._ended = True
        asked = [wire for wire in self._control.wires if wire.registry is self and wire.is_open]
        for wire in asked:
            wire.send(CloseSlot())
        until_ms = cluster.now_ms + int(timeout_s * 1000)
        while not all(wire.is_over for wire in asked) and cluster.step(until_ms):
            driver.check()
        super().close(0)


class SimulatedControl(ControlServer):
    """The driver's end of all connections: the real one, with wires for sockets and events for threads."""

    def __init__(self, cluster: Cluster, events: Mailbox, deployment_of: Any) -> None:
        self.cluster = cluster
        self.driver = cluster.driver
        self.wires: list[Wire] = []
        self._events: Any = events
        self._deployment_of = deployment_of
        self.address = Address("simulated driver", 0)
        self._registry: SlotRegistry = SimulatedRegistry(-1, self)
        cluster.hang_up = self._hang_up

    def new_attempt(self, attempt: int) -> SlotRegistry:
        self.driver.check()
        assert attempt > self._registry.attempt, "what is left of the attempt before could not be told apart"
        self._registry.end()
        self._registry = SimulatedRegistry(attempt, self)
        return self._registry

    def is_alive(self) -> bool:
        return True

    def close(self) -> None:
        self.driver.check()
        self._registry.end()

    def _hang_up(self) -> None:
        for wire in self.wires:
            wire.cut()

    def acquire(self, request: AcquireSlot) -> Iterator[Address | None]:
        """A task asks for a slot, and waits; yields the address at last. See ``DriverLink.acquire_slot``."""
        registry, task = self._registry, TaskWire()
        started: Slot | None = None
        if self.driver.dead or request.attempt != registry.attempt:
            raise SlotLostError(f"slot {request.slot}: the driver has ended this attempt of the job")
        registry.acquire(request.slot, task)  # type: ignore[arg-type]
        try:
            while not isinstance(answer := self._answer(request, task, started), SlotAvailable):
                if isinstance(answer, StartSlot):
                    started = Slot(self.cluster, self, request.slot, request.attempt)
                yield None
            yield answer.address
        finally:
            if not self.driver.dead:
                registry.task_left(request.slot, task)  # type: ignore[arg-type]

    def _answer(self, request: AcquireSlot, task: TaskWire, started: Slot | None) -> object:
        if self.driver.dead or task.is_cut:
            raise SlotLostError(f"slot {request.slot}: the driver has ended this attempt of the job")
        answer = task.answers.popleft() if task.answers else None
        if isinstance(answer, SlotUnavailable):
            raise answer.error
        if answer is None and started is not None and started.dead:
            raise SlotLostError(f"slot {request.slot} ended while it started")
        return answer

    def connected(self, wire: Wire, message: RegisterSlot) -> None:
        """A slot has registered. See ``ControlServer._serve_slot``."""
        registry = wire.registry = self._registry
        wire.registration = message
        if message.attempt != registry.attempt or not registry.register(message, wire):  # type: ignore[arg-type]
            wire.is_over = True
            wire.cut()
            return
        self.wires.append(wire)
        try:
            wire.send(self._deployment_of(message.slot))
        except OSError:
            self.received(wire, EOF)

    def received(self, wire: Wire, message: object) -> None:
        """A slot has said something, or its connection has ended."""
        if wire.registry is None:  # it died before it could register
            wire.is_over = True
            return
        slot = wire.registration.slot
        if message is not EOF and self._handle_slot_message(wire.registry, wire.registration, message):
            return
        if message is EOF:
            self._slot_failed(wire.registry, slot, SlotLostError(f"state slot {slot} died"))
        wire.is_over = True
        wire.registry.slot_closed(slot)
        wire.cut()


#: Instead of a message: the other end is gone.
EOF = object()


class TaskWire:
    """The connection of a task that asks the driver for a slot; as a ``Channel``, the driver's end."""

    def __init__(self) -> None:
        self.answers: deque[Any] = deque()
        self.is_cut = False

    def send(self, message: object) -> None:
        self.answers.append(message)

    def shut_down(self) -> None:
        self.is_cut = True


class Wire:
    """The control connection of a slot; as a ``Channel``, the driver's end of it."""

    def __init__(self, cluster: Cluster, control: SimulatedControl, slot: Slot) -> None:
        self._cluster = cluster
        self._control = control
        self._slot = slot
        self.registry: SlotRegistry | None = None
        self.registration: Any = None
        self.is_open = True
        #: The driver expects nothing more.
        self.is_over = False
        self._to_slot = Line(cluster, self._reach_slot)
        self._to_driver = Line(cluster, self._reach_driver)

    # --- the driver's end --------------------------------------------------------------------------

    def send(self, message: object) -> None:
        self._control.driver.check()
        if not self.is_open:
            raise BrokenPipeError("the slot is gone")
        self._cluster.overhear(message)
        self._to_slot.put(message)

    def shut_down(self) -> None:
        self._control.driver.check()
        self.cut()

    def cut(self) -> None:
        """The driver hangs up, or is dead: the slot will notice."""
        if self.is_open:
            self.is_open = False
            self._slot.cut_off = True
            self._to_slot.put(EOF, slowly=True)
            self._to_driver.put(EOF)

    def _reach_driver(self, message: object) -> None:
        if not self._control.driver.dead and not self.is_over:
            if isinstance(message, RegisterSlot):
                self._control.connected(self, message)
            else:
                self._control.received(self, message)

    # --- the slot's end ----------------------------------------------------------------------------

    def tell(self, message: object) -> None:
        if not self.is_open:
            raise BrokenPipeError("the driver is gone")
        self._to_driver.put(message)

    def hang_up(self, loses_messages: bool) -> None:
        """The slot is dead. What it has said last may never arrive."""
        if self.is_open:
            self.is_open = False
            if loses_messages:
                self._to_driver.lose_some()
            self._to_driver.put(EOF)

    def _reach_slot(self, message: object) -> None:
        self._cluster.run(self._slot, self._slot.receive, message)


class Line:
    """One direction of a connection: messages arrive late, and in order."""

    def __init__(self, cluster: Cluster, arrive: Callable[[object], None]) -> None:
        self._cluster = cluster
        self._arrive = arrive
        self._on_the_way: deque[object] = deque()
        self._stalled_until_ms = 0

    def put(self, message: object, slowly: bool = False) -> None:
        self._on_the_way.append(message)
        stall_ms = self._cluster.stall_ms()
        if stall_ms:
            self._stalled_until_ms = self._cluster.now_ms + stall_ms
        (self._cluster.slowly if slowly else self._cluster.soon)(self._deliver)

    def lose_some(self) -> None:
        for _ in range(self._cluster.draw("lost messages").randint(0, len(self._on_the_way))):
            self._on_the_way.pop()

    def _deliver(self) -> None:
        wait_ms = self._stalled_until_ms - self._cluster.now_ms
        if wait_ms > 0:
            self._cluster.at(wait_ms, self._deliver)
        elif self._on_the_way:
            self._arrive(self._on_the_way.popleft())


# --- slots -------------------------------------------------------------------------------------------


class Slot(Process):
    """The process of a state slot, around a real ``SlotService``. See ``runtime.slot``."""

    def __init__(self, cluster: Cluster, control: SimulatedControl, slot_id: SlotId, attempt: int) -> None:
        super().__init__(f"slot {slot_id}")
        cluster.slots.append(self)
        self._cluster = cluster
        self._wire = Wire(cluster, control, self)
        self._slot_id = slot_id
        self.service = SlotService(
            slot_id,
            attempt,
            SlotHost(
                tell=self._tell,
                spawn=self._spawn,
                now_ms=cluster.wall_ms,
                open_storage=self._open_storage,
                open_folder=lambda uri: CheckpointFolder(cluster.disk.file_system, uri),
                perf_s=lambda: cluster.now_ms / 1000,
            ),
        )
        # The address is the process: run_epoch() goes straight to it.
        message = RegisterSlot(attempt, slot_id, 0, Address(self, 0))  # type: ignore[arg-type]
        cluster.soon(lambda: cluster.run(self, self._tell_at_last, message))

    def _open_storage(self, settings: Any) -> CheckpointFolders:
        return CheckpointFolders(settings, (self._cluster.disk.file_system, settings.checkpoint_path))

    def _tell(self, message: object) -> None:
        self.check()
        self._wire.tell(message)

    def _spawn(self, write: Callable[[], None]) -> None:
        stall_ms = self._cluster.stall_ms()
        delay_ms = stall_ms + self._cluster.draw("writes after").randrange(12)
        self._cluster.at(delay_ms, lambda: self._cluster.run(self, write))

    def receive(self, message: object) -> None:
        """The driver has said something, or is gone."""
        if message is EOF:
            self.exit()
        elif isinstance(message, DeploySlot):
            failure = self.service.deploy(message)
            self._tell_at_last(SlotReady() if failure is None else SlotFailed(failure))
            if failure is not None:
                self.exit()
        elif isinstance(message, CloseSlot):
            self._tell_at_last(self.service.close())
            self.exit()
        else:
            self.service.hear(message)

    def _tell_at_last(self, message: object) -> None:
        try:
            self._tell(message)
        except OSError:
            self.exit()

    def exit(self) -> None:
        """End the process; its threads end with it."""
        self._end(loses_messages=False)

    def kill(self) -> None:
        self._end(loses_messages=True)

    def _end(self, loses_messages: bool) -> None:
        if not self.dead:
            self.dead = True
            self._wire.hang_up(loses_messages)

    # --- a task that feeds it ------------------------------------------------------------------------

    def feed(self, begin: BeginEpoch, frames: Iterator[bytes]) -> Iterator[Any]:
        """Both ends of a task's connection: ``slot_client.run_epoch`` and ``StateSlot._serve_task``."""
        admission = Admission()
        while isinstance(answer := self._do(begin, self.service.begin, begin), EpochRefused):
            if not admission.asks_again(answer):
                raise answer.error
            self._cluster.seen["busy slots"] += 1
            yield None
        try:
            for frame in frames:
                yield None
                yield from self._do(begin, lambda frame=frame: list(self.service.process(frame))) or ()
            yield None
            yield from self._do(begin, lambda: list(self.service.finish_input())) or ()
        except PyFlinkStateError:
            self._cluster.run(self, self.service.abandon)
            raise
        except BaseException:  # the task is gone, and the slot will notice
            self._cluster.soon(lambda: self._cluster.run(self, self.service.abandon))
            raise
        outcome = self._do(begin, self.service.end)
        yield None
        self._check_alive(begin)
        if isinstance(outcome, EpochFailed):
            raise outcome.error
        assert isinstance(outcome, EpochDone)
        yield outcome

    def _do(self, begin: BeginEpoch, action: Callable[..., Any], *arguments: Any) -> Any:
        self._check_alive(begin)
        result = self._cluster.run(self, action, *arguments)
        self._check_alive(begin)
        return result

    def _check_alive(self, begin: BeginEpoch) -> None:
        if self.dead:
            raise SlotLostError(f"slot {self._slot_id} died or was cut off in epoch {begin.epoch}")
