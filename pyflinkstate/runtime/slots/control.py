"""The driver's side of the control connections, on which tasks ask for slots and slots report.

:class:`SlotRegistry` decides which task starts a slot; its only I/O is to send on connections that it was
given. :class:`ControlServer` reads the connections and turns what happens on them into events for the job.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable

import attrs

from pyflinkstate.errors import ConfigurationError, PyFlinkStateError, SlotLostError, UntrustedConnectionError
from pyflinkstate.runtime.wire import (
    DRIVER,
    AcquireSlot,
    Address,
    Channel,
    CheckpointAck,
    CheckpointDecline,
    CloseSlot,
    DeploySlot,
    Heartbeat,
    HeartbeatSettings,
    PackageCopy,
    RegisterSlot,
    Server,
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
    listen_on_tcp,
)

_log = logging.getLogger("pyflinkstate.job")

#: How long to wait for the last lines of a slot that died while it was starting.
_START_ENDED_S = 5
#: How long the process of a slot may take, at least, from its start until it is connected.
_START_S = 60.0


@attrs.frozen
class Endpoint:
    """Where the driver listens (``bind_host``, ``port``; 0 is any), and the host name that others use."""

    host: str = "127.0.0.1"
    bind_host: str = "127.0.0.1"
    port: int = 0


@attrs.frozen
class SlotLost:
    """Event: a slot cannot be used any more, or could not close its function, for the reason in ``error``.

    Its control connection broke, it was silent for too long, or it said so itself.
    """

    attempt: int
    slot: SlotId
    error: PyFlinkStateError


@attrs.define
class _Slot:
    """A slot in the registry: ``starter`` is starting it; ``address`` is set when it runs."""

    starter: Channel | None = None
    #: When the starter was told to.
    told_s: float = 0.0
    waiting: list[Channel] = attrs.Factory(list)
    connection: Channel | None = None
    pid: int | None = None
    address: Address | None = None
    error: PyFlinkStateError | None = None
    #: When its last message came, by the clock of heartbeats; None before its deployment was sent.
    last_message_s: float | None = None
    closed: threading.Event = attrs.Factory(threading.Event)
    #: Set when the task that starts it has said how its process ended, or is gone.
    start_ended: threading.Event = attrs.Factory(threading.Event)
    #: The report of that task.
    start_error: PyFlinkStateError | None = None


@attrs.define(eq=False)
class SlotRegistry:
    """The slots of one attempt of a job. Thread-safe.

    A slot is absent, being started by one task, running, or failed. The first task that asks for an
    absent slot is told to start it; if that task goes away, the next one that waits is told.
    """

    attempt: int
    _now_s: Callable[[], float] = time.monotonic
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)
    _slots: dict[SlotId, _Slot] = attrs.field(init=False, factory=dict)
    _ended: bool = attrs.field(init=False, default=False)

    def addresses(self) -> dict[SlotId, Address]:
        """Return the addresses of the running slots."""
        with self._lock:
            return {
                slot_id: slot.address for slot_id, slot in self._slots.items() if slot.address is not None
            }

    def pids(self) -> dict[SlotId, int]:
        """Return the process ids of the running slots, on their hosts."""
        with self._lock:
            return {slot_id: slot.pid for slot_id, slot in self._slots.items() if slot.pid is not None}

    def acquire(self, slot_id: SlotId, task: Channel) -> None:
        """Answer a task's request for a slot, now or when the slot runs."""
        with self._lock:
            slot = self._slots.setdefault(slot_id, _Slot())
            if self._ended:
                task.shut_down()
            elif slot.error is not None:
                _send(task, SlotUnavailable(slot.error))
            elif slot.address is not None:
                _send(task, SlotAvailable(slot.address))
            elif slot.starter is not None or slot.connection is not None:
                slot.waiting.append(task)
            else:
                self._have_started(slot, task)

    def _have_started(self, slot: _Slot, starter: Channel) -> None:
        slot.starter, slot.told_s = starter, self._now_s()
        _send(starter, StartSlot())

    def task_left(self, slot_id: SlotId, task: Channel) -> None:
        """Handle the end of a task's connection: if it was starting the slot, let another task start it."""
        with self._lock:
            slot = self._slots[slot_id]
            if task in slot.waiting:
                slot.waiting.remove(task)
            if slot.starter is task:
                slot.start_ended.set()
            if slot.starter is task and slot.connection is None:
                slot.starter = None
                if slot.waiting:
                    self._have_started(slot, slot.waiting.pop(0))

    def start_failed(self, slot_id: SlotId, task: Channel, error: PyFlinkStateError) -> bool:
        """Record how the process of a slot ended; return whether the slot has failed with that.

        If it has registered, what its own connection says comes first.
        """
        with self._lock:
            slot = self._slots[slot_id]
            if slot.starter is task:
                slot.start_error = error
                slot.start_ended.set()
            return slot.starter is task and slot.connection is None

    def start_error(self, slot_id: SlotId) -> PyFlinkStateError | None:
        """Wait for what the task says that starts the slot, and return it; None if the slot had started."""
        slot = self._slots[slot_id]
        if slot.starter is not None:
            slot.start_ended.wait(_START_ENDED_S)
        return slot.start_error

    def register(self, message: RegisterSlot, connection: Channel) -> bool:
        """Register a slot that has started; return False if it is not wanted."""
        with self._lock:
            slot = self._slots.setdefault(message.slot, _Slot())
            if self._ended or slot.connection is not None or slot.error is not None:
                return False
            slot.connection = connection
            slot.pid = message.pid
            return True

    def heard(self, slot_id: SlotId) -> None:
        """Record that the slot was sent what it runs, or that a message from it came: its silence begins."""
        self._slots[slot_id].last_message_s = self._now_s()

    def beat(self, timeout_s: float) -> list[SlotId]:
        """Send a heartbeat to every running slot; return those that were silent for too long.

        A process that is stopped before it is connected has no watchdog, and nobody else notices.
        """
        silent = []
        with self._lock:
            for slot_id, slot in self._slots.items():
                if slot.error is not None:
                    continue
                if slot.connection is None:
                    if slot.starter is not None and self._now_s() - slot.told_s >= max(timeout_s, _START_S):
                        silent.append(slot_id)
                    continue
                last_s = slot.last_message_s
                if last_s is not None and self._now_s() - last_s >= timeout_s:
                    silent.append(slot_id)
                else:
                    with contextlib.suppress(OSError):
                        slot.connection.try_send(Heartbeat())
        return silent

    def cut_off(self, slot_id: SlotId) -> None:
        """End the connection of a slot; the thread that reads it will notice."""
        connection = self._slots[slot_id].connection
        if connection is not None:
            connection.shut_down()

    def ready(self, slot_id: SlotId, address: Address) -> None:
        """Record that the slot runs, and tell all waiting tasks."""
        with self._lock:
            slot = self._slots[slot_id]
            slot.address = address
            self._answer_waiting(slot, SlotAvailable(address))

    def failed(self, slot_id: SlotId, error: PyFlinkStateError) -> None:
        """Record that the slot could not start or is lost, and tell all waiting tasks."""
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
        """Send a message to a slot if it is running."""
        with self._lock:
            slot = self._slots.get(slot_id)
            if slot is not None and slot.connection is not None:
                _send(slot.connection, message)

    def slot_closed(self, slot_id: SlotId) -> None:
        """Record that the slot has answered ``CloseSlot`` or its connection has ended."""
        self._slots[slot_id].closed.set()

    def close(self, timeout_s: float) -> None:
        """Ask every slot to close its function, wait for the answers, then end."""
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
        """Cut every connection, so that slots exit and waiting tasks fail. Idempotent."""
        with self._lock:
            self._ended = True
            for slot in self._slots.values():
                for connection in (slot.connection, slot.starter, *slot.waiting):
                    if connection is not None:
                        connection.shut_down()


