"""The job master and its slots: what it deploys, what it does with what they say, and how they end.

Most tests act the slots; the last ones run real ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from slot_functions import Count, Echo, TellOfClose
from support_job import JobRun, LocalRunner, latest, numbers, once
from support_runtime import PICKLED, ack, decline, handle, metadata, receive
from support_slots import ActedSlot

from pyflinkstate.backends.format.metadata import OperatorState
from pyflinkstate.backends.key_groups import KeyGroupRange
from pyflinkstate.errors import (
    CheckpointFailuresExceededError,
    SlotLostError,
    SparkJobError,
    UserFunctionError,
)
from pyflinkstate.runtime import job as job_module
from pyflinkstate.runtime.coordinator import CheckpointSettings
from pyflinkstate.runtime.job import EpochEnded, EpochRequest, RestorePoint
from pyflinkstate.runtime.messages import AbortCheckpoint, CloseSlot, SlotClosed, SlotId
from pyflinkstate.runtime.plan import KeyedNode
from pyflinkstate.runtime.restart import RestartStrategy
from pyflinkstate.runtime.sinks import DriverSink
from pyflinkstate.runtime.storage import CheckpointStorage

pytestmark = pytest.mark.timeout(60)

SLOTS = [SlotId("process-1", 0), SlotId("process-1", 1)]


class ActingRunner(LocalRunner):
    """Runs no task: in each epoch the test acts as the slots."""

    def __init__(self, act: Callable[[EpochRequest, list[ActedSlot]], None]) -> None:
        super().__init__()
        self._act = act
        self.slots: dict[int, list[ActedSlot]] = {}

    def _run(self, request: EpochRequest) -> EpochEnded:
        driver = request.link.driver
        if driver.attempt not in self.slots:
            slots = [ActedSlot(driver.address, driver.secret, slot, driver.attempt) for slot in SLOTS]
            self.slots[driver.attempt] = slots
            self.deployed = [slot.deployed() for slot in slots]
            for slot in slots:
                slot.ready()
        self._act(request, self.slots[driver.attempt])
        return EpochEnded([[]], None)


def acknowledge(request: EpochRequest, slots: list[ActedSlot]) -> None:
    """Be good slots; at the end of the input, also close."""
    for slot in slots:
        slot.connection.send(ack(request.barrier.checkpoint_id, slot.slot_id))
        if request.epoch.is_last:
            slot.connection.send(SlotClosed())


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    return CheckpointStorage(str(tmp_path / "checkpoints"))


@pytest.fixture(autouse=True)
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "TICK_S", 0.01)


def keyed(function: Any = None, **settings: Any) -> KeyedNode:
    return KeyedNode(numbers(), lambda n: n % 4, PICKLED, function or Echo(), "process", **settings)


def acted(storage: CheckpointStorage, act: Any = acknowledge, **settings: Any) -> JobRun:
    return JobRun(
        keyed(), DriverSink(lambda *_: None), storage, parallelism=2, runner=ActingRunner(act), **settings
    )


# --- checkpoints ---------------------------------------------------------------------------------------


def test_a_checkpoint_holds_what_every_subtask_acknowledged(storage: CheckpointStorage) -> None:
    run = acted(storage)
    job = run.run()
    found = storage.load_latest("orders")
    assert (found.checkpoint_id, found.epoch) == (4, 4)
    assert found.operators == (OperatorState("process-1", 2, 128, (handle(), handle())),)
    assert {(stats.sync_ms, stats.async_ms, stats.size_bytes) for stats in job.result().checkpoints} == {
        (0.5, 1.5, 10)
    }
    assert [type(receive(slot.connection)) for slot in run.runner.slots[0]] == [CloseSlot, CloseSlot]


def test_a_slot_is_told_what_to_run(storage: CheckpointStorage) -> None:
    run = acted(storage)
    run.run()
    first, second = run.runner.deployed
    assert (first.name, first.parallelism, first.max_parallelism) == ("process", 2, 128)
    assert (first.attempt, first.epoch, first.storage_uri) == (0, 0, storage.uri)
    assert (first.restore_from, first.handles) == (None, ())
    assert [first.key_group_range, second.key_group_range] == [KeyGroupRange(0, 63), KeyGroupRange(64, 127)]


def test_a_restored_slot_gets_the_handles_that_hold_its_key_groups(storage: CheckpointStorage) -> None:
    thirds = (handle(0, 42), handle(43, 85), handle(86, 127))
    made = metadata(
        source_position={"index": 3, "length": 10}, operators=[OperatorState("process-1", 3, 128, thirds)]
    )
    folder = storage.begin(made.job_id, made.checkpoint_id)
    run = acted(storage, restore=RestorePoint(made, folder))
    run.run()
    first, second = run.runner.deployed
    assert (first.handles, second.handles) == (thirds[:2], thirds[1:])
    assert (first.epoch, first.restore_from) == (1, folder)


def test_running_slots_are_found_without_asking(storage: CheckpointStorage) -> None:
    run = acted(storage)
    run.run()
    addresses = [request.addresses for request in run.runner.requests]
    assert addresses[0] == {}
    assert addresses[-1] == {slot.slot_id: slot.listens_at for slot in run.runner.slots[0]}


def test_a_checkpoint_that_is_declined_is_abandoned_and_its_files_are_deleted(
    storage: CheckpointStorage,
) -> None:
    folders = []

    def act(request: EpochRequest, slots: list[ActedSlot]) -> None:
        folders.append(Path(request.barrier.folder))
        if request.link.epoch == 2:
            (folders[-1] / "state").write_text("half")
            slots[0].connection.send(ack(2, slots[0].slot_id))
            slots[1].connection.send(decline(2, slots[1].slot_id))
            for slot in slots:
                assert receive(slot.connection) == AbortCheckpoint(2)
        else:
            acknowledge(request, slots)

    run = acted(storage, act, checkpoints=CheckpointSettings(interval_ms=0, tolerable_failures=1))
    job = run.run()
    assert [stats.checkpoint_id for stats in job.result().checkpoints] == [1, 3, 4]
    assert not folders[1].exists()
    assert job.result().restarts == 0


def test_an_acknowledgement_may_come_while_the_next_epochs_run(storage: CheckpointStorage) -> None:
    def act(request: EpochRequest, slots: list[ActedSlot]) -> None:
        if request.link.epoch == 3:  # two epochs after its barrier
            acknowledge(attrs.evolve(request, barrier=run.runner.requests[0].barrier), slots)
        elif request.barrier is not None and request.link.epoch > 1:
            acknowledge(request, slots)

    run = acted(storage, act)
    job = run.run()
    barriers = [request.barrier is not None for request in run.runner.requests]
    assert barriers == [True, False, False, True], "one checkpoint at a time"
    assert [(s.checkpoint_id, s.epoch) for s in job.result().checkpoints] == [(1, 1), (2, 4)]


def test_a_checkpoint_that_nobody_acknowledges_expires(storage: CheckpointStorage) -> None:
    run = acted(
        storage, lambda *_: None, checkpoints=CheckpointSettings(interval_ms=10**9, timeout_ms=1_000)
    )
    run.clock.step_ms = 100
    with pytest.raises(CheckpointFailuresExceededError, match=r"expired after 1000 ms, waiting for process"):
        run.run()
    assert storage.checkpoint_ids(run.runner.requests[0].barrier.folder.split("/")[-2]) == []


# --- slots that are lost -------------------------------------------------------------------------------


def test_a_slot_that_is_lost_fails_the_job(storage: CheckpointStorage) -> None:
    def act(request: EpochRequest, slots: list[ActedSlot]) -> None:
        if request.link.epoch == 2:
            slots[1].connection.close()
        else:
            acknowledge(request, slots)

    with pytest.raises(SlotLostError, match=r"state slot process-1\[1\]"):
        acted(storage, act).run()


def test_after_a_lost_slot_all_slots_are_started_anew_from_the_checkpoint(storage: CheckpointStorage) -> None:
    def act(request: EpochRequest, slots: list[ActedSlot]) -> None:
        if request.link.epoch == 3 and request.link.driver.attempt == 0:
            slots[1].connection.close()
            with pytest.raises(EOFError):  # the other is cut off
                receive(slots[0].connection)
        else:
            acknowledge(request, slots)

    run = acted(storage, act, restart=RestartStrategy(1, 0))
    job = run.run()
    assert job.result().restarts == 1
    first, _ = run.runner.deployed
    assert (first.attempt, first.epoch, first.handles) == (1, 2, (handle(), handle()))
    assert run.heard.restarts[0][1].context["pid"]
    assert storage.load_latest("orders").epoch == 4


# --- real slots ----------------------------------------------------------------------------------------


def counted(out: list[Any], storage: CheckpointStorage | None, **settings: Any) -> JobRun:
    return JobRun(
        KeyedNode(numbers(40, 10), lambda n: n % 4, PICKLED, Count(), "process"),
        DriverSink(lambda _, values: out.extend(values)),
        storage,
        **settings,
    )


#: Ten records of each of four keys, counted.
EVERY_COUNT = Counter((key, number) for key in range(4) for number in range(1, 11))


@pytest.mark.parametrize("with_storage", [True, False])
def test_records_are_counted_by_key(storage: CheckpointStorage, with_storage: bool) -> None:
    out: list[Any] = []
    job = counted(out, storage if with_storage else None, parallelism=2).run()
    assert Counter(out) == EVERY_COUNT
    assert job.slot_pids().keys() <= set(SLOTS)
    assert job.result().accumulators == {
        "numbers.records_out": 40,
        "process.records_in": 40,
        "process.records_out": 40,
    }


def test_counts_are_exact_over_a_restart(storage: CheckpointStorage) -> None:
    out: list[Any] = []
    run = counted(out, storage, parallelism=2, restart=RestartStrategy(1, 0))
    run.runner.after = once(SparkJobError("an executor was lost"), 3)
    assert run.run().result().restarts == 1
    assert Counter(out) == EVERY_COUNT


@pytest.mark.parametrize("parallelisms", [(1, 3), (3, 2)])
def test_counts_are_exact_over_a_restore_at_another_parallelism(
    storage: CheckpointStorage, parallelisms: tuple[int, int]
) -> None:
    out: list[Any] = []
    before, after = parallelisms
    stopped = counted(out, storage, parallelism=before)
    stopped.runner.before = once(SparkJobError("killed"), 3)
    with pytest.raises(SparkJobError):
        stopped.run()
    counted(out, storage, parallelism=after, restore=latest(storage)).run()
    assert Counter(out) == EVERY_COUNT


def test_an_error_in_close_is_not_lost(storage: CheckpointStorage, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    run = JobRun(keyed(TellOfClose(str(closed), fails=True)), DriverSink(lambda *_: None), storage)
    with pytest.raises(UserFunctionError, match="TimeoutError: flush took too long"):
        run.run()
    assert closed.read_text() == "closed\n"


def test_closing_the_iterator_ends_the_slots(storage: CheckpointStorage) -> None:
    out: list[Any] = []
    job = counted(out, storage).job()
    epochs: Iterator[int] = job.run()
    next(epochs)
    (slot,) = job.slot_pids()
    epochs.close()  # type: ignore[attr-defined]
    assert slot == SLOTS[0]
    assert job.slot_pids() == {}
