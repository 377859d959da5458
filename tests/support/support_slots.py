"""What tests of slots share: the driver's end around a real ``ControlServer``, real and acted slots."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import cloudpickle
from support_job import LocalRunner
from support_runtime import PATIENCE_S, PICKLED, ack, receive, wait_for_exit

from pyflinkstate import HashMapStateBackend, KeyedProcessFunction
from pyflinkstate.backends.format import StateAssignment
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.runtime.engine import EpochRequest, SlotsRequest
from pyflinkstate.runtime.slots import ControlServer, Endpoint
from pyflinkstate.runtime.tasks import DriverLink, Router
from pyflinkstate.runtime.tasks.slot_client import run_epoch
from pyflinkstate.runtime.wire import (
    DRIVER,
    Address,
    BeginEpoch,
    Channel,
    CheckpointTrigger,
    CloseSlot,
    DeploySlot,
    EpochDone,
    RegisterSlot,
    ServerName,
    SlotClosed,
    SlotId,
    SlotReady,
    TaskReport,
    connect,
    decode_values,
)

SLOT = SlotId("count-1", 0)


def frames_for(records: Iterable[Any], parallelism: int = 1) -> list[list[bytes]]:
    """Return, for each subtask, the frames of records whose first item is the key."""
    frames: list[list[bytes]] = [[] for _ in range(parallelism)]
    router = Router("count", lambda record: record[0], PICKLED, parallelism, 128)
    for (subtask, *_), data in router.route(0, records):
        frames[subtask].append(data)
    return frames


def deployment(function: KeyedProcessFunction, subtask: int = 0, parallelism: int = 1) -> DeploySlot:
    """Return what a slot without storage and without former state is told."""
    return DeploySlot(
        name="count",
        function=cloudpickle.dumps(function),
        key_type=PICKLED,
        key_group_range=key_group_range(128, parallelism, subtask),
        max_parallelism=128,
        parallelism=parallelism,
        attempt=0,
        epoch=0,
        storage=None,
        state_backend=HashMapStateBackend(),
        restored_checkpoint_id=None,
        restore_uri=None,
        state=StateAssignment(),
    )


class Driver:
    """A driver without a job: its control server, and what it deploys."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.secret = os.urandom(16)
        self.deployments: dict[SlotId, DeploySlot] = {}
        self.control = ControlServer(Endpoint(), self.secret, self.events, self.of)
        self.registry = self.control.new_attempt(0)
        self.link = DriverLink(self.control.address, self.secret, 0)
        self.process_fds: list[int] = []

    def of(self, slot: SlotId) -> DeploySlot:
        return self.deployments[slot]

    def connect(self) -> Channel:
        return opened(connect(self.control.address, DRIVER, self.secret))

    def reports(self) -> list[TaskReport]:
        """Take all reports; a task goes on when its report was heard, so none is on its way."""
        heard = []
        while not self.events.empty():
            heard.append(self.events.get_nowait())
        return [event for event in heard if isinstance(event, TaskReport)]

    def start_slot(
        self, function: KeyedProcessFunction, slot: SlotId = SLOT, parallelism: int = 1, **changes: Any
    ) -> Slot:
        """Start a real slot, as the first task that needs it does."""
        made = deployment(function, slot.subtask, parallelism)
        self.deployments[slot] = attrs.evolve(made, **changes)
        address = self.link.acquire_slot(slot)
        pid = self.registry.pids()[slot]
        self.process_fds.append(os.pidfd_open(pid))
        return Slot(self, slot, address, pid, self.process_fds[-1])

    def close(self) -> None:
        """End it all; every slot process must go."""
        self.control.close()
        close_opened()
        for process_fd in self.process_fds:
            wait_for_exit(process_fd)
            os.close(process_fd)


@attrs.frozen
class Slot:
    """A slot that runs."""

    driver: Driver
    slot_id: SlotId
    address: Address
    pid: int
    process_fd: int

    def connect(self) -> Channel:
        return connect(self.address, self.name, self.driver.secret)

    @property
    def name(self) -> ServerName:
        return ServerName.of_slot(self.slot_id, self.driver.deployments[self.slot_id].attempt)

    def begin(self, epoch: int, barrier: CheckpointTrigger | None = None, attempt: int = 0) -> BeginEpoch:
        return BeginEpoch(attempt, epoch, barrier)

    def run(self, epoch: int, frames: Iterable[bytes], **begin: Any) -> Any:
        """Feed an epoch, as a task does; returns the generator of what comes back."""
        return run_epoch(self.address, self.driver.secret, self.slot_id, self.begin(epoch, **begin), frames)

    def feed(self, epoch: int, records: Iterable[Any], **begin: Any) -> tuple[list[Any], EpochDone]:
        """Feed an epoch of records to the only subtask; returns results and the end."""
        return collect(self.run(epoch, frames_for(records)[0], **begin))


