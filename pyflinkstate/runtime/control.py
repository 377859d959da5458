"""The driver's side of the control connections: where tasks ask for slots and slots report.

:class:`SlotRegistry` decides who starts a slot; it does no I/O but sending on connections it was given.
:class:`ControlServer` reads the connections and turns what happens on them into events for the job.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, Protocol

import attrs

from pyflinkstate.errors import ConfigurationError, PyFlinkStateError, SlotLostError
from pyflinkstate.runtime.messages import (
    AcquireSlot,
    CheckpointAck,
    CheckpointDecline,
    CloseSlot,
    DeploySlot,
    RegisterSlot,
    SlotAvailable,
    SlotClosed,
    SlotFailed,
    SlotId,
    SlotOutput,
    SlotReady,
    SlotUnavailable,
    StartSlot,
    StateMaterialized,
    TaskReport,
)
from pyflinkstate.runtime.transport import Address, Server, listen_on_tcp, shut_down


class Deploys(Protocol):
    """Says what slots shall run; asked from any thread."""

    def of(self, slot: SlotId) -> DeploySlot:
        """Return what ``slot`` shall run."""


class Control(Protocol):
    """The driver's end of all connections of one job."""

    @property
    def address(self) -> Address:
        """Where tasks and slots connect to."""

    def new_attempt(self, attempt: int) -> SlotRegistry:
        """End the slots of the attempt before, and begin a registry for the new one."""

    def is_alive(self) -> bool:
        """Return whether tasks and slots can still connect."""

    def close(self) -> None:
        """End all slots and listen no more."""


@attrs.frozen
class Endpoint:
    """Where the driver listens (``bind_host``, ``port``; 0 is any), and as what others know it."""

    host: str = "127.0.0.1"
    bind_host: str = "127.0.0.1"
    port: int = 0


@attrs.frozen
class SlotLost:
    """Event: a slot's control connection broke while the job needed it."""

    attempt: int
    slot: SlotId
    error: PyFlinkStateError


@attrs.define
class _Slot:
    """What the registry knows of one slot: ``starter`` is starting it, ``address`` is set when it runs."""

    starter: Connection | None = None
    waiting: list[Connection] = attrs.Factory(list)
    connection: Connection | None = None
    pid: int | None = None
    address: Address | None = None
    error: PyFlinkStateError | None = None
    closed: threading.Event = attrs.Factory(threading.Event)


class SlotRegistry:
    """The slots of one attempt of a job. Thread-safe.

    A slot is absent, being started by one task, running, or failed. The first task that asks for an
    absent slot is told to start it; if that task goes away, the next one that waits is told.
    """

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self._lock = threading.Lock()
        self._slots: dict[SlotId, _Slot] = {}
        self._ended = False

    def addresses(self) -> dict[SlotId, Address]:
        """Return where the running slots listen."""
        with self._lock:
            return {
                slot_id: slot.address for slot_id, slot in self._slots.items() if slot.address is not None
            }

    def pids(self) -> dict[SlotId, int]:
        """Return the process ids of the running slots, on their hosts."""
        with self._lock:
            return {slot_id: slot.pid for slot_id, slot in self._slots.items() if slot.pid is not None}

    def acquire(self, slot_id: SlotId, task: Connection) -> None:
        """Answer a task now, or when the slot runs."""
        with self._lock:
            slot = self._slots.setdefault(slot_id, _Slot())
            if self._ended:
                shut_down(task)
            elif slot.error is not None:
                _send(task, SlotUnavailable(slot.error))
            elif slot.address is not None:
                _send(task, SlotAvailable(slot.address))
            elif slot.starter is not None or slot.connection is not None:
                slot.waiting.append(task)
            else:
                slot.starter = task
                _send(task, StartSlot())

    def task_left(self, slot_id: SlotId, task: Connection) -> None:
        """A task's connection broke: if it was starting the slot, another one shall."""
        with self._lock:
            slot = self._slots[slot_id]
            if task in slot.waiting:
                slot.waiting.remove(task)
            if slot.starter is task and slot.connection is None:
                slot.starter = slot.waiting.pop(0) if slot.waiting else None
                if slot.starter is not None:
                    _send(slot.starter, StartSlot())

    def register(self, message: RegisterSlot, connection: Connection) -> bool:
        """Note a slot that has started; False when it is not wanted."""
        with self._lock:
            slot = self._slots.setdefault(message.slot, _Slot())
            if self._ended or slot.connection is not None:
                return False
            slot.connection = connection
            slot.pid = message.pid
            return True

    def ready(self, slot_id: SlotId, address: Address) -> None:
        """The slot runs: tell all who wait."""
        with self._lock:
            slot = self._slots[slot_id]
            slot.address = address
            self._answer_waiting(slot, SlotAvailable(address))

    def failed(self, slot_id: SlotId, error: PyFlinkStateError) -> None:
        """The slot could not start, or is lost: tell all who wait."""
        with self._lock:
            slot = self._slots[slot_id]
            slot.error = slot.error or error
            slot.address = slot.pid = None
            self._answer_waiting(slot, SlotUnavailable(error))

    def _answer_waiting(self, slot: _Slot, answer: object) -> None:
        waiting = slot.waiting if slot.starter is None else [slot.starter, *slot.waiting]
        for task in waiting:
            _send(task, answer)
        slot.starter, slot.waiting = None, []

    def send(self, slot_id: SlotId, message: object) -> None:
        """Send a message to a running slot; one that is gone is not told."""
        with self._lock:
            slot = self._slots.get(slot_id)
            if slot is not None and slot.connection is not None:
                _send(slot.connection, message)

    def slot_closed(self, slot_id: SlotId) -> None:
        """The slot has answered ``CloseSlot``, or its connection ended."""
        self._slots[slot_id].closed.set()

    def close(self, timeout_s: float) -> None:
        """Ask every slot to close its function and wait for the answers, then end."""
        with self._lock:
            self._ended = True
            open_slots = [slot for slot in self._slots.values() if slot.connection is not None]
            for slot in open_slots:
                assert slot.connection is not None
                _send(slot.connection, CloseSlot())
        deadline = time.monotonic() + timeout_s
        for slot in open_slots:
            slot.closed.wait(max(0.0, deadline - time.monotonic()))
        self.end()

    def end(self) -> None:
        """Cut every connection: slots exit, tasks that wait fail. Idempotent."""
        with self._lock:
            self._ended = True
            for slot in self._slots.values():
                for connection in (slot.connection, slot.starter, *slot.waiting):
                    if connection is not None:
                        shut_down(connection)


