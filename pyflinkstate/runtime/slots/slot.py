"""The state slot: a long-lived process that holds one subtask's state and runs its function.

PySpark gives a task any idle worker and closes idle workers after a minute, so state cannot live in a
worker. The first task that needs a slot starts it, and it ends with the application: it keeps a control
connection to the driver, and exits when that breaks, no matter how the driver ended. If the driver is silent
for too long, the watchdog ends the process, even while user code blocks every thread.

Threads: one only listens to the driver, so that its end is noticed no matter what user code is doing. Another
one watches the memory, so that the slot ends with a clear error before the system kills it. The main thread
restores, opens and finally closes the function. Each task that feeds an epoch has a thread of its own, and
only one epoch can be open at a time. Each snapshot is written, and each question to the state is answered, on
a thread of its own as well.

Everything except connections and threads is in ``slot_service``.
"""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import NoReturn

import attrs

from pyflinkstate.backends.wall_clock import wall_clock_ms
from pyflinkstate.errors import PyFlinkStateError, RuntimeFailure, UntrustedConnectionError
from pyflinkstate.runtime.slots.inputs import Host, Inputs, Visitor
from pyflinkstate.runtime.slots.memory import MemoryGuard
from pyflinkstate.runtime.slots.process import OutputForwarder, put_on_path_of_slot, stacks, watchdog
from pyflinkstate.runtime.slots.questions import answer as answer_question
from pyflinkstate.runtime.slots.slot_service import SlotHost, SlotService
from pyflinkstate.runtime.wire import (
    DRIVER,
    Address,
    AskState,
    BeginEpoch,
    Channel,
    CloseSlot,
    DeploySlot,
    DumpThreads,
    EpochAccepted,
    EpochDone,
    EpochFailed,
    EpochRefused,
    Heartbeat,
    RegisterSlot,
    Server,
    ServerName,
    SlotFailed,
    SlotId,
    SlotOutput,
    SlotReady,
    connect,
    listen_near_and_far,
    loads,
    next_of,
    wait_for,
)

#: How long a slot waits for its deployment before it ends.
DEPLOYMENT_TIMEOUT_S = 60
#: State never becomes garbage in bulk, so a full collection is rarely worth its pause. While state is made or
#: restored, the default thresholds would take most of the time: each name has a map for each key group.
GC_THRESHOLDS = (50_000, 50, 100)


@attrs.frozen
class SlotBootstrap:
    """The parameters that a new slot process reads from its standard input, as a pickle."""

    driver: Address
    secret: bytes = attrs.field(repr=False)
    attempt: int
    slot: SlotId
    #: Descriptors of the executor's output and errors, which the slot takes when it has started. Until then
    #: the task that starts it reads what it prints.
    streams: tuple[int, ...] = ()


