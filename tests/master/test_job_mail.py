"""What reaches the job master while it waits for a restart, ends, or begins; and sources that raise."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import attrs
import pytest
from slot_functions import Count
from support_job import JobRun, Mailbox, numbers, once
from support_runtime import PATIENCE_S, PICKLED, raising

from pyflinkstate import Available, Epoch, JobListener, JobStatus, Source, SplitEpoch
from pyflinkstate.errors import (
    CheckpointError,
    FunctionResultError,
    JobCancelledError,
    JobFailedError,
    PyFlinkStateError,
    SourceError,
    SparkJobError,
)
from pyflinkstate.runtime.master import Job, SavepointRequest
from pyflinkstate.runtime.plan import SourceNode, StatefulNode
from pyflinkstate.runtime.settings import CheckpointSettings
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks import DriverSink
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.wire import CancelJob, CheckpointAck

pytestmark = pytest.mark.timeout(60)

SPARK_FAILED = SparkJobError("an executor was lost")
DELAY_MS = 600_000


@pytest.fixture
def run(out: list[Any], storage: CheckpointFolders) -> JobRun:
    """A job with checkpoints, of 0..9, three an epoch, that waits ten minutes before a restart."""
    return JobRun(numbers(), out=out, storage=storage, restart=FixedDelayRestart(1, DELAY_MS))


@attrs.define
class OnRestart(JobListener):
    """Does something when the job goes back, before it waits."""

    do: Callable[[], object]

    def on_restart(self, attempt: int, error: PyFlinkStateError) -> None:
        self.do()


def run_with(run: JobRun, on_restart: Callable[[Job], object]) -> Job:
    """Return the job, to be run; ``on_restart`` is called with it before it waits."""
    run.job()._reporter._listeners = (run.heard, OnRestart(lambda: on_restart(run.job())))
    return run.job()


class TestRestartDelay:
    def test_a_cancelled_job_ends_at_once(self, run: JobRun) -> None:
        run.runner.before = once(SPARK_FAILED, 2)
        job = run_with(run, lambda job: job.cancel())
        with pytest.raises(JobCancelledError):
            list(job.run())
        assert run.clock.slept == []
        assert run.heard.ended == [JobStatus.CANCELED]

    def test_other_mail_does_not_shorten_it(self, run: JobRun, out: list[Any]) -> None:
        run.runner.before = once(SPARK_FAILED, 2)
        job = run_with(run, lambda job: [job.wake_up() for _ in range(3)])
        list(job.run())
        assert sum(run.clock.slept) == DELAY_MS
        assert out == list(range(10))

    def test_the_job_says_what_it_is_about(self, run: JobRun) -> None:
        run.runner.before = once(SPARK_FAILED, 2)
        seen: list[JobStatus] = []
        waiting: Callable[[int], None] = lambda _: seen.append(run.job().status)  # noqa: E731
        run.clock.on_sleep = waiting
        for _ in run.job().run():
            seen.append(run.job().status)
        running = [JobStatus.RUNNING]
        assert [*dict.fromkeys(seen)] == [*running, JobStatus.RESTARTING]
        assert (seen[:1], seen[-3:]) == (running, running * 3)


@attrs.define
class HookedSource(Source):
    """The numbers, with something to do, or to raise, in a method."""

    hooks: dict[str, Callable[[], object]] = attrs.Factory(dict)
    inner: Source = attrs.Factory(lambda: numbers().source)
    closed: list[BaseException | None] = attrs.Factory(list)

    def _do(self, method: str) -> None:
        self.hooks.get(method, lambda: None)()

    def open(self, wake_up: Callable[[], None]) -> None:
        self._do("open")

    def close(self, error: BaseException | None) -> None:
        self.closed.append(error)
        self._do("close")

    def initial_offset(self) -> Any:
        self._do("initial_offset")
        return self.inner.initial_offset()

    def latest_offset(self, start: Any, whole: bool) -> Available:
        self._do("latest_offset")
        return self.inner.latest_offset(start, whole)

    def plan(self, start: Any, end: Any) -> Epoch:
        self._do("plan")
        return self.inner.plan(start, end)

    def commit(self, end: Any) -> None:
        self._do("commit")
        self.inner.commit(end)


def failing(times: int, error: Exception) -> Callable[[], None]:
    """Return what raises ``error`` so many times."""
    left = [error] * times

    def fail() -> None:
        if left:
            raise left.pop()

    return fail


class InTuples(Source):
    """Its offsets are pairs, as soon as it has read anything."""

    def initial_offset(self) -> Any:
        return [0]

    def latest_offset(self, start: Any, whole: bool) -> Available:
        return Available([(0, 1)], is_last=True)

    def plan(self, start: Any, end: Any) -> Epoch:
        return SplitEpoch([[1]], lambda split, _: split)


class TestSourcesThatRaise:
    METHODS = ("initial_offset", "latest_offset", "plan", "commit")

    @pytest.mark.parametrize("method", METHODS)
    def test_the_job_restarts(self, run: JobRun, out: list[Any], method: str) -> None:
        source = HookedSource({method: failing(1, LookupError("not there"))})
        run.end = SourceNode(source, "shelf")
        assert run.run().result().restarts == 1
        assert out == list(range(10))
        ((_, error),) = run.heard.restarts
        assert isinstance(error, SourceError)
        assert str(error) == f"source 'shelf': {method} raised LookupError: not there"
        assert isinstance(error.__cause__, LookupError)

    @pytest.mark.parametrize("method", METHODS)
    def test_so_often_as_the_strategy_says(self, run: JobRun, method: str) -> None:
        source = HookedSource({method: failing(100, LookupError("not there"))})
        run.end = SourceNode(source, "shelf")
        run.fails(JobFailedError, match=f"1 restarts: source 'shelf': {method} raised")
        assert isinstance(source.closed[0], JobFailedError)
        assert run.heard.ended == [JobStatus.FAILED]

    @pytest.mark.parametrize("method", METHODS)
    def test_an_error_of_the_projects_own_is_told_as_it_is(self, run: JobRun, method: str) -> None:
        own = CheckpointError("not of this input")
        run.end = SourceNode(HookedSource({method: failing(1, own)}), "shelf")
        error = run.fails(CheckpointError)
        assert error is own

    def test_an_offset_that_no_checkpoint_could_keep_ends_the_job(self, run: JobRun) -> None:
        """A restart would not help: the source would return it again."""
        source = HookedSource(inner=InTuples())
        run.end = SourceNode(source, "shelf")
        run.fails(FunctionResultError, match=r"'shelf': latest_offset .*: JSON would read it back as")
        assert run.heard.restarts == []
        assert run.runner.requests == []

    def test_one_that_cannot_be_opened_ends_the_job(self, run: JobRun) -> None:
        run.end = SourceNode(HookedSource({"open": failing(1, LookupError("no door"))}), "shelf")
        run.fails(SourceError, match="source 'shelf': open raised LookupError: no door")
        assert run.runner.requests == []


@pytest.mark.parametrize(
    ("plan", "error", "text", "status"),
    [
        (lambda job: None, LookupError, "stuck", JobStatus.FAILED),
        (lambda job: raising(LookupError("no shelf"))(), JobFailedError, "no shelf", JobStatus.FAILED),
        (lambda job: job.cancel(), JobCancelledError, "was cancelled", JobStatus.CANCELED),
    ],
    ids=["all is well", "failed", "cancelled"],
)
def test_a_source_that_cannot_be_closed(
    run: JobRun,
    caplog: pytest.LogCaptureFixture,
    plan: Callable[[Job], None],
    error: type[Exception],
    text: str,
    status: JobStatus,
) -> None:
    """It fails a job that went well; all hear of the end, once, and its checkpoints are settled."""
    hooks = {"close": failing(9, LookupError("stuck")), "plan": lambda: plan(run.job())}
    source = HookedSource(hooks)
    run.end = SourceNode(source, "shelf")
    run.fails(error, match=text)
    assert run.heard.ended == [status]
    assert run.job().status is status
    went_well = error is LookupError
    assert (run.out == list(range(10))) == went_well
    assert [closed is None for closed in source.closed] == [went_well]
    assert ("its source could not be closed: LookupError: stuck" in caplog.text) != went_well


class TestEnd:
    def test_a_job_that_is_cancelled_while_it_ends_finishes_without_a_warning(
        self, run: JobRun, out: list[Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        """The source has said that there is no more when the mail comes."""
        mailbox = Mailbox(CancelJob)
        run.mailbox = mailbox
        source = HookedSource()
        run.end = SourceNode(source, "shelf")
        source.hooks["latest_offset"] = lambda: run.job().cancel() if len(out) == 10 else None
        with caplog.at_level(logging.WARNING, "pyflinkstate"):
            run.run()
        assert isinstance(mailbox.await_event(), CancelJob)
        assert run.heard.ended == [JobStatus.FINISHED]
        assert [record.getMessage() for record in caplog.records] == []


def test_a_savepoint_that_nobody_waits_for_any_more_is_refused_in_silence() -> None:
    done: Future[str] = Future()
    assert done.cancel()
    SavepointRequest("anywhere", False, done).fail(CheckpointError("late"))


class LateAcks(queue.SimpleQueue[Any]):
    """A mailbox in which acknowledgements arrive when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self._held: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_held = True

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if self._is_held and isinstance(item, CheckpointAck):
            self._held.put(item)
        else:
            super().put(item)

    def deliver_one(self) -> None:
        """Wait for the first one, and deliver it; the others are not held."""
        first = self._held.get(timeout=PATIENCE_S)
        self._is_held = False
        super().put(first)


