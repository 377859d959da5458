"""Record counts: exact over retries, replays and restores; what else a job tells of itself."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import attrs
import pytest
from slot_functions import Count
from support_job import JobRun, numbers
from support_runtime import PICKLED
from support_slots import SLOTS, ActingRunner, acknowledge

from pyflinkstate.errors import RuntimeFailure
from pyflinkstate.runtime.master import CheckpointPart
from pyflinkstate.runtime.master.reports.checkpoint_stats import CheckpointStats
from pyflinkstate.runtime.master.reports.observe import (
    Accumulators,
    EpochStats,
    JobExecutionResult,
    JobListener,
    JobObserver,
    log_output,
)
from pyflinkstate.runtime.plan.nodes import StatefulNode
from pyflinkstate.runtime.settings.job_status import JobStatus
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.runtime.wire.messages import SlotId, SlotOutput, TaskReport
from pyflinkstate.runtime.wire.metrics import MetricValue


def report(epoch: int, task: str, rejected: tuple[Any, ...] = (), **counts: int) -> TaskReport:
    return TaskReport(0, epoch, task, counts, rejected)


@pytest.fixture
def accumulators() -> Accumulators:
    """Counts of three epochs, in a job that began at nothing."""
    made = Accumulators()
    made.reset(0, {})
    for epoch in (1, 2, 3):
        made.add(report(epoch, "map[0]", records=epoch))
        made.add(report(epoch, "map[1]", records=10 * epoch, dropped=1))
    return made


def test_totals_are_sums_over_tasks_and_epochs_up_to_one(accumulators: Accumulators) -> None:
    assert accumulators.total(0) == {}
    assert accumulators.total(1) == {"records": 11, "dropped": 1}
    assert accumulators.total(3) == {"records": 66, "dropped": 3}
    assert accumulators.total(99) == accumulators.total(3)


def test_the_counts_of_one_epoch(accumulators: Accumulators) -> None:
    assert accumulators.of_epoch(2, "records") == 22
    assert accumulators.of_epoch(2, "unknown") == 0
    assert accumulators.of_epoch(9, "records") == 0


def test_a_retried_task_replaces_its_own_counts_and_no_others(accumulators: Accumulators) -> None:
    accumulators.add(report(3, "map[1]", records=5))
    assert accumulators.total(3) == {"records": 11 + 22 + 3 + 5, "dropped": 2}


def test_a_replayed_epoch_replaces_its_first_run(accumulators: Accumulators) -> None:
    accumulators.reset(1, {"records": 11, "dropped": 1})
    assert accumulators.total(1) == {"records": 11, "dropped": 1}
    assert accumulators.total(3) == {"records": 11, "dropped": 1}
    accumulators.add(report(2, "map[0]", records=100))
    assert accumulators.total(2) == {"records": 111, "dropped": 1}


def test_folding_keeps_the_sums_and_forgets_the_tasks(accumulators: Accumulators) -> None:
    before = [accumulators.total(epoch) for epoch in (2, 3)]
    accumulators.fold(2)
    assert [accumulators.total(epoch) for epoch in (2, 3)] == before
    assert accumulators.of_epoch(2, "records") == 0
    assert accumulators.of_epoch(3, "records") == 33
    accumulators.fold(2)
    accumulators.fold(3)
    assert accumulators.total(3) == before[1]


def test_a_report_of_a_folded_epoch_is_not_counted_again(accumulators: Accumulators) -> None:
    accumulators.fold(2)
    before = accumulators.total(3)
    accumulators.add(report(2, "map[0]", records=1_000))
    assert accumulators.total(3) == before
    accumulators.fold(3)
    assert accumulators.total(3) == before


def test_a_restored_job_goes_on_from_the_counters_of_its_checkpoint() -> None:
    made = Accumulators()
    made.reset(7, {"records": 500})
    made.add(report(8, "map[0]", records=5))
    assert made.total(8) == {"records": 505}
    made.fold(8)
    assert made.total(8) == {"records": 505}


def test_totals_are_copies(accumulators: Accumulators) -> None:
    counters = {"records": 1}
    accumulators.reset(0, counters)
    accumulators.add(report(1, "map[0]", records=1))
    accumulators.fold(1)
    accumulators.total(1)["records"] = 99
    assert (counters, accumulators.total(1)) == ({"records": 1}, {"records": 2})


def test_rejected_rows_are_kept_in_the_order_of_epochs_and_tasks() -> None:
    made = Accumulators()
    made.add(report(2, "files[0]", ("c",)))
    made.add(report(1, "files[1]", ("b",)))
    made.add(report(1, "files[0]", ("a", "a2")))
    made.add(report(2, "files[1]", records=1))
    assert made.rejected(9) == ("a", "a2", "b", "c")
    assert made.rejected(1) == ("a", "a2", "b"), "epoch 2 is read ahead, and has not run"


def test_the_tenth_task_comes_after_the_second() -> None:
    made = Accumulators()
    for number in (10, 2, 1):
        made.add(report(1, f"files[{number}]", (number,)))
    assert made.rejected(9) == (1, 2, 10)


def test_rejected_rows_of_a_retry_or_replay_are_not_told_twice() -> None:
    made = Accumulators()
    for _ in range(2):
        made.add(report(1, "files[0]", ("a",)))
        made.add(report(2, "files[0]", ("b",)))
    assert made.rejected(9) == ("a", "b")
    made.fold(1)
    made.reset(1, {})
    assert made.rejected(9) == ("a",)
    made.add(report(2, "files[0]", ("b",)))
    assert made.rejected(9) == ("a", "b")


def test_a_report_of_metrics_leaves_the_tasks_counts_alone(accumulators: Accumulators) -> None:
    before = accumulators.total(3)
    counted = {"map.seen": MetricValue("counter", 5)}
    accumulators.add(TaskReport(0, 3, "map[0]", metrics=counted))
    assert accumulators.total(3) == before
    assert accumulators.metrics() == counted


def test_a_result_answers_as_in_pyflink() -> None:
    result = JobExecutionResult("a" * 32, {"map.records_in": 5}, (), (), 3, 1)
    assert result.get_job_id() == "a" * 32
    assert result.get_accumulator_result("map.records_in") == 5
    assert result.get_accumulator_result("nothing") == 0
    result.get_all_accumulator_results()["map.records_in"] = 0
    assert result.get_all_accumulator_results() == {"map.records_in": 5}


def test_a_result_has_no_failed_checkpoints_and_no_metrics_unless_it_is_told_of_some() -> None:
    one, other = (JobExecutionResult("a" * 32, {}, (), (), 0, 0) for _ in range(2))
    assert (one.failed_checkpoints, one.metrics) == ((), {})
    assert one.metrics is not other.metrics


def test_only_an_ended_job_is_terminal() -> None:
    ended = {status for status in JobStatus if status.is_globally_terminal_state()}
    assert ended == {JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED}


def test_states_have_the_numbers_of_pyflink() -> None:
    assert {status.name: status.value for status in JobStatus} == {
        "CREATED": 0,
        "RUNNING": 1,
        "FAILING": 2,
        "FAILED": 3,
        "CANCELLING": 4,
        "CANCELED": 5,
        "FINISHED": 6,
        "RESTARTING": 7,
        "SUSPENDED": 8,
        "RECONCILING": 9,
    }


def test_only_a_suspended_job_may_be_taken_up_elsewhere() -> None:
    ended = {status for status in JobStatus if status.is_terminal_state()}
    assert ended == {JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED, JobStatus.SUSPENDED}


def test_a_result_knows_how_long_its_run_took() -> None:
    assert JobExecutionResult("a" * 32, {}, (), (), 0, 0).get_net_runtime() == 0
    assert JobExecutionResult("a" * 32, {}, (), (), 0, 0, net_runtime_ms=12).get_net_runtime() == 12


def test_a_listener_that_wants_to_hear_nothing_needs_no_methods() -> None:
    listener = JobListener()
    listener.on_epoch(EpochStats(1, 10, 5, 0))
    listener.on_checkpoint(CheckpointStats(1, 1))
    listener.on_checkpoint_failed(CheckpointStats(2, 2, failure="disk full"))
    listener.on_restart(1, RuntimeFailure("gone"))
    listener.on_end(JobStatus.FINISHED)


def test_statistics_are_values() -> None:
    stats = CheckpointStats(3, 9, size_bytes=10, checkpointed_bytes=4, is_incremental=True, uri="file:///c")
    assert stats.failure is None
    assert pickle.loads(pickle.dumps(stats)) == stats
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        stats.epoch = 4  # type: ignore[misc]


def test_what_a_slot_prints_is_logged_with_its_level_and_the_slots_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = ((logging.INFO, "100% of %s"), (logging.ERROR, ""), (logging.DEBUG, "detail"))
    with caplog.at_level(logging.DEBUG, "pyflinkstate.slots"):
        log_output(SlotOutput(SlotId("count-1", 2), lines))
    assert caplog.record_tuples == [
        ("pyflinkstate.slots", logging.INFO, "count-1[2]: 100% of %s"),
        ("pyflinkstate.slots", logging.ERROR, "count-1[2]: "),
        ("pyflinkstate.slots", logging.DEBUG, "count-1[2]: detail"),
    ]


def test_an_observer_hears_what_each_slot_did_for_a_checkpoint(storage: CheckpointFolders) -> None:
    heard: list[tuple[Any, ...]] = []

    class Listening(JobObserver):
        def on_checkpoint_written(self, checkpoint_id: int, parts: tuple[CheckpointPart, ...]) -> None:
            heard.extend((checkpoint_id, part.slot, part.sync_ms, part.async_ms) for part in parts)

    node = StatefulNode(numbers(), lambda n: n % 4, PICKLED, Count(), "process")
    sink = DriverSink(lambda *_: None)
    run = JobRun(node, sink, storage, parallelism=2, runner=ActingRunner(acknowledge))
    run.listeners = (Listening(),)
    run.run()
    assert {told for told in heard if told[0] == 1} == {(1, slot, 0.5, 1.5) for slot in SLOTS}
