"""The job master when a checkpoint, or what follows from it, fails."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest
from slot_functions import Count, HearOfCheckpoints
from support_job import (
    NO_RESTART,
    GrowingSource,
    Heard,
    JobRun,
    LocalRunner,
    PacedSource,
    StubbornSink,
    latest,
    numbers,
    once,
)
from support_runtime import PICKLED, raising, wait_for_exit

from pyflinkstate import (
    ExternalizedCheckpointRetention,
    FileSink,
    FileSystemCheckpointStorage,
    JobStatus,
)
from pyflinkstate.errors import (
    BadRecordError,
    CheckpointFailuresExceededError,
    CheckpointStorageError,
    CorruptCheckpointError,
    JobCancelledError,
    JobFailedError,
    PyFlinkStateError,
    SinkError,
    SinkStorageError,
    SparkJobError,
    UserFunctionError,
)
from pyflinkstate.runtime.engine import EpochRequest
from pyflinkstate.runtime.plan import SourceNode, StatefulNode
from pyflinkstate.runtime.settings import CheckpointSettings
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks import DriverSink
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.wire import TaskReport

pytestmark = pytest.mark.timeout(60)

SPARK_FAILED = SparkJobError("an executor was lost")
ALL = [0, 20, 40, 60, 80]


def block_publication(checkpoint_id: int) -> Any:
    """Return a hook that puts something in the way of one checkpoint's ``_metadata``."""

    def block(request: EpochRequest) -> None:
        if request.barrier is not None and request.barrier.checkpoint_id == checkpoint_id:
            Path(request.barrier.folder, "_metadata").mkdir()

    return block


def test_a_tolerated_failure_of_a_checkpoint_leaves_its_epoch_to_the_next(
    run: JobRun, storage: CheckpointFolders, out: list[Any]
) -> None:
    run.checkpoints = CheckpointSettings(interval_ms=0, tolerable_failures=1)
    run.runner.before = block_publication(2)
    seen = [(epoch, list(out)) for epoch in run.job().run()]
    assert seen == [(1, [0, 20]), (2, [0, 20, 40, 60, 80]), (3, [0, 20, 40, 60, 80]), (4, ALL)]
    assert [s.checkpoint_id for s in run.heard.checkpoints] == [1, 3, 4]
    noted = json.loads(Path(storage.uri, run.job_id, "checkpoints.json").read_text())
    assert [(stats["checkpoint_id"], stats["failure"] is None) for stats in noted] == [
        (4, True),
        (3, True),
        (2, False),
        (1, True),
    ]
    assert run.job().result().restarts == 0


def test_a_last_checkpoint_that_fails_is_taken_again(run: JobRun, out: list[Any]) -> None:
    run.checkpoints = CheckpointSettings(interval_ms=0, tolerable_failures=1)
    run.runner.before = block_publication(4)
    assert list(run.job().run()) == [1, 2, 3, 4, 5]
    assert out == ALL
    assert run.runner.requests[-1].epoch is None, "an empty epoch, for the barrier alone"


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

    def block(request: EpochRequest) -> None:
        if request.link.epoch == 1:
            (Path(request.barrier.folder).parent / "chk-2").write_text("in the way")

    run.runner.before = block
    assert list(run.job().run()) == [1, 2, 3, 4]
    assert out == ALL


@pytest.mark.parametrize("error", [SinkError("disk full"), OSError("disk full")], ids=repr)
def test_a_commit_that_fails_leaves_the_completed_checkpoint_in_place(
    run: JobRun, storage: CheckpointFolders, error: Any
) -> None:
    run.sink = StubbornSink(error)
    run.fails(type(error), match="disk full")
    assert storage.completed(run.job_id) == [1], "a restore goes on with the commit"


@pytest.mark.parametrize("error", [SinkStorageError("try again"), LookupError("the table is gone")], ids=repr)
def test_a_job_restarts_from_the_checkpoint_whose_commit_failed(
    run: JobRun, storage: CheckpointFolders, error: Any
) -> None:
    run.sink = sink = StubbornSink(error)
    run.restart = FixedDelayRestart(1, 0)
    kept: list[list[int]] = []
    run.runner.before = lambda request: kept.append(storage.completed(run.job_id))
    run.run()
    assert sink.seen == ALL
    assert kept == [[], [1], [2], [3]], "at each restart its checkpoint must be there"


