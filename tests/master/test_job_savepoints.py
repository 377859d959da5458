"""Savepoints of whole jobs, and the return to one."""

from __future__ import annotations

import json
import queue
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import attrs
import pytest
from slot_functions import Count
from support_job import GrowingSource, JobRun, LocalRunner, StubbornSink, latest, numbers, once
from support_runtime import PICKLED, ack, decline
from support_slots import ActingRunner, ServedSlot, acknowledge

from pyflinkstate import (
    Available,
    Encoder,
    ExternalizedCheckpointRetention,
    FileSink,
    FileSystemCheckpointStorage,
    JobStatus,
    Sink,
)
from pyflinkstate.errors import (
    BadRecordError,
    CheckpointError,
    CheckpointStorageError,
    ConfigurationError,
    IncompatibleCheckpointError,
    SparkJobError,
)
from pyflinkstate.runtime.engine import EpochRequest
from pyflinkstate.runtime.master import Job, RestorePoint, SavepointRequest
from pyflinkstate.runtime.plan import ChainNode, SourceNode, StatefulNode
from pyflinkstate.runtime.settings import CheckpointSettings
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks import DriverSink, ForeachEpochSink
from pyflinkstate.runtime.sinks.sinks import FrameWriter
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.wire import AbortCheckpoint, NotifyCheckpointComplete, decode_values

pytestmark = pytest.mark.timeout(60)

