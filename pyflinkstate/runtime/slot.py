"""The state slot: a long-lived process that holds one subtask's state and runs its function.

PySpark gives a task any idle worker and closes idle ones after a minute, so state cannot live in a
worker. A slot is started by the first task that needs it and ends with the application: it keeps a
control connection to the driver, and exits when that breaks, however the driver ended.

Threads: the main one serves the control connection; each task that feeds an epoch is served by one of
its own, and only one epoch can be open at a time; each snapshot is written by one of its own.

The slot has a *version*, the last epoch that it applied. An epoch is accepted only on top of the one
before it; from the first frame until its end the slot has no version, so if the task dies half-way
nobody can take the state for whole.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import socket
import sys
import threading
import time
from multiprocessing.connection import Connection

import attrs

from pyflinkstate.backends.heap.backend import HeapKeyedStateBackend
from pyflinkstate.backends.heap.restore import HeapRestoreOperation
from pyflinkstate.backends.heap.snapshot import SnapshotCancelledError, SnapshotResources
from pyflinkstate.errors import PyFlinkStateError, StaleSlotError
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
from pyflinkstate.runtime.storage import CheckpointStorage
from pyflinkstate.runtime.subtask import KeyedSubtask
from pyflinkstate.runtime.transport import Address, Server, connect, listen_on_tcp, listen_on_unix

#: Restored state never becomes garbage in bulk, so a full collection is rarely worth its pause.
GC_THRESHOLDS = (50_000, 50, 100)


@attrs.frozen
class SlotBootstrap:
    """What a new slot process reads from its standard input, as JSON."""

    driver: Address
    secret: bytes
    attempt: int
    slot: SlotId
    sys_path: tuple[str, ...]

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
            tuple(content["sys_path"]),
        )


class StateSlot:
    """Serves one subtask to the tasks that feed it and to the driver that owns it."""

    def __init__(self, bootstrap: SlotBootstrap) -> None:
        self._bootstrap = bootstrap
        self._driver = connect(bootstrap.driver, bootstrap.secret)
        self._driver_lock = threading.Lock()
        self._epoch_lock = threading.Lock()
        self._version: int | None = None
        self._cancellations: dict[int, threading.Event] = {}
        self._unix_path: str | None = None

    def run(self) -> None:
        """Register, deploy, and serve until the driver says so or is gone."""
        server = Server(self._listen(), self._bootstrap.secret, self._serve_task)
        try:
            deployment = self._driver.recv()
            assert isinstance(deployment, DeploySlot)
            if self._deploy(deployment):
                server.start()
                self._tell_driver(SlotReady())
                self._serve_driver()
        except (EOFError, OSError):
            pass  # the driver is gone, and so is the job
        finally:
            self._remove_socket()
            os._exit(0)  # user code may have left threads that would keep the process

    # --- the driver ----------------------------------------------------------------------------

    def _listen(self) -> list[socket.socket]:
        own_host = _local_host_of(self._driver)
        tcp = listen_on_tcp(own_host)
        unix, self._unix_path = listen_on_unix()
        address = Address(own_host, tcp.getsockname()[1], self._unix_path)
        self._tell_driver(RegisterSlot(self._bootstrap.attempt, self._bootstrap.slot, os.getpid(), address))
        return [tcp, unix]

    def _deploy(self, deployment: DeploySlot) -> bool:
        try:
            self._deployment = deployment
            self._storage = (
                None if deployment.storage_uri is None else CheckpointStorage(deployment.storage_uri)
            )
            self._subtask = self._make_subtask(deployment)
            self._subtask.open()
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver must hear of it
            self._tell_driver(SlotFailed(user_failure(error, deployment.name, "none: while starting")))
            return False
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        self._version = deployment.epoch
        return True

    def _make_subtask(self, deployment: DeploySlot) -> KeyedSubtask:
        backend = HeapKeyedStateBackend(
            deployment.key_type, deployment.key_group_range, deployment.max_parallelism
        )
        if deployment.restore_from is not None:
            assert self._storage is not None
            reader = self._storage.streams(deployment.restore_from)
            HeapRestoreOperation(backend, reader).restore(deployment.handles)
        context = OperatorContext(
            deployment.name,
            self._bootstrap.slot.subtask,
            deployment.parallelism,
            deployment.max_parallelism,
            deployment.attempt,
            backend,
        )
        function = pickle.loads(deployment.function)  # noqa: S301 - the user's own job
        return KeyedSubtask(function, context, backend)

    def _serve_driver(self) -> None:
        while True:
            message = self._driver.recv()
            if isinstance(message, AbortCheckpoint):
                cancellation = self._cancellations.get(message.checkpoint_id)
                if cancellation is not None:
                    cancellation.set()
            elif isinstance(message, CloseSlot):
                self._close()
                return

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

    def _remove_socket(self) -> None:
        if self._unix_path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._unix_path)

    # --- tasks -----------------------------------------------------------------------------------

    def _serve_task(self, task: Connection) -> None:
        begin = task.recv()
        assert isinstance(begin, BeginEpoch)
        if not self._epoch_lock.acquire(blocking=False):
            task.send(EpochRefused(self._stale(begin, "another task is feeding it")))
            return
        with contextlib.ExitStack() as stack:
            stack.callback(self._epoch_lock.release)
            if self._version != begin.epoch - 1:
                task.send(EpochRefused(self._stale(begin, f"it is at version {self._version}")))
                return
            self._version = None
            task.send(EpochAccepted())
            self._apply_epoch(task, begin)

    def _stale(self, begin: BeginEpoch, reason: str) -> StaleSlotError:
        return StaleSlotError(
            f"slot {self._bootstrap.slot} cannot take epoch {begin.epoch}: {reason}; the job restarts "
            f"from its last checkpoint"
        )

    def _apply_epoch(self, task: Connection, begin: BeginEpoch) -> None:
        records_in = records_out = 0
        try:
            while data := task.recv_bytes():
                frame = KeyedFrame.decode(data)
                results = self._subtask.process_frame(frame)
                records_in += len(frame.values)
                records_out += len(results)
                if results:
                    task.send_bytes(encode_values(results))
            if begin.barrier is not None:
                self._begin_snapshot(begin.barrier)
        except PyFlinkStateError as error:
            task.send_bytes(b"")
            task.send(EpochFailed(error))
            _drain(task)
            return
        self._version = begin.epoch
        task.send_bytes(b"")
        task.send(EpochDone(records_in, records_out))

    # --- snapshots -------------------------------------------------------------------------------

    def _begin_snapshot(self, trigger: CheckpointTrigger) -> None:
        started = time.perf_counter()
        resources = self._subtask.snapshot()
        sync_ms = (time.perf_counter() - started) * 1000
        cancelled = threading.Event()
        self._cancellations[trigger.checkpoint_id] = cancelled
        threading.Thread(
            target=self._write_snapshot, args=(trigger, resources, cancelled, sync_ms), daemon=True
        ).start()

    def _write_snapshot(
        self,
        trigger: CheckpointTrigger,
        resources: SnapshotResources,
        cancelled: threading.Event,
        sync_ms: float,
    ) -> None:
        started = time.perf_counter()
        slot = self._bootstrap.slot
        message: object
        try:
            assert self._storage is not None
            streams = self._storage.streams(trigger.folder)
            handle = self._subtask.strategy.async_snapshot(resources, streams, cancelled)
            async_ms = (time.perf_counter() - started) * 1000
            message = CheckpointAck(trigger.checkpoint_id, slot, handle, sync_ms, async_ms)
        except SnapshotCancelledError:
            return
        except Exception as error:  # noqa: BLE001 - a checkpoint may fail, the slot goes on
            failure = user_failure(error, self._deployment.name, f"none: checkpoint {trigger.checkpoint_id}")
            message = CheckpointDecline(trigger.checkpoint_id, slot, failure)
        finally:
            del self._cancellations[trigger.checkpoint_id]
        with contextlib.suppress(OSError):
            self._tell_driver(message)


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
    sys.path[:] = list(bootstrap.sys_path)
    StateSlot(bootstrap).run()


if __name__ == "__main__":
    main()
