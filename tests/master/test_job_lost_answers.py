"""A checkpoint is complete, and is reported as failed: the answer to its publication was lost.

It must be gone before the job goes back behind it: sinks drop its output then, and "latest" would find it.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support_job import JobRun, latest, numbers

from pyflinkstate.backends.format.metadata import CheckpointMetadata
from pyflinkstate.errors import (
    BadRecordError,
    CheckpointFailuresExceededError,
    CheckpointStorageError,
    JobSupersededError,
    PyFlinkStateError,
)
from pyflinkstate.runtime.engine.epochs import EpochRequest
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks.file_sink import FileSink
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.runtime.storage.runs import run_id_after

pytestmark = pytest.mark.timeout(60)

#: More often than anything is tried.
ALWAYS = 1000


class LosesAnswer(CheckpointFolders):
    """Publishes checkpoint 2, and says that it could not; then it refuses some operations so many times."""

    def __init__(self, directory: str, **refused: int) -> None:
        super().__init__(directory)
        self.refused = Counter(refused)
        self.is_lost = False
        #: Called when the job looks which checkpoints are complete.
        self.listed: Callable[[], None] = lambda: None

    def complete(
        self, metadata: CheckpointMetadata, uri: str | None = None, has_shared: bool = False
    ) -> None:
        super().complete(metadata, uri, has_shared)
        if metadata.checkpoint_id == 2:
            self.is_lost = True
            raise CheckpointStorageError("checkpoint storage: the answer was lost")

    def discard(self, uri: str) -> None:
        if uri.endswith("/chk-2"):
            self._refuse("discard")
        super().discard(uri)

    def completed(self, job_id: str) -> list[int]:
        self._refuse("completed")
        found = super().completed(job_id)
        if self.is_lost:
            self.listed()
        return found

    def _refuse(self, operation: str) -> None:
        if self.is_lost and self.refused[operation]:
            self.refused[operation] -= 1
            raise CheckpointStorageError(f"checkpoint storage: {operation} is refused")


class GoesBack(DriverSink):
    """Does something when the job goes back behind its output."""

    def __init__(self, out: list[Any], do: Callable[[], object]) -> None:
        super().__init__(lambda _, values: out.extend(values))
        self._do = do

    def rewind(self, epoch: int) -> None:
        self._do()
        super().rewind(epoch)


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoints")


def run_with(storage: CheckpointFolders, out: list[Any]) -> JobRun:
    """Return a job of 0..9, three an epoch, that may restart three times."""
    sink = DriverSink(lambda _, values: out.extend(values))
    return JobRun(numbers(), sink, storage, restart=FixedDelayRestart(3, 0))


@pytest.mark.parametrize(
    "refused", [{"discard": 2}, {"discard": 1, "completed": 1}], ids=["deletes", "a delete and a list"]
)
def test_the_job_goes_back_when_it_could_be_deleted(
    directory: str, out: list[Any], refused: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    run = run_with(LosesAnswer(directory, **refused), out)
    there: list[list[int]] = []
    run.sink = GoesBack(out, lambda: there.append(CheckpointFolders(directory).completed(job.job_id)))
    job = run.job()
    with caplog.at_level(logging.WARNING, "pyflinkstate"):
        list(job.run())
    assert there == [[1]]
    assert out == list(range(10))
    told = [type(error) for _, error in run.heard.restarts]
    assert told == [CheckpointFailuresExceededError, CheckpointStorageError]
    assert "the attempt cannot begin: " in caplog.text


def test_no_output_is_lost_where_it_cannot_be_deleted(directory: str, tmp_path: Path) -> None:
    def before(request: EpochRequest) -> None:
        if request.link.driver.attempt > 0:
            raise BadRecordError("the job has gone back")

    storage = LosesAnswer(directory, discard=ALWAYS)
    run = JobRun(numbers(), FileSink(str(tmp_path / "out")), storage, restart=FixedDelayRestart(3, 0))
    run.runner.before = before
    with pytest.raises(PyFlinkStateError):
        run.run()

    storage.refused.clear()
    restore = latest(storage)
    assert restore.metadata.checkpoint_id == 2
    JobRun(numbers(), FileSink(str(tmp_path / "out")), storage, restore=restore).run()
    files = sorted((tmp_path / "out").glob("epoch=*/part-*"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert rows == list(range(10))


def test_a_driver_that_another_one_has_followed_leaves_it(directory: str, out: list[Any]) -> None:
    """The newer one may have been told to restore it."""
    storage, other = LosesAnswer(directory, discard=1), CheckpointFolders(directory)
    storage.listed = lambda: other.write_run(job.job_id, run_id_after(other.runs(job.job_id), "f" * 8))
    job = run_with(storage, out).job()
    with pytest.raises(JobSupersededError):
        list(job.run())
    assert other.completed(job.job_id) == [1, 2]
