"""The state slot: a long-lived process that holds one subtask's state and runs its function.

PySpark gives a task any idle worker and closes idle ones after a minute, so state cannot live in a
worker. A slot is started by the first task that needs it and ends with the application: it keeps a
control connection to the driver, and exits when that breaks, however the driver ended.

Threads: one does nothing but listen to the driver, so that its end is noticed whatever user code is
doing; the main one restores, opens and at last closes the function; each task that feeds an epoch is
served by one of its own, and only one epoch can be open at a time; so is each snapshot written.

The slot has a *version*, the last epoch that it applied. An epoch is accepted only on top of the one
before it; from the first frame until its end the slot has no version, so if the task dies half-way
nobody can take the state for whole.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import NoReturn

import attrs

from pyflinkstate.backends.heap.backend import wall_clock_ms
from pyflinkstate.backends.operator_snapshot import OperatorSnapshotFutures
from pyflinkstate.errors import (
    BadRecordError,
    PyFlinkStateError,
    SlotBusyError,
    SnapshotCancelledError,
    StaleSlotError,
)
from pyflinkstate.runtime.context import OperatorContext
from pyflinkstate.runtime.failures import user_failure
from pyflinkstate.runtime.frames import KeyedFrame, encode_values
from pyflinkstate.runtime.messages import (
    AbortCheckpoint,
    BeginEpoch,
    CheckpointAck,
    CheckpointDecline,
    CheckpointTrigger,
    CloseSlot,
    DeploySlot,
    EpochAccepted,
    EpochDone,
    EpochFailed,
    EpochRefused,
    RegisterSlot,
    SlotClosed,
    SlotFailed,
    SlotId,
    SlotReady,
)
from pyflinkstate.runtime.operator_state import StreamOperatorState
from pyflinkstate.runtime.pickling import loads
from pyflinkstate.runtime.storage import CheckpointStorage, open_checkpoint
from pyflinkstate.runtime.subtask import KeyedSubtask
from pyflinkstate.runtime.transport import Address, Server, connect, listen_on_tcp, listen_on_unix

#: Restored state never becomes garbage in bulk, so a full collection is rarely worth its pause.
GC_THRESHOLDS = (50_000, 50, 100)


@attrs.frozen
class SlotBootstrap:
    """What a new slot process reads from its standard input, as JSON."""

    driver: Address
    secret: bytes = attrs.field(repr=False)
    attempt: int
    slot: SlotId

    def encode(self) -> bytes:
        """Return the JSON."""
        content = attrs.asdict(self)
        content["secret"] = self.secret.hex()
        return json.dumps(content).encode()

    @classmethod
    def decode(cls, data: bytes) -> SlotBootstrap:
        """Return the bootstrap that ``encode`` was called on."""
        content = json.loads(data)
        return cls(
            Address(**content["driver"]),
            bytes.fromhex(content["secret"]),
            content["attempt"],
            SlotId(**content["slot"]),
        )


class StateSlot:
    """Serves one subtask to the tasks that feed it and to the driver that owns it."""

    def __init__(self, bootstrap: SlotBootstrap) -> None:
        self._bootstrap = bootstrap
        self._driver = connect(bootstrap.driver, bootstrap.secret)
        self._driver_lock = threading.Lock()
        self._epoch_lock = threading.Lock()
        self._version: int | None = None
        self._snapshots: dict[int, OperatorSnapshotFutures] = {}
        self._asked_to_close = threading.Event()
        self._unix_path: str | None = None

    def run(self) -> None:
        """Register, deploy, and serve until the driver says so or is gone."""
        try:
            server = Server(self._listen(), self._bootstrap.secret, self._serve_task)
            deployment = self._driver.recv()
            assert isinstance(deployment, DeploySlot)
            threading.Thread(target=self._listen_to_driver, daemon=True).start()
            if self._deploy(deployment):
                server.start()
                self._tell_driver(SlotReady())
                self._asked_to_close.wait()
                self._close()
        except (EOFError, OSError):
            pass  # the driver is gone, and so is the job
        finally:
            self._exit()

    # --- the driver ----------------------------------------------------------------------------

    def _listen(self) -> list[socket.socket]:
        own_host = _local_host_of(self._driver)
        listeners = [listen_on_tcp(own_host)]
        with contextlib.suppress(OSError):  # a temp folder with a long name, or of somebody else
            unix, self._unix_path = listen_on_unix()
            listeners.append(unix)
        address = Address(own_host, listeners[0].getsockname()[1], self._unix_path)
        self._tell_driver(RegisterSlot(self._bootstrap.attempt, self._bootstrap.slot, os.getpid(), address))
        return listeners

    def _deploy(self, deployment: DeploySlot) -> bool:
        try:
            self._deployment = deployment
            self._storage = None if deployment.storage is None else CheckpointStorage(deployment.storage)
            self._subtask = self._make_subtask(deployment)
            self._subtask.open()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the driver must hear of it
            self._tell_driver(SlotFailed(user_failure(error, deployment.name, "none: while starting")))
            return False
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        self._version = deployment.epoch
        return True

    def _make_subtask(self, deployment: DeploySlot) -> KeyedSubtask:
        keyed = deployment.state_backend.create_keyed_state_backend(
            deployment.key_type, deployment.key_group_range, deployment.max_parallelism, wall_clock_ms
        )
        operator = deployment.state_backend.create_operator_state_backend()
        state = StreamOperatorState(
            keyed, operator, deployment.state_backend.snapshot_compression, deployment.restored_checkpoint_id
        )
        if deployment.restore_uri is not None:
            state.restore(deployment.state, open_checkpoint(deployment.restore_uri))
        context = OperatorContext(
            deployment.name,
            self._bootstrap.slot.subtask,
            deployment.parallelism,
            deployment.max_parallelism,
            deployment.attempt,
            keyed,
        )
        function = loads(deployment.function)
        return KeyedSubtask(function, context, state)

    def _listen_to_driver(self) -> None:
        try:
            while True:
                message = self._driver.recv()
                if isinstance(message, AbortCheckpoint):
                    snapshot = self._snapshots.get(message.checkpoint_id)
                    if snapshot is not None:
                        snapshot.cancel()
                elif isinstance(message, CloseSlot):
                    self._asked_to_close.set()
        except (EOFError, OSError):
            self._exit()

    def _close(self) -> None:
        error = None
        try:
            self._subtask.close()
        except PyFlinkStateError as raised:
            error = raised
        self._tell_driver(SlotClosed(error))

    def _tell_driver(self, message: object) -> None:
        with self._driver_lock:
            self._driver.send(message)

    def _exit(self) -> NoReturn:
        """End at once: user code may be busy, or have left threads that would keep the process."""
        if self._unix_path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._unix_path)
        os._exit(0)

    # --- tasks -----------------------------------------------------------------------------------

    def _serve_task(self, task: Connection) -> None:
        begin = task.recv()
        assert isinstance(begin, BeginEpoch)
        if not self._epoch_lock.acquire(blocking=False):
            task.send(EpochRefused(SlotBusyError(f"slot {self._bootstrap.slot}: another task is feeding it")))
            return
        try:
            outcome = self._apply_epoch(task, begin)
        finally:
            self._epoch_lock.release()
        # Only now: who hears of the end may begin the next epoch at once.
        if not isinstance(outcome, EpochRefused):
            task.send_bytes(b"")
        task.send(outcome)
        if isinstance(outcome, EpochFailed):
            _drain(task)

    def _stale(self, begin: BeginEpoch, reason: str) -> StaleSlotError:
        return StaleSlotError(
            f"slot {self._bootstrap.slot} cannot take epoch {begin.epoch}: {reason}; the job restarts "
            f"from its last checkpoint"
        )

    def _apply_epoch(self, task: Connection, begin: BeginEpoch) -> EpochRefused | EpochDone | EpochFailed:
        if begin.attempt != self._bootstrap.attempt:
            return EpochRefused(self._stale(begin, f"it is of attempt {self._bootstrap.attempt}"))
        if self._version != begin.epoch - 1:
            return EpochRefused(self._stale(begin, f"it is at version {self._version}"))
        self._version = None
        task.send(EpochAccepted())
        try:
            done = self._process_frames(task)
            if begin.barrier is not None:
                self._begin_snapshot(begin.barrier)
        except PyFlinkStateError as error:
            return EpochFailed(error)
        self._version = begin.epoch
        return done

    def _process_frames(self, task: Connection) -> EpochDone:
        records_in = records_out = 0
        while data := task.recv_bytes():
            frame = self._decode(data)
            results = self._subtask.process_frame(frame)
            records_in += len(frame.values)
            records_out += len(results)
            if results:
                task.send_bytes(encode_values(results))
        return EpochDone(records_in, records_out)

    def _decode(self, data: bytes) -> KeyedFrame:
        try:
            return KeyedFrame.decode(data)
        except Exception as error:
            raise BadRecordError(
                f"operator {self._deployment.name!r}: records cannot be unpickled in its slot: "
                f"{type(error).__name__}: {error}; their classes must be importable on every executor"
            ) from error

    # --- snapshots -------------------------------------------------------------------------------

    def _begin_snapshot(self, trigger: CheckpointTrigger) -> None:
        assert self._storage is not None
        started = time.perf_counter()
        try:
            snapshot = self._subtask.snapshot(trigger, self._storage.streams(trigger.folder))
        except BaseException as error:  # noqa: BLE001 - also sys.exit() in a value's own code
            self._decline(trigger, error)
            return
        sync_ms = (time.perf_counter() - started) * 1000
        self._snapshots[trigger.checkpoint_id] = snapshot
        threading.Thread(target=self._write_snapshot, args=(trigger, snapshot, sync_ms), daemon=True).start()

    def _write_snapshot(
        self, trigger: CheckpointTrigger, snapshot: OperatorSnapshotFutures, sync_ms: float
    ) -> None:
        started = time.perf_counter()
        slot = self._bootstrap.slot
        try:
            state = snapshot.finish()
            async_ms = (time.perf_counter() - started) * 1000
        except SnapshotCancelledError:
            return
        except BaseException as error:  # noqa: BLE001 - a checkpoint may fail, the slot goes on
            self._decline(trigger, error)
            return
        finally:
            del self._snapshots[trigger.checkpoint_id]
        with contextlib.suppress(OSError):
            self._tell_driver(CheckpointAck(trigger.checkpoint_id, slot, state, sync_ms, async_ms))

    def _decline(self, trigger: CheckpointTrigger, error: BaseException) -> None:
        failure = user_failure(error, self._deployment.name, f"none: checkpoint {trigger.checkpoint_id}")
        with contextlib.suppress(OSError):
            self._tell_driver(CheckpointDecline(trigger.checkpoint_id, self._bootstrap.slot, failure))


def _drain(task: Connection) -> None:
    """Read what still comes: closing over unread bytes would reset TCP, and lose the answer."""
    with contextlib.suppress(EOFError, OSError):
        while task.recv_bytes():
            pass


def _local_host_of(connection: Connection) -> str:
    with socket.socket(fileno=os.dup(connection.fileno())) as sock:
        host: str = sock.getsockname()[0]
    return host


def main() -> None:
    """Run a slot; the bootstrap comes on standard input, so that no secret is seen by ``ps``."""
    bootstrap = SlotBootstrap.decode(sys.stdin.buffer.read())
    # The end of a slot flushes nothing, and what user code prints shall not wait for a full buffer.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    StateSlot(bootstrap).run()


if __name__ == "__main__":
    main()
