"""Whoever returns to a savepoint finds all output before it, whatever has happened since."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest
from support_job import JobRun, LocalRunner, latest, numbers

from pyflinkstate.errors import BadRecordError, SparkJobError
from pyflinkstate.runtime.engine.epochs import EpochRequest
from pyflinkstate.runtime.master import RestorePoint, SavepointRequest
from pyflinkstate.runtime.settings.checkpoint_settings import CheckpointSettings
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks.file_sink import FileSink
from pyflinkstate.runtime.sinks.sinks import DriverSink, ForeachEpochSink, FrameWriter, Sink
from pyflinkstate.runtime.sinks.text_file_sink import Encoder
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.runtime.wire.frames import decode_values

pytestmark = pytest.mark.timeout(60)

RECORDS = 200
PER_EPOCH = 10
#: The first checkpoint commits; the next one that is due by itself is the last.
RARELY = CheckpointSettings(interval_ms=10**6)
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
    assert savepoint is not None
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
