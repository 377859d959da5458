"""How a snapshot is taken: a short synchronous part, and a detached asynchronous one.

Names are Flink's (``SnapshotStrategy``, ``SnapshotStrategyRunner``). What Flink calls a
``RunnableFuture<SnapshotResult>`` is a :class:`SnapshotTask` here.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import attrs

from pyflinkstate.backends.format import CheckpointStreamFactory
from pyflinkstate.errors import SnapshotCancelledError

R = TypeVar("R", bound="SnapshotResources")
H = TypeVar("H", covariant=True)
T = TypeVar("T")


class SnapshotResources(Protocol):
    """The resources that the synchronous part passes to the asynchronous part."""

    def release(self) -> None:
        """Let the backend forget the snapshot. Idempotent, on any thread."""


class SnapshotStrategy(Protocol[H, R]):
    """Takes snapshots of one kind of state.

    ``H`` is the handle; ``R`` is passed from the first part to the second.
    """

    def sync_prepare_resources(self) -> R:
        """Run the synchronous part, between two records, on the owner's thread."""

    def async_snapshot(
        self, resources: R, streams: CheckpointStreamFactory, cancelled: threading.Event
    ) -> H | None:
        """Run the asynchronous part: write, release, and return the handle, or None if there is no state.

        Raises:
            SnapshotCancelledError: ``cancelled`` was set; no file is left.
            CheckpointStorageError: the storage failed; no file is left.
        """


class SnapshotTask(Generic[T]):
    """The asynchronous part of one snapshot, which is run once, on any thread, or cancelled."""

    def __init__(self, write: Callable[[threading.Event], T | None], release: Callable[[], None]) -> None:
        self._write = write
        self._release = release
        self._cancelled = threading.Event()
        self._begun = False
        self._lock = threading.Lock()
        self._done = threading.Event()
        #: The handle of what was written, if anything was.
        self.handle: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Write the snapshot, unless it is already written or cancelled."""
        if not self._begin():
            return
        try:
            self.handle = self._write(self._cancelled)
        except BaseException as error:  # noqa: BLE001 - kept for result()
            self._error = error
        finally:
            self._done.set()

    def finish(self) -> T | None:
        """Write the snapshot and return the handle, or raise the error."""
        self.run()
        return self.result()

    def cancel(self) -> None:
        """Stop writing at the next key group, or do not start; release the snapshot. Idempotent."""
        self._cancelled.set()
        if self._begin():
            self._error = SnapshotCancelledError("the checkpoint was aborted before it was written")
            self._release()
            self._done.set()

    def result(self) -> T | None:
        """Wait for the end and return the handle, or raise the error."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self.handle

    @property
    def is_done(self) -> bool:
        """Whether the task has ended, successfully or not."""
        return self._done.is_set()

    def _begin(self) -> bool:
        with self._lock:
            begun, self._begun = self._begun, True
        return not begun


class RunningSnapshots:
    """The tasks of a backend that have not ended (Flink: ``CloseableRegistry``)."""

    def __init__(self) -> None:
        self._tasks: set[SnapshotTask[Any]] = set()
        self._closed = False
        self._lock = threading.Lock()

    def add(self, task: SnapshotTask[Any]) -> None:
        """Keep ``task`` until it has ended; raise ``SnapshotCancelledError`` after :meth:`close`."""
        with self._lock:
            if not self._closed:
                self._tasks = {kept for kept in self._tasks if not kept.is_done} | {task}
                return
        task.cancel()
        raise SnapshotCancelledError("the backend is closed")

    def close(self) -> None:
        """Cancel all tasks. Idempotent."""
        with self._lock:
            self._closed = True
            tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()


class SnapshotExecutionType(enum.Enum):
    """When the asynchronous part runs."""

    SYNCHRONOUS = enum.auto()
    ASYNCHRONOUS = enum.auto()


@attrs.frozen
class SnapshotStrategyRunner(Generic[T, R]):
    """Runs the synchronous part of a strategy and returns the asynchronous part as a task.

    With ``SYNCHRONOUS`` execution the task has already run when it is returned.
    """

    strategy: SnapshotStrategy[T, R]
    running: RunningSnapshots
    execution_type: SnapshotExecutionType

    def snapshot(self, streams: CheckpointStreamFactory) -> SnapshotTask[T]:
        """Take a snapshot, whose bytes go to a stream from ``streams``."""
        resources = self.strategy.sync_prepare_resources()
        task: SnapshotTask[T] = SnapshotTask(
            lambda cancelled: self.strategy.async_snapshot(resources, streams, cancelled), resources.release
        )
        self.running.add(task)
        if self.execution_type is SnapshotExecutionType.SYNCHRONOUS:
            task.run()
        return task
