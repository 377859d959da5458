"""What tests of operator state, raw state and whole snapshots share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from pyflinkstate import ListStateDescriptor, MapStateDescriptor, Types
from pyflinkstate.backends.format import MemoryCheckpoint
from pyflinkstate.backends.format.metadata import OperatorStateHandle, OperatorSubtaskState
from pyflinkstate.backends.operator_state import (
    DefaultOperatorStateBackend,
    OperatorStateRestoreOperation,
    OperatorStateSnapshotStrategy,
    assign_state,
)
from pyflinkstate.backends.snapshots import (
    SnapshotStrategyRunner,
    SnapshotTask,
)

#: Nothing that a test waits for takes so long; it is only there so that a broken test ends.
PATIENCE_S = 20.0

NUMBERS = ListStateDescriptor("numbers", Types.LONG())
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())

Handles = Sequence[OperatorStateHandle | None]


def prepare(
    backend: DefaultOperatorStateBackend, compression: str | None = "zstd", streams: Any = None
) -> SnapshotTask[OperatorStateHandle]:
    """The synchronous part of a snapshot."""
    strategy = OperatorStateSnapshotStrategy(backend, compression)
    runner = SnapshotStrategyRunner(strategy, backend.snapshots, is_async=True)
    return runner.snapshot(streams or MemoryCheckpoint())


def finish(task: SnapshotTask[Any]) -> Any:
    """The asynchronous part, in this thread."""
    task.run()
    return task.result()


def snapshot(
    backend: DefaultOperatorStateBackend, compression: str | None = "zstd"
) -> OperatorStateHandle | None:
    """Both parts of a snapshot, written to memory."""
    return finish(prepare(backend, compression))


def restored(handles: Iterable[OperatorStateHandle]) -> DefaultOperatorStateBackend:
    """Return a new backend with what ``handles`` hold."""
    backend = DefaultOperatorStateBackend()
    OperatorStateRestoreOperation(backend, MemoryCheckpoint()).restore(handles)
    return backend


def rescale(handles: Handles, parallelism: int) -> list[DefaultOperatorStateBackend]:
    """Return the backends of all subtasks after a restore at ``parallelism``."""
    subtasks = [OperatorSubtaskState(managed_operator=handle) for handle in handles]
    return [restored(assigned.managed_operator) for assigned in assign_state(subtasks, parallelism, 128)]


@attrs.define
class HookedStreams:
    """The streams of ``inner``; ``on_write`` is called before each write with its number, from 1.

    What it raises is what storage raises; while it waits, storage is slow.
    """

    inner: Any
    on_write: Callable[[int], None]
    writes: int = 0

    def create(self) -> _HookedStream:
        return _HookedStream(self, self.inner.create())

    def describe(self, handle: Any) -> str:
        return self.inner.describe(handle)

    def discard(self, handle: Any) -> None:
        self.inner.discard(handle)


@attrs.define
class _HookedStream:
    streams: HookedStreams
    inner: Any

    def write(self, data: bytes) -> None:
        self.streams.writes += 1
        self.streams.on_write(self.streams.writes)
        self.inner.write(data)

    def close_and_get_handle(self) -> Any:
        return self.inner.close_and_get_handle()

    def abort(self) -> None:
        self.inner.abort()


class Pause:
    """Stops whoever calls ``pass_through`` for the ``at``-th time, until the test says ``go_on``."""

    def __init__(self, at: int = 1) -> None:
        self._left = at
        self._reached = threading.Event()
        self._going_on = threading.Event()

    def pass_through(self, *_: Any) -> None:
        self._left -= 1
        if self._left == 0:
            self._reached.set()
            assert self._going_on.wait(PATIENCE_S), "the test never went on"

    def await_reached(self) -> None:
        assert self._reached.wait(PATIENCE_S), "nobody came by"

    def go_on(self) -> None:
        self._going_on.set()


def in_thread(action: Callable[[], Any]) -> threading.Thread:
    """Run ``action`` beside the test."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def join(thread: threading.Thread) -> None:
    """Wait for a thread's end; fails where it goes on."""
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