def _send(connection: Connection, message: object) -> None:
    """Send; if the other end is gone, the thread that reads the connection will find out."""
    with contextlib.suppress(OSError):
        connection.send(message)


class ControlServer:
    """Listens for tasks and slots, and puts events into ``events``.

    Events are ``TaskReport``, :class:`SlotLost`, and what slots tell of checkpoints and of their output.
    """

    def __init__(
        self, endpoint: Endpoint, secret: bytes, events: queue.SimpleQueue[Any], deployments: Deploys
    ) -> None:
        self._events = events
        self._deployments = deployments
        self._registry = SlotRegistry(0)
        try:
            listener = listen_on_tcp(endpoint.bind_host, endpoint.port)
        except OSError as error:
            raise ConfigurationError(
                f"the driver cannot listen on {endpoint.bind_host}, port {endpoint.port}: {error}; set "
                f"spark.driver.bindAddress, spark.driver.host or spark.pyflinkstate.port"
            ) from error
        self._address = Address(endpoint.host, listener.getsockname()[1])
        self._server = Server([listener], secret, self._serve)
        self._server.start()

    @property
    def address(self) -> Address:
        """See :class:`Control`."""
        return self._address

    def is_alive(self) -> bool:
        """See :class:`Control`."""
        return self._server.is_alive()

    def new_attempt(self, attempt: int) -> SlotRegistry:
        """See :class:`Control`."""
        self._registry.end()
        self._registry = SlotRegistry(attempt)
        return self._registry

    def close(self) -> None:
        """See :class:`Control`."""
        self._registry.end()
        self._server.close()

    def _serve(self, connection: Connection) -> None:
        message = connection.recv()
        if isinstance(message, TaskReport):
            self._events.put(message)
            connection.send("heard")
        elif isinstance(message, AcquireSlot):
            self._serve_task(message, connection)
        elif isinstance(message, RegisterSlot):
            self._serve_slot(message, connection)

    def _serve_task(self, message: AcquireSlot, task: Connection) -> None:
        registry = self._registry
        if message.attempt != registry.attempt:
            return
        registry.acquire(message.slot, task)
        try:
            task.recv()  # a task says nothing more: this returns when it has left
        finally:
            registry.task_left(message.slot, task)

    def _serve_slot(self, message: RegisterSlot, connection: Connection) -> None:
        registry, slot_id = self._registry, message.slot
        if message.attempt != registry.attempt or not registry.register(message, connection):
            return
        try:
            connection.send(self._deployments.of(slot_id))
            while self._heard_from_slot(registry, message, connection.recv()):
                pass
        except (EOFError, OSError):
            error = SlotLostError(
                f"state slot {slot_id} (process {message.pid} at {message.address.host}) died",
                pid=message.pid,
            )
            self._slot_failed(registry, slot_id, error)
        except BaseException as error:
            lost = SlotLostError(
                f"state slot {slot_id} (process {message.pid} at {message.address.host}) was cut off: its "
                f"control connection failed in the driver: {type(error).__name__}: {error}",
                pid=message.pid,
            )
            self._slot_failed(registry, slot_id, lost)
            raise
        finally:
            registry.slot_closed(slot_id)

    def _slot_failed(self, registry: SlotRegistry, slot_id: SlotId, error: PyFlinkStateError) -> None:
        registry.failed(slot_id, error)
        self._events.put(SlotLost(registry.attempt, slot_id, error))

    def _heard_from_slot(self, registry: SlotRegistry, slot: RegisterSlot, message: object) -> bool:
        """Handle one message; returns whether more may come."""
        if isinstance(message, SlotReady):
            registry.ready(slot.slot, slot.address)
        elif isinstance(message, SlotFailed):
            self._slot_failed(registry, slot.slot, message.error)
            return False
        elif isinstance(message, SlotClosed):
            if message.error is not None:
                self._events.put(SlotLost(registry.attempt, slot.slot, message.error))
            return False
        elif isinstance(message, (CheckpointAck, CheckpointDecline, StateMaterialized, SlotOutput)):
            self._events.put(message)
        return True
