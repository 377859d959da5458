"""What a supervisor asks without a token, and the token that stays over restarts of the program."""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support_job import GrowingSource, JobRun, at, once
from support_runtime import PATIENCE_S
from support_web import Browser, browser_of, monitor_with

from pyflinkstate.errors import ConfigurationError, SparkJobError
from pyflinkstate.monitor.hub import Monitor
from pyflinkstate.runtime.master import Job, WebPageSettings
from pyflinkstate.runtime.plan import SourceNode
from pyflinkstate.runtime.settings import CheckpointSettings
from pyflinkstate.runtime.settings.restart import FixedDelayRestart

pytestmark = pytest.mark.timeout(60)

TIMEOUT_MS = 60_000


class Supervised:
    """A job, and what its page answers to somebody who has no token."""

    def __init__(self, run: JobRun) -> None:
        self.run = run
        self.monitor = Monitor(WebPageSettings(health_timeout_ms=TIMEOUT_MS), run.clock)
        self._stranger = browser_of(self.monitor)
        recorder: Any = self.monitor.observe(None)
        self._is_known = threading.Event()
        recorder._changed = self._is_known.set
        run.listeners = (recorder,)
        self.monitor.attach(recorder, self.job, None)

    @property
    def job(self) -> Job:
        return self.run.job()

    def asked(self) -> tuple[bool, bool]:
        """Return whether jobs make progress, and whether they are ready."""
        found = []
        for path, word in (("/health", "makes_progress"), ("/ready", "is_ready")):
            answer = self._stranger.ask(path)
            is_so = answer.json()[word]
            assert (answer.json(), answer.status) == ({word: is_so}, 200 if is_so else 503)
            found.append(is_so)
        return found[0], found[1]

    def asked_when_known(self) -> tuple[bool, bool]:
        """The same, when the page knows of the job; called from the runner's thread."""
        assert self._is_known.wait(PATIENCE_S)
        return self.asked()


@pytest.fixture
def supervise() -> Iterator[Callable[[JobRun], Supervised]]:
    made: list[Supervised] = []

    def supervise(run: JobRun) -> Supervised:
        made.append(Supervised(run))
        return made[-1]

    yield supervise
    for one in made:
        one.monitor.close()


def test_a_job_that_runs_is_ready_and_makes_progress_until_an_epoch_takes_too_long(
    run: JobRun, supervise: Callable[[JobRun], Supervised]
) -> None:
    page = supervise(run)
    assert page.asked() == (True, False), "there is no job yet"
    found = []

    def before(request: Any) -> None:
        # Later, a checkpoint of an earlier epoch may be complete at any moment, which is progress, too.
        for later_ms in (0, TIMEOUT_MS, 1) if request.link.epoch == 1 else (0,):
            run.clock.time_ms += later_ms
            found.append(page.asked_when_known())

    run.runner.before = before
    run.run()
    first, later = [(True, True), (True, True), (False, True)], [(True, True)] * 3
    assert found == first + later, "each epoch that ends is progress"
    assert page.asked() == (True, False), "it is over"


def test_epochs_that_are_run_again_and_again_are_no_progress(
    run: JobRun, supervise: Callable[[JobRun], Supervised]
) -> None:
    run.restart, run.checkpoints = FixedDelayRestart(3, 0), CheckpointSettings(interval_ms=10**6)
    run.runner.before = at(2, run.heard.await_checkpoint)
    page, found = supervise(run), []
    fails = once(SparkJobError("an executor was lost"), 3, times=3)

    def after(request: Any) -> None:
        run.clock.time_ms += TIMEOUT_MS // 2
        if request.link.epoch == 3:
            found.append(page.asked_when_known())
        fails(request)

    run.runner.after = after
    run.run()
    assert [makes_progress for makes_progress, _ in found] == [True, False, False, False]


def test_a_job_whose_source_has_nothing_is_well(supervise: Callable[[JobRun], Supervised]) -> None:
    found = []

    def when_idle(source: GrowingSource) -> None:
        run.clock.time_ms += TIMEOUT_MS
        found.append(page.asked_when_known())
        source.is_over = len(found) == 3

    run = JobRun(SourceNode(GrowingSource(3, when_idle), "numbers"))
    page = supervise(run)
    run.run()
    assert found == [(True, True)] * 3


def test_a_stranger_may_ask_nothing_else_and_only_this_host(monitor: Monitor) -> None:
    stranger = browser_of(monitor)
    for path in ("/health", "/ready"):
        assert stranger.ask(path, host="evil.example").status == 421
        assert stranger.ask(path, "POST").status == 405
        assert stranger.ask(f"{path}/").status == 401


# --- the token -----------------------------------------------------------------------------------------


def test_a_token_in_a_file_and_a_browser_survive_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "token"
    pages = []
    for _ in range(2):
        monitor = monitor_with(token_file=str(file))
        pages.append(browser_of(monitor))
        if len(pages) == 1:
            pages[0].enter()
        else:
            known = Browser(
                pages[1].port, "", str(pages[0].cookie).replace(str(pages[0].port), str(pages[1].port))
            )
            assert known.ask("/api/session").json()["action_token"] == pages[0].action_token
        monitor.close()
    assert pages[0].token == pages[1].token == file.read_text().strip()
    assert pages[0].token not in f"{pages[0].cookie} {pages[0].action_token}"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
def test_a_token_may_be_given(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "token"
    file.write_text("a-secret_of.16~chars\n")
    file.chmod(mode)
    monitor = monitor_with(token_file=str(file))
    assert browser_of(monitor).token == "a-secret_of.16~chars"
    monitor.close()


@pytest.mark.parametrize(
    ("content", "mode", "told"),
    [
        ("a-secret_of.16~chars", 0o644, "chmod 600"),
        ("a-secret_of.16~chars", 0o620, "chmod 600"),
        ("a-secret_of.16~chars", 0o602, "chmod 600"),
        ("", 0o600, "has no token"),
        ("too short", 0o600, "has no token"),
        ("a-secret of.16~chars", 0o600, "has no token"),
        ("a" * 257, 0o600, "has no token"),
        ("ä" * 20, 0o600, "has no token"),
    ],
)
def test_a_file_that_keeps_no_secret_is_refused(tmp_path: Path, content: str, mode: int, told: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match=told) as caught:
        monitor_with(token_file=str(file))
    assert not content or content not in caught.value.message


def test_a_token_that_cannot_be_kept_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "no folder" / "token", tmp_path):
        with pytest.raises(ConfigurationError, match="cannot be kept"):
            monitor_with(token_file=str(path))