@attrs.define
class SlowSink(DriverSink):
    """While it prepares epoch 2, acknowledgements arrive, and time passes."""

    run: JobRun

    def __attrs_post_init__(self) -> None:
        super().__init__(lambda *_: None)

    def prepare(self, epoch: int, results: list[Any]) -> None:
        if epoch == 2:
            assert isinstance(self.run.mailbox, LateAcks)
            self.run.mailbox.deliver_one()
            self.run.clock.time_ms += 1_000
        super().prepare(epoch, results)


def test_what_was_acknowledged_in_time_does_not_expire_because_the_job_was_busy(run: JobRun) -> None:
    run.end = StatefulNode(numbers(), lambda n: n % 4, PICKLED, Count(), "count")
    run.checkpoints = CheckpointSettings(interval_ms=0, tolerable_failures=9, timeout_ms=1_000)
    run.mailbox = LateAcks()
    run.sink = SlowSink(run)
    run.run()
    assert run.heard.failed == []
    assert run.heard.checkpoints[0].checkpoint_id == 1


def test_an_error_of_a_sink_is_not_taken_for_an_empty_mailbox(run: JobRun) -> None:
    class Emptied(DriverSink):
        def prepare(self, epoch: int, results: list[Any]) -> None:
            raise queue.Empty("the connections are used up")

    run.sink = Emptied(lambda *_: None)
    run.fails(JobFailedError, match="prepare raised Empty: the connections are used up")
