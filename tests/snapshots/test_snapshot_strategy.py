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
    SnapshotStrategyRunner,
    SnapshotTask,
)
from pyflinkstate.errors import CheckpointStorageError


@attrs.define
class NotedResources:
    """Notes when it is released."""

    events: list[str]
    number: int

    def release(self) -> None:
        self.events.append(f"release {self.number}")


@attrs.define
class NotedStrategy:
    """Notes what is called; ``write`` is the asynchronous part."""

    write: Callable[[threading.Event], str | None] = lambda cancelled: "handle"
    events: list[str] = attrs.Factory(list)

    def sync_prepare_resources(self) -> NotedResources:
        resources = NotedResources(self.events, 1 + sum(event.startswith("prepare") for event in self.events))
        self.events.append(f"prepare {resources.number}")
        return resources

    def async_snapshot(
        self, resources: NotedResources, streams: Any, cancelled: threading.Event
    ) -> str | None:
        self.events.append(f"write {resources.number} to {streams}")
        try:
            return self.write(cancelled)
        finally:
            resources.release()


def take(
    strategy: NotedStrategy,
    is_async: bool = True,
    running: RunningSnapshots | None = None,
) -> SnapshotTask[str]:
    runner = SnapshotStrategyRunner(strategy, running or RunningSnapshots(), is_async)
    return runner.snapshot("storage")  # type: ignore[arg-type]


def refuse(cancelled: threading.Event) -> str:
    raise CheckpointStorageError("no space left")


# --- the runner ------------------------------------------------------------------------------------


def test_an_asynchronous_snapshot_is_prepared_at_once_and_written_when_the_task_runs() -> None:
    strategy = NotedStrategy()
    task = take(strategy)
    assert strategy.events == ["prepare 1"]
    assert not task.is_done
    task.run()
    assert task.is_done
    assert task.result() == "handle"
    assert strategy.events == ["prepare 1", "write 1 to storage", "release 1"]


def test_a_synchronous_snapshot_is_written_before_the_task_is_returned() -> None:
    strategy = NotedStrategy()
    task = take(strategy, False)
    assert task.is_done
    assert strategy.events == ["prepare 1", "write 1 to storage", "release 1"]
    assert task.result() == "handle"


def test_an_error_of_a_synchronous_write_is_kept_for_the_result() -> None:
    task = take(NotedStrategy(refuse), False)
    with pytest.raises(CheckpointStorageError, match="no space left"):
        task.result()


# --- the task --------------------------------------------------------------------------------------


def test_a_task_that_several_threads_run_is_written_once() -> None:
    pause = Pause()
    strategy = NotedStrategy(lambda cancelled: pause.pass_through())
    task = take(strategy)
    writer = in_thread(task.run)
    pause.await_reached()
    for thread in [in_thread(task.run) for _ in range(3)]:
        join(thread)
    assert not task.is_done, "who comes second does not wait for the first"
    pause.go_on()
    join(writer)
    assert task.is_done
    assert strategy.events.count("write 1 to storage") == 1


def test_the_result_is_waited_for() -> None:
    pause, results = Pause(), []
    task = take(NotedStrategy(lambda cancelled: pause.pass_through() or "late"))
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

    task = take(NotedStrategy(fail))
    task.run()
    assert task.is_done
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            task.result()
        assert caught.value is error


def test_a_task_cancelled_before_it_runs_is_released_and_never_written() -> None:
    strategy = NotedStrategy()
    task = take(strategy)
    task.cancel()
    task.cancel()
    assert task.is_done
    task.run()
    assert strategy.events == ["prepare 1", "release 1"]
    with pytest.raises(SnapshotCancelledError, match="aborted before it was written"):
        task.result()


def test_a_task_cancelled_while_it_writes_is_told_and_ends_as_cancelled() -> None:
    pause = Pause()

    def write(cancelled: threading.Event) -> str:
        pause.pass_through()
        if cancelled.is_set():
            raise SnapshotCancelledError("stopped half-way")
        return "whole"

    strategy = NotedStrategy(write)
    task = take(strategy)
    writer = in_thread(task.run)
    pause.await_reached()
    task.cancel()
    assert not task.is_done, "the writer itself says when it has stopped"
    assert "release 1" not in strategy.events, "what is being written is not taken away"
    pause.go_on()
    join(writer)
    with pytest.raises(SnapshotCancelledError, match="stopped half-way"):
        task.result()
    assert strategy.events.count("release 1") == 1


@pytest.mark.parametrize("write", [lambda cancelled: "handle", refuse], ids=["well", "with an error"])
def test_cancelling_what_has_ended_changes_nothing(write: Any) -> None:
    strategy = NotedStrategy(write)
    task = take(strategy)
    task.run()
    before = list(strategy.events)
    task.cancel()
    assert strategy.events == before
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

    waiting, writing = NotedStrategy(), NotedStrategy(write)
    tasks = [take(waiting, running=running), take(writing, running=running)]
    writer = in_thread(tasks[1].run)
    pause.await_reached()
    running.close()
    running.close()
    assert waiting.events == ["prepare 1", "release 1"]
    pause.go_on()
    join(writer)
    assert seen == [True]
    for task in tasks:
        with pytest.raises(SnapshotCancelledError):
            task.result()


@pytest.mark.parametrize("is_async", [True, False])
def test_closed_running_snapshots_refuse_and_what_was_prepared_is_released(
    is_async: bool,
) -> None:
    running, strategy = RunningSnapshots(), NotedStrategy()
    running.close()
    with pytest.raises(SnapshotCancelledError, match="the backend is closed"):
        take(strategy, is_async, running)
    assert strategy.events == ["prepare 1", "release 1"]


def test_the_running_snapshots_do_not_keep_what_has_ended() -> None:
    running = RunningSnapshots()
    ended = take(NotedStrategy(), False, running)
    known = weakref.ref(ended)
    del ended
    going_on = take(NotedStrategy(), running=running)
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
