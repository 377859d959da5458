"""The job master without Spark: epochs, checkpoints, commits, restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from support_job import JobRun, counts, numbers, once
from support_runtime import tree

from pyflinkstate.errors import (
    BadRecordError,
    JobFailedError,
    SinkError,
    SparkJobError,
    UserFunctionError,
)
from pyflinkstate.runtime.engine.epochs import EpochRequest
from pyflinkstate.runtime.master.reports.checkpoint_stats import CheckpointStats
from pyflinkstate.runtime.plan.nodes import ChainNode, SourceNode
from pyflinkstate.runtime.settings.checkpoint_settings import CheckpointSettings
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks.file_sink import FileSink
from pyflinkstate.runtime.sources import DirectorySource
from pyflinkstate.runtime.sources.formats import JsonFormat
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders

pytestmark = pytest.mark.timeout(60)

SPARK_FAILED = SparkJobError("an executor was lost")
EVEN = "even.records_dropped"
READ = "numbers.records_out"


ALL = [0, 20, 40, 60, 80]


# --- epochs and commits --------------------------------------------------------------------------------


def test_without_checkpoints_a_bounded_input_is_one_epoch(run: JobRun, out: list[Any]) -> None:
    run.storage = None
    assert list(run.job().run()) == [1]
    assert out == ALL
    assert [request.barrier for request in run.runner.requests] == [None]
    assert run.heard.checkpoints == []


def test_with_checkpoints_each_epoch_is_committed_by_one(
    run: JobRun, storage: CheckpointFolders, out: list[Any]
) -> None:
    job = run.job()
    seen = [(epoch, list(out)) for epoch in job.run()]
    assert seen == [(1, [0, 20]), (2, [0, 20, 40]), (3, [0, 20, 40, 60, 80]), (4, ALL)]
    assert [request.barrier.checkpoint_id for request in run.runner.requests] == [1, 2, 3, 4]
    result = job.result()
    assert (result.epochs, result.restarts, result.rejected) == (4, 0, ())
    assert counts(job) == {READ: 10, EVEN: 5}
    assert result.checkpoints == tuple(run.heard.checkpoints)
    assert result.failed_checkpoints == tuple(run.heard.failed) == ()
    assert result.checkpoints[0] == CheckpointStats(
        1, 1, triggered_ms=run.clock.time_ms, uri=storage.uri_of(job.job_id, 1)
    )


def test_listeners_hear_of_epochs_and_checkpoints(run: JobRun) -> None:
    run.runner.before = lambda request: run.clock.sleep_ms(request.link.epoch)
    run.run()
    assert [(stats.epoch, stats.records, stats.restarts) for stats in run.heard.epochs] == [
        (1, 3, 0),
        (2, 3, 0),
        (3, 3, 0),
        (4, 1, 0),
    ]
    assert [stats.duration_ms for stats in run.heard.epochs] == [1, 2, 3, 4]
    assert [(stats.checkpoint_id, stats.epoch) for stats in run.heard.checkpoints] == [
        (number, number) for number in range(1, 5)
    ]


def test_a_checkpoint_is_all_that_a_restore_needs(run: JobRun, storage: CheckpointFolders) -> None:
    run.clock.time_ms = 1_000_000
    job = run.run()
    found = storage.load_latest("orders")
    assert attrs.asdict(found, recurse=False) == {
        "checkpoint_id": 4,
        "job_id": job.job_id,
        "job_name": "orders",
        "epoch": 4,
        "source_position": {"index": 10, "length": 10},
        "counters": job.result().accumulators,
        "timestamp_ms": 1_000_000,
        "operators": (),
        "watermarks": {},
        "runs": ((storage.runs(job.job_id)[0], 0),),
    }
    assert storage.checkpoint_ids(job.job_id) == [4], "older ones are subsumed"


def test_several_checkpoints_are_kept_if_asked_for(run: JobRun, storage: CheckpointFolders) -> None:
    run.checkpoints = CheckpointSettings(interval_ms=0, num_retained=3)
    job = run.run()
    assert storage.completed(job.job_id) == [2, 3, 4]


def test_within_the_interval_epochs_have_no_barrier_but_the_last_has(
    run: JobRun, storage: CheckpointFolders, out: list[Any]
) -> None:
    run.checkpoints = CheckpointSettings(interval_ms=10**6)
    job = run.job()
    seen = [(epoch, list(out)) for epoch in job.run()]
    assert [request.barrier is not None for request in run.runner.requests] == [True, False, False, True]
    assert seen[0] == (1, [0, 20])
    assert [epoch for epoch, _ in seen] == [1, 2, 3, 4]
    assert [committed for _, committed in seen[1:]] == [ALL] * 3
    assert [(s.checkpoint_id, s.epoch) for s in run.heard.checkpoints] == [(1, 1), (2, 4)]
    assert storage.load_latest("orders").counters == job.result().accumulators


@pytest.mark.parametrize("with_storage", [True, False])
def test_an_empty_input_is_no_epoch(run: JobRun, out: list[Any], with_storage: bool) -> None:
    run.end = numbers(0)
    run.storage = run.storage if with_storage else None
    assert run.run().result().epochs == 0
    assert (out, run.runner.requests) == ([], [])


def test_each_task_is_told_of_its_epoch_and_attempt(run: JobRun) -> None:
    run.restart = FixedDelayRestart(1, 0)
    run.runner.before = once(SPARK_FAILED, epoch=3)
    run.run()
    told = [(request.link.epoch, request.link.driver.attempt) for request in run.runner.requests]
    assert told == [(1, 0), (2, 0), (3, 0), (3, 1), (4, 1)]
    assert run.runner.requests[0].description == "orders: epoch 1"


def test_a_consumer_that_stops_ends_the_job(run: JobRun, storage: CheckpointFolders, out: list[Any]) -> None:
    job = run.job()
    epochs = job.run()
    assert next(epochs) == 1
    epochs.close()
    assert out == [0, 20]
    assert storage.completed(job.job_id) == storage.checkpoint_ids(job.job_id) == [1]
    assert len(run.runner.requests) == 1


# --- failures and restarts -----------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [1, 2, 3, 4])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("interval_ms", [0, 10**6])
def test_an_epoch_that_fails_is_replayed_from_the_last_checkpoint(
    run: JobRun, out: list[Any], epoch: int, when: str, interval_ms: int
) -> None:
    run.checkpoints = CheckpointSettings(interval_ms=interval_ms)
    run.restart = FixedDelayRestart(3, 250)
    setattr(run.runner, when, once(SPARK_FAILED, epoch))
    job = run.run()
    assert out == ALL
    result = job.result()
    assert (result.restarts, result.epochs) == (1, 4)
    assert counts(job) == {READ: 10, EVEN: 5}
    assert run.heard.restarts == [(1, SPARK_FAILED)]
    assert run.clock.slept == [250]
    replayed = next(request for request in run.runner.requests if request.link.driver.attempt == 1)
    assert replayed.link.epoch == (epoch if interval_ms == 0 else min(epoch, 2))


def test_the_files_of_a_failed_attempt_are_replaced(run: JobRun, tmp_path: Path) -> None:
    run.sink = FileSink(str(tmp_path / "out"))
    run.checkpoints = CheckpointSettings(interval_ms=10**6)
    run.restart = FixedDelayRestart(3, 0)
    run.runner.after = once(SPARK_FAILED, 3)
    run.run()
    files = {name: data for name, data in tree(tmp_path / "out").items() if name.startswith("epoch=")}
    by_epoch = {
        name.split("/")[0]: [json.loads(line) for line in data.split()] for name, data in files.items()
    }
    assert by_epoch == {"epoch=1": [0, 20], "epoch=2": [40], "epoch=3": [60, 80]}
    assert len(files) == 3
    (area,) = (tmp_path / "out" / "_runs").iterdir()
    assert list(tree(area)) == ["run.json"]


def test_a_failing_user_function_is_told_as_what_it_is(run: JobRun) -> None:
    run.end = ChainNode(numbers(), "map", lambda n: 1 / (n - 4), "inverse")
    with pytest.raises(UserFunctionError, match="operator 'inverse', record 4"):
        run.run()
    assert run.heard.restarts == []


def test_what_a_task_reports_goes_before_what_spark_makes_of_it(run: JobRun, out: list[Any]) -> None:
    failures = iter([ZeroDivisionError("by chance")])

    def unlucky(n: int) -> int:
        if n == 4 and (error := next(failures, None)) is not None:
            raise error
        return n

    run.end = ChainNode(numbers(), "map", unlucky, "unlucky")
    run.restart = FixedDelayRestart(1, 0)
    run.run()
    assert out == list(range(10))
    ((_, cause),) = run.heard.restarts
    assert isinstance(cause, UserFunctionError)
    assert "ZeroDivisionError: by chance" in str(cause)


@pytest.mark.parametrize("after_a_restart", [False, True])
def test_an_error_that_must_come_again_is_raised_as_it_is(run: JobRun, after_a_restart: bool) -> None:
    run.restart = FixedDelayRestart(10, 0)
    bad = BadRecordError("no key")
    fails = [SPARK_FAILED, bad] if after_a_restart else [bad]

    def before(request: EpochRequest) -> None:
        if request.link.epoch == 2:
            raise fails.pop(0)

    run.runner.before = before
    with pytest.raises(BadRecordError) as caught:
        run.run()
    assert caught.value is bad
    assert len(run.heard.restarts) == after_a_restart


def test_attempts_that_are_used_up_end_the_job(run: JobRun) -> None:
    run.restart = FixedDelayRestart(2, 5)
    errors = [SparkJobError(f"failure {number}") for number in range(3)]
    left = list(errors)

    def before(request: EpochRequest) -> None:
        if request.link.epoch == 2:
            raise left.pop(0)

    run.runner.before = before
    with pytest.raises(
        JobFailedError, match=r"job 'orders' failed in epoch 2 after 2 restarts: failure 2"
    ) as c:
        run.run()
    assert c.value.__cause__ is errors[2]
    assert [error for _, error in run.heard.restarts] == errors[:2]
    assert run.clock.slept == [5, 5]


def test_without_restarts_the_failure_itself_is_raised(run: JobRun) -> None:
    run.runner.before = once(SPARK_FAILED, 2)
    with pytest.raises(SparkJobError) as caught:
        run.run()
    assert caught.value is SPARK_FAILED


def test_a_completed_checkpoint_gives_the_attempts_back(run: JobRun, out: list[Any]) -> None:
    run.restart = FixedDelayRestart(1, 0)
    hooks = [once(SPARK_FAILED, epoch) for epoch in (1, 2, 3, 4)]
    run.runner.before = lambda request: [hook(request) for hook in hooks] and None
    assert run.run().result().restarts == 4
    assert out == ALL


def test_a_sink_that_cannot_open_ends_the_job_before_any_epoch(run: JobRun, tmp_path: Path) -> None:
    (tmp_path / "epoch=1").mkdir()
    run.sink = FileSink(str(tmp_path))
    with pytest.raises(SinkError, match="another run"):
        run.run()
    assert run.runner.requests == []


def test_rows_that_were_rejected_are_told_once(run: JobRun, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.json").write_text(f"{number}\nbad {number}\n")
    run.end = SourceNode(DirectorySource(str(tmp_path), JsonFormat("collect"), max_files=3), "files")
    run.restart = FixedDelayRestart(1, 0)
    run.runner.after = once(SPARK_FAILED, 2)
    job = run.run()
    assert [row.text for row in job.result().rejected] == ["bad 0", "bad 1", "bad 2"]
    assert counts(job) == {"files.records_out": 3, "files.records_malformed": 3}