class Half:
    """Takes some results of an epoch, and then no more."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def take(self, _: int, values: Iterable[int]) -> None:
        for value in values:
            if value == 60:
                raise BrokenPipeError("the reader has gone")
            self.taken.append(value)


def test_a_program_that_cannot_take_its_results_ends_the_job(run: JobRun) -> None:
    """A restart would leave out what the epoch had left."""
    half = Half()
    run.sink = DriverSink(half.take)
    run.restart = FixedDelayRestart(3, 0)
    run.fails(SinkError, match="cannot be handed over: BrokenPipeError: the reader has gone")
    assert half.taken == [0, 20, 40]
    assert run.heard.restarts == []


@pytest.mark.parametrize(("fails_in", "left"), [(1, []), (3, [2])])
def test_no_checkpoint_is_left_half_way_when_the_job_ends(
    run: JobRun, storage: CheckpointFolders, fails_in: int, left: list[int]
) -> None:
    run.runner.after = once(BadRecordError("no key"), fails_in)
    run.fails(BadRecordError)
    assert storage.checkpoint_ids(run.job_id) == storage.completed(run.job_id) == left


# --- what stays when the job ends ----------------------------------------------------------------------

#: How a job may end, and under which retentions its checkpoints stay then.
KEEPING: dict[JobStatus, set[Any]] = {
    JobStatus.FINISHED: {None},
    JobStatus.CANCELED: {None, ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION},
    JobStatus.FAILED: {
        None,
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION,
        ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION,
    },
}


@pytest.mark.parametrize("status", KEEPING, ids=lambda status: status.name)
@pytest.mark.parametrize("retention", [None, *ExternalizedCheckpointRetention])
def test_retention_says_what_stays_after_each_way_to_end(
    run: JobRun, storage: CheckpointFolders, status: JobStatus, retention: Any
) -> None:
    run.retention = retention
    run.checkpoints = CheckpointSettings(interval_ms=0, num_retained=2)
    if status is JobStatus.FAILED:
        run.runner.before = once(BadRecordError("no key"), 4)
    elif status is JobStatus.CANCELED:
        run.runner.before = lambda request: run.job().cancel() if request.link.epoch == 4 else None
    with contextlib.nullcontext() if status is JobStatus.FINISHED else pytest.raises(PyFlinkStateError):
        run.run()
    assert (run.job().status, run.heard.ended) == (status, [status])
    newest = [3, 4] if status is JobStatus.FINISHED else [2, 3]
    assert storage.completed(run.job_id) == (newest if retention in KEEPING[status] else [])
    assert storage.checkpoint_ids(run.job_id) == storage.completed(run.job_id)


def test_newer_checkpoints_stay_as_well_if_one_cannot_be_deleted_at_the_end(
    run: JobRun, storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the oldest alone stayed, the next run would go back to it, and take back what is final."""
    run.retention = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
    run.checkpoints = CheckpointSettings(interval_ms=0, num_retained=3)
    discard = storage.discard

    def fails_at_the_oldest(uri: str) -> None:
        if uri.endswith("chk-2") and run.runner.requests[-1].link.epoch == 4:
            raise CheckpointStorageError("input/output error")
        discard(uri)

    monkeypatch.setattr(storage, "discard", fails_at_the_oldest)
    run.run()
    assert storage.completed(run.job_id) == [2, 3, 4]


def test_a_signal_is_not_a_cancellation_that_deletes_checkpoints(
    run: JobRun, storage: CheckpointFolders
) -> None:
    run.retention = ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
    run.runner.before = lambda request: run.job().cancel(by="SIGTERM") if request.link.epoch == 4 else None
    run.fails(JobCancelledError, match="by SIGTERM")
    assert run.job().status is JobStatus.CANCELED
    assert storage.completed(run.job_id) == [3]