RARELY = CheckpointSettings(interval_ms=10**6)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where savepoints go; nobody has made it yet."""
    return tmp_path / "savepoints"


@pytest.fixture
def run(out: list[Any], storage: CheckpointFolders) -> JobRun:
    """A job of 0..9, three an epoch, that takes its first and its last checkpoint only."""
    return JobRun(numbers(), DriverSink(lambda _, values: out.extend(values)), storage, checkpoints=RARELY)


def ask(job: Job, directory: Path | str, stops_job: bool = False) -> SavepointRequest:
    request = SavepointRequest(str(directory), stops_job)
    job.request_savepoint(request)
    return request


def drain(job: Job, directory: Path) -> SavepointRequest:
    """Stop the job with a savepoint that ends event time, which is taken without a checkpoint."""
    request = SavepointRequest(str(directory), stops_job=True, drains=True)
    job.request_savepoint(request)
    return request


def during(epoch: int, action: Callable[[], Any]) -> Callable[[EpochRequest], None]:
    """Return a hook for something to be done once, while an epoch runs."""
    done: list[Any] = []

    def act(request: EpochRequest) -> None:
        if request.link.epoch == epoch and not done:
            done.append(action())

    return act


def savepoint_at(job: Job, run: JobRun, epoch: int, directory: Path, **kind: bool) -> list[SavepointRequest]:
    """Ask for a savepoint while the epoch before runs; the list gets the request."""
    asked: list[SavepointRequest] = []
    run.runner.before = during(epoch - 1, lambda: asked.append(ask(job, directory, **kind)))
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
        job = run.job()
        asked = savepoint_at(job, run, 3, directory)
        committed = [(epoch, len(out)) for epoch in job.run()]
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
        job = run.job()
        request = ask(job, directory)
        list(job.run())
        folder = Path(request.done.result(timeout=0))
        assert folder.parent == directory
        assert re.fullmatch(rf"savepoint-{job.job_id[:6]}-[0-9a-f]{{12}}", folder.name)
        assert [path.name for path in folder.iterdir()] == ["_metadata"]

    def test_each_request_gets_its_own_at_one_barrier_after_the_other(
        self, run: JobRun, storage: CheckpointFolders, directory: Path
    ) -> None:
        job = run.job()
        requests = [ask(job, directory) for _ in range(2)]
        list(job.run())
        assert [found_at(storage, request).metadata.epoch for request in requests] == [1, 2]
        assert run.heard.checkpoints[-1].epoch == 4

    def test_the_job_cannot_go_back_behind_it_any_more(
        self, run: JobRun, out: list[Any], directory: Path
    ) -> None:
        run.restart = FixedDelayRestart(1, 0)
        job = run.job()
        savepoint_at(job, run, 3, directory)
        run.runner.after = once(SparkJobError("an executor was lost"), 4)
        list(job.run())
        assert [request.link.epoch for request in run.runner.requests] == [1, 2, 3, 4, 4]
        assert out == list(range(10))

    @pytest.mark.parametrize("retention", [None, *ExternalizedCheckpointRetention])
    def test_it_stays_whatever_becomes_of_checkpoints(
        self, run: JobRun, storage: CheckpointFolders, directory: Path, retention: Any
    ) -> None:
        run.retention = retention
        run.checkpoints = CheckpointSettings(interval_ms=0)
        job = run.job()
        asked = savepoint_at(job, run, 2, storage.uri)
        list(job.run())
        assert found_at(storage, asked[0]).metadata.epoch == 2
        assert storage.completed(job.job_id) == ([5] if retention is None else [])

    def test_a_source_that_has_nothing_is_no_obstacle(
        self, run: JobRun, storage: CheckpointFolders, directory: Path
    ) -> None:
        requests: list[SavepointRequest] = []

        def when_idle(source: GrowingSource) -> None:
            if not requests:
                requests.append(ask(job, directory))
            elif requests[0].done.done():
                source.is_over = True

        run.end = SourceNode(GrowingSource(3, when_idle), "numbers")
        job = run.job()
        list(job.run())
        assert found_at(storage, requests[0]).metadata.source_position == 3
        assert run.runner.requests[1].epoch is None, "an empty epoch, for the barrier alone"


class TestThatFails:
    def test_without_checkpoints_there_is_no_savepoint(self, run: JobRun, directory: Path) -> None:
        run.storage = None
        job = run.job()
        request = ask(job, directory)
        assert list(job.run()) == [1]
        assert isinstance(request.done.exception(timeout=0), ConfigurationError)

    def test_a_folder_that_cannot_be_made_is_told_and_the_job_goes_on(
        self, run: JobRun, out: list[Any], blocked: str
    ) -> None:
        job = run.job()
        request = ask(job, blocked)
        list(job.run())
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
        job = run.job()
        request = ask(job, directory, stops_job)
        list(job.run())
        assert isinstance(request.done.exception(timeout=0), CheckpointStorageError)
        assert out == list(range(10)), "not stopped either"
        assert [(s.checkpoint_id, s.is_savepoint) for s in run.heard.failed] == [(2, True)]
        assert run.heard.ended == [JobStatus.FINISHED]

    def test_one_that_nobody_waits_for_any_more_is_no_failure_of_the_job(
        self, run: JobRun, out: list[Any], directory: Path
    ) -> None:
        job = run.job()
        assert ask(job, directory).done.cancel()
        list(job.run())
        assert out == list(range(10))

    @pytest.mark.parametrize("end", ["fails", "is cancelled"])
    def test_a_request_is_answered_when_the_job_ends_before(
        self, run: JobRun, directory: Path, end: str
    ) -> None:
        job = run.job()
        asked = savepoint_at(job, run, 3, directory)
        if end == "fails":
            run.runner.after = once(BadRecordError("no key"), 2)
        else:
            run.runner.after = during(2, job.cancel)
        with pytest.raises(Exception, match=r"no key|was cancelled"):
            list(job.run())
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
        job = run.job()
        request = ask(job, directory)
        list(job.run())
        assert "disk full" in str(request.done.exception(timeout=0))
        assert list(directory.iterdir()) == []
        assert job.result().restarts == 0

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
        job = run.job()
        ask(job, directory)
        list(job.run())
        assert list(directory.iterdir()) == []

    def test_one_whose_checkpoint_cannot_begin_says_so(
        self, run: JobRun, out: list[Any], storage: CheckpointFolders, directory: Path
    ) -> None:
        def before(request: EpochRequest) -> None:
            if request.link.epoch == 2:
                (Path(storage.uri) / job.job_id / "chk-2").write_text("in the way")
                asked.append(ask(job, directory))

        asked: list[SavepointRequest] = []
        run.checkpoints = CheckpointSettings(interval_ms=10**6, tolerable_failures=1)
        run.runner.before = before
        job = run.job()
        list(job.run())
        with pytest.raises(CheckpointStorageError, match="comes with failed"):
            asked[0].done.result(timeout=0)
        assert list(directory.iterdir()) == []
        assert out == list(range(10))

    def test_one_whose_checkpoint_expires_has_expired(
        self, storage: CheckpointFolders, directory: Path
    ) -> None:
        def act(request: EpochRequest, slots: list[ServedSlot]) -> None:
            if request.link.epoch == 2:
                run.clock.sleep_ms(1_000)
            if request.link.epoch > 1:
                acknowledge(request, slots)
            elif request.barrier is not None:
                slots[0].connection.send(ack(request.barrier.checkpoint_id, slots[0].slot_id))
                for slot in slots:
                    slot.connection.send(ack(request.barrier.savepoint.checkpoint_id, slot.slot_id))

        settings = CheckpointSettings(interval_ms=10**6, tolerable_failures=1, timeout_ms=1_000)
        run = acted(storage, act, checkpoints=settings)
        job = run.job()
        request = ask(job, directory)
        list(job.run())
        assert re.search(r"expired after 1000 ms.*process-1\[1\]", str(request.done.exception(timeout=0)))
        assert [(s.checkpoint_id, s.is_savepoint) for s in run.heard.failed] == [(1, False), (2, True)]


def without_savepoint(request: EpochRequest) -> EpochRequest:
    """Return the request with the checkpoint of its barrier only."""
    barrier = request.barrier
    return (
        request if barrier is None else attrs.evolve(request, barrier=attrs.evolve(barrier, savepoint=None))
    )


def acted(storage: CheckpointFolders, act: Any, **settings: Any) -> JobRun:
    node = StatefulNode(numbers(), lambda n: n % 4, PICKLED, Count(), "process")
    return JobRun(
        node, DriverSink(lambda *_: None), storage, parallelism=2, runner=ActingRunner(act), **settings
    )


class TestStop:
    def test_all_output_up_to_it_is_committed_and_the_job_is_finished(
        self, run: JobRun, storage: CheckpointFolders, out: list[Any], directory: Path
    ) -> None:
        job = run.job()
        asked = savepoint_at(job, run, 3, directory, stops_job=True)
        assert list(job.run()) == [1, 2, 3]
        assert out == list(range(9))
        assert (job.status, run.heard.ended) == (JobStatus.FINISHED, [JobStatus.FINISHED])
        assert barriers(run) == [1, None, 2]
        restored = attrs.evolve(run, restore=found_at(storage, asked[0]))
        assert list(restored.job().run()) == [4]
        assert out == list(range(10))

    @pytest.mark.parametrize("retention", [None, *ExternalizedCheckpointRetention])
    def test_checkpoints_are_kept_or_not_as_those_of_any_finished_job(
        self, run: JobRun, storage: CheckpointFolders, directory: Path, retention: Any
    ) -> None:
        run.retention = retention
        job = run.job()
        savepoint_at(job, run, 2, directory, stops_job=True)
        list(job.run())
        assert storage.completed(job.job_id) == ([2] if retention is None else [])
        assert len(list(directory.iterdir())) == 1

    def test_slots_are_told_of_the_savepoint_that_stops_and_of_no_other(
        self, storage: CheckpointFolders, directory: Path
    ) -> None:
        run = acted(storage, acknowledge, checkpoints=RARELY)
        job = run.job()
        requests = [ask(job, directory, stops_job) for stops_job in (False, True)]
        assert list(job.run()) == [1, 2]
        assert [found_at(storage, request).metadata.epoch for request in requests] == [1, 2]
        heard = [run.runner.slots[0][0].next_heard() for _ in range(3)]
        assert heard == [NotifyCheckpointComplete(number) for number in (1, 3, 4)]

    def test_a_source_that_has_nothing_is_no_obstacle(
        self, run: JobRun, out: list[Any], directory: Path
    ) -> None:
        asked: list[SavepointRequest] = []

        def when_idle(_: GrowingSource) -> None:
            if not asked:
                asked.append(ask(job, directory, stops_job=True))

        source = GrowingSource(6, when_idle)
        run.end = SourceNode(source, "numbers")
        job = run.job()
        list(job.run())
        assert out == list(range(6))
        assert source.closed == [None]
        assert source.committed == [3, 6]

    def test_where_the_commit_before_it_fails_it_has_failed_and_the_job_goes_on(
        self, run: JobRun, storage: CheckpointFolders, directory: Path
    ) -> None:
        error = CheckpointStorageError("try again")
        assert error.recoverable
        run.sink = sink = StubbornSink(None)  # type: ignore[arg-type]
        run.restart = FixedDelayRestart(1, 0)

        def before(request: EpochRequest) -> None:
            if request.link.epoch == 2:
                asked.append(ask(job, directory, stops_job=True))
            if request.link.epoch == 3:
                sink.error = error

        asked: list[SavepointRequest] = []
        run.runner.before = before
        job = run.job()
        list(job.run())
        assert sink.seen == list(range(10))
        assert [cause for _, cause in run.heard.restarts] == [error]
        assert job.status is JobStatus.FINISHED
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

        def before(request: EpochRequest) -> None:
            if request.link.epoch == 2:
                asked.append(drain(job, directory))
            if request.link.epoch == 3:
                sink.error = error

        asked: list[SavepointRequest] = []
        run.runner.before = before
        job = run.job()
        with nullcontext() if restarts else pytest.raises(CheckpointStorageError):
            list(job.run())
        assert job.status is (JobStatus.FINISHED if restarts else JobStatus.FAILED)
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

        def at_2() -> None:
            drain(job, directory).done.add_done_callback(lambda _: seen.append(list(out)))

        run.runner.before = during(2, at_2)
        job = run.job()
        list(job.run())
        assert seen == [list(range(9))]


class TestBesideCheckpoints:
    """A savepoint writes everything, so checkpoints come and go while it is on its way."""

    def test_a_checkpoint_that_overtakes_it_does_not_change_it(
        self, storage: CheckpointFolders, directory: Path
    ) -> None:
        savepoints: list[EpochRequest] = []

        def act(request: EpochRequest, slots: list[ServedSlot]) -> None:
            if request.link.epoch == 1:
                savepoints.append(request)
                return
            if request.link.epoch == 3:
                assert run.heard.await_checkpoint().epoch == 2
                acknowledge(savepoints[0], slots)
            acknowledge(request, slots)

        run = acted(storage, act, checkpoints=CheckpointSettings(interval_ms=0, max_concurrent=2))
        job = run.job()
        request = ask(job, directory)
        assert list(job.run()) == [1, 2, 3, 4]
        found = found_at(storage, request)
        assert (found.metadata.epoch, found.metadata.source_position["index"]) == (1, 3)

    def test_a_checkpoint_that_is_pending_when_it_stops_the_job_does_not_start_it_again(
        self, storage: CheckpointFolders, directory: Path
    ) -> None:
        def act(request: EpochRequest, slots: list[ServedSlot]) -> None:
            if request.link.epoch == 1:
                asked.append(ask(job, directory, stops_job=True))
                asked[0].done.add_done_callback(lambda _: acknowledge(request, slots))
            else:
                acknowledge(request, slots)

        asked: list[SavepointRequest] = []
        run = acted(storage, act)
        job = run.job()
        assert list(job.run()) == [1, 2]
        assert found_at(storage, asked[0]).metadata.epoch == 2
        assert job.status is JobStatus.FINISHED
        assert [request.link.epoch for request in run.runner.requests] == [1, 2]


class Growing(GrowingSource):
    """Notes when it has said that it is over."""

    has_said_so = False

    def latest_offset(self, start: int, whole: bool) -> Available:
        self.has_said_so = self.is_over
        return super().latest_offset(start, whole)


@attrs.define(slots=False)
class LateMail(queue.SimpleQueue[Any]):
    """A mailbox that does something when the job waits for mail, if it is time for that."""

    is_time: Callable[[], bool]
    do: Callable[[], object]

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if timeout is not None and self.is_time():
            self.do()
        return super().get(block, timeout)


def test_a_savepoint_that_is_on_its_way_when_the_source_turns_out_to_be_over_is_waited_for(
    storage: CheckpointFolders, directory: Path
) -> None:
    """Its checkpoint is complete, and all is committed; the slots still write the savepoint."""

    def act(request: EpochRequest, slots: list[ServedSlot]) -> None:
        acknowledge(without_savepoint(request), slots)

    def when_idle(source: GrowingSource) -> None:
        source.is_over = bool(run.heard.checkpoints)

    def write() -> None:
        for slot in run.runner.slots[0]:
            slot.connection.send(ack(2, slot.slot_id))

    run = acted(storage, act, checkpoints=RARELY)
    source = Growing(3, when_idle)
    run.end = attrs.evolve(run.end, parent=SourceNode(source, "numbers"))
    run.mailbox = LateMail(lambda: source.has_said_so, write)
    job = run.job()
    request = ask(job, directory)
    list(job.run())
    assert found_at(storage, request).metadata.epoch == 1
    assert [stats.checkpoint_id for stats in run.heard.checkpoints] == [1, 2]


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
    job = first.job()
    asked: list[SavepointRequest] = []

    def before(request: EpochRequest) -> None:
        if request.link.epoch == 1:
            asked.append(ask(job, directory, stops_job=True))
        else:
            first.heard.await_checkpoint()

    first.runner.before = before
    assert list(job.run()) == [1, 2]
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
    (begun, kept) = elsewhere.load_latest("orders").operators
    assert (begun.operator_id, kept.operator_id) == ("new", "kept")
    third = JobRun(counting(pairs, "new"), sink, elsewhere, latest(elsewhere), allow_non_restored_state=True)
    assert third.job().job_id == job.job_id


RECORDS = 200
PER_EPOCH = 10
CRASHED = SparkJobError("an executor was lost")


class Output:
    """A sink, and what can be seen of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def sink(self) -> Sink:
        raise NotImplementedError

    def seen(self) -> list[int]:
        raise NotImplementedError