class StateSlot:
    """The process around a :class:`SlotService`: connections and threads."""

    def __init__(self, bootstrap: SlotBootstrap) -> None:
        self._bootstrap = bootstrap
        self._watchdog = watchdog()
        self._watchdog.feed(DEPLOYMENT_TIMEOUT_S * 1000)
        self._heartbeat_timeout_ms = DEPLOYMENT_TIMEOUT_S * 1000
        self._driver = connect(bootstrap.driver, DRIVER, bootstrap.secret)
        self._service = SlotService(
            bootstrap.slot, bootstrap.attempt, SlotHost(self._driver.send, _in_a_thread, wall_clock_ms)
        )
        self._as_host = Host(bootstrap.slot, Inputs(self._lost), self._service, self._service.shares)
        self._output = OutputForwarder(lambda lines: self._driver.send(SlotOutput(bootstrap.slot, lines)))
        self._mail: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._listening = threading.Thread(target=self._listen_to_driver, daemon=True)
        self._unix_path: str | None = None

    def run(self) -> None:
        """Register, deploy, and serve until the driver ends the slot or is gone."""
        try:
            server = self._listen()
            deployment = self._await_deployment()
            self._listening.start()
            self._output.install()
            gc.set_threshold(*GC_THRESHOLDS)
            threading.Thread(
                target=self._watch_memory,
                args=(MemoryGuard(f"slot {self._bootstrap.slot}", deployment.memory_bytes),),
                daemon=True,
            ).start()
            failure = self._service.deploy(deployment)
            if failure is not None:
                self._output.flush()
                self._driver.send(SlotFailed(failure))
            else:
                gc.collect()
                gc.freeze()
                server.start()
                self._take_streams()
                self._driver.send(SlotReady())
                while not isinstance(message := wait_for(next_of(self._mail), self._lost), CloseSlot):
                    self._service.hear(message)
                closed = self._service.close()
                self._output.flush()
                self._driver.send(closed)
        except (EOFError, OSError):
            pass  # the driver is gone, and so is the job
        except BaseException:  # noqa: BLE001 - the process ends, and prints the reason
            traceback.print_exc()
            self._exit(1)
        finally:
            self._exit()

    def _lost(self) -> EOFError | None:
        return None if self._listening.is_alive() else EOFError("nobody listens to the driver any more")

    def _watch_memory(self, guard: MemoryGuard) -> None:
        """End the slot, and tell the driver why, when there is too little memory."""
        try:
            error = guard.watch()
            self._output.flush()
            self._driver.send(SlotFailed(error))
        finally:
            self._exit()

    def _take_streams(self) -> None:
        for target, stream in enumerate(self._bootstrap.streams, start=1):
            os.dup2(stream, target)
            os.close(stream)

    # --- the driver ----------------------------------------------------------------------------

    def _listen(self) -> Server:
        own_host = self._driver.host()
        try:
            listeners, address = listen_near_and_far(own_host)
        except OSError as error:  # which would be taken for the end of the driver
            raise RuntimeFailure(
                f"state slot {self._bootstrap.slot} cannot listen on its host {own_host}: {error}"
            ) from error
        self._unix_path = address.unix_path
        slot, attempt = self._bootstrap.slot, self._bootstrap.attempt
        self._driver.send(RegisterSlot(attempt, slot, os.getpid(), address))
        return Server(
            listeners, address, ServerName.of_slot(slot, attempt), self._bootstrap.secret, self._serve_task
        )

    def _await_deployment(self) -> DeploySlot:
        """Return the function and state that the slot is to run.

        Something else may come before it, as other threads of the driver do not wait for the one that sends
        it. A heartbeat is answered, but does not feed the watchdog: a slot that gets no deployment must end.
        """
        while self._driver.poll(DEPLOYMENT_TIMEOUT_S):
            message = self._driver.recv()
            if isinstance(message, DeploySlot):
                self._heartbeat_timeout_ms = message.heartbeat_timeout_ms
                self._watchdog.feed(self._heartbeat_timeout_ms)
                return message
            self._take(message)
        raise EOFError("the driver did not send a deployment")

    def _listen_to_driver(self) -> None:
        try:
            while True:
                message = self._driver.recv()
                self._watchdog.feed(self._heartbeat_timeout_ms)
                self._take(message)
        finally:
            self._exit()  # always: without this thread, nobody would notice the driver's end

    def _take(self, message: object) -> None:
        if isinstance(message, Heartbeat):
            self._driver.send(message)
        elif isinstance(message, DumpThreads):
            self._driver.send(SlotOutput(self._bootstrap.slot, stacks()))
        else:
            # The main thread handles it: user code may be slow, and the end of the driver must be noticed.
            self._mail.put(message)

    def _exit(self, code: int = 0) -> NoReturn:
        """End at once: user code may be busy, or may have left threads that keep the process alive."""
        if self._unix_path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._unix_path)
        with contextlib.suppress(OSError):
            self._service.discard()
        os._exit(code)

    # --- tasks -----------------------------------------------------------------------------------

    def _serve_task(self, task: Channel) -> None:
        begin = task.recv()
        if isinstance(begin, AskState):
            answer_question(self._service, begin, task)
            return
        if isinstance(begin, Visitor):
            begin.serve(self._as_host, task)
            return
        assert isinstance(begin, BeginEpoch)
        answer = self._service.begin(begin)
        if isinstance(answer, EpochRefused):
            task.send(answer)
            return
        outcome = self._feed(task, answer)
        task.send_bytes(b"")
        task.send(outcome)
        if isinstance(outcome, EpochFailed):
            _drain(task)

    def _feed(self, task: Channel, accepted: EpochAccepted) -> EpochDone | EpochFailed:
        """Process all frames. The task is told only after this returns, when the next epoch may begin.

        Whatever goes wrong, even before the task has its answer, the slot is not fed any more afterwards.
        """
        try:
            with contextlib.closing(self._service.fed(_frames(task, accepted))) as results:
                for frame in results:
                    if isinstance(frame, EpochDone):
                        return frame
                    assert isinstance(frame, bytes)  # each was encoded
                    task.send_bytes(frame)
        except PyFlinkStateError as error:
            return EpochFailed(error)
        raise AssertionError("an epoch ends or fails")


def _frames(task: Channel, accepted: EpochAccepted) -> Iterator[bytes]:
    """Tell a task that it may feed an epoch; yield its frames."""
    task.send(accepted)
    yield from iter(task.recv_bytes, b"")


def _in_a_thread(run: Callable[[], None]) -> None:
    threading.Thread(target=run, daemon=True).start()


def _drain(task: Channel) -> None:
    """Read what still comes: closing a socket with unread bytes would reset TCP and lose the answer."""
    with contextlib.suppress(EOFError, OSError):
        while task.recv_bytes():
            pass


def main() -> None:
    """Run a slot; the bootstrap comes on standard input, so that ``ps`` shows no secret."""
    bootstrap: SlotBootstrap = loads(sys.stdin.buffer.read())
    # A slot does not flush at its end, and prints of user code must not wait for a full buffer.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    put_on_path_of_slot()
    try:
        slot = StateSlot(bootstrap)
    except (EOFError, OSError, UntrustedConnectionError) as error:
        address = f"{bootstrap.driver.host}:{bootstrap.driver.port}"
        sys.exit(f"state slot {bootstrap.slot}: it ends, as its driver at {address} does not answer: {error}")
    slot.run()