@pytest.mark.parametrize("retention", ExternalizedCheckpointRetention)
def test_a_consumer_that_stops_is_one_that_cancels(
    run: JobRun, storage: CheckpointFolders, retention: Any
) -> None:
    run.retention = retention
    epochs = run.job().run()
    next(epochs)
    epochs.close()  # type: ignore[attr-defined]
    assert run.heard.ended == [JobStatus.CANCELED]
    kept = retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    assert storage.completed(run.job_id) == ([1] if kept else [])


# --- cancellation --------------------------------------------------------------------------------------


class TestCancel:
    def test_it_ends_the_epoch_that_runs_and_what_is_committed_stays(
        self, run: JobRun, out: list[Any]
    ) -> None:
        run.restart = FixedDelayRestart(10, 0)

        def before(request: EpochRequest) -> None:
            if request.link.epoch == 2:
                run.job().cancel()

        run.runner.before = before
        run.fails(JobCancelledError, match="job 'orders' was cancelled")
        assert out == [0, 20]
        assert run.job().status is JobStatus.CANCELED
        assert run.runner.cancelled
        assert run.heard.restarts == []

    def test_before_the_first_epoch_it_ends_the_job_at_once(self, run: JobRun, out: list[Any]) -> None:
        run.job().cancel()
        run.fails(JobCancelledError)
        assert (out, run.runner.requests) == ([], [])

    def test_a_source_that_has_nothing_is_no_obstacle(self, run: JobRun, out: list[Any]) -> None:
        source = GrowingSource(3, lambda _: run.job().cancel())
        run.end = SourceNode(source, "numbers")
        run.fails(JobCancelledError)
        assert out == [0, 1, 2]
        (error,) = source.closed
        assert isinstance(error, JobCancelledError)

    @pytest.mark.parametrize("when", ["before the failure is seen", "after it"])
    def test_a_failure_that_would_be_restarted_does_not_swallow_it(self, run: JobRun, when: str) -> None:
        run.restart = FixedDelayRestart(10, 0)

        def before(request: EpochRequest) -> None:
            if request.link.epoch != 2 or request.link.driver.attempt > 0:
                return
            if when == "before the failure is seen":
                run.job().cancel()
            else:
                driver = request.link.driver
                driver.report(TaskReport(driver.attempt, 2, "numbers[0]", error=SPARK_FAILED))
                run.job().cancel()
            raise SPARK_FAILED

        run.runner.before = before
        run.fails(JobCancelledError)
        assert run.job().status is JobStatus.CANCELED


# --- a source without end ------------------------------------------------------------------------------


class TestSourceThatHasNothing:
    def test_what_waits_is_committed_by_an_empty_epoch_when_a_checkpoint_is_due(
        self, run: JobRun, out: list[Any], storage: CheckpointFolders
    ) -> None:
        def when_idle(source: GrowingSource) -> None:
            asked.append(len(out))
            run.clock.time_ms += 400
            source.is_over = len(out) == 6
            source.wake_up()

        asked: list[int] = []
        run.end = SourceNode(source := GrowingSource(6, when_idle), "numbers")
        run.checkpoints = CheckpointSettings(interval_ms=1_000)
        assert list(run.job().run()) == [1, 2, 3]
        assert [request.epoch is None for request in run.runner.requests] == [False, False, True]
        assert [request.barrier is not None for request in run.runner.requests] == [True, False, True]
        assert asked == [3, 3, 3, 6], "nothing is committed before the interval is over"
        assert source.committed == [3, 6]
        assert storage.load_latest("orders")[0].source_position == 6

    def test_nothing_is_run_while_there_is_nothing_to_commit(self, run: JobRun, out: list[Any]) -> None:
        def when_idle(source: GrowingSource) -> None:
            asked.append(len(run.runner.requests))
            run.clock.time_ms += 10**6
            source.is_over = len(asked) == 10
            source.wake_up()

        asked: list[int] = []
        run.end = SourceNode(GrowingSource(3, when_idle), "numbers")
        run.run()
        assert asked == [1] * 10
        assert out == [0, 1, 2]

    def test_it_wakes_the_job_up(self, run: JobRun) -> None:
        def when_idle(source: GrowingSource) -> None:
            source.available = 6
            source.is_over = True
            threading.Thread(target=source.wake_up).start()

        run.end = SourceNode(source := GrowingSource(3, when_idle), "numbers")
        source.poll_s = 10**6
        run.run()
        assert source.committed == [3, 6]