class Files(Output):
    def sink(self) -> Sink:
        return FileSink(str(self.directory))

    def seen(self) -> list[int]:
        files = self.directory.glob("epoch=*/part-*")
        return sorted(json.loads(line) for file in files for line in file.read_text().splitlines())


class Lines(Output):
    def sink(self) -> Sink:
        return FileSink.for_row_format(str(self.directory), Encoder.simple_string_encoder()).build()

    def seen(self) -> list[int]:
        visible = [
            path
            for path in self.directory.rglob("*")
            if path.is_file()
            and not any(part.startswith(("_", ".")) for part in path.relative_to(self.directory).parts)
        ]
        return sorted(int(line) for file in visible for line in file.read_text().splitlines())


class OfTheUser(Output):
    """A database: transactions by epoch, of which those that are not committed are lost in a crash."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.committed: dict[int, list[int]] = {}

    def sink(self) -> Sink:
        return Transactions(self.committed)

    def seen(self) -> list[int]:
        return sorted(row for rows in self.committed.values() for row in rows)


class Transactions(DriverSink):
    """The sink of a user, who has kept to the protocol."""

    def __init__(self, committed: dict[int, list[int]]) -> None:
        super().__init__(lambda *_: None)
        self.committed = committed

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        self.rewind(restored_epoch or 0)

    def writer(self, epoch: int) -> FrameWriter:
        return FrameWriter()

    def commit(self, epoch: int) -> None:
        for number in sorted(number for number in self._prepared if number <= epoch):
            self.committed[number] = rows_of(self._prepared.pop(number))

    def rewind(self, epoch: int) -> None:
        super().rewind(epoch)
        for number in [number for number in self.committed if number > epoch]:
            del self.committed[number]


class Replacing(Output):
    """``foreach_epoch``: what comes again replaces what was written under the same number."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.written: dict[int, list[int]] = {}

    def sink(self) -> Sink:
        return ForeachEpochSink(self._write)

    def _write(self, frames: Any, epoch: int) -> None:
        self.written[epoch] = rows_of(frames)

    def seen(self) -> list[int]:
        return sorted(row for rows in self.written.values() for row in rows)


