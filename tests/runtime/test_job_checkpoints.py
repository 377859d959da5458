"""The job master when a checkpoint, or what follows from it, fails."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest
from support_job import JobRun, latest, numbers, once

from pyflinkstate.errors import (
    BadRecordError,
    CheckpointError,
    CheckpointFailuresExceededError,
    CheckpointNotFoundError,
    PyFlinkStateError,
    SinkError,
    SparkJobError,
)
from pyflinkstate.runtime.coordinator import CheckpointSettings
from pyflinkstate.runtime.epochs import EpochRequest
from pyflinkstate.runtime.observe import EpochStats
from pyflinkstate.runtime.plan import ChainNode
from pyflinkstate.runtime.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks import DriverSink
from pyflinkstate.runtime.storage import CheckpointStorage

pytestmark = pytest.mark.timeout(60)

SPARK_FAILED = SparkJobError("an executor was lost")
ALL = [0, 20, 40, 60, 80]


@pytest.fixture
def out() -> list[Any]:
    """What the sink has been given, in order."""
    return []


@pytest.fixture
def run(out: list[Any], storage: CheckpointStorage) -> JobRun:
    """A job with checkpoints: of 0..9, three an epoch, the even ones times ten."""
    even = ChainNode(numbers(), "filter", lambda n: n % 2 == 0, "even")
    tens = ChainNode(even, "map", lambda n: n * 10, "tens")
    return JobRun(tens, DriverSink(lambda _, values: out.extend(values)), storage)


def block_publication(checkpoint_id: int) -> Any:
    """Return a hook that puts something in the way of one checkpoint's ``_metadata``."""

    def block(request: EpochRequest) -> None:
        if request.barrier is not None and request.barrier.checkpoint_id == checkpoint_id:
            Path(request.barrier.folder, "_metadata").mkdir()

    return block


def test_a_tolerated_failure_of_a_checkpoint_leaves_its_epoch_to_the_next(
    run: JobRun, storage: CheckpointStorage, out: list[Any]
) -> None:
    run.checkpoints = CheckpointSettings(interval_ms=0, tolerable_failures=1)
    run.runner.before = block_publication(2)
    job = run.job()
    seen = [(epoch, list(out)) for epoch in job.run()]
    assert seen == [(1, [0, 20]), (2, [0, 20, 40, 60, 80]), (3, [0, 20, 40, 60, 80]), (4, ALL)]
    assert [s.checkpoint_id for s in run.heard.checkpoints] == [1, 3, 4]
    assert job.result().restarts == 0


def test_a_last_checkpoint_that_fails_is_taken_again(run: JobRun, out: list[Any]) -> None:
    run.checkpoints = CheckpointSettings(interval_ms=0, tolerable_failures=1)
    run.runner.before = block_publication(4)
    assert list(run.job().run()) == [1, 2, 3, 4, 5]
    assert out == ALL
    assert run.runner.requests[-1].epoch is None, "an empty epoch, for the barrier alone"


def test_a_failed_checkpoint_that_is_not_tolerated_fails_the_job(
    run: JobRun, storage: CheckpointStorage, out: list[Any]
) -> None:
    run.runner.before = block_publication(2)
    with pytest.raises(CheckpointFailuresExceededError, match="1 in a row failed, tolerated are 0"):
        run.run()
    assert out == [0, 20], "what no checkpoint covers is not committed"


def test_after_a_failed_checkpoint_the_job_restarts_from_the_one_before(run: JobRun, out: list[Any]) -> None:
    run.restart = FixedDelayRestart(1, 0)
    run.runner.before = block_publication(2)
    run.run()
    assert out == ALL
    assert [stats.epoch for stats in run.heard.checkpoints] == [1, 2, 3, 4]
    ids = [stats.checkpoint_id for stats in run.heard.checkpoints]
    assert ids == sorted({*ids} - {2})
    ((_, cause),) = run.heard.restarts
    assert isinstance(cause, CheckpointFailuresExceededError)


def test_a_checkpoint_that_cannot_even_begin_is_one_that_failed(run: JobRun, out: list[Any]) -> None:
    run.checkpoints = CheckpointSettings(interval_ms=0, tolerable_failures=1)
    job = run.job()

    def block(request: EpochRequest) -> None:
        if request.link.epoch == 1:
            (Path(request.barrier.folder).parent / "chk-2").write_text("in the way")

    run.runner.before = block
    assert list(job.run()) == [1, 2, 3, 4]
    assert out == ALL


@attrs.define
class StubbornSink(DriverSink):
    """A sink whose commit fails once."""

    error: PyFlinkStateError
    seen: list[Any] = attrs.Factory(list)

    def __attrs_post_init__(self) -> None:
        super().__init__(self._take)

    def _take(self, _: int, values: Iterable[Any]) -> None:
        self.seen.extend(values)

    def commit(self, epoch: int) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error
        super().commit(epoch)


@pytest.mark.parametrize("error", [SinkError("disk full"), OSError("disk full")], ids=repr)
def test_a_commit_that_fails_leaves_the_completed_checkpoint_in_place(
    run: JobRun, storage: CheckpointStorage, error: Any
) -> None:
    run.sink = StubbornSink(error)
    job = run.job()
    with pytest.raises(type(error), match="disk full"):
        list(job.run())
    assert storage.completed(job.job_id) == [1], "a restore goes on with the commit"


def test_a_job_restarts_from_the_checkpoint_whose_commit_failed(
    run: JobRun, storage: CheckpointStorage
) -> None:
    run.sink = sink = StubbornSink(CheckpointError("try again"))
    sink.error.recoverable = True
    run.restart = FixedDelayRestart(1, 0)
    kept: list[list[int]] = []
    job = run.job()
    run.runner.before = lambda request: kept.append(storage.completed(job.job_id))
    list(job.run())
    assert sink.seen == ALL
    assert kept == [[], [1], [2], [3]], "at each restart its checkpoint must be there"


def test_no_checkpoint_is_left_half_way_when_the_job_ends(run: JobRun, storage: CheckpointStorage) -> None:
    run.runner.after = once(BadRecordError("no key"), 3)
    job = run.job()
    with pytest.raises(BadRecordError):
        list(job.run())
    assert storage.checkpoint_ids(job.job_id) == storage.completed(job.job_id) == [2]


def test_a_first_epoch_that_fails_leaves_nothing_to_restore(run: JobRun, storage: CheckpointStorage) -> None:
    run.runner.after = once(BadRecordError("no key"), 1)
    with pytest.raises(BadRecordError):
        run.run()
    with pytest.raises(CheckpointNotFoundError):
        latest(storage)


def test_epoch_stats_count_the_attempts(run: JobRun) -> None:
    run.restart = FixedDelayRestart(1, 0)
    run.runner.before = once(SPARK_FAILED, 2)
    run.run()
    assert [(stats.epoch, stats.restarts) for stats in run.heard.epochs] == [(1, 0), (2, 1), (3, 1), (4, 1)]
    assert isinstance(run.heard.epochs[0], EpochStats)