# --- real slots: what functions hear -------------------------------------------------------------------


def paced(run: JobRun, *records: Any) -> SourceNode:
    """Return a source of one record an epoch, with a checkpoint in between each."""
    return SourceNode(PacedSource(CollectionSource(records, 1), run.settled), "records")


class TestNotifications:
    def test_an_error_in_a_notification_fails_the_job(
        self, storage: CheckpointFolders, tmp_path: Path
    ) -> None:
        function = HearOfCheckpoints(str(tmp_path / "heard"), fails_at=1)
        run = JobRun(StatefulNode(numbers(0), lambda n: 0, PICKLED, function, "process"), storage=storage)
        run.end.parent = paced(run, *range(4))
        slots: list[int] = []

        def before(request: EpochRequest) -> None:
            if request.link.epoch == 2:
                wait_for_exit(slots[0])

        run.runner.before = before
        run.runner.after = lambda request: slots.extend(map(os.pidfd_open, run.job().slot_pids().values()))
        run.fails(UserFunctionError, match=r"cannot be switched[\s\S]*checkpoint_complete\(1\)")
        os.close(slots[0])


def test_a_checkpoint_whose_commit_fails_is_told_of_all_the_same(storage: CheckpointFolders) -> None:
    sink = StubbornSink(CheckpointStorageError("try again"))
    run = JobRun(numbers(), sink, storage, restart=FixedDelayRestart(1, 0))
    job = run.run()
    told = [(stats.checkpoint_id, stats.epoch) for stats in run.heard.checkpoints]
    assert told[0] == (1, 1)
    assert [(stats.checkpoint_id, stats.epoch) for stats in job.result().checkpoints] == told
    listed = json.loads((Path(storage.uri) / job.job_id / "checkpoints.json").read_text())
    assert [stats["checkpoint_id"] for stats in reversed(listed)] == [number for number, _ in told]


# --- real slots: falling back --------------------------------------------------------------------------