def rows_of(results: list[Any]) -> list[int]:
    """Return the records of what an epoch's writers have yielded."""
    return [row for _, frame in results for row in decode_values(frame)]


class KeptFrames(list[Any]):
    """What Spark keeps of an epoch's output."""

    def unpersist(self) -> None:
        return


class Runner(LocalRunner):
    def _results(self, request: EpochRequest) -> list[list[Any]]:
        results = super()._results(request)
        kept = [isinstance(sink.sink, ForeachEpochSink) for sink in request.plan.sinks]
        return [[KeptFrames(rows)] if is_kept else rows for rows, is_kept in zip(results, kept, strict=True)]


@pytest.fixture(params=[Files, Lines, OfTheUser, Replacing])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Output:
    made: Output = request.param(tmp_path / "out")
    return made


@attrs.define
class History:
    """One job, started again and again."""

    storage: CheckpointFolders
    output: Output
    savepoints: Path

    def start(self, restore: RestorePoint | None = None, **settings: Any) -> JobRun:
        run = JobRun(numbers(RECORDS, PER_EPOCH), self.output.sink(), self.storage, restore, runner=Runner())
        run.checkpoints = attrs.evolve(RARELY, **settings)
        return run

    def crash(
        self, run: JobRun, epoch: int, savepoint_at: int | None = None, restarts: int = 1
    ) -> RestorePoint | None:
        """Run until the job has failed in ``epoch`` for the last time; returns the savepoint."""
        run.restart = FixedDelayRestart(restarts, 0)
        asked: list[SavepointRequest] = []

        def before(request: EpochRequest) -> None:
            if request.link.epoch + 1 == savepoint_at and not asked:
                asked.append(SavepointRequest(str(self.savepoints), False))
                job.request_savepoint(asked[0])

        def after(request: EpochRequest) -> None:
            if request.link.epoch >= epoch:
                raise CRASHED

        run.runner.before, run.runner.after = before, after
        job = run.job()
        with pytest.raises(Exception, match="executor was lost"):
            list(job.run())
        return self.found(asked[0]) if asked else None

    def found(self, request: SavepointRequest) -> RestorePoint:
        uri = request.done.result(timeout=0)
        return RestorePoint(self.storage.load(uri), uri)


