"""The machines of the failure simulation: time, driver, slots and connections, under a seeded scheduler.

Everything that happens beside the driver's own thread is an event with a time; whoever waits lets events
happen. A connection keeps the order of its messages, two of them keep none between each other. A process
that is cut off goes on for a while, as real ones do, and what it still does must harm nobody.
"""

from __future__ import annotations

import heapq
import queue
import random
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

import attrs
from simulation_storage import FINE, Disk, Killed, Operation, Process, Verdict

from pyflinkstate.errors import PyFlinkStateError, SlotLostError
from pyflinkstate.runtime.control import ControlServer, SlotRegistry
from pyflinkstate.runtime.messages import (
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
from pyflinkstate.runtime.slot_service import SlotHost, SlotService
from pyflinkstate.runtime.storage import CheckpointFolder, CheckpointStorage
from pyflinkstate.runtime.transport import Address

START_MS = 1_700_000_000_000
#: No history takes so many; one that does goes round in circles.
MAX_STEPS = 40_000
#: How often others go on while the driver is at one operation of its storage.
INTERLEAVED = 0.04
CHANGES = frozenset({"create folder", "open", "write", "close", "move", "delete", "delete folder"})
_CHECKPOINT_FOLDER = re.compile(r".*?/(chk-\d+|shared|savepoint-[^/]+)(?=/|$)")
#: If one of these fails in a checkpoint's folder, it is not known what the checkpoint shares, or whether it
#: is still there: so what it may share has to stay.
CAUTION = frozenset({"look", "read", "delete", "delete folder"})
INTERRUPTIBLE = frozenset({"write", "delete folder"})


@attrs.frozen
class Scripted:
    """What happens at one operation: it fails after some part of it, and may kill who does it."""

    part: float
    kills: bool = False

    def part_of(self, operation: Operation) -> float:
        """Return how much of the operation happens: of most all or nothing."""
        return self.part if operation.name in INTERRUPTIBLE else float(self.part == 1)


class Chaos:
    """Decides what goes wrong. ``rates`` are probabilities by kind of fault; ``left`` is how many may be."""

    def __init__(self, rng: random.Random, rates: dict[str, float], left: int) -> None:
        self.rng = rng
        self.rates = rates
        self.left = left
        self.struck: Counter[str] = Counter()

    def strikes(self, fault: str) -> bool:
        """Return whether this fault happens now."""
        rate = self.rates.get(fault, 0.0)
        if not rate or not self.left or self.rng.random() >= rate:
            return False
        self.left -= 1
        self.struck[fault] += 1
        return True


class Cluster:
    """Time, storage, processes, and what is about to happen."""

    def __init__(self, rng: random.Random, chaos: Chaos) -> None:
        self.rng = rng
        self.chaos = chaos
        self.now_ms = START_MS
        #: Who looks at the disk from outside of the simulation: nothing happens to it.
        self.user = Process("user")
        self.disk = Disk(self.user)
        self.disk.decide = self._decide
        self.driver = Process("no driver")
        self.control: SimulatedControl | None = None
        self.slots: list[Slot] = []
        #: What has happened, of which nobody else takes note.
        self.seen: Counter[str] = Counter()
        #: Told of what the driver says to slots.
        self.overhear: Callable[[object], None] = lambda message: None
        self.steps = 0
        self.driver_operations = 0
        #: By number of the driver's operation: what a directed scenario wants of it.
        self.script: dict[int, Scripted] = {}
        #: Folders of checkpoints, or the shared one, in which an operation has failed.
        self.disturbed: set[str] = set()
        self._full_until_ms = 0
        #: Of so many operations from now on every third one fails.
        self._flaky = 0
        self._scheduled = 0
        self._events: list[tuple[int, float, int, Callable[[], None]]] = []

    # --- time --------------------------------------------------------------------------------------

    def at(self, delay_ms: int, happen: Callable[[], None]) -> None:
        """Have something happen; what happens at the same time comes in any order."""
        self._scheduled += 1
        event = (self.now_ms + delay_ms, self.rng.random(), self._scheduled, happen)
        heapq.heappush(self._events, event)

    def soon(self, happen: Callable[[], None]) -> None:
        """Have something happen after a delay as it is usual."""
        draw = self.rng.random()
        self.at(0 if draw < 0.3 else int(draw * 4) if draw < 0.95 else int(draw * 30), happen)

    def slowly(self, happen: Callable[[], None]) -> None:
        """Have something happen when it may take its time."""
        self.at(self.rng.randrange(40), happen)

    def stall_ms(self) -> int:
        """Return for how long something hangs: most often it does not."""
        return self.rng.choice([80, 300, 900]) if self.chaos.strikes("stall") else 0

    def step(self, until_ms: int | None = None) -> bool:
        """Let the next thing happen; False if nothing does until then."""
        if not self._events or (until_ms is not None and self._events[0][0] > until_ms):
            assert until_ms is not None, "the driver waits for what will never come"
            self.now_ms = max(self.now_ms, until_ms)
            return False
        time_ms, _, _, happen = heapq.heappop(self._events)
        self.now_ms = max(self.now_ms, time_ms)
        self.steps += 1
        assert self.steps < MAX_STEPS, "the simulation does not come to an end"
        happen()
        if self.chaos.left:
            self._strike()
        return True

    def _strike(self) -> None:
        if not self.driver.dead and self.chaos.strikes("kill the driver"):
            self.kill(self.driver)
        if self.chaos.strikes("crash a slot"):
            alive = [slot for slot in self.slots if not slot.dead]
            if alive:
                self.kill(self.rng.choice(alive))
        if self.chaos.strikes("fill the disk"):
            self._full_until_ms = self.now_ms + self.rng.choice([5, 50, 200])

    def run(self, process: Process, action: Callable[..., Any], *arguments: Any) -> Any:
        """Let a process do something; None if it is dead, or dies of it."""
        if process.dead:
            return None
        with self.disk.used_by(process):
            try:
                return action(*arguments)
            except Killed as killed:
                assert killed.process is process  # noqa: PT017
                return None

    # --- processes ---------------------------------------------------------------------------------

    def start_driver(self) -> Process:
        """Return the process of a new program; the one before has ended."""
        self.end_driver()
        self.driver = Process("driver")
        return self.driver

    def end_driver(self) -> None:
        """The driver's process is over: its connections break."""
        self.driver.dead = True
        if self.control is not None:
            for wire in self.control.wires:
                wire.cut()
        self.control = None

    def kill(self, process: Process) -> None:
        """Kill a process, at once."""
        if isinstance(process, Slot):
            process.exit(loses_messages=True)
        elif process is self.driver:
            self.end_driver()
        process.dead = True

    def start_slot(self, control: SimulatedControl, slot_id: SlotId, attempt: int) -> Slot:
        """Start a slot's process, as a task does."""
        self.slots = [slot for slot in self.slots if not slot.dead]
        slot = Slot(self, control, slot_id, attempt)
        self.slots.append(slot)
        return slot

    def run_epoch(
        self, address: Any, secret: bytes, slot_id: SlotId, begin: BeginEpoch, frames: Iterator[bytes]
    ) -> Iterator[Any]:
        """Stands in for ``slot_client.run_epoch``; yields None where others may go on."""
        return address.host.feed(begin, frames)

    # --- the disk ----------------------------------------------------------------------------------

    def _decide(self, operation: Operation) -> Verdict:
        process = operation.process
        if process is self.user:
            return FINE
        if process is self.driver:
            self.driver_operations += 1
            scripted = self.script.pop(self.driver_operations, None)
            if scripted is not None:
                self.chaos.struck["scripted"] += 1
                answer = self._kill if scripted.kills else self._refuse
                return answer(operation, scripted)
            if self.rng.random() < INTERLEAVED:
                for _ in range(self.rng.randint(1, 4)):
                    if self._events:
                        self.step()
                process.check()
        if self.now_ms < self._full_until_ms and operation.name == "write":
            return Verdict(0.5, OSError(28, "no space left on device", operation.path))
        return self._mishap(operation) if self.chaos.left or self._flaky else FINE

    def _mishap(self, operation: Operation) -> Verdict:
        chaos = self.chaos
        if operation.name in CHANGES and chaos.strikes("kill at the disk"):
            return self._kill(operation, Scripted(self.rng.choice([0.0, 0.5, 1.0])))
        if chaos.strikes("flaky disk"):
            self._flaky = self.rng.randint(3, 30)
        self._flaky = max(0, self._flaky - 1)
        if chaos.strikes("disk error") or (self._flaky and self.rng.random() < 0.3):
            return self._refuse(operation, Scripted(0.5))
        return self._refuse(operation, Scripted(1.0)) if chaos.strikes("late disk error") else FINE

    def _kill(self, operation: Operation, fault: Scripted) -> Verdict:
        self.kill(operation.process)
        return Verdict(fault.part_of(operation), Killed(operation.process))

    def _refuse(self, operation: Operation, fault: Scripted) -> Verdict:
        if found := _CHECKPOINT_FOLDER.match(operation.path):
            self.disturbed.add(found[0])
            if operation.name in CAUTION:
                self.disturbed.add(found[0].rpartition("/")[0] + "/shared")
        return Verdict(fault.part_of(operation), OSError(5, "input/output error", operation.path))


# --- the driver's surroundings -----------------------------------------------------------------------


class Mailbox:
    """The job master's mailbox: while it waits, everything else goes on."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._driver = cluster.driver
        self._events: deque[Any] = deque()

    def put(self, event: Any) -> None:
        self._events.append(event)

    def empty(self) -> bool:
        self._driver.check()
        return not self._events

    def get(self, timeout: float | None = None) -> Any:
        self._driver.check()
        cluster = self._cluster
        until_ms = None if timeout is None else cluster.now_ms + int(timeout * 1000)
        if self._events and cluster.rng.random() < 0.2:
            cluster.step(cluster.now_ms + 3)
            self._driver.check()
        while not self._events:
            if not cluster.step(until_ms):
                raise queue.Empty
            self._driver.check()
        return self._events.popleft()


class SimulatedClock:
    """The driver's clock: while it sleeps, everything else goes on."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._driver = cluster.driver

    def now_ms(self) -> int:
        return self._cluster.now_ms

    def sleep_ms(self, duration_ms: int) -> None:
        until_ms = self._cluster.now_ms + duration_ms
        while self._cluster.step(until_ms):
            self._driver.check()


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

    def __init__(self, cluster: Cluster, events: Mailbox, deployments: Any) -> None:
        self.cluster = cluster
        self.driver = cluster.driver
        self.wires: list[Wire] = []
        self._events: Any = events
        self._deployments = deployments
        self._address = Address("simulated driver", 0)
        self._registry: SlotRegistry = SimulatedRegistry(-1, self)
        cluster.control = self

    def new_attempt(self, attempt: int) -> SlotRegistry:
        self.driver.check()
        assert attempt > self._registry.attempt, "what is left of the attempt before could not be told apart"
        self._registry.end()
        self._registry = SimulatedRegistry(attempt, self)
        return self._registry

    def close(self) -> None:
        self.driver.check()
        self._registry.end()

    def acquire(self, request: AcquireSlot) -> Iterator[Address | None]:  # noqa: C901
        """A task asks for a slot, and waits; yields the address at last. See ``DriverLink.acquire_slot``."""
        registry, task, started = self._registry, TaskWire(), None
        if self.driver.dead or request.attempt != registry.attempt:
            raise SlotLostError(f"slot {request.slot}: the driver has ended this attempt of the job")
        registry.acquire(request.slot, task)
        try:
            while True:
                if self.driver.dead or task.is_cut:
                    raise SlotLostError(f"slot {request.slot}: the driver has ended this attempt of the job")
                answer = task.answers.popleft() if task.answers else None
                if isinstance(answer, SlotUnavailable):
                    raise answer.error
                if isinstance(answer, SlotAvailable):
                    yield answer.address
                    return
                if isinstance(answer, StartSlot):
                    started = self.cluster.start_slot(self, request.slot, request.attempt)
                elif started is not None and started.dead:
                    raise SlotLostError(f"slot {request.slot} ended while it started")
                yield None
        finally:
            if not self.driver.dead:
                registry.task_left(request.slot, task)

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
            wire.send(self._deployments.of(message.slot))
        except OSError:
            self.received(wire, EOF)

    def received(self, wire: Wire, message: object) -> None:
        """A slot has said something, or its connection has ended."""
        if wire.registry is None:  # it died before it could register
            wire.is_over = True
            return
        slot = wire.registration.slot
        if message is not EOF and self._heard_from_slot(wire.registry, wire.registration, message):
            return
        if message is EOF:
            self._slot_failed(wire.registry, slot, SlotLostError(f"state slot {slot} died"))
        wire.is_over = True
        wire.registry.slot_closed(slot)
        wire.cut()


#: Instead of a message: the other end is gone.
EOF = object()


class TaskWire:
    """The connection of a task that asks the driver for a slot; as a ``Connection``, the driver's end."""

    def __init__(self) -> None:
        self.answers: deque[Any] = deque()
        self.is_cut = False

    def send(self, message: object) -> None:
        self.answers.append(message)

    def fileno(self) -> int:
        """``shut_down()`` asks for it, and nobody else."""
        self.is_cut = True
        raise OSError("a wire has no file descriptor")


class Wire:
    """The control connection of a slot; as a ``Connection``, the driver's end of it."""

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

    def fileno(self) -> int:
        """``shut_down()`` asks for it, and nobody else."""
        self._control.driver.check()
        self.cut()
        raise OSError("a wire has no file descriptor")

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
        for _ in range(self._cluster.rng.randint(0, len(self._on_the_way))):
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
        self._cluster = cluster
        self._wire = Wire(cluster, control, self)
        self._slot_id = slot_id
        self.service = SlotService(
            slot_id,
            attempt,
            SlotHost(
                tell=self._tell,
                spawn=self._spawn,
                now_ms=lambda: cluster.now_ms,
                open_storage=self._open_storage,
                open_checkpoint=lambda uri: CheckpointFolder(cluster.disk.file_system, uri),
                perf_s=lambda: cluster.now_ms / 1000,
            ),
        )
        # The address is the process: run_epoch() goes straight to it.
        message = RegisterSlot(attempt, slot_id, 0, Address(self, 0))  # type: ignore[arg-type]
        cluster.soon(lambda: cluster.run(self, self._tell_at_last, message))

    def _open_storage(self, settings: Any) -> CheckpointStorage:
        return CheckpointStorage(settings, (self._cluster.disk.file_system, settings.checkpoint_path))

    def _tell(self, message: object) -> None:
        self.check()
        self._wire.tell(message)

    def _spawn(self, write: Callable[[], None]) -> None:
        stall_ms = self._cluster.stall_ms()
        self._cluster.at(stall_ms + self._cluster.rng.randrange(12), lambda: self._cluster.run(self, write))

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

    def exit(self, loses_messages: bool = False) -> None:
        """End the process; its threads end with it."""
        if not self.dead:
            self.dead = True
            self._wire.hang_up(loses_messages)

    # --- a task that feeds it ------------------------------------------------------------------------

    def feed(self, begin: BeginEpoch, frames: Iterator[bytes]) -> Iterator[Any]:
        """Both ends of a task's connection: ``slot_client.run_epoch`` and ``StateSlot._serve_task``."""
        answer = self._do(begin, self.service.begin, begin)
        if isinstance(answer, EpochRefused):
            raise answer.error
        try:
            for frame in frames:
                yield None
                yield from self._results(self._do(begin, self.service.process, frame))
            yield None
            yield from self._results(self._do(begin, self.service.finish_input))
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

    def _results(self, data: bytes | None) -> Iterator[bytes]:
        if data is not None:
            yield data

    def _do(self, begin: BeginEpoch, action: Callable[..., Any], *arguments: Any) -> Any:
        self._check_alive(begin)
        result = self._cluster.run(self, action, *arguments)
        self._check_alive(begin)
        return result

    def _check_alive(self, begin: BeginEpoch) -> None:
        if self.dead:
            raise SlotLostError(f"slot {self._slot_id} died or was cut off in epoch {begin.epoch}")
