"""Savepoints of whole jobs."""

from __future__ import annotations

import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import attrs
import pytest
from slot_functions import Count
from support_job import (
    GrowingSource,
    JobRun,
    StubbornSink,
    at,
    latest,
    numbers,
    once,
)
from support_runtime import PICKLED, ack, decline
from support_slots import ActingRunner, ServedSlot, acknowledge

from pyflinkstate import (
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    JobStatus,
)
from pyflinkstate.errors import (
    BadRecordError,
    CheckpointError,
    CheckpointStorageError,
    ConfigurationError,
    IncompatibleCheckpointError,
    JobCancelledError,
    SparkJobError,
)
from pyflinkstate.runtime.engine import EpochRequest
from pyflinkstate.runtime.master import RestorePoint, SavepointRequest
from pyflinkstate.runtime.plan import ChainNode, SourceNode, StatefulNode
from pyflinkstate.runtime.settings import CheckpointSettings, OnSigterm, StopSettings
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks import DriverSink
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.wire import AbortCheckpoint, NotifyCheckpointComplete

pytestmark = pytest.mark.timeout(60)

RARELY = CheckpointSettings(interval_ms=10**6)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where savepoints go; nobody has made it yet."""
    return tmp_path / "savepoints"


@pytest.fixture
def run(out: list[Any], storage: CheckpointFolders) -> JobRun:
    """A job of 0..9, three an epoch, that takes its first and its last checkpoint only."""
    return JobRun(numbers(), out=out, storage=storage, checkpoints=RARELY)


def ask(
    run: JobRun, directory: Path | str, stops_job: bool = False, drains: bool = False
) -> SavepointRequest:
    """Ask for a savepoint; one that drains ends event time, and is taken without a checkpoint."""
    request = SavepointRequest(str(directory), stops_job, drains=drains)
    run.job().request_savepoint(request)
    return request


def savepoint_at(run: JobRun, epoch: int, directory: Path | str, **kind: bool) -> list[SavepointRequest]:
    """Ask for a savepoint while the epoch before runs; the list gets the request."""
    asked: list[SavepointRequest] = []
    run.runner.before = at(epoch - 1, lambda: asked.append(ask(run, directory, **kind)))
    return asked


def barriers(run: JobRun) -> list[int | None]:
    return [
        None if request.barrier is None else request.barrier.checkpoint_id for request in run.runner.requests
    ]


def found_at(storage: CheckpointFolders, request: SavepointRequest) -> RestorePoint:
    """Return what a finished savepoint is restored from."""
    uri = request.done.result(timeout=0)
    return RestorePoint(storage.load(uri), uri)


class TestWhileTheJobGoesOn:
    def test_it_is_taken_at_the_next_barrier_with_a_checkpoint_that_commits(
        self, run: JobRun, storage: CheckpointFolders, out: list[Any], directory: Path
    ) -> None:
        asked = savepoint_at(run, 3, directory)
        committed = [(epoch, len(out)) for epoch in run.job().run()]
        assert committed == [(1, 3), (2, 9), (3, 9), (4, 10)]
        assert barriers(run) == [1, None, 2, 4]
        found = found_at(storage, asked[0])
        assert (found.metadata.checkpoint_id, found.metadata.epoch) == (3, 3)
        assert found.metadata.source_position == {"index": 9, "length": 10}
        assert found.metadata.counters == {"numbers.records_out": 9, "numbers.records_malformed": 0}
        stats = [(s.checkpoint_id, s.epoch, s.is_savepoint) for s in run.heard.checkpoints]
        assert stats == [(1, 1, False), (2, 3, False), (3, 3, True), (4, 4, False)]
        assert run.heard.checkpoints[2].uri == found.uri

    def test_its_folder_is_named_as_flinks(
        self, run: JobRun, storage: CheckpointFolders, directory: Path
    ) -> None:
        request = ask(run, directory)
        run.run()
        folder = Path(request.done.result(timeout=0))
        assert folder.parent == directory
        assert re.fullmatch(rf"savepoint-{run.job_id[:6]}-[0-9a-f]{{12}}", folder.name)
        assert [path.name for path in folder.iterdir()] == ["_metadata"]

    def test_each_request_gets_its_own_at_one_barrier_after_the_other(
        self, run: JobRun, storage: CheckpointFolders, directory: Path
    ) -> None:
        requests = [ask(run, directory) for _ in range(2)]
        run.run()
        assert [found_at(storage, request).metadata.epoch for request in requests] == [1, 2]
        assert run.heard.checkpoints[-1].epoch == 4

    def test_the_job_cannot_go_back_behind_it_any_more(
        self, run: JobRun, out: list[Any], directory: Path
    ) -> None:
        run.restart = FixedDelayRestart(1, 0)
        savepoint_at(run, 3, directory)
        run.runner.after = once(SparkJobError("an executor was lost"), 4)
        run.run()
        assert [request.link.epoch for request in run.runner.requests] == [1, 2, 3, 4, 4]
        assert out == list(range(10))

    @pytest.mark.parametrize("retention", [None, *ExternalizedCheckpointRetention])
    def test_it_stays_whatever_becomes_of_checkpoints(
        self, run: JobRun, storage: CheckpointFolders, directory: Path, retention: Any
    ) -> None:
        run.retention = retention
        run.checkpoints = CheckpointSettings(interval_ms=0)
        asked = savepoint_at(run, 2, storage.uri)
        run.run()
        assert found_at(storage, asked[0]).metadata.epoch == 2
        assert storage.completed(run.job_id) == ([5] if retention is None else [])

    def test_a_source_that_has_nothing_is_no_obstacle(
        self, run: JobRun, storage: CheckpointFolders, directory: Path
    ) -> None:
        requests: list[SavepointRequest] = []

        def when_idle(source: GrowingSource) -> None:
            if not requests:
                requests.append(ask(run, directory))
            elif requests[0].done.done():
                source.is_over = True

        run.end = SourceNode(GrowingSource(3, when_idle), "numbers")
        run.run()
        assert found_at(storage, requests[0]).metadata.source_position == 3
        assert run.runner.requests[1].epoch is None, "an empty epoch, for the barrier alone"


class TestThatFails:
    def test_a_folder_that_cannot_be_made_is_told_and_the_job_goes_on(
        self, run: JobRun, out: list[Any], blocked: str
    ) -> None:
        request = ask(run, blocked)
        run.run()
        assert isinstance(request.done.exception(timeout=0), CheckpointStorageError)
        assert out == list(range(10))
        assert barriers(run) == [1, None, None, 2], "the barrier is that of the checkpoint that was due"

    @pytest.mark.parametrize("stops_job", [False, True])
    def test_one_that_cannot_be_published_is_no_failure_of_the_job(
        self, run: JobRun, out: list[Any], directory: Path, stops_job: bool
    ) -> None:
        def block(request: EpochRequest) -> None:
            if request.link.epoch == 1:
                (Path(request.barrier.savepoint.folder) / "_metadata").mkdir()

        run.runner.before = block
        request = ask(run, directory, stops_job)
        run.run()
        assert isinstance(request.done.exception(timeout=0), CheckpointStorageError)
        assert out == list(range(10)), "not stopped either"
        assert [(s.checkpoint_id, s.is_savepoint) for s in run.heard.failed] == [(2, True)]
        assert run.heard.ended == [JobStatus.FINISHED]

    def test_one_that_nobody_waits_for_any_more_is_no_failure_of_the_job(
        self, run: JobRun, out: list[Any], directory: Path
    ) -> None:
        assert ask(run, directory).done.cancel()
        run.run()
        assert out == list(range(10))

    @pytest.mark.parametrize("end", ["fails", "is cancelled"])
    def test_a_request_is_answered_when_the_job_ends_before(
        self, run: JobRun, directory: Path, end: str
    ) -> None:
        asked = savepoint_at(run, 3, directory)
        if end == "fails":
            run.runner.after = once(BadRecordError("no key"), 2)
        else:
            run.runner.after = at(2, run.job().cancel)
        run.fails(Exception, match=r"no key|was cancelled")
        assert isinstance(asked[0].done.exception(timeout=0), CheckpointError)

    @pytest.mark.parametrize("declined", [1, 2], ids=["its checkpoint", "itself"])
    def test_one_that_a_slot_declines_is_deleted_and_its_slots_are_told(
        self, storage: CheckpointFolders, directory: Path, declined: int
    ) -> None:
        """With the checkpoint that it comes with, a savepoint has failed as well."""

        def act(request: EpochRequest, slots: list[ServedSlot]) -> None:
            if request.link.epoch == 1:
                slots[1].connection.send(decline(declined, slots[1].slot_id))
                for number in range(declined, 3):
                    assert [slot.next_heard() for slot in slots] == [AbortCheckpoint(number)] * 2
            acknowledge(request, slots)

        run = acted(storage, act, checkpoints=CheckpointSettings(interval_ms=10**6, tolerable_failures=1))
        request = ask(run, directory)
        run.run()
        assert "disk full" in str(request.done.exception(timeout=0))
        assert list(directory.iterdir()) == []
        assert run.job().result().restarts == 0

    def test_what_a_slot_writes_for_a_failed_one_is_deleted_as_well(
        self, storage: CheckpointFolders, directory: Path
    ) -> None:
        folders: list[Path] = []

        def act(request: EpochRequest, slots: list[ServedSlot]) -> None:
            if request.link.epoch == 1:
                folders.append(Path(request.barrier.savepoint.folder))
                slots[1].connection.send(decline(2, slots[1].slot_id))
                assert [slot.next_heard() for slot in slots] == [AbortCheckpoint(2)] * 2
            if request.link.epoch == 2:
                assert not folders[0].exists()
                folders[0].mkdir()
                (folders[0] / "late").touch()
                slots[0].connection.send(ack(2, slots[0].slot_id))
            acknowledge(without_savepoint(request), slots)

        run = acted(storage, act, checkpoints=CheckpointSettings(interval_ms=10**6, tolerable_failures=1))
        ask(run, directory)
        run.run()
        assert list(directory.iterdir()) == []

    def test_one_whose_checkpoint_cannot_begin_says_so(
        self, run: JobRun, out: list[Any], storage: CheckpointFolders, directory: Path
    ) -> None:
        def before(request: EpochRequest) -> None:
            if request.link.epoch == 2:
                (Path(storage.uri) / run.job_id / "chk-2").write_text("in the way")
                asked.append(ask(run, directory))

        asked: list[SavepointRequest] = []
        run.checkpoints = CheckpointSettings(interval_ms=10**6, tolerable_failures=1)
        run.runner.before = before
        run.run()
        with pytest.raises(CheckpointStorageError, match="comes with failed"):
            asked[0].done.result(timeout=0)
        assert list(directory.iterdir()) == []
        assert out == list(range(10))


def without_savepoint(request: EpochRequest) -> EpochRequest:
    """Return the request with the checkpoint of its barrier only."""
    barrier = request.barrier
    return (
        request if barrier is None else attrs.evolve(request, barrier=attrs.evolve(barrier, savepoint=None))
    )


def acted(storage: CheckpointFolders, act: Any, **settings: Any) -> JobRun:
    node = StatefulNode(numbers(), lambda n: n % 4, PICKLED, Count(), "process")
    return JobRun(node, storage=storage, parallelism=2, runner=ActingRunner(act), **settings)


class TestStop:
    def test_all_output_up_to_it_is_committed_and_the_job_is_finished(
        self, run: JobRun, storage: CheckpointFolders, out: list[Any], directory: Path
    ) -> None:
        asked = savepoint_at(run, 3, directory, stops_job=True)
        assert list(run.job().run()) == [1, 2, 3]
        assert out == list(range(9))
        assert (run.job().status, run.heard.ended) == (JobStatus.FINISHED, [JobStatus.FINISHED])
        assert barriers(run) == [1, None, 2]
        restored = attrs.evolve(run, restore=found_at(storage, asked[0]))
        assert list(restored.job().run()) == [4]
        assert out == list(range(10))

    @pytest.mark.parametrize("retention", [None, *ExternalizedCheckpointRetention])
    def test_checkpoints_are_kept_or_not_as_those_of_any_finished_job(
        self, run: JobRun, storage: CheckpointFolders, directory: Path, retention: Any
    ) -> None:
        run.retention = retention
        savepoint_at(run, 2, directory, stops_job=True)
        run.run()
        assert storage.completed(run.job_id) == ([2] if retention is None else [])
        assert len(list(directory.iterdir())) == 1

    def test_slots_are_told_of_the_savepoint_that_stops_and_of_no_other(
        self, storage: CheckpointFolders, directory: Path
    ) -> None:
        run = acted(storage, acknowledge, checkpoints=RARELY)
        requests = [ask(run, directory, stops_job) for stops_job in (False, True)]
        assert list(run.job().run()) == [1, 2]
        assert [found_at(storage, request).metadata.epoch for request in requests] == [1, 2]
        heard = [run.runner.slots[0][0].next_heard() for _ in range(3)]
        assert heard == [NotifyCheckpointComplete(number) for number in (1, 3, 4)]

    def test_where_the_commit_before_it_fails_it_has_failed_and_the_job_goes_on(
        self, run: JobRun, storage: CheckpointFolders, directory: Path
    ) -> None:
        error = CheckpointStorageError("try again")
        assert error.recoverable
        run.sink = sink = StubbornSink(None)  # type: ignore[arg-type]
        run.restart = FixedDelayRestart(1, 0)

        asked = savepoint_at(run, 3, directory, stops_job=True)
        run.runner.after = at(3, lambda: setattr(sink, "error", error))
        run.run()
        assert sink.seen == list(range(10))
        assert [cause for _, cause in run.heard.restarts] == [error]
        assert run.job().status is JobStatus.FINISHED
        assert asked[0].done.exception(timeout=0) is error
        assert list(directory.iterdir()) == []

    @pytest.mark.parametrize("restarts", [0, 1])
    def test_where_its_own_commit_fails_who_asked_is_told_where_it_is(
        self, run: JobRun, storage: CheckpointFolders, directory: Path, restarts: int
    ) -> None:
        """As in Flink: it is complete, and not all that it covers is committed."""
        error = CheckpointStorageError("try again")
        run.sink = sink = StubbornSink(None)  # type: ignore[arg-type]
        run.restart = FixedDelayRestart(restarts, 0)

        asked = savepoint_at(run, 3, directory, stops_job=True, drains=True)
        run.runner.after = at(3, lambda: setattr(sink, "error", error))
        with nullcontext() if restarts else pytest.raises(CheckpointStorageError):
            run.run()
        assert run.job().status is (JobStatus.FINISHED if restarts else JobStatus.FAILED)
        assert sink.seen == list(range(9 if restarts else 3))
        failure = asked[0].done.exception(timeout=0)
        (uri,) = map(str, directory.iterdir())
        assert isinstance(failure, CheckpointError)
        assert failure.context["savepoint"] == uri
        assert f"savepoint {uri} is complete" in str(failure)
        assert storage.load(uri).epoch == 3

    def test_who_asked_is_told_when_everything_is_committed(
        self, run: JobRun, out: list[Any], directory: Path
    ) -> None:
        seen: list[list[Any]] = []
        request = SavepointRequest(str(directory), stops_job=True, drains=True)
        request.done.add_done_callback(lambda _: seen.append(list(out)))
        run.runner.before = at(2, lambda: run.job().request_savepoint(request))
        run.run()
        assert seen == [list(range(9))]


# --- real slots ----------------------------------------------------------------------------------------


def counting(parent: Any, uid: str) -> StatefulNode:
    return StatefulNode(parent, lambda record: record[0], PICKLED, Count(), uid, uid=uid)


def test_an_operator_may_be_new_and_one_may_be_gone_if_that_is_allowed(
    directory: Path, tmp_path: Path, out: list[Any]
) -> None:
    storage = CheckpointFolders(FileSystemCheckpointStorage(str(tmp_path / "checkpoints"), 0))
    pairs = SourceNode(CollectionSource([(n % 2, n) for n in range(18)], 6), "pairs")
    sink = DriverSink(lambda _, values: out.extend(values))
    first = JobRun(counting(counting(pairs, "kept"), "gone"), sink, storage)
    first.checkpoints = CheckpointSettings(interval_ms=0, incremental=True)
    asked: list[SavepointRequest] = []

    def before(request: EpochRequest) -> None:
        if request.link.epoch == 1:
            asked.append(ask(first, directory, stops_job=True))
        else:
            first.heard.await_checkpoint()

    first.runner.before = before
    assert list(first.job().run()) == [1, 2]
    assert sorted(out) == [(key, number) for key in (0, 1) for number in range(1, 7)]
    shutil.rmtree(storage.uri)  # a savepoint needs no other file

    out.clear()
    elsewhere = CheckpointFolders(str(tmp_path / "elsewhere"))
    end = ChainNode(counting(counting(pairs, "new"), "kept"), "map", lambda n: n, "map")
    second = JobRun(end, sink, elsewhere, found_at(elsewhere, asked[0]))
    with pytest.raises(
        IncompatibleCheckpointError, match=r"state of operator 'gone'[\s\S]*give up the state"
    ):
        second.job()
    second.allow_non_restored_state = True
    second.run()
    assert sorted(out) == [(key, number) for key in (0, 1) for number in range(7, 10)], "counted by 'kept'"
    (begun, kept) = elsewhere.load_latest("orders")[0].operators
    assert (begun.operator_id, kept.operator_id) == ("new", "kept")
    third = JobRun(counting(pairs, "new"), sink, elsewhere, latest(elsewhere), allow_non_restored_state=True)
    assert third.job_id == first.job_id


# --- a signal ------------------------------------------------------------------------------------------


def told_to_stop(
    run: JobRun, on_sigterm: OnSigterm = OnSigterm.CHECKPOINT, where: Path | None = None
) -> None:
    """Run a job until it has stopped because of a signal, whatever its retention says."""
    run.retention = ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
    run.stopping = StopSettings(on_sigterm, savepoints=None if where is None else str(where))
    error = run.fails(JobCancelledError, match="by SIGTERM")
    assert error.context["by"] == "SIGTERM"
    assert (run.job().status, run.heard.ended) == (JobStatus.CANCELED, [JobStatus.CANCELED])


@pytest.mark.parametrize("interval_ms", [0, 10**6], ids=["each epoch has a checkpoint", "they come rarely"])
def test_a_job_that_is_told_to_stop_stops_at_its_next_checkpoint(
    run: JobRun, storage: CheckpointFolders, out: list[Any], interval_ms: int
) -> None:
    """That of the running epoch if it has one, and otherwise that of the next epoch."""
    run.checkpoints = CheckpointSettings(interval_ms=interval_ms)
    run.runner.before = at(2, lambda: run.job().stop("SIGTERM"))
    told_to_stop(run)
    epoch = 2 if interval_ms == 0 else 3
    assert len(out) == 3 * epoch
    assert latest(storage).metadata.epoch == epoch
    JobRun(numbers(), out=out, storage=storage, restore=latest(storage)).run()
    assert out == list(range(10))


def test_a_job_that_has_nothing_to_do_stops_where_its_last_checkpoint_is(
    storage: CheckpointFolders, caplog: pytest.LogCaptureFixture
) -> None:
    source = GrowingSource(6, lambda _: None)
    run = JobRun(SourceNode(source, "numbers"), storage=storage)
    source.when_idle = lambda _: run.job().stop("SIGTERM") if len(run.heard.checkpoints) == 2 else None
    told_to_stop(run)
    assert [stats.epoch for stats in run.heard.checkpoints] == [1, 2]
    uri = storage.uri_of(run.job_id, 2)
    assert f"is CANCELED after epoch 2, by SIGTERM; it goes on from {uri}" in caplog.text


def test_a_job_may_stop_with_a_savepoint(run: JobRun, storage: CheckpointFolders, directory: Path) -> None:
    run.runner.before = at(2, lambda: run.job().stop("SIGTERM"))
    told_to_stop(run, OnSigterm.SAVEPOINT, directory)
    (savepoint,) = directory.iterdir()
    assert storage.load(str(savepoint)).epoch == latest(storage).metadata.epoch == 3


def test_where_a_savepoint_cannot_be_written_the_job_stops_at_a_checkpoint(
    run: JobRun, storage: CheckpointFolders, directory: Path
) -> None:
    directory.write_text("no folder")
    run.runner.before = at(2, lambda: run.job().stop("SIGTERM"))
    told_to_stop(run, OnSigterm.SAVEPOINT, directory)
    assert latest(storage).metadata.epoch == 3


def test_a_checkpoint_that_fails_is_tried_again_with_the_next_epoch(
    run: JobRun, storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.checkpoints = CheckpointSettings(interval_ms=10**6, tolerable_failures=1)
    failures = [CheckpointStorageError("no space left")]
    complete = CheckpointFolders.complete

    def fails(self: CheckpointFolders, found: Any, *rest: Any) -> None:
        if found.epoch == 3 and failures:
            raise failures.pop()
        complete(self, found, *rest)

    monkeypatch.setattr(CheckpointFolders, "complete", fails)
    run.end = numbers(20)
    run.runner.before = at(2, lambda: run.job().stop("SIGTERM"))
    told_to_stop(run)
    assert latest(storage).metadata.epoch == 4


@pytest.mark.parametrize("on_sigterm", [OnSigterm.AT_ONCE, OnSigterm.CHECKPOINT])
def test_what_cannot_stop_at_a_checkpoint_is_cancelled(
    run: JobRun, out: list[Any], on_sigterm: OnSigterm
) -> None:
    if on_sigterm is OnSigterm.CHECKPOINT:
        run.storage = None
    run.runner.before = at(1, lambda: run.job().stop("SIGTERM"))
    told_to_stop(run, on_sigterm)
    assert out == []
    assert run.runner.cancelled


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_job_that_fails_does_not_restart_when_it_is_to_stop(
    run: JobRun, storage: CheckpointFolders, moment: str
) -> None:
    run.restart = FixedDelayRestart(10, 10**6)
    fail = once(SparkJobError("an executor was lost"), 2)

    def fails(request: EpochRequest) -> None:
        if request.link.epoch == 2 and moment == "before":
            run.job().stop("SIGTERM")
        fail(request)

    run.runner.before = fails
    if moment == "after":  # it waits for its restart
        run.clock.on_sleep = lambda _: run.job().stop("SIGTERM")
    told_to_stop(run)
    assert len(run.heard.restarts) == (moment == "after")
    assert latest(storage).metadata.epoch == 1


def test_the_last_epoch_ends_the_job_as_ever(run: JobRun, out: list[Any]) -> None:
    run.runner.before = at(4, lambda: run.job().stop("SIGTERM"))
    run.run()
    assert (run.job().status, out) == (JobStatus.FINISHED, list(range(10)))


def test_a_savepoint_needs_a_directory() -> None:
    with pytest.raises(ConfigurationError, match="set_default_savepoint_directory"):
        StopSettings(OnSigterm.SAVEPOINT)
