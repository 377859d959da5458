"""The slots of whole jobs: their life, and that each is a fork."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import slot_nursery
from slot_functions import Count, Echo, TellOfClose, TellOfCollector
from support_job import JobRun, counts, numbers
from support_runtime import PICKLED, ack, decline, handle, metadata, wait_for_exit
from support_slots import SLOTS, ActingRunner, Driver, ServedSlot, acknowledge

from pyflinkstate.backends.format import (
    ByteStreamStateHandle,
    OperatorState,
    OperatorStateEntry,
    OperatorStateHandle,
    OperatorSubtaskState,
    RawOperatorStateHandle,
    Section,
    StateAssignment,
)
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.operator_state import assign_state
from pyflinkstate.backends.types import OperatorStateMode
from pyflinkstate.errors import (
    BadRecordError,
    SlotLostError,
    SparkJobError,
)
from pyflinkstate.runtime.engine import EpochRequest
from pyflinkstate.runtime.master import RestorePoint
from pyflinkstate.runtime.plan import StatefulNode
from pyflinkstate.runtime.settings import CheckpointSettings
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks import DriverSink
from pyflinkstate.runtime.slots.slot import GC_THRESHOLDS
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.tasks.slot_client import SLOT_MODULE
from pyflinkstate.runtime.wire import AbortCheckpoint, CloseSlot, NotifyCheckpointComplete, TaskReport

pytestmark = pytest.mark.timeout(60)


def keyed(function: Any = None, **settings: Any) -> StatefulNode:
    return StatefulNode(numbers(), lambda n: n % 4, PICKLED, function or Echo(), "process", **settings)


def acted(storage: CheckpointFolders, act: Any = acknowledge, **settings: Any) -> JobRun:
    return JobRun(keyed(), storage=storage, parallelism=2, runner=ActingRunner(act), **settings)


# --- checkpoints ---------------------------------------------------------------------------------------


def test_a_checkpoint_holds_what_every_subtask_acknowledged(storage: CheckpointFolders) -> None:
    run = acted(storage)
    job = run.run()
    found, _ = storage.load_latest("orders")
    assert found.epoch == 4
    assert found.operators == (OperatorState("process-1", 2, 128, (OperatorSubtaskState(handle()),) * 2),)
    assert {(stats.sync_ms, stats.async_ms, stats.size_bytes) for stats in job.result().checkpoints} == {
        (0.5, 1.5, 10)
    }
    completed = [NotifyCheckpointComplete(stats.checkpoint_id) for stats in job.result().checkpoints]
    for slot in run.runner.slots[0]:
        assert [slot.next_heard() for _ in range(len(completed) + 1)] == [*completed, CloseSlot()]


def test_a_slot_is_told_what_to_run(storage: CheckpointFolders) -> None:
    state_backend = HashMapStateBackend(async_snapshots=False, snapshot_compression=None)
    run = acted(storage, state_backend=state_backend)
    run.run()
    first, second = run.runner.deployed()
    assert (first.name, first.parallelism, first.max_parallelism) == ("process", 2, 128)
    assert (first.attempt, first.epoch, first.storage) == (0, 0, storage.settings)
    assert first.state_backend == state_backend
    assert (first.restore_uri, first.restored_checkpoint_id) == (None, None)
    assert first.state == StateAssignment()
    assert [first.key_group_range, second.key_group_range] == [KeyGroupRange(0, 63), KeyGroupRange(64, 127)]


def test_an_operator_may_have_a_state_backend_of_its_own(storage: CheckpointFolders) -> None:
    own = HashMapStateBackend(snapshot_compression=None)
    run = acted(storage, own_state_backends={"process-1": own, "other": HashMapStateBackend()})
    run.run()
    assert {slot.state_backend for slot in run.runner.deployed()} == {own}


def test_a_restored_slot_gets_the_handles_that_hold_its_key_groups(storage: CheckpointFolders) -> None:
    thirds = (handle(0, 42), handle(43, 85), handle(86, 127))
    made = metadata(
        source_position={"index": 3, "length": 10},
        operators=[OperatorState("process-1", 3, 128, tuple(map(OperatorSubtaskState, thirds)))],
    )
    folder = storage.begin(made.job_id, made.checkpoint_id)
    run = acted(storage, restore=RestorePoint(made, folder))
    run.run()
    first, second = run.runner.deployed()
    assert (first.state, second.state) == (StateAssignment(thirds[:2]), StateAssignment(thirds[1:]))
    assert (first.epoch, first.restore_uri) == (1, folder)
    assert (first.restored_checkpoint_id, second.restored_checkpoint_id) == (1, 1)


def test_a_slot_of_an_operator_that_is_new_in_the_program_is_not_restored(
    storage: CheckpointFolders,
) -> None:
    """Flink: a task without any state in the checkpoint gets no ``JobManagerTaskRestore``."""
    made = metadata(source_position={"index": 3, "length": 10}, operators=[])
    run = acted(storage, restore=RestorePoint(made, storage.begin(made.job_id, made.checkpoint_id)))
    run.run()
    first, second = run.runner.deployed()
    assert (first.epoch, first.restore_uri) == (1, None)
    assert (first.restored_checkpoint_id, second.restored_checkpoint_id) == (None, None)


def test_a_restored_slot_gets_its_share_of_operator_state(storage: CheckpointFolders) -> None:
    section = Section(0, 5, 0)
    entry = OperatorStateEntry(OperatorStateMode.SPLIT_DISTRIBUTE, section, 3)
    wrote = OperatorSubtaskState(
        managed_operator=OperatorStateHandle(ByteStreamStateHandle(b"state"), {"seen": entry}),
        raw_operator=RawOperatorStateHandle(ByteStreamStateHandle(b"state"), (section,) * 5),
    )
    made = metadata(
        source_position={"index": 3, "length": 10}, operators=[OperatorState("process-1", 1, 128, (wrote,))]
    )
    run = acted(storage, restore=RestorePoint(made, storage.begin(made.job_id, made.checkpoint_id)))
    run.run()
    states = [deployment.state for deployment in run.runner.deployed()]
    assert states == assign_state([wrote], 2, 128)
    assert [len(state.raw_operator[0].partitions) for state in states] == [3, 2]


def test_running_slots_are_found_without_asking(storage: CheckpointFolders) -> None:
    run = acted(storage)
    run.run()
    addresses = [request.addresses for request in run.runner.requests]
    assert addresses[0] == {}
    assert addresses[-1] == {slot.slot_id: slot.listens_at for slot in run.runner.slots[0]}


def test_a_checkpoint_that_is_declined_is_abandoned_and_its_files_are_deleted(
    storage: CheckpointFolders,
) -> None:
    folders = []

    def act(request: EpochRequest, slots: list[ServedSlot]) -> None:
        if request.link.epoch > 1:
            acknowledge(request, slots)
            return
        folders.append(Path(request.barrier.folder))
        (folders[0] / "state").write_text("half")
        slots[0].connection.send(ack(1, slots[0].slot_id))
        slots[1].connection.send(decline(1, slots[1].slot_id))
        assert [slot.next_heard() for slot in slots] == [AbortCheckpoint(1)] * 2

    run = acted(storage, act, checkpoints=CheckpointSettings(interval_ms=0, tolerable_failures=1))
    result = run.run().result()
    assert 1 not in [stats.checkpoint_id for stats in result.checkpoints]
    assert result.checkpoints[-1].epoch == 4
    assert not folders[0].exists()
    assert result.restarts == 0


def test_an_acknowledgement_may_come_while_the_next_epochs_run(storage: CheckpointFolders) -> None:
    def act(request: EpochRequest, slots: list[ServedSlot]) -> None:
        if request.link.epoch == 3:  # two epochs after its barrier
            acknowledge(attrs.evolve(request, barrier=run.runner.requests[0].barrier), slots)
        elif request.link.epoch > 1:
            acknowledge(request, slots)

    run = acted(storage, act)
    job = run.run()
    barriers = [request.barrier is not None for request in run.runner.requests]
    assert barriers == [True, False, False, True], "one checkpoint at a time"
    assert [(s.checkpoint_id, s.epoch) for s in job.result().checkpoints] == [(1, 1), (2, 4)]


# --- slots that are lost -------------------------------------------------------------------------------


def lose_the_second(slots: list[ServedSlot]) -> None:
    """End one slot; returns when the job has cut off the other."""
    slots[1].connection.shut_down()
    while slots[0].next_heard() != "cut off":
        pass


def test_after_a_lost_slot_all_slots_are_started_anew_from_the_checkpoint(storage: CheckpointFolders) -> None:
    def act(request: EpochRequest, slots: list[ServedSlot]) -> None:
        epoch, attempt = request.link.epoch, request.link.driver.attempt
        if (epoch, attempt) == (2, 0):
            assert run.heard.await_checkpoint().epoch == 1
        if (epoch, attempt) == (3, 0):
            lose_the_second(slots)
        else:
            acknowledge(request, slots)

    every_so_often = CheckpointSettings(interval_ms=10**9)
    run = acted(storage, act, restart=FixedDelayRestart(1, 0), checkpoints=every_so_often)
    assert run.run().result().restarts == 1
    first, second = run.runner.deployed(attempt=1)
    assert (first.attempt, first.epoch, first.restored_checkpoint_id) == (1, 1, 1)
    assert first.state == StateAssignment((handle(), handle()))
    assert first.restore_uri == second.restore_uri
    assert [request.link.epoch for request in run.runner.requests] == [1, 2, 3, 2, 3, 4]
    ((_, error),) = run.heard.restarts
    assert isinstance(error, SlotLostError)
    assert storage.load_latest("orders")[0].epoch == 4


def test_what_slots_of_an_older_attempt_say_is_not_heeded(storage: CheckpointFolders) -> None:
    def act(request: EpochRequest, slots: list[ServedSlot]) -> None:
        driver = request.link.driver
        if (request.link.epoch, driver.attempt) == (1, 0):
            raise SparkJobError("an executor was lost")
        if request.link.epoch == 2:
            old = attrs.evolve(driver, attempt=0)
            old.report(TaskReport(0, 2, "sink[0]", {"sink.records": 99}))
            old.report(TaskReport(0, 2, "sink[0]", error=BadRecordError("of yore")))
        acknowledge(request, slots)

    job = acted(storage, act, restart=FixedDelayRestart(1, 0)).run()
    assert counts(job) == {}
    assert job.result().restarts == 1


# --- real slots ----------------------------------------------------------------------------------------


def counted(out: list[Any], storage: CheckpointFolders | None, **settings: Any) -> JobRun:
    return JobRun(
        StatefulNode(numbers(40, 10), lambda n: n % 4, PICKLED, Count(), "process"),
        DriverSink(lambda _, values: out.extend(values)),
        storage,
        **settings,
    )


#: Ten records of each of four keys, counted.
EVERY_COUNT = Counter((key, number) for key in range(4) for number in range(1, 11))


@pytest.mark.parametrize("with_storage", [True, False])
def test_records_are_counted_by_key(storage: CheckpointFolders, with_storage: bool) -> None:
    out: list[Any] = []
    job = counted(out, storage if with_storage else None, parallelism=2).run()
    assert Counter(out) == EVERY_COUNT
    assert job.slot_pids().keys() <= set(SLOTS)
    assert counts(job) == {
        "numbers.records_out": 40,
        "process.records_in": 40,
        "process.records_out": 40,
    }


def test_an_error_in_close_is_logged_and_the_results_stand(
    storage: CheckpointFolders, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    closed = tmp_path / "closed"
    run = JobRun(keyed(TellOfClose(str(closed), fails=True)), storage=storage)
    assert run.run().result().epochs == 4
    assert "has ended, but: TimeoutError: flush took too long" in caplog.text
    assert closed.read_text() == "closed\n"


def test_closing_the_iterator_ends_the_slots(storage: CheckpointFolders) -> None:
    job = counted([], storage).job()
    epochs: Iterator[int] = job.run()
    next(epochs)
    ((slot, pid),) = job.slot_pids().items()
    assert slot == SLOTS[0]
    process_fd = os.pidfd_open(pid)
    epochs.close()  # type: ignore[attr-defined]
    wait_for_exit(process_fd)
    os.close(process_fd)


def test_the_collector_of_a_slot_is_set_before_states_are_made() -> None:
    """Otherwise it takes four fifths of the time, as each state has a map for each key group."""
    node = StatefulNode(numbers(1), lambda number: number, PICKLED, TellOfCollector(), "tell")
    assert JobRun(node).results() == [GC_THRESHOLDS]


def test_a_forked_slot_has_a_session_of_its_own_and_runs_what_it_is_given(driver: Driver) -> None:
    slot = driver.start_slot(Count())
    assert slot.pid != os.getpid()
    assert os.getsid(slot.pid) == slot.pid
    records, _ = slot.feed(1, [("a", 1), ("a", 2)])
    assert records == [("a", 1), ("a", 2)]


def test_a_fork_that_fails_tells_why_and_with_which_code() -> None:
    command = [sys.executable, "-m", SLOT_MODULE, "nobody"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    streams = os.dup(1), os.dup(2)
    process = slot_nursery.Popen(
        command,
        stdin=slot_nursery.PIPE,
        stdout=slot_nursery.PIPE,
        stderr=slot_nursery.STDOUT,
        pass_fds=streams,
        start_new_session=True,
        env=env,
    )
    for stream in streams:
        os.close(stream)
    with process.stdin as stdin:
        stdin.write(b"this is no bootstrap")
    assert process.wait() == 1
    assert process.poll() == 1
    with process.stdout as stdout:
        assert b"UnpicklingError" in stdout.read()
