"""Jobs from their folders: with a journal, without one, damaged, and on the page of ``pyflinkstate ui``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support_job import JobRun, numbers
from support_runtime import PATIENCE_S
from support_web import EVIL, JOB_ID, Browser, browser_of, events, monitor_with, stories_at

from pyflinkstate.errors import CheckpointError, UserFunctionError
from pyflinkstate.monitor import api, recorder as recording
from pyflinkstate.monitor.journal import Journal, encode
from pyflinkstate.monitor.recorder import Recorder
from pyflinkstate.runtime.plan.nodes import ChainNode
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.state_access.command_line import main


def finished(run: JobRun, has_journal: bool) -> tuple[str, Recorder]:
    """Run a job to its end; returns its folder and what was recorded."""
    assert run.storage is not None
    recorder = Recorder(run.clock, run.storage.uri if has_journal else None)
    run.listeners = (recorder,)
    job = run.run()
    return f"{run.storage.uri}/{job.job_id}", recorder


@pytest.mark.parametrize("below", ["", "/chk-4"])
def test_a_job_is_shown_as_it_was_while_it_ran(run: JobRun, below: str) -> None:
    folder, recorder = finished(run, has_journal=True)
    (story,) = stories_at(folder + below)
    for name, view in api.VIEWS.items():
        assert view(story, True) == view(recorder.story, True), name


def test_all_jobs_of_a_directory_are_shown(run: JobRun, storage: CheckpointFolders) -> None:
    finished(run, has_journal=True)
    finished(run, has_journal=False)
    assert len(stories_at(storage.uri)) == 2


def test_a_job_without_a_journal_has_what_lies_on_the_disk(run: JobRun) -> None:
    folder, recorder = finished(run, has_journal=False)
    (story,) = stories_at(folder)
    assert story.job["name"] == "orders"
    assert story.measured.totals == recorder.story.measured.totals
    assert story.checkpoints.states == recorder.story.checkpoints.states
    assert story.checkpoints.counts == recorder.story.checkpoints.counts
    for view in api.VIEWS.values():
        view(story, False)


def test_a_job_whose_start_is_no_longer_in_its_journal(run: JobRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "Journal", partial(Journal, segment_bytes=1, most_segments=8))
    run.end = ChainNode(numbers(), "map", lambda n: 1 // (9 - n), "inverse")
    assert run.storage is not None
    recorder = Recorder(run.clock, run.storage.uri)
    run.listeners = (recorder,)
    with pytest.raises(UserFunctionError):
        run.run()
    (story,) = stories_at(run.storage.uri)
    assert story.status == "FAILED"
    assert (story.started_ms, story.job) == (recorder.story.started_ms, recorder.story.job)
    assert list(story.failures) == list(recorder.story.failures)
    assert story.epochs.recent[-1] == recorder.story.epochs.recent[-1]
    assert (story.runs, story.directory) == (1, run.storage.uri)


def test_a_job_that_cannot_be_read_costs_no_other_job_its_page(
    run: JobRun, storage: CheckpointFolders, caplog: pytest.LogCaptureFixture
) -> None:
    folders = [finished(run, has_journal=True)[0] for _ in range(2)]
    journals = [Path(folder) / "journal" for folder in folders]
    journals[0].rename(f"{storage.uri}/away")
    journals[0].write_text("no folder")
    (story,) = stories_at(storage.uri)
    assert story.job["job_id"] == Path(folders[1]).name
    assert f"the job {Path(folders[0]).name}" in caplog.text
    with pytest.raises(CheckpointError, match="cannot be read"):
        stories_at(folders[0])


def test_damage_costs_what_is_damaged(run: JobRun) -> None:
    folder, _ = finished(run, has_journal=True)
    (journal,) = (Path(folder) / "journal").iterdir()
    journal.write_bytes(journal.read_bytes()[:-20] + b"\xff\n")
    Path(folder, "checkpoints.json").write_text("[{]")
    (story,) = stories_at(folder)
    assert story.status == "RUNNING"
    assert not story.is_over


def test_events_that_make_no_sense_are_left_out(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = [
        *events(),
        {"event": "epoch"},
        {"event": "committed", "at": "x", "epoch": []},
        {"event": "from a later version", "at": 1},
    ]
    Journal(str(tmp_path / JOB_ID), 1).write([encode(event) for event in told])
    (story,) = stories_at(str(tmp_path))
    assert story.restarts == 1


OTHER_ID = "b" * 32
BEGUN = {"job_id": OTHER_ID, "name": "odd", "vertices": [], "edges": [], "restored_from": None}


@pytest.mark.parametrize(
    "changed",
    [
        {"event": "started", "at": 1, "job": None},
        {"event": "started", "at": 1, "job": {**BEGUN, "job_id": JOB_ID}},
        {"event": "started", "at": 1, "job": {**BEGUN, "vertices": 5}},
        {"event": "epoch", "subtasks": {"a": ["x"]}},
        {"event": "epoch", "phases_ms": {"planning": "1\nevil 1"}},
        {"event": "epoch", "records": float("nan")},
        {"event": "epoch", "at": float("inf")},
        {"event": "checkpoint", "subtasks": [[]]},
    ],
    ids=repr,
)
def test_a_job_that_makes_no_sense_costs_no_other_job_its_page(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    Journal(str(tmp_path / JOB_ID), 1).write([encode(event) for event in events()])
    told = [{**one, **(changed if one["event"] == changed["event"] else {})} for one in events(OTHER_ID)]
    Journal(str(tmp_path / OTHER_ID), 1).write([encode(event) for event in told])
    found = stories_at(str(tmp_path))
    shown = {story.job["job_id"]: story for story in found}
    assert JOB_ID in shown
    assert len(shown) == len(found)
    browser = browser_of(monitor := monitor_with(*shown.values())).enter()
    for path in ("/api/jobs", "/metrics", *(f"/api/jobs/{one}/page" for one in shown)):
        assert browser.ask(path).status == 200, path
    assert b"\nevil" not in browser.ask("/metrics").body
    assert b"NaN" not in browser.ask(f"/api/jobs/{OTHER_ID}/page").body
    monitor.close()


def test_what_a_later_version_tells_of_a_checkpoint_is_left_out(run: JobRun) -> None:
    folder, _ = finished(run, has_journal=False)
    (before,) = stories_at(folder)
    path = Path(folder, "checkpoints.json")
    path.write_text(json.dumps([{**one, "from a later version": 1} for one in json.loads(path.read_text())]))
    (story,) = stories_at(folder)
    assert list(story.checkpoints.recent) == list(before.checkpoints.recent) != []


@pytest.mark.parametrize("history", ["{}", "5", '[{"x": 1}]', '[{"triggered_ms": "a"}]'])
def test_statistics_that_make_no_sense_are_left_out(run: JobRun, history: str) -> None:
    folder, _ = finished(run, has_journal=False)
    path = Path(folder, "checkpoints.json")
    if "triggered_ms" in history:
        history = json.dumps([{**json.loads(path.read_text())[0], "triggered_ms": "a"}])
    path.write_text(history)
    (story,) = stories_at(folder)
    assert (story.job["name"], list(story.checkpoints.recent)) == ("orders", [])


@pytest.mark.parametrize(
    ("place", "message"), [(".", "has no job"), ("none", "has no job"), ("file", "cannot list")]
)
def test_where_there_is_no_job_it_says_so(
    tmp_path: Path, place: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    path = str(tmp_path / place)
    with pytest.raises(CheckpointError, match=message):
        stories_at(path)
    assert main(["ui", path]) == 3
    assert message in capsys.readouterr().err


def hear_interrupts() -> None:
    """Undo that a shell lets its background jobs, and all that they start, ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_the_command_serves_the_page_until_it_is_interrupted(tmp_path: Path) -> None:
    Journal(str(tmp_path / JOB_ID), 1).write([encode(event) for event in events()])
    command = [sys.executable, "-m", "pyflinkstate", "ui", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=hear_interrupts)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        port, _, token = address.rpartition(":")[2].partition("/?token=")
        browser = Browser(int(port), token).enter()
        job = browser.ask(f"/api/jobs/{JOB_ID}").json()
        assert (job["name"], job["is_live"]) == (EVIL, False)
        assert browser.ask("/api/session").json()["has_actions"] is False
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.communicate()