def _send(connection: Channel, message: object) -> None:
    """Send a message; if the peer is gone, the thread that reads the connection will notice."""
    with contextlib.suppress(OSError):
        connection.send(message)


class ControlServer:
    """Listens for tasks and slots, and puts events into ``events``.

    Events are ``TaskReport``, :class:`SlotLost`, and the messages of slots about checkpoints and output.
    Tasks and slots connect to ``address``. ``deployment_of`` is called from any thread.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        secret: bytes,
        events: queue.SimpleQueue[object],
        deployment_of: Callable[[SlotId], DeploySlot],
        heartbeat: HeartbeatSettings | None = None,
    ) -> None:
        self._events = events
        self._deployment_of = deployment_of
        self._heartbeat = heartbeat or HeartbeatSettings()
        self._registry = SlotRegistry(0)
        #: Taken by the only warning about copies of this package.
        self._warning = threading.Lock()
        try:
            listener = listen_on_tcp(endpoint.bind_host, endpoint.port)
        except OSError as error:
            raise ConfigurationError(
                f"the driver cannot listen on {endpoint.bind_host}, port {endpoint.port}: {error}; set "
                f"spark.driver.bindAddress, spark.driver.host or spark.pyflinkstate.port"
            ) from error
        self.address = Address(endpoint.host, listener.getsockname()[1])
        self._server = Server([listener], self.address, DRIVER, secret, self._serve)
        self._server.start()
        self._closed = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    def is_alive(self) -> bool:
        """Return whether tasks and slots can still connect."""
        return self._server.is_alive() and self._beating.is_alive()

    def new_attempt(self, attempt: int) -> SlotRegistry:
        """End the slots of the previous attempt, and return a registry for the new one."""
        self._registry.end()
        self._registry = SlotRegistry(attempt)
        return self._registry

    def close(self) -> None:
        """End all slots and stop listening."""
        self._closed.set()
        self._registry.end()
        self._server.close()

    def _beat(self) -> None:
        """Send heartbeats, and drop the slots that do not answer."""
        timeout_ms = self._heartbeat.timeout_ms
        while not self._closed.wait(self._heartbeat.interval_ms / 1000):
            registry = self._registry
            for slot_id in registry.beat(timeout_ms / 1000):
                pid = registry.pids().get(slot_id)
                why = "its process or its host is stopped, or a function never releases the interpreter lock"
                error = SlotLostError(
                    f"state slot {slot_id} has not answered a heartbeat for {timeout_ms} ms: {why}"
                    if pid
                    else f"state slot {slot_id} has not connected since its start: {why}",
                    pid=pid,
                )
                self._slot_failed(registry, slot_id, error)
                registry.cut_off(slot_id)

    def _serve(self, connection: Channel) -> None:
        message = connection.recv()
        if isinstance(message, TaskReport):
            self._compare("Python worker", message.package)
            self._events.put(message)
            connection.send("received")
        elif isinstance(message, AcquireSlot):
            self._serve_task(message, connection)
        elif isinstance(message, RegisterSlot):
            self._serve_slot(message, connection)

    def _serve_task(self, message: AcquireSlot, task: Channel) -> None:
        registry = self._registry
        if message.attempt != registry.attempt:
            return
        registry.acquire(message.slot, task)
        try:
            while isinstance(failed := task.recv(), SlotFailed):  # until it has left
                if registry.start_failed(message.slot, task, failed.error):
                    self._slot_failed(registry, message.slot, failed.error)
        finally:
            registry.task_left(message.slot, task)

    def _serve_slot(self, message: RegisterSlot, connection: Channel) -> None:
        registry, slot_id = self._registry, message.slot
        if message.attempt != registry.attempt or not registry.register(message, connection):
            return
        try:
            self._compare("state slot", message.package)
            connection.limit_sends(self._heartbeat.timeout_ms / 1000)
            connection.send(
                attrs.evolve(self._deployment_of(slot_id), heartbeat_timeout_ms=self._heartbeat.timeout_ms)
            )
            registry.heard(slot_id)
            while self._handle_slot_message(registry, message, connection.recv()):
                pass
        except UntrustedConnectionError as error:
            self._slot_failed(registry, slot_id, error)
        except (EOFError, OSError):
            died = SlotLostError(
                f"state slot {slot_id} (process {message.pid} at {message.address.host}) died",
                pid=message.pid,
            )
            self._slot_failed(registry, slot_id, registry.start_error(slot_id) or died)
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

    def _compare(self, process: str, package: PackageCopy) -> None:
        """Warn once for each job if workers or slots run another copy of this package than the program."""
        own = PackageCopy.here()
        difference = package.difference(own)
        if difference and self._warning.acquire(blocking=False):
            _log.warning(
                "a %s on %s imports pyflinkstate from %s and %s, which is in %s; Python looks "
                "into the folder in which the program was started first: start it in another folder, or "
                "install the same compiled package on all hosts",
                *(process, package.host, package.folder, difference, own.folder),
            )

    def _slot_failed(self, registry: SlotRegistry, slot_id: SlotId, error: PyFlinkStateError) -> None:
        registry.failed(slot_id, error)
        self._events.put(SlotLost(registry.attempt, slot_id, error))

    def _handle_slot_message(self, registry: SlotRegistry, slot: RegisterSlot, message: object) -> bool:
        """Handle one message of a slot; return whether more may come."""
        registry.heard(slot.slot)
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
