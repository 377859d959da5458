"""The commands for jobs that run, against the page of a real job, and against what is no page."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import pytest
from support_job import GrowingSource, JobRun
from support_runtime import PATIENCE_S, ManualClock

from pyflinkstate.errors import JobCancelledError
from pyflinkstate.monitor.hub import Monitor
from pyflinkstate.monitor.jobs import Recorder
from pyflinkstate.runtime.master import Job, WebPageSettings
from pyflinkstate.runtime.plan import SourceNode
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.state_access.command_line import main, running_jobs
from pyflinkstate.version import VERSION

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("forked_slots")]


@attrs.define
class Program:
    """A program with a job that waits for input, and its page."""

    monitor: Monitor
    savepoints: str | None
    storage: CheckpointFolders
    name: str = "orders"
    job: Job = attrs.field(init=False)
    error: BaseException | None = None
    _thread: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        known = threading.Event()
        run = JobRun(SourceNode(GrowingSource(3, lambda _: None), "numbers"), storage=self.storage)
        run.name, recorder = self.name, self.monitor.observe(None)
        assert isinstance(recorder, Recorder)
        changed = recorder._changed
        recorder._changed = lambda: (changed(), known.set())
        run.listeners = (recorder,)
        self.job = run.job()
        self.monitor.attach(recorder, self.job, self.savepoints)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert known.wait(PATIENCE_S)

    def _run(self) -> None:
        try:
            list(self.job.run())
        except JobCancelledError as error:
            self.error = error

    def ends(self) -> str:
        """Wait for the end of the job and return its status."""
        self._thread.join(PATIENCE_S)
        return self.job.status.name


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    made = Monitor(WebPageSettings(), ManualClock())
    yield made
    made.close()


@pytest.fixture
def program(monitor: Monitor, storage: CheckpointFolders, tmp_path: Path) -> Iterator[Program]:
    made = Program(monitor, str(tmp_path / "savepoints"), storage)
    yield made
    made.job.cancel()
    made.ends()


def without_token(monitor: Monitor) -> str:
    return str(monitor.address).partition("?")[0]


def test_jobs_are_listed_with_dates_for_people_and_numbers_for_programs(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    address = str(program.monitor.address)
    assert main(["jobs", address]) == 0
    said = capsys.readouterr().out
    assert program.job.job_id in said
    assert "started_ms" not in said
    assert "2023-11-1" in said, "the clock of the tests stands still in 2023"
    assert urlsplit(address).query.partition("=")[2] not in said, "the token is not printed"
    assert main(["jobs", address, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["id"], row["name"], row["status"]) == (program.job.job_id, "orders", "RUNNING")
    assert isinstance(row["started_ms"], int)


@pytest.mark.parametrize("way", ["address", "file", "variable"])
def test_a_savepoint_is_taken_and_its_folder_is_what_is_printed(
    program: Program,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    way: str,
) -> None:
    words = ["savepoint", without_token(program.monitor)]
    token = urlsplit(str(program.monitor.address)).query.partition("=")[2]
    if way == "address":
        words[1] = str(program.monitor.address)
    elif way == "file":
        (tmp_path / "token").write_text(f"{token}\n")
        words += ["--token-file", str(tmp_path / "token")]
    else:
        monkeypatch.setenv(running_jobs.TOKEN, token)
    assert main(words) == 0
    folder = capsys.readouterr().out.strip()
    assert program.storage.load(folder).epoch >= 1
    assert program.job.status.name == "RUNNING"


@pytest.mark.parametrize(("more", "stops_after"), [([], "stop"), (["--drain"], "drain")])
def test_a_job_is_stopped_with_a_savepoint(
    program: Program, capsys: pytest.CaptureFixture[str], more: list[str], stops_after: str
) -> None:
    assert main(["stop", str(program.monitor.address), "orders", *more, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert program.storage.load(answer["savepoint"]).job_name == "orders"
    assert program.ends() == "FINISHED"


def test_a_job_is_cancelled(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cancel", str(program.monitor.address), program.job.job_id]) == 0
    assert "cancelled" in capsys.readouterr().out
    assert program.ends() == "CANCELED"
    assert main(["cancel", str(program.monitor.address)]) == 3
    assert "name one of the jobs that run" in capsys.readouterr().err


def test_of_several_jobs_one_has_to_be_named(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Program(program.monitor, None, CheckpointFolders(str(tmp_path / "other")), "other")
    address = str(program.monitor.address)
    assert main(["cancel", address]) == 3
    assert f"{other.job.job_id} (other)" in capsys.readouterr().err
    assert main(["savepoint", address, "other"]) == 3
    assert "set_default_savepoint_directory()" in capsys.readouterr().err
    assert main(["cancel", address, "other"]) == 0
    assert other.ends() == "CANCELED"
    assert program.job.status.name == "RUNNING"


def test_a_savepoint_that_fails_is_told(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    Path(str(program.savepoints)).write_text("no folder")
    assert main(["savepoint", str(program.monitor.address)]) == 3
    assert str(program.savepoints) in capsys.readouterr().err


def test_a_page_without_actions_lists_jobs_only(
    monitor: Monitor, storage: CheckpointFolders, capsys: pytest.CaptureFixture[str]
) -> None:
    monitor.serve(WebPageSettings(has_actions=False))
    program = Program(monitor, None, storage)
    assert main(["jobs", str(monitor.address)]) == 0
    capsys.readouterr()
    assert main(["cancel", str(monitor.address)]) == 3
    assert "takes no actions" in capsys.readouterr().err
    program.job.cancel()
    assert program.ends() == "CANCELED"


WRONG: dict[str, tuple[str, str]] = {
    "no address": ("127.0.0.1:8081", "name the address of the web page"),
    "no token": ("{page}", "there is no token"),
    "a wrong token": ("{page}?token=wrong", "refuses the token"),
    "a token that is none": ("{page}?token=a%0Ab", "there is no token"),
    "another path": ("{page}elsewhere/?token={token}", "knows no such job"),
    "nobody listens": ("http://127.0.0.1:1/?token=x", "cannot be reached"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_told_without_the_token(
    monitor: Monitor, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.delenv(running_jobs.TOKEN, raising=False)
    form, told = WRONG[what]
    token = urlsplit(str(monitor.address)).query.partition("=")[2]
    assert main(["jobs", form.format(page=without_token(monitor), token=token)]) == 3
    said = capsys.readouterr()
    assert told in said.err
    assert token not in said.err + said.out
    assert main(["jobs", without_token(monitor), "--token-file", "/no/such/file"]) == 3


def test_what_is_no_page_is_told_and_no_other_address_gets_the_token(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        got: list[bytes] = []

        def answer() -> None:
            taken, _ = listener.accept()
            with taken:
                got.append(taken.recv(65536))
                taken.sendall(
                    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
                )

        thread = threading.Thread(target=answer)
        thread.start()
        assert main(["jobs", f"http://127.0.0.1:{port}/under/it/?token=secret"]) == 3
        thread.join(PATIENCE_S)
    assert "is not the page of a program: its status is 302" in capsys.readouterr().err
    assert got[0].startswith(b"GET /under/it/api/jobs HTTP/1.1\r\n")
    assert b"authorization: bearer secret\r\n" in got[0].lower()


def test_the_version(capsys: pytest.CaptureFixture[Any]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"pyflinkstate {VERSION}\n"