class TestFallBack:
    """Counts in epochs of one record each, whose files a damage can be done to."""

    @pytest.fixture
    def storage(self, tmp_path: Path) -> CheckpointFolders:
        return CheckpointFolders(FileSystemCheckpointStorage(str(tmp_path / "checkpoints"), 0))

    @pytest.fixture
    def run(self, storage: CheckpointFolders, tmp_path: Path) -> JobRun:
        run = JobRun(numbers(), FileSink(str(tmp_path / "out")), storage)
        run.end = StatefulNode(paced(run, *"aaaaa"), lambda record: record[0], PICKLED, Count(), "process")
        run.checkpoints = CheckpointSettings(interval_ms=0, num_retained=2)
        return run

    @staticmethod
    def damage(storage: CheckpointFolders, job_id: str, checkpoint_id: int) -> Callable[[], Any]:
        """Cut the state file of a checkpoint short; returns what repairs it."""
        folder = Path(storage.uri_of(job_id, checkpoint_id))
        (file,) = (path for path in folder.iterdir() if path.name != "_metadata")
        whole = file.read_bytes()
        file.write_bytes(whole[:-10])
        return lambda: file.write_bytes(whole)

    @staticmethod
    def written(tmp_path: Path) -> list[Any]:
        files = [file for folder in sorted((tmp_path / "out").glob("epoch=*")) for file in folder.iterdir()]
        return [json.loads(line) for file in files for line in file.read_text().split("\n")[:-1]]

    def again(self, run: JobRun, storage: CheckpointFolders, **changes: Any) -> JobRun:
        made = attrs.evolve(run, runner=LocalRunner(), heard=Heard(), restore=latest(storage), **changes)
        made.end = StatefulNode(paced(made, *"aaaaa"), lambda record: record[0], PICKLED, Count(), "process")
        made.sink = FileSink(run.sink.directory)
        return made

    def test_a_restore_goes_on_from_the_newest_that_is_not_damaged_if_that_is_wanted(
        self, run: JobRun, storage: CheckpointFolders, tmp_path: Path
    ) -> None:
        run.runner.before = once(BadRecordError("bad input"), 4)
        job = run.job()
        with pytest.raises(BadRecordError):
            list(job.run())
        assert storage.completed(job.job_id) == [2, 3]
        self.damage(storage, job.job_id, 3)
        self.again(run, storage).fails(CorruptCheckpointError, match="chk-3")

        repair = self.damage(storage, job.job_id, 2)
        self.again(run, storage, fall_back=True).fails(CorruptCheckpointError, match="chk-2")
        assert storage.completed(job.job_id) == [2, 3]

        repair()
        again = self.again(run, storage, fall_back=True)
        assert again.run().job_id == job.job_id
        assert self.written(tmp_path) == [["a", number] for number in range(1, 6)]
        ids = [stats.checkpoint_id for stats in again.heard.checkpoints]
        assert ids == [4, 5, 6]
        assert storage.completed(job.job_id) == [5, 6]
        (aside,) = storage.superseded(job.job_id)
        assert aside.endswith("-chk-3"), "for somebody to look at"
        ((_, error),) = again.heard.restarts
        assert isinstance(error, CorruptCheckpointError)
        assert again.restart is NO_RESTART, "it is not the strategy that allows it"

    def test_a_run_that_has_restored_nothing_leaves_what_may_be_fallen_back_to(
        self, run: JobRun, storage: CheckpointFolders
    ) -> None:
        """One more than shall be kept, as where the run before was killed before it deleted that."""
        run.runner.before = once(BadRecordError("bad input"), 4)
        run.fails(BadRecordError)
        only_one = CheckpointSettings(interval_ms=0, num_retained=1)
        again = self.again(run, storage, checkpoints=only_one)
        again.runner.starts = raising(SPARK_FAILED)
        again.fails(SparkJobError)
        (job_id,) = (path.name for path in Path(storage.uri).iterdir())
        assert storage.completed(job_id) == [2, 3], "is 3 whole? nobody has read it"
        again = self.again(run, storage, checkpoints=only_one)
        again.runner.after = once(SPARK_FAILED, 5)
        again.fails(SparkJobError)
        assert len(storage.completed(job_id)) == 1

    @pytest.mark.parametrize("restarts", [1, 2])
    def test_where_there_is_no_older_one_the_damaged_one_stays(
        self, run: JobRun, storage: CheckpointFolders, restarts: int
    ) -> None:
        """What could not be read may be intact, as behind a disk that fails for a while."""

        def before(request: EpochRequest) -> None:
            if (request.link.driver.attempt, request.link.epoch) == (0, 4):
                repairs.append(self.damage(storage, run.job_id, 3))
                raise SPARK_FAILED

        repairs: list[Callable[[], Any]] = []
        run.checkpoints = CheckpointSettings(interval_ms=0, num_retained=1)
        run.fall_back, run.restart = True, FixedDelayRestart(restarts, 0)
        run.runner.before = before
        run.fails((CorruptCheckpointError, JobFailedError), match="chk-3")
        assert storage.completed(run.job_id) == [3]
        repairs[0]()
        assert self.again(run, storage).run().result().epochs == 5

    def test_not_with_a_source_that_gives_nothing_old_again(
        self, run: JobRun, storage: CheckpointFolders
    ) -> None:
        run.runner.before = once(BadRecordError("bad input"), 4)
        run.fails(BadRecordError)
        self.damage(storage, run.job_id, 3)
        again = self.again(run, storage, fall_back=True)
        again.end.parent.source.is_rewindable = False
        again.fails(CorruptCheckpointError, match="chk-3")
        assert again.heard.restarts == []
