"""The synchronous and the asynchronous part of a snapshot: who runs when, cancels, releases, refuses."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from operator_support import NUMBERS, HookedStreams, Pause, finish, in_thread, join, prepare, restored

from pyflinkstate.backends.format import MemoryCheckpoint
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend
from pyflinkstate.backends.snapshots import (
    RunningSnapshots,
    SnapshotCancelledError,
    SnapshotTask,
)
from pyflinkstate.errors import CheckpointStorageError


@attrs.define
class NotedSnapshot:
    """Notes what is called; ``written`` is the asynchronous part."""

    written: Callable[[threading.Event], str | None] = lambda cancelled: "handle"
    events: list[str] = attrs.Factory(list)

    def write(self, streams: Any, cancelled: threading.Event) -> str | None:
        self.events.append(f"write to {streams}")
        try:
            return self.written(cancelled)
        finally:
            self.release()

    def release(self) -> None:
        self.events.append("release")


def take(
    snapshot: NotedSnapshot, is_async: bool = True, running: RunningSnapshots | None = None
) -> SnapshotTask[str]:
    return (running or RunningSnapshots()).begin(snapshot, "storage", is_async)  # type: ignore[arg-type]


def refuse(cancelled: threading.Event) -> str:
    raise CheckpointStorageError("no space left")


# --- the beginning ------------------------------------------------------------------------------------


def test_an_asynchronous_snapshot_is_written_when_the_task_runs() -> None:
    snapshot = NotedSnapshot()
    task = take(snapshot)
    assert snapshot.events == []
    assert not task.is_done
    task.run()
    assert task.is_done
    assert task.result() == "handle"
    assert snapshot.events == ["write to storage", "release"]


def test_a_synchronous_snapshot_is_written_before_the_task_is_returned() -> None:
    snapshot = NotedSnapshot()
    task = take(snapshot, False)
    assert task.is_done
    assert snapshot.events == ["write to storage", "release"]
    assert task.result() == "handle"


def test_an_error_of_a_synchronous_write_is_kept_for_the_result() -> None:
    task = take(NotedSnapshot(refuse), False)
    with pytest.raises(CheckpointStorageError, match="no space left"):
        task.result()


# --- the task --------------------------------------------------------------------------------------


def test_a_task_that_several_threads_run_is_written_once() -> None:
    pause = Pause()
    snapshot = NotedSnapshot(lambda cancelled: pause.pass_through())
    task = take(snapshot)
    writer = in_thread(task.run)
    pause.await_reached()
    for thread in [in_thread(task.run) for _ in range(3)]:
        join(thread)
    assert not task.is_done, "who comes second does not wait for the first"
    pause.go_on()
    join(writer)
    assert task.is_done
    assert snapshot.events.count("write to storage") == 1


def test_the_result_is_waited_for() -> None:
    pause, results = Pause(), []
    task = take(NotedSnapshot(lambda cancelled: pause.pass_through() or "late"))
    writer = in_thread(task.run)
    pause.await_reached()
    waiter = in_thread(lambda: results.append(task.result()))
    assert results == []
    pause.go_on()
    join(writer)
    join(waiter)
    assert results == ["late"]


@pytest.mark.parametrize("error", [CheckpointStorageError("no space left"), MemoryError(), SystemExit(1)])
def test_what_went_wrong_is_raised_at_every_question_for_the_result(error: BaseException) -> None:
    def fail(cancelled: threading.Event) -> str:
        raise error

    task = take(NotedSnapshot(fail))
    task.run()
    assert task.is_done
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            task.result()
        assert caught.value is error


def test_a_task_cancelled_before_it_runs_is_released_and_never_written() -> None:
    snapshot = NotedSnapshot()
    task = take(snapshot)
    task.cancel()
    task.cancel()
    assert task.is_done
    task.run()
    assert snapshot.events == ["release"]
    with pytest.raises(SnapshotCancelledError, match="aborted before it was written"):
        task.result()


def test_a_task_cancelled_while_it_writes_is_told_and_ends_as_cancelled() -> None:
    pause = Pause()

    def write(cancelled: threading.Event) -> str:
        pause.pass_through()
        if cancelled.is_set():
            raise SnapshotCancelledError("stopped half-way")
        return "whole"

    snapshot = NotedSnapshot(write)
    task = take(snapshot)
    writer = in_thread(task.run)
    pause.await_reached()
    task.cancel()
    assert not task.is_done, "the writer itself says when it has stopped"
    assert "release" not in snapshot.events, "what is being written is not taken away"
    pause.go_on()
    join(writer)
    with pytest.raises(SnapshotCancelledError, match="stopped half-way"):
        task.result()
    assert snapshot.events.count("release") == 1


@pytest.mark.parametrize("write", [lambda cancelled: "handle", refuse], ids=["well", "with an error"])
def test_cancelling_what_has_ended_changes_nothing(write: Any) -> None:
    snapshot = NotedSnapshot(write)
    task = take(snapshot)
    task.run()
    before = list(snapshot.events)
    task.cancel()
    assert snapshot.events == before
    if write is refuse:
        with pytest.raises(CheckpointStorageError):
            task.result()
    else:
        assert task.result() == "handle"


# --- running snapshots -----------------------------------------------------------------------------


def test_closing_the_running_snapshots_cancels_what_has_not_begun_and_what_is_being_written() -> None:
    running, pause = RunningSnapshots(), Pause()
    seen: list[bool] = []

    def write(cancelled: threading.Event) -> str:
        pause.pass_through()
        seen.append(cancelled.is_set())
        raise SnapshotCancelledError("stopped")

    waiting, writing = NotedSnapshot(), NotedSnapshot(write)
    tasks = [take(waiting, running=running), take(writing, running=running)]
    writer = in_thread(tasks[1].run)
    pause.await_reached()
    running.close()
    running.close()
    assert waiting.events == ["release"]
    pause.go_on()
    join(writer)
    assert seen == [True]
    for task in tasks:
        with pytest.raises(SnapshotCancelledError):
            task.result()


@pytest.mark.parametrize("is_async", [True, False])
def test_closed_running_snapshots_refuse_and_what_was_taken_is_released(
    is_async: bool,
) -> None:
    running, snapshot = RunningSnapshots(), NotedSnapshot()
    running.close()
    with pytest.raises(SnapshotCancelledError, match="the backend is closed"):
        take(snapshot, is_async, running)
    assert snapshot.events == ["release"]


def test_the_running_snapshots_do_not_keep_what_has_ended() -> None:
    running = RunningSnapshots()
    ended = take(NotedSnapshot(), False, running)
    known = weakref.ref(ended)
    del ended
    going_on = take(NotedSnapshot(), running=running)
    gc.collect()
    assert known() is None
    assert not going_on.is_done


# --- several in flight, of a real backend -----------------------------------------------------------


class Operator:
    """An operator backend with one list of numbers."""

    def __init__(self) -> None:
        self.backend = DefaultOperatorStateBackend()

    def append(self, number: int) -> None:
        self.backend.get_list_state(NUMBERS).add(number)

    def snapshot(self, streams: Any) -> SnapshotTask[Any]:
        return prepare(self.backend, streams=streams)

    def restored(self, handle: Any) -> list[int]:
        return list(restored([handle]).get_list_state(NUMBERS).get())


def test_a_later_snapshot_may_finish_while_an_earlier_one_is_blocked_in_storage() -> None:
    subject, pause = Operator(), Pause(at=2)
    subject.append(1)
    earlier = subject.snapshot(HookedStreams(MemoryCheckpoint(), pause.pass_through))
    writer = in_thread(earlier.run)
    pause.await_reached()
    subject.append(2)
    later = subject.snapshot(MemoryCheckpoint())
    subject.append(3)
    assert subject.restored(finish(later)) == [1, 2]
    assert not earlier.is_done
    pause.go_on()
    join(writer)
    assert subject.restored(earlier.result()) == [1]
