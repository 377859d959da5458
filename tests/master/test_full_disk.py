"""A disk fills up while a job runs, that of checkpoints or that of state: the job goes on once there is room.

On a real file system of a megabyte; a file that takes the rest of it stands for whatever fills a disk.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from slot_functions import Count
from small_disk import fill, make_room, small_disk
from support_job import JobRun, numbers
from support_runtime import PICKLED

from pyflinkstate import CheckpointStats, JobListener
from pyflinkstate.backends.rocksdb import RocksDBStateBackend
from pyflinkstate.errors import (
    CheckpointFailuresExceededError,
    CheckpointStorageError,
    PyFlinkStateError,
    StateStorageError,
)
from pyflinkstate.runtime.engine import EpochRequest
from pyflinkstate.runtime.plan import ChainNode, StatefulNode
from pyflinkstate.runtime.settings import CheckpointSettings
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks import ForeachEpochSink
from pyflinkstate.runtime.storage import CheckpointFolders

pytestmark = [pytest.mark.needs_root, pytest.mark.timeout(120)]

EPOCHS = 10


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    with small_disk(tmp_path / "small") as folder:
        yield folder


@attrs.define
class Outage(JobListener):
    """The file system is full from epoch ``begin`` on until ``failures`` checkpoints have failed.

    A checkpoint of an earlier epoch may be complete only now, and the one before it gives back its space.
    """

    folder: Path
    run: JobRun
    begin: int
    failures: int
    has_begun: bool = False
    is_over: bool = False

    def __attrs_post_init__(self) -> None:
        self.run.listeners = (*self.run.listeners, self)

    def on_checkpoint(self, stats: CheckpointStats) -> None:
        if self.has_begun and not self.is_over:
            fill(self.folder)

    def before(self, request: EpochRequest) -> None:
        if self.is_over:
            return
        if len(self.run.heard.failed) >= self.failures:
            self.is_over = True
            make_room(self.folder)
        elif request.link.epoch == self.begin:
            self.has_begun = True
            fill(self.folder)


def left_behind(folder: Path) -> list[str]:
    """Return what no completed checkpoint needs."""
    return [path.name for path in folder.rglob("*") if ".inprogress" in path.name]


def counting(padding: int) -> StatefulNode:
    """Counts three keys; ``padding`` bytes of each decide whether state is in files of its own."""
    count = Count(random.Random(0).randbytes(padding))
    return StatefulNode(numbers(EPOCHS * 3), lambda number: number % 3, PICKLED, count, "count")


EXPECTED = sorted((number % 3, number // 3 + 1) for number in range(EPOCHS * 3))


@pytest.mark.parametrize("padding", [10, 40_000], ids=["inline state", "state in files"])
@pytest.mark.parametrize("tolerable_failures", [20, 0], ids=["tolerated", "not tolerated"])
def test_the_job_goes_on_once_there_is_room(
    small: Path, out: list[Any], padding: int, tolerable_failures: int
) -> None:
    """Failures that are tolerated cost nothing; the others restart the job until then."""
    storage = CheckpointFolders(str(small / "checkpoints"))
    # Its epochs are too slow to be over before three checkpoints have failed.
    run = JobRun(counting(padding), out=out, storage=storage, epochs_ahead=0)
    run.checkpoints = CheckpointSettings(interval_ms=0, tolerable_failures=tolerable_failures)
    run.restart = FixedDelayRestart(50, 1)
    outage = Outage(small, run, begin=4, failures=3)
    run.runner.before = outage.before
    job = run.run()
    assert outage.is_over
    assert any("No space left on device" in str(stats.failure) for stats in run.heard.failed)
    causes = {type(error) for _, error in run.heard.restarts}
    assert causes == (set() if tolerable_failures else {CheckpointFailuresExceededError})
    assert sorted(out) == EXPECTED
    assert left_behind(small) == []
    (completed,) = storage.completed(job.job_id)
    history = json.loads((small / "checkpoints" / job.job_id / "checkpoints.json").read_text())
    assert history[0]["checkpoint_id"] == completed
    assert storage.load_latest("orders")[0].epoch == job.result().epochs


def test_a_disk_that_is_full_of_state_fails_attempts_until_there_is_room(
    small: Path, tmp_path: Path, out: list[Any]
) -> None:
    pytest.importorskip("rocksdict")
    run = JobRun(counting(20_000), out=out, storage=CheckpointFolders(str(tmp_path / "checkpoints")))
    run.state_backend = RocksDBStateBackend(directories=(str(small / "new"),), memory_bytes=1)
    run.checkpoints = CheckpointSettings(interval_ms=0)
    run.restart = FixedDelayRestart(50, 1)

    def before(request: EpochRequest) -> None:
        if len(run.heard.restarts) > 2:
            make_room(small)
        elif request.link.epoch >= 4:
            fill(small)

    run.runner.before = before
    run.run()
    assert sorted(out) == EXPECTED
    assert len(run.heard.restarts) > 2
    for _, error in run.heard.restarts:
        assert isinstance(error, StateStorageError)
        assert "No space left on device" in str(error)
        assert f"{small}/new" in str(error)
        assert "'state.backend.rocksdb.localdir'" in str(error)
    assert list((small / "new").iterdir()) == [], "those of failed attempts are deleted as well"
    assert left_behind(tmp_path) == []


def test_an_epoch_is_not_run_before_its_end_is_noted(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = CheckpointFolders(str(small / "checkpoints"))
    prepared: list[int] = []
    sink = ForeachEpochSink(lambda frames, epoch: None)
    monkeypatch.setattr(sink, "prepare", lambda epoch, results: prepared.append(epoch))
    run = JobRun(ChainNode(numbers(EPOCHS * 3), "map", abs, "abs"), sink, storage)
    run.checkpoints = CheckpointSettings(interval_ms=0, tolerable_failures=20)
    run.restart = FixedDelayRestart(50, 1)
    noted: list[bool] = []

    def before(request: EpochRequest) -> None:
        noted.append(request.link.epoch in storage.read_planned(run.job_id))
        if request.link.epoch == 4 and not run.heard.restarts:
            fill(small)

    run.runner.before = before
    on_restart = run.heard.on_restart

    def make_room_and_go_on(attempt: int, error: PyFlinkStateError) -> None:
        on_restart(attempt, error)
        if attempt == 2:
            make_room(small)

    object.__setattr__(run.heard, "on_restart", make_room_and_go_on)
    run.run()
    assert all(noted)
    assert len(run.heard.restarts) >= 2
    assert all(isinstance(error, CheckpointStorageError) for _, error in run.heard.restarts)
    assert "offsets" in str(run.heard.restarts[0][1])
    assert sorted(set(prepared)) == list(range(1, EPOCHS + 1))
    assert left_behind(small) == []
