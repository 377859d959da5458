"""What a job says of itself, at which level, and that the documentation lists every logger."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support_job import JobRun, numbers, once

import pyflinkstate
from pyflinkstate.errors import (
    CheckpointError,
    CheckpointStorageError,
    JobCancelledError,
    JobFailedError,
    SparkJobError,
    UserFunctionError,
)
from pyflinkstate.runtime.master.epochs import Epoch
from pyflinkstate.runtime.master.reports.checkpoint_log import CheckpointLog
from pyflinkstate.runtime.master.reports.checkpoint_stats import CheckpointStats
from pyflinkstate.runtime.master.reports.job_log import JobLog
from pyflinkstate.runtime.program.job_client import JobClient
from pyflinkstate.runtime.settings.checkpoint_settings import CheckpointSettings
from pyflinkstate.runtime.settings.job_status import JobStatus
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.runtime.storage.settings import FileSystemCheckpointStorage
from pyflinkstate.runtime.wire.messages import TaskReport
from pyflinkstate.runtime.wire.metrics import MetricValue

ROOT = Path(__file__).parents[2]
PACKAGE = Path(pyflinkstate.__file__).parent
PATIENCE_S = 60

Logged = Callable[[str], list[tuple[str, str]]]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Logged]:
    """What one logger was told so far: levels and messages."""
    with caplog.at_level(logging.DEBUG, "pyflinkstate"):
        yield lambda name: [
            (record.levelname, record.getMessage())
            for record in caplog.records
            if record.name == f"pyflinkstate.{name}"
        ]


@pytest.fixture
def run() -> JobRun:
    return JobRun(numbers(), DriverSink(lambda _, values: list(values)))


class TestLife:
    def test_start_and_end(self, run: JobRun, logged: Logged) -> None:
        job = run.run()
        (started, ended) = logged("job")
        assert started[0] == "INFO"
        assert re.fullmatch(
            rf"job 'orders' \({job.job_id}\) starts from the beginning; "
            r"its driver listens at 127\.0\.0\.1:\d+",
            started[1],
        )
        assert ended == ("INFO", f"job 'orders' ({job.job_id}) is FINISHED after epoch 1")

    def test_each_restart_with_its_cause(self, run: JobRun, logged: Logged) -> None:
        run.restart = FixedDelayRestart(2, 0)
        run.runner.before = once(SparkJobError("the executor is gone"), epoch=1, times=2)
        job = run.run()
        assert logged("job")[1:-1] == [
            (
                "WARNING",
                f"job 'orders' ({job.job_id}) restarts from the beginning, restart {number}, because of "
                f"SparkJobError: the executor is gone",
            )
            for number in (1, 2)
        ]

    def test_where_a_restart_goes_back_to(self, run: JobRun, logged: Logged, tmp_path: Path) -> None:
        run.storage = CheckpointFolders(FileSystemCheckpointStorage(str(tmp_path)))
        run.restart = FixedDelayRestart(1, 0)
        fail = once(SparkJobError("the executor is gone"), epoch=3)

        def after_two_checkpoints(request: Any) -> None:
            while request.link.epoch == 3 and len(run.heard.checkpoints) < 2:
                run.heard.await_checkpoint()
            fail(request)

        run.runner.before = after_two_checkpoints
        run.run()
        (restarted,) = [message for level, message in logged("job") if level == "WARNING"]
        assert re.search(r"restarts from \S+/chk-2, restart 1, because of SparkJobError", restarted)

    def test_who_waits_hears_the_error_itself_and_the_log_has_its_headline(
        self, run: JobRun, logged: Logged
    ) -> None:
        run.runner.before = once(UserFunctionError("KeyError: 'x'\n  in operator 'sum'"), epoch=1)
        with pytest.raises(UserFunctionError):
            run.run()
        level, message = logged("job")[-1]
        assert level == "ERROR"
        assert message.endswith(") is FAILED after epoch 0: UserFunctionError: KeyError: 'x'")

    def test_a_job_beside_the_program_says_all_though_nobody_asks(self, run: JobRun, logged: Logged) -> None:
        run.restart = FixedDelayRestart(1, 0)
        run.runner.before = once(SparkJobError("the executor is gone\n  as was said"), epoch=1, times=2)
        client = JobClient(run.job(), None)
        error = client.get_job_execution_result().exception(PATIENCE_S)
        assert isinstance(error, JobFailedError)
        level, message = logged("job")[-1]
        assert level == "ERROR"
        assert message.endswith(
            "is FAILED after epoch 0: JobFailedError: job 'orders' failed in epoch 1 after 1 restarts: "
            "the executor is gone\n  as was said"
        )

    def test_a_job_that_is_cancelled_did_not_fail(self, run: JobRun, logged: Logged) -> None:
        job = run.job()
        run.runner.before = lambda request: job.cancel()
        run.end = numbers(100, 3)
        with pytest.raises(JobCancelledError):
            list(job.run())
        assert logged("job")[-1] == ("INFO", f"job 'orders' ({job.job_id}) is CANCELED after epoch 0")

    def test_the_signal_that_has_cancelled_it_is_told_as_a_warning(self, run: JobRun, logged: Logged) -> None:
        job = run.job()
        run.runner.before = lambda request: job.cancel(by="SIGTERM")
        with pytest.raises(JobCancelledError, match="was cancelled by SIGTERM"):
            list(job.run())
        ended = f"job 'orders' ({job.job_id}) is CANCELED after epoch 0, by SIGTERM"
        assert logged("job")[-1] == ("WARNING", ended)

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
    def test_what_ends_the_program_does_not_fail_the_job(
        self, run: JobRun, logged: Logged, error: type[BaseException]
    ) -> None:
        def ends(_: int, values: Any) -> None:
            raise error

        run.sink = DriverSink(ends)
        with pytest.raises(error):
            run.run()
        assert run.heard.ended == [JobStatus.CANCELED]
        level, message = logged("job")[-1]
        assert level == "WARNING"
        assert message.partition(" is ")[2] == f"CANCELED after epoch 1, by {error.__name__}"


def dropped(count: int, operator: str = "hours", subtask: int = 0) -> TaskReport:
    metrics = {f"{operator}.numLateRecordsDropped": MetricValue("counter", count)}
    return TaskReport(0, 1, f"{operator}[{subtask}]", metrics=metrics, is_slot=True)


class TestLateRecords:
    def test_once_for_each_operator_and_all_at_the_end(self, logged: Logged) -> None:
        log = JobLog("orders", "1a2b")
        log.counted(dropped(0))
        log.epoch_ended(1)
        assert logged("job") == []
        for count in (3, 5):
            log.counted(dropped(count))
            log.counted(dropped(1, subtask=1))
            log.epoch_ended(count)
        log.counted(dropped(2, "days"))
        log.epoch_ended(6)
        log.ended(JobStatus.FINISHED, 6, None, True)
        first, second, last = logged("job")
        assert first[0] == "WARNING"
        assert first[1].startswith(
            "job 'orders' (1a2b): operator 'hours' has dropped 4 late records up to epoch 3"
        )
        assert first[1].endswith("the metric hours.numLateRecordsDropped counts them")
        assert "operator 'days' has dropped 2 late" in second[1]
        assert last == ("INFO", "job 'orders' (1a2b) is FINISHED after epoch 6, 8 late records dropped")


def stats(
    number: int, duration_ms: int, failure: str | None = None, is_savepoint: bool = False
) -> CheckpointStats:
    return CheckpointStats(
        number, number, duration_ms=duration_ms, failure=failure, is_savepoint=is_savepoint, size_bytes=7
    )


class TestCheckpoints:
    @pytest.mark.parametrize(
        ("settings", "duration_ms", "is_savepoint", "why"),
        [
            (CheckpointSettings(interval_ms=5000), 5000, False, ""),
            (CheckpointSettings(interval_ms=5000), 5001, False, "more than the interval of 5000 ms"),
            (CheckpointSettings(interval_ms=5000), 5001, True, ""),
            (CheckpointSettings(interval_ms=10), 1000, False, ""),
            (CheckpointSettings(interval_ms=0), 100_000, False, ""),
            (CheckpointSettings(interval_ms=0, timeout_ms=8000), 4000, False, ""),
            (
                CheckpointSettings(interval_ms=0, timeout_ms=8000),
                4001,
                True,
                "more than half of its timeout of 8000 ms",
            ),
        ],
    )
    def test_what_is_slow(
        self, logged: Logged, settings: CheckpointSettings, duration_ms: int, is_savepoint: bool, why: str
    ) -> None:
        CheckpointLog("orders", settings).completed(
            stats(4, duration_ms + 60_000, is_savepoint=is_savepoint), duration_ms
        )
        ((level, message),) = logged("checkpoints")
        assert level == ("WARNING" if why else "INFO")
        slow = f", {duration_ms} ms of it after its epoch, which is {why}" if why else " ("
        assert f"is complete after {duration_ms + 60_000} ms{slow}" in message

    def test_slow_ones_in_a_row_are_one_warning(self, logged: Logged) -> None:
        log = CheckpointLog("orders", CheckpointSettings(interval_ms=2000))
        for number, duration_ms in enumerate((10, 3000, 3000, 10, 3000), 1):
            log.completed(stats(number, duration_ms), duration_ms)
        levels = [level for level, _ in logged("checkpoints")]
        assert levels == ["INFO", "WARNING", "INFO", "INFO", "WARNING"]

    def test_those_of_a_job(self, run: JobRun, logged: Logged, tmp_path: Path) -> None:
        storage = FailsOnce(FileSystemCheckpointStorage(str(tmp_path)))
        run.storage, run.checkpoints = storage, CheckpointSettings(interval_ms=0, tolerable_failures=1)
        run.run()
        levels = {message.split(" of epoch")[0]: level for level, message in logged("checkpoints")}
        assert levels["job 'orders': checkpoint 1"] == "WARNING"
        assert levels["job 'orders': checkpoint 2"] == "INFO"
        failed = next(message for level, message in logged("checkpoints") if level == "WARNING")
        assert failed == "job 'orders': checkpoint 1 of epoch 1 has failed: the disk is full"

    def test_what_ends_with_the_job_did_not_fail(self, run: JobRun, logged: Logged, tmp_path: Path) -> None:
        run.storage = CheckpointFolders(FileSystemCheckpointStorage(str(tmp_path)))
        job = run.job()
        checkpoints = job._actions.checkpoints
        assert checkpoints is not None
        checkpoints.trigger(Epoch(1), 0)
        checkpoints.abort_pending(CheckpointError("the job ended"))
        assert logged("checkpoints")[-1] == (
            "INFO",
            "job 'orders': checkpoint 1 of epoch 1 was given up: the job ended",
        )


class FailsOnce(CheckpointFolders):
    """A storage on which no folder can be made at first."""

    has_failed = False

    def begin(self, *args: Any, **settings: Any) -> str:
        if not self.has_failed:
            self.has_failed = True
            raise CheckpointStorageError("the disk is full")
        return super().begin(*args, **settings)


class TestDocumentation:
    def test_its_table_names_every_logger_and_no_other(self) -> None:
        text = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
        used = set(re.findall(r'getLogger\(\s*"(pyflinkstate[\w.]*)"', text))
        table = (ROOT / "docs" / "logging.md").read_text(encoding="utf-8")
        named = set(re.findall(r"^\| `(pyflinkstate[\w.]*)` \|", table, re.MULTILINE))
        assert named == used
        assert "pyflinkstate" not in used, "each belongs to a room, so that it can be turned down alone"

    def test_no_handler_and_no_level_is_set(self) -> None:
        root = logging.getLogger("pyflinkstate")
        assert root.handlers == []
        assert root.propagate
