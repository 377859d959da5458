"""The journal: what was written is read, what was torn is absent, and there is never too much of it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st
from moto.server import ThreadedMotoServer
from support_job import JobRun, numbers
from support_runtime import PATIENCE_S, raising
from support_web import EVIL, JOB_ID, Browser, browser_of, events, monitor_with, read_journal, stories_at

from pyflinkstate.errors import CheckpointError, UserFunctionError
from pyflinkstate.monitor import api, hub, jobs as recording
from pyflinkstate.monitor.hub import Follower, Monitor
from pyflinkstate.monitor.jobs import Jobs, Recorder
from pyflinkstate.monitor.journal import Journal, JournalReader, decode, decode_all, encode
from pyflinkstate.runtime.master.loop import Job
from pyflinkstate.runtime.master.monitoring import WebPageSettings
from pyflinkstate.runtime.plan.nodes import ChainNode
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.state_access.command_line import main

pytestmark = pytest.mark.timeout(60)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def event(number: int) -> dict[str, Any]:
    return {"event": "epoch", "at": number, "text": "<script>\n\u2028\ud800" * (number % 3)}


def write(journal: Journal, numbers: Iterable[int]) -> None:
    """Write an event for each number."""
    for number in numbers:
        journal.write([encode(event(number))])


@settings(max_examples=30)
@given(st.dictionaries(st.text(), JSON))
def test_a_line_is_read_as_it_was_written(content: dict[str, Any]) -> None:
    made = {**content, "event": "epoch"}
    line = encode(made)
    assert line.count(b"\n") == 1
    assert decode(line.rstrip(b"\n")) == made


@given(st.binary())
def test_any_bytes_can_be_read(data: bytes) -> None:
    assert list(decode_all(data)) == []


def test_what_was_torn_is_absent_and_the_rest_is_there() -> None:
    first, second = encode(event(1)), encode(event(2))
    for length in range(len(second)):
        assert list(decode_all(first + second[:length])) in ([event(1)], [event(1), event(2)])
    for place in range(len(first) - 1):
        damaged = first[:place] + bytes([first[place] ^ 1]) + first[place + 1 :]
        assert list(decode_all(damaged + second)) == [event(2)]


def test_what_is_no_event_is_absent() -> None:
    for other in ([], {}, {"event": 1}, "event"):
        assert decode(encode(other).rstrip(b"\n")) is None  # type: ignore[arg-type]


def test_a_journal_is_read_in_order_over_files_and_runs(tmp_path: Path) -> None:
    for start, now_ms in ((0, 9), (50, 10)):
        journal = Journal(str(tmp_path), now_ms, segment_bytes=500, most_segments=100)
        write(journal, range(start, start + 50))
    assert len(list((tmp_path / "journal").iterdir())) > 4
    assert read_journal(str(tmp_path)) == [event(number) for number in range(100)]


def test_there_is_never_more_than_the_bound(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), 1, segment_bytes=500, most_segments=3)
    for number in range(200):
        journal.write([encode(event(number))])
        sizes = [path.stat().st_size for path in (tmp_path / "journal").iterdir()]
        assert len(sizes) <= 3
        assert max(sizes) <= 500
    found = read_journal(str(tmp_path))
    assert found == [event(number) for number in range(200 - len(found), 200)]


def test_two_drivers_of_a_job_do_not_write_to_the_same_file(tmp_path: Path) -> None:
    journals = [Journal(str(tmp_path), 1), Journal(str(tmp_path), 1)]
    for journal in journals:
        journal.write([encode(event(1))])
    assert read_journal(str(tmp_path)) == [event(1)] * 2


def test_a_failed_write_spoils_no_later_one(tmp_path: Path) -> None:
    """A part of a line at the end of a file does not swallow the line after it."""
    journal = Journal(str(tmp_path), 1)
    journal.write([encode(event(1))])
    (file,) = (tmp_path / "journal").iterdir()
    with file.open("ab") as stream:
        stream.write(encode(event(2))[:-5])
    file.chmod(0o600)
    os.rename(tmp_path / "journal", tmp_path / "away")
    (tmp_path / "journal").write_text("in the way")
    with pytest.raises(OSError, match="journal"):
        journal.write([encode(event(2))])
    os.remove(tmp_path / "journal")
    os.rename(tmp_path / "away", tmp_path / "journal")
    journal.write([encode(event(3))])
    assert read_journal(str(tmp_path)) == [event(1), event(3)]


class Failing:
    """A file system of which one method raises an error for some paths; everything else goes on."""

    def __init__(self, inner: Any, method: str, error: int, ending: str = "") -> None:
        self._inner = inner
        self._method = method
        self._error = OSError(error, os.strerror(error))
        self._ending = ending

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name != self._method:
            return method

        def failing(path: str) -> Any:
            opened = method(path)
            if not path.endswith(self._ending):
                return opened
            opened.close()
            raise self._error

        return failing


def test_a_full_disk_costs_nothing_that_was_told_before(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), 1, segment_bytes=500, most_segments=3)
    write(journal, range(200))
    before = read_journal(str(tmp_path))
    good, journal._fs = journal._fs, Failing(journal._fs, "open_append_stream", errno.ENOSPC)
    for number in range(200, 250):
        with pytest.raises(OSError, match="No space"):
            journal.write([encode(event(number))])
    kept = read_journal(str(tmp_path))
    assert kept == before[-len(kept) :]
    assert len(kept) >= len(before) / 2
    journal._fs = good
    journal.write([encode(event(250))])
    assert read_journal(str(tmp_path)) == [*kept, event(250)]


def test_many_lines_at_once_become_as_many_files_as_they_need(tmp_path: Path) -> None:
    """A file is never longer than a reader reads."""
    journal = Journal(str(tmp_path), 1, segment_bytes=500, most_segments=100)
    journal.write([encode(event(number)) for number in range(100)])
    assert max(path.stat().st_size for path in (tmp_path / "journal").iterdir()) <= 500
    assert read_journal(str(tmp_path)) == [event(number) for number in range(100)]


HEAD: dict[str, Any] = {"event": "job", "at": 0, "name": "orders" * 100}


def test_each_further_file_begins_with_the_head_which_takes_no_room(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), 1, segment_bytes=500, most_segments=3)
    journal.head = lambda: encode(HEAD)
    write(journal, range(60))
    files = [list(decode_all(path.read_bytes())) for path in sorted((tmp_path / "journal").iterdir())]
    assert [(file[0], file.count(HEAD)) for file in files] == [(HEAD, 1)] * 3
    told = [one for file in files for one in file[1:]]
    assert told == [event(number) for number in range(60 - len(told), 60)]
    assert len(told) > 6


def test_after_a_failed_write_the_head_comes_again(tmp_path: Path) -> None:
    """What was lost may have been the line that says which job it is."""
    journal = Journal(str(tmp_path), 1)
    journal.head = lambda: encode(HEAD)
    (tmp_path / "journal").write_text("in the way")
    with pytest.raises(OSError, match="journal"):
        journal.write([encode(event(1))])
    os.remove(tmp_path / "journal")
    journal.write([encode(event(2))])
    journal.write([encode(event(3))])
    assert read_journal(str(tmp_path)) == [HEAD, event(2), event(3)]


def test_if_one_file_cannot_be_read_all_of_them_are_read_later(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), 1, segment_bytes=1)
    reader = JournalReader(str(tmp_path))
    write(journal, range(3))
    last = sorted((tmp_path / "journal").iterdir())[-1]
    good, reader._fs = reader._fs, Failing(reader._fs, "open_input_file", errno.EIO, last.name)
    with pytest.raises(OSError, match="Input/output error"):
        reader.read_new()
    reader._fs = good
    assert reader.read_new() == [event(number) for number in range(3)]
    assert reader.read_new() == []


def test_no_journal_is_an_empty_one(tmp_path: Path) -> None:
    assert read_journal(str(tmp_path / "none")) == []


def test_what_was_written_survives_a_kill(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from pyflinkstate.monitor.journal import Journal, encode\n"
        "journal = Journal(sys.argv[1], 1)\n"
        "for n in range(20): journal.write([encode({'event': 'epoch', 'at': n})])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert [found["at"] for found in read_journal(str(tmp_path))] == list(range(20))


def test_an_object_store_has_the_journal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = f"endpoint_override={host}:{port}&scheme=http&region=us-east-1&allow_bucket_creation=true"
        uri = f"s3://jobs/one?{options}"
        journal = Journal(uri, 1, segment_bytes=500, most_segments=3)
        journal.head = lambda: encode(HEAD)
        write(journal, range(30))
        found = read_journal(uri)
        assert found[0] == HEAD
        told = [one for one in found if one != HEAD]
        assert told == [event(number) for number in range(30)][-len(told) :]
        assert len(told) > 10
    finally:
        server.stop()


# --- jobs from their folders: with a journal, without one, damaged, and on the page of ``pyflinkstate ui


def finished(run: JobRun, has_journal: bool) -> tuple[str, Recorder]:
    """Run a job to its end; returns its folder and what was recorded."""
    assert run.storage is not None
    recorder = Recorder(run.clock, run.storage.uri if has_journal else None)
    job = attrs.evolve(run, listeners=(recorder,)).run()
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


# --- the page of a folder follows it: new events, new jobs, and nothing while nobody looks --------


def ran(run: JobRun, journal: bool = True) -> Job:
    assert run.storage is not None
    listeners = (Recorder(run.clock, run.storage.uri),) if journal else ()
    return attrs.evolve(run, listeners=listeners).run()


def followed(storage: CheckpointFolders) -> tuple[Follower, Jobs, list[None]]:
    """Return what follows a folder, what it shows, and an item for each time that it told of a change."""
    jobs, told = Jobs(), list[None]()
    return Follower(storage.uri, jobs, lambda: told.append(None)), jobs, told


def epochs(jobs: Jobs) -> list[int]:
    return [len(shown.story.epochs.recent) for shown in jobs.begun()]


def test_events_that_are_added_are_taken_in_once(run: JobRun, storage: CheckpointFolders) -> None:
    job = ran(run)
    (journal,) = Path(storage.uri, job.job_id, "journal").iterdir()
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2]))
    follower, jobs, told = followed(storage)
    assert epochs(jobs) == [1]
    follower.look()
    assert len(told) == 0
    journal.write_bytes(b"".join(lines)[:-10])
    follower.look()
    assert (epochs(jobs), len(told)) == ([4], 1)
    (shown,) = jobs.begun()
    assert not shown.story.is_over
    journal.write_bytes(b"".join(lines))
    follower.look()
    assert (epochs(jobs), len(told)) == ([4], 2)
    assert shown.story.status == "FINISHED"
    (again,) = stories_at(storage.uri)
    assert shown.story.measured.totals == again.measured.totals
    assert list(shown.story.epochs.recent) == list(again.epochs.recent)


def test_a_job_that_appears_is_shown(run: JobRun, storage: CheckpointFolders) -> None:
    ran(run)
    follower, jobs, told = followed(storage)
    second = ran(run)
    follower.look()
    assert [shown.story.job["job_id"] for shown in jobs.begun()][-1] == second.job_id
    assert (len(jobs.begun()), len(told)) == (2, 1)
    follower.look()
    assert (len(jobs.begun()), len(told)) == (2, 1)


def test_a_job_without_a_journal_is_read_anew_when_it_has_another_checkpoint(
    run: JobRun, storage: CheckpointFolders
) -> None:
    job = ran(run, journal=False)
    history = Path(storage.uri, job.job_id, "checkpoints.json")
    whole = history.read_bytes()
    history.write_bytes(b"[]")
    follower, jobs, told = followed(storage)
    assert [len(shown.story.checkpoints.recent) for shown in jobs.begun()] == [0]
    history.write_bytes(whole)
    follower.look()
    assert len(told) == 1
    assert [len(shown.story.checkpoints.recent) > 0 for shown in jobs.begun()] == [True]


def test_events_that_make_no_sense_cost_the_job_its_page_and_not_the_others(
    run: JobRun, storage: CheckpointFolders
) -> None:
    first, second = ran(run), ran(run)
    follower, jobs, _ = followed(storage)
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
    with monkeypatch.context() as patch:
        patch.setattr(hub, "job_ids_at", raising(OSError("the disk is away")))
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
    follower, jobs, told = followed(storage)
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
    assert (sorted(epochs(jobs)), len(told)) == ([1, 4, 4], 1)
    for number, journal in enumerate(broken):
        journal.unlink()
        (aside / str(number)).rename(journal)
    follower.look()
    assert (epochs(jobs), len(told)) == ([4] * 4, 2)


def test_what_could_not_be_made_of_a_folder_is_made_later(
    run: JobRun, storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its journal told meanwhile is not lost."""
    journal = Path(storage.uri, ran(run).job_id, "journal")
    journal.rename(away := Path(storage.uri, "away"))
    follower, jobs, _ = followed(storage)
    away.rename(journal)
    with monkeypatch.context() as patch:
        patch.setattr(hub, "_story", raising(OSError("the disk is away")))
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