def collect(items: Iterable[Any]) -> tuple[list[Any], EpochDone]:
    """Return the records of output frames, and the ``EpochDone`` that ends them."""
    *frames, done = items
    assert isinstance(done, EpochDone)
    return [value for frame in frames for value in decode_values(frame)], done


#: The connections that tests opened, until they are closed at their end.
_opened: list[Channel] = []


def opened(connection: Channel) -> Channel:
    """Have a connection closed at the end of the test, if it is still open then."""
    _opened.append(connection)
    return connection


def close_opened() -> None:
    """Close the connections that a test has left open."""
    while _opened:
        connection = _opened.pop()
        connection.shut_down()  # a thread of the test may still read it
        connection.close()


class ActedSlot:
    """The control connection of a slot that the test acts; it has no process and no state."""

    def __init__(self, address: Address, secret: bytes, slot: SlotId = SLOT, attempt: int = 0) -> None:
        self.slot_id = slot
        self.listens_at = Address("127.0.0.1", 4_000 + slot.subtask)
        self.connection = opened(connect(address, DRIVER, secret))
        self.connection.send(RegisterSlot(attempt, slot, os.getpid(), self.listens_at))

    def deployed(self) -> DeploySlot:
        return receive(self.connection)

    def ready(self) -> None:
        self.connection.send(SlotReady())


def in_thread(action: Callable[[], Any]) -> queue.SimpleQueue[Any]:
    """Run ``action`` beside the test; its result, or what it raised, comes in the queue."""
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put(action())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results.put(error)

    threading.Thread(target=run, daemon=True).start()
    return results


def outcome(results: queue.SimpleQueue[Any]) -> Any:
    """Return what an action in a thread ended with."""
    return results.get(timeout=PATIENCE_S)


# --- acted slots of jobs ---------------------------------------------------------------------------

SLOTS = [SlotId("process-1", 0), SlotId("process-1", 1)]


class ServedSlot(ActedSlot):
    """An acted slot that notes what the driver says, and answers when it shall close."""

    def __init__(self, driver: DriverLink, slot: SlotId) -> None:
        super().__init__(driver.address, driver.secret, slot, driver.attempt)
        self.deployment = self.deployed()
        self.heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()
        self.ready()

    def _serve(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.heard.put(message := self.connection.recv())
                if message == CloseSlot():
                    self.connection.send(SlotClosed())
        self.heard.put("cut off")

    def next_heard(self) -> Any:
        return self.heard.get(timeout=PATIENCE_S)


Act = Callable[[EpochRequest, list[ServedSlot]], None]


class ActingRunner(LocalRunner):
    """Runs no task: in each epoch the test acts as the slots."""

    def __init__(self, act: Act) -> None:
        super().__init__()
        self._act = act
        self.slots: dict[int, list[ServedSlot]] = {}
        self.before = self._serve

    def _serve(self, request: EpochRequest) -> None:
        self._begin(request.link.driver)
        self._act(request, self.slots[request.link.driver.attempt])

    def start_each(self, request: SlotsRequest) -> None:
        self._begin(request.link.driver)

    def _begin(self, driver: DriverLink) -> None:
        if driver.attempt not in self.slots:
            self.slots[driver.attempt] = [ServedSlot(driver, slot) for slot in SLOTS]

    def shuffle_ahead(self, request: EpochRequest, done: Callable[[], None]) -> None:
        done()

    def _results(self, request: EpochRequest) -> list[list[Any]]:
        return [[] for _ in request.plan.sinks]

    def deployed(self, attempt: int = 0) -> list[DeploySlot]:
        return [slot.deployment for slot in self.slots[attempt]]


def acknowledge(request: EpochRequest, slots: list[ServedSlot]) -> None:
    """Be good slots."""
    for trigger in () if request.barrier is None else request.barrier.all():
        for slot in slots:
            slot.connection.send(ack(trigger.checkpoint_id, slot.slot_id))
