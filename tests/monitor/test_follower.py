"""The page of a folder follows it: new events, new jobs, and nothing while nobody looks."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from support_job import JobRun
from support_runtime import raising
from support_web import browser_of, stories_at

from pyflinkstate.monitor import dead_jobs
from pyflinkstate.monitor import follower as following
from pyflinkstate.monitor.follower import Follower
from pyflinkstate.monitor.hub import Monitor
from pyflinkstate.monitor.jobs import Jobs
from pyflinkstate.monitor.journal import encode
from pyflinkstate.monitor.recorder import Recorder
from pyflinkstate.runtime.master.loop import Job
from pyflinkstate.runtime.master.monitoring import WebPageSettings
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders

pytestmark = pytest.mark.timeout(60)


def ran(run: JobRun, journal: bool = True) -> Job:
    assert run.storage is not None
    run.listeners = (Recorder(run.clock, run.storage.uri),) if journal else ()
    return run.run()


class Told:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def epochs(jobs: Jobs) -> list[int]:
    return [len(shown.story.epochs.recent) for shown in jobs.begun()]


def test_events_that_are_added_are_taken_in_once(run: JobRun, storage: CheckpointFolders) -> None:
    job = ran(run)
    (journal,) = Path(storage.uri, job.job_id, "journal").iterdir()
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2]))
    jobs, told = Jobs(), Told()
    follower = Follower(storage.uri, jobs, told)
    assert epochs(jobs) == [1]
    follower.look()
    assert told.times == 0
    journal.write_bytes(b"".join(lines)[:-10])
    follower.look()
    assert (epochs(jobs), told.times) == ([4], 1)
    (shown,) = jobs.begun()
    assert not shown.story.is_over
    journal.write_bytes(b"".join(lines))
    follower.look()
    assert (epochs(jobs), told.times) == ([4], 2)
    assert shown.story.status == "FINISHED"
    (again,) = stories_at(storage.uri)
    assert shown.story.measured.totals == again.measured.totals
    assert list(shown.story.epochs.recent) == list(again.epochs.recent)


def test_a_job_that_appears_is_shown(run: JobRun, storage: CheckpointFolders) -> None:
    ran(run)
    jobs, told = Jobs(), Told()
    follower = Follower(storage.uri, jobs, told)
    second = ran(run)
    follower.look()
    assert [shown.story.job["job_id"] for shown in jobs.begun()][-1] == second.job_id
    assert (len(jobs.begun()), told.times) == (2, 1)
    follower.look()
    assert (len(jobs.begun()), told.times) == (2, 1)


def test_a_job_without_a_journal_is_read_anew_when_it_has_another_checkpoint(
    run: JobRun, storage: CheckpointFolders
) -> None:
    job = ran(run, journal=False)
    history = Path(storage.uri, job.job_id, "checkpoints.json")
    whole = history.read_bytes()
    history.write_bytes(b"[]")
    jobs, told = Jobs(), Told()
    follower = Follower(storage.uri, jobs, told)
    assert [len(shown.story.checkpoints.recent) for shown in jobs.begun()] == [0]
    history.write_bytes(whole)
    follower.look()
    assert told.times == 1
    assert [len(shown.story.checkpoints.recent) > 0 for shown in jobs.begun()] == [True]


def test_events_that_make_no_sense_cost_the_job_its_page_and_not_the_others(
    run: JobRun, storage: CheckpointFolders
) -> None:
    first, second = ran(run), ran(run)
    jobs = Jobs()
    follower = Follower(storage.uri, jobs, lambda: None)
    (journal,) = Path(storage.uri, first.job_id, "journal").iterdir()
    with journal.open("ab") as file:
        file.write(encode({"event": "epoch", "at": 1, "totals": 7}))
        file.write(encode({"event": "started", "at": 1, "job": {"job_id": "x", "vertices": 3}}))
    follower.look()
    assert [shown.story.job["job_id"] for shown in jobs.begun()] == [second.job_id]


def test_a_folder_that_cannot_be_read_is_read_later(
    run: JobRun, storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ran(run)
    follower = Follower(storage.uri, Jobs(), lambda: None)

    def fail(path: str) -> Any:
        raise OSError("the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(following, "job_ids_at", fail)
        follower.look()
    assert "the disk is away" in caplog.text
    follower.look()


def test_a_job_that_cannot_be_read_is_read_later_and_costs_no_other_job_its_news(
    run: JobRun, storage: CheckpointFolders
) -> None:
    journals = [Path(storage.uri, ran(run).job_id, "journal") for _ in range(4)]
    (begun, new), aside = (journals[:2], journals[2:]), Path(storage.uri, "aside")
    aside.mkdir()
    for journal in new:
        journal.parent.rename(aside / journal.parent.name)
    files = [next(journal.iterdir()) for journal in begun]
    lines = [file.read_bytes().splitlines(keepends=True) for file in files]
    for file, all_lines in zip(files, lines, strict=True):
        file.write_bytes(b"".join(all_lines[:2]))
    jobs, told = Jobs(), Told()
    follower = Follower(storage.uri, jobs, told)
    assert epochs(jobs) == [1, 1]
    for journal in new:
        (aside / journal.parent.name).rename(journal.parent)
    for file, all_lines in zip(files, lines, strict=True):
        file.write_bytes(b"".join(all_lines))
    broken = begun[0], min(new)
    for number, journal in enumerate(broken):
        journal.rename(aside / str(number))
        journal.write_text("no folder")
    follower.look()
    assert (sorted(epochs(jobs)), told.times) == ([1, 4, 4], 1)
    for number, journal in enumerate(broken):
        journal.unlink()
        (aside / str(number)).rename(journal)
    follower.look()
    assert (epochs(jobs), told.times) == ([4] * 4, 2)


def test_what_could_not_be_made_of_a_folder_is_made_later(
    run: JobRun, storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its journal told meanwhile is not lost."""
    journal = Path(storage.uri, ran(run).job_id, "journal")
    journal.rename(away := Path(storage.uri, "away"))
    jobs = Jobs()
    follower = Follower(storage.uri, jobs, lambda: None)
    away.rename(journal)
    with monkeypatch.context() as patch:
        patch.setattr(dead_jobs, "_story", raising(OSError("the disk is away")))
        follower.look()
    follower.look()
    assert epochs(jobs) == [4]
    assert [shown.story.status for shown in jobs.begun()] == ["FINISHED"]


def test_the_folder_is_read_only_while_somebody_looks(run: JobRun, storage: CheckpointFolders) -> None:
    ran(run)
    follower = Follower(storage.uri, Jobs(), lambda: None)
    looks: list[bool] = []
    watched = iter([False, True, False, True])

    class Ended(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return len(looks) == 4

    def is_watched() -> bool:
        looks.append(next(watched))
        return looks[-1]

    seen: list[int] = []
    follower.look = lambda: seen.append(len(looks))  # type: ignore[method-assign]
    follower.follow(is_watched, Ended())
    assert seen == [2, 4]


def test_a_page_is_watched_after_a_request(run: JobRun, storage: CheckpointFolders) -> None:
    ran(run)
    monitor = Monitor()
    monitor.follow(storage.uri)
    assert not monitor._is_watched()
    monitor.serve(WebPageSettings(has_actions=False))
    assert not monitor._is_watched()
    assert len(browser_of(monitor).enter().ask("/api/jobs").json()["jobs"]) == 1
    assert monitor._is_watched()
    monitor.close()