@pytest.fixture
def history(storage: CheckpointFolders, output: Output, tmp_path: Path) -> History:
    return History(storage, output, tmp_path / "savepoints")


def test_nothing_before_a_savepoint_is_lost_in_a_crash_loop_after_it(history: History) -> None:
    savepoint = history.crash(history.start(), epoch=12, savepoint_at=8, restarts=3)
    assert savepoint.metadata.epoch == 8
    assert latest(history.storage).metadata.epoch == 8, "behind it the job cannot go any more"
    history.start(savepoint).run()
    assert history.output.seen() == list(range(RECORDS))


def test_nor_when_the_job_was_restored_from_its_last_checkpoint_before(history: History) -> None:
    savepoint = history.crash(history.start(), epoch=12, savepoint_at=8)
    again = history.start(latest(history.storage), interval_ms=0, num_retained=3)
    history.crash(again, epoch=15)
    assert latest(history.storage).metadata.epoch > 8
    history.start(savepoint).run()
    assert history.output.seen() == list(range(RECORDS))


def test_a_savepoint_that_stops_the_job_is_no_newer_than_its_last_checkpoint(history: History) -> None:
    run = history.start()
    asked: list[SavepointRequest] = []
    run.runner.before = asking(lambda: job, asked, history.savepoints)
    job = run.job()
    list(job.run())
    assert latest(history.storage).metadata.epoch == 5
    history.crash(history.start(latest(history.storage)), epoch=9)
    history.start(history.found(asked[0])).run()
    assert history.output.seen() == list(range(RECORDS))


def asking(
    job: Callable[[], Any], asked: list[SavepointRequest], directory: Path
) -> Callable[[EpochRequest], None]:
    def ask(request: EpochRequest) -> None:
        if request.link.epoch == 4:
            asked.append(SavepointRequest(str(directory), True))
            job().request_savepoint(asked[0])

    return ask


@pytest.mark.parametrize("sink", [Files, Lines])
@pytest.mark.parametrize("goes_back_to", [2, 5])
def test_files_come_back_also_when_the_job_went_on_from_an_older_checkpoint_in_between(
    storage: CheckpointFolders, tmp_path: Path, sink: type[Output], goes_back_to: int
) -> None:
    """Epochs before the savepoint were cut anew, and those of the first run are what it goes on from."""
    history = History(storage, sink(tmp_path / "out"), tmp_path / "savepoints")
    first = history.start(interval_ms=0, num_retained=100)
    first.end = numbers(RECORDS, PER_EPOCH)
    savepoint = history.crash(first, epoch=12, savepoint_at=8)
    assert savepoint is not None
    older = next(point for point in points(storage, savepoint) if point.metadata.epoch == goes_back_to)
    other = history.start(older, interval_ms=0, num_retained=100)
    other.end = numbers(RECORDS, 7)
    history.crash(other, epoch=10)
    history.start(savepoint).run()
    assert history.output.seen() == list(range(RECORDS))


def points(storage: CheckpointFolders, savepoint: RestorePoint) -> Iterable[RestorePoint]:
    job_id = savepoint.metadata.job_id
    for checkpoint_id in storage.completed(job_id):
        uri = storage.uri_of(job_id, checkpoint_id)
        yield RestorePoint(storage.load(uri), uri)


def test_who_returns_to_it_after_a_bad_record_finds_it_as_well(history: History) -> None:
    run = history.start()
    asked: list[SavepointRequest] = []

    def before(request: EpochRequest) -> None:
        if request.link.epoch == 4:
            asked.append(SavepointRequest(str(history.savepoints), False))
            job.request_savepoint(asked[0])
        if request.link.epoch == 7:
            raise BadRecordError("no key")

    run.runner.before = before
    job = run.job()
    with pytest.raises(BadRecordError):
        list(job.run())
    history.start(history.found(asked[0])).run()
    assert history.output.seen() == list(range(RECORDS))
