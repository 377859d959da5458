"""What a job waits for may be gone: the engine, a slot, the control server, an answer, a port."""

from __future__ import annotations

import asyncio
import errno
import logging
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, nullcontext, suppress
from types import CodeType
from typing import Any

import pytest
from injections import OF_THE_JOB, Injection, lines_of
from slot_functions import Count, Echo
from support_job import GrowingSource, JobRun, LocalRunner, numbers, once
from support_runtime import PATIENCE_S, PICKLED, next_event, raising, receive
from support_slots import SLOT, Driver, in_thread, outcome
from tiers import cases

from pyflinkstate import EpochStats, JobClient, JobListener, JobStatus
from pyflinkstate.errors import (
    CheckpointError,
    DriverUnreachableError,
    JobCancelledError,
    PyFlinkStateError,
    SlotLostError,
    SparkJobError,
    SparkUnavailableError,
)
from pyflinkstate.runtime.engine import EpochEnded, EpochRequest
from pyflinkstate.runtime.master import Job
from pyflinkstate.runtime.plan import SourceNode, StatefulNode
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.slots import SlotLost
from pyflinkstate.runtime.slots.process import Lines, OutputForwarder
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.wire import AcquireSlot, Address, RegisterSlot, SlotUnavailable, StartSlot

pytestmark = pytest.mark.timeout(60)

Done = Callable[[EpochEnded], None]


class SilentRunner(LocalRunner):
    """In one epoch, what runs it ends without a word; the word comes in the epoch after, if at all."""

    def __init__(self, silent: int) -> None:
        super().__init__()
        self._silent = silent
        self._withheld: Callable[[], None] = lambda: None

    def start(self, request: EpochRequest, done: Done) -> None:
        if len(self.requests) == self._silent:
            self._withheld()
        if len(self.requests) + 1 != self._silent:
            super().start(request, done)
            return
        self.requests.append(request)
        self._withheld = lambda: done(EpochEnded([["what nobody waits for"]], None))
        self.thread = threading.Thread(target=lambda: None)
        self.thread.start()


def run_of(runner: LocalRunner, storage: CheckpointFolders, restarts: int) -> JobRun:
    return JobRun(numbers(), storage=storage, runner=runner, restart=FixedDelayRestart(restarts, 0))


def test_an_epoch_whose_thread_ends_without_a_word_is_an_error(storage: CheckpointFolders) -> None:
    run_of(SilentRunner(1), storage, restarts=0).fails(SparkJobError, match="ended without a result")


@pytest.mark.parametrize("silent", [1, 2, 4])
def test_the_job_restarts_and_a_word_that_comes_late_is_not_taken_for_the_next_epochs(
    storage: CheckpointFolders, silent: int
) -> None:
    run = run_of(SilentRunner(silent), storage, restarts=1)
    assert run.results() == list(range(10))
    assert len(run.heard.restarts) == 1


def test_a_word_that_came_before_the_end_counts(storage: CheckpointFolders) -> None:
    class Hasty(LocalRunner):
        def start(self, request: EpochRequest, done: Done) -> None:
            super().start(request, done)
            self.thread.join()

    assert run_of(Hasty(), storage, restarts=0).results() == list(range(10))


def test_a_lost_epoch_does_not_hold_up_a_job_that_fails(storage: CheckpointFolders) -> None:
    """The job is cancelled, and waits for the end of the epoch, of which nothing will be heard."""
    runner = SilentRunner(2)
    run = run_of(runner, storage, restarts=0)
    lost = SparkJobError("it ended without a result")
    runner.lost = lambda: lost if runner.cancelled else None  # type: ignore[method-assign]
    client = JobClient(run.job(), None)
    run.job().cancel()
    assert client.get_job_execution_result().exception(PATIENCE_S) is not None


def test_the_client_of_a_job_and_its_futures_are_awaited(storage: CheckpointFolders) -> None:
    async def ends() -> JobStatus:
        client = JobClient(run_of(LocalRunner(), storage, restarts=0).job(), None)
        result = await client
        assert await client.get_job_execution_result() is result
        with pytest.raises(CheckpointError, match="the job has ended"):
            await client.trigger_savepoint("savepoints")
        assert await asyncio.gather(client.cancel(), client) == [None, result]
        return await client.get_job_status()

    assert asyncio.run(ends()) is JobStatus.FINISHED


def test_a_cancellation_that_the_engine_has_missed_comes_again(storage: CheckpointFolders) -> None:
    """Spark only cancels what it has begun with."""
    runner = HardOfHearing()
    run = run_of(runner, storage, restarts=0)

    def before(_: EpochRequest) -> None:
        run.job().cancel()
        assert runner.heard.wait(PATIENCE_S)

    runner.before = before
    run.fails(JobCancelledError)
    assert runner.heard.is_set()


class HardOfHearing(LocalRunner):
    """Hears of a cancellation the third time."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = threading.Event()

    def cancel(self) -> None:
        self.cancelled += 1
        if self.cancelled > 2:
            self.heard.set()


def test_a_control_server_that_has_ended_is_an_error(
    storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = LocalRunner()
    hold = threading.Event()
    runner.before = lambda _: hold.wait(PATIENCE_S) and None
    monkeypatch.setattr("pyflinkstate.runtime.slots.control.ControlServer.is_alive", lambda _: False)
    run = run_of(runner, storage, restarts=5)
    runner.cancel = hold.set  # type: ignore[method-assign]
    run.fails(DriverUnreachableError, match="'orders': its control server has ended")


def test_what_every_attempt_needs_is_gone_and_the_engine_is_cancelled_until_it_has_ended(
    storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyflinkstate.runtime.slots.control.ControlServer.is_alive", lambda _: False)
    runner = HardOfHearing()
    runner.before = lambda _: runner.heard.wait(PATIENCE_S)
    run_of(runner, storage, restarts=0).fails(DriverUnreachableError)
    assert runner.heard.is_set()


GONE = SparkUnavailableError("the Spark application ended")


def test_an_engine_that_is_gone_is_an_error_also_while_the_job_has_nothing_to_do(
    storage: CheckpointFolders,
) -> None:
    def when_idle(_: GrowingSource) -> None:
        run.runner.gone = lambda at_once=False: GONE  # type: ignore[method-assign]

    run = run_of(LocalRunner(), storage, restarts=5)
    run.end = SourceNode(GrowingSource(3, when_idle), "numbers")
    run.fails(SparkUnavailableError)
    assert run.heard.restarts == []


def test_what_an_engine_that_is_gone_shuffles_ahead_does_not_hold_up_the_end(
    storage: CheckpointFolders,
) -> None:
    """The running epoch fails with its engine, and nothing is ever heard of the one ahead."""

    class Gone(LocalRunner):
        def shuffle_ahead(self, request: EpochRequest, done: Callable[[], None]) -> None:
            self.requests_ahead.append(request)
            self.gone = lambda at_once=False: GONE  # type: ignore[method-assign]

    run = run_of(Gone(), storage, restarts=5)
    run.end = StatefulNode(numbers(), lambda number: 0, PICKLED, Count(), "count")
    client = JobClient(run.job(), None)
    assert isinstance(client.get_job_execution_result().exception(PATIENCE_S), SparkUnavailableError)
    assert run.runner.requests_ahead
    assert run.heard.restarts == []


def test_an_attempt_that_fails_with_its_engine_is_not_begun_again(storage: CheckpointFolders) -> None:
    """What the engine raises then need not say so; it is asked at once."""
    run = run_of(LocalRunner(), storage, restarts=5)
    run.runner.gone = lambda at_once=False: GONE if at_once else None  # type: ignore[method-assign]
    run.runner.before = once(SparkJobError("SparkPlan.session() is null"), 2)
    error = run.fails(SparkUnavailableError)
    assert isinstance(error.__cause__, SparkJobError)
    assert run.heard.restarts == []


@pytest.mark.parametrize("delay_ms", [0, 3_600_000])
def test_nor_does_it_wait_for_its_restart(storage: CheckpointFolders, delay_ms: int) -> None:
    class OnRestart(JobListener):
        def on_restart(self, attempt: int, error: PyFlinkStateError) -> None:
            run.runner.gone = lambda at_once=False: GONE  # type: ignore[method-assign]

    run = run_of(LocalRunner(), storage, restarts=5)
    run.restart = FixedDelayRestart(5, delay_ms)
    run.listeners = (OnRestart(),)
    run.runner.before = once(SparkJobError("an executor was lost"), 2)
    run.fails(SparkUnavailableError)
    assert [attempt for attempt, _ in run.heard.restarts] == [1]
    assert sum(run.clock.slept) < 60_000
    assert run.heard.ended == [JobStatus.FAILED]


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_that_has_ended_closes_its_engine(storage: CheckpointFolders, fails: bool) -> None:
    closed: list[None] = []
    run = run_of(LocalRunner(), storage, restarts=0)
    run.runner.close = lambda: closed.append(None)  # type: ignore[method-assign]
    if fails:
        run.runner.before = once(SparkJobError("an executor was lost"), 2)
    with pytest.raises(SparkJobError) if fails else nullcontext():
        run.run()
    assert closed == [None]


def test_a_client_whose_result_cannot_be_made_is_told_so(storage: CheckpointFolders) -> None:
    job = run_of(LocalRunner(), storage, restarts=0).job()
    job.result = raising(ValueError("no result"))  # type: ignore[method-assign]
    error = JobClient(job, None).get_job_execution_result().exception(PATIENCE_S)
    assert isinstance(error, ValueError)


def test_who_gives_up_waiting_for_a_job_leaves_its_futures_as_they_are(storage: CheckpointFolders) -> None:
    """``asyncio.wait_for`` cancels the future that it has waited for."""

    async def give_up(future: Future[Any]) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(future), 0)

    hold = threading.Event()
    runner = LocalRunner()
    runner.before = lambda _: hold.wait(PATIENCE_S)  # type: ignore[method-assign]
    client = JobClient(run_of(runner, storage, restarts=0).job(), None)
    result, ended = client.get_job_execution_result(), client.cancel()
    for future in (result, ended):
        asyncio.run(give_up(future))
        assert not future.done()
    hold.set()
    ended.result(PATIENCE_S)
    assert isinstance(result.exception(PATIENCE_S), JobCancelledError)


# --- threads of connections --------------------------------------------------------------------------------


def test_want_of_descriptors_or_threads_does_not_end_the_server(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(errno.EMFILE, "too many open files"), RuntimeError("can't start new thread")]
    start = threading.Thread.start

    def start_or_fail(thread: threading.Thread) -> None:
        if failures and "_greet" in thread.name:
            raise failures.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_fail)
    asking = [in_thread(lambda: driver.connect().close()) for _ in range(3)]
    outcomes = [outcome(result) for result in asking]
    assert outcomes == [None, None, None]  # those that were cut off have connected again
    assert not failures
    assert driver.control.is_alive()


def test_a_server_whose_thread_has_died_is_not_alive(driver: Driver) -> None:
    assert driver.control.is_alive()
    driver.control.close()
    for thread in driver.control._server._threads:
        thread.join(PATIENCE_S)
    assert not driver.control.is_alive()


def test_a_slot_that_the_driver_cannot_serve_is_lost_and_those_who_wait_are_told(driver: Driver) -> None:
    driver.control._deployment_of = raising(KeyError("count-1"))
    task = driver.connect()
    task.send(AcquireSlot(0, SLOT))
    assert receive(task) == StartSlot()
    slot = driver.connect()
    slot.send(RegisterSlot(0, SLOT, 4711, Address("127.0.0.1", 4_000)))
    event = next_event(driver.events, SlotLost)
    assert isinstance(event.error, SlotLostError)
    assert "was cut off: its control connection failed in the driver: KeyError: 'count-1'" in str(event.error)
    assert isinstance(receive(task), SlotUnavailable)


def test_an_upstream_that_gives_what_is_no_frame_is_an_error_and_no_hang(driver: Driver) -> None:
    slot = driver.start_slot(Count())
    failed = in_thread(lambda: list(slot.run(1, ["text"])))  # type: ignore[list-item]
    assert isinstance(outcome(failed), TypeError)


def test_output_goes_on_after_what_could_not_be_sent() -> None:
    sent: queue.SimpleQueue[Lines] = queue.SimpleQueue()
    tried: queue.SimpleQueue[None] = queue.SimpleQueue()
    failures = [ValueError("too long")]

    def send(lines: Lines) -> None:
        tried.put(None)
        if failures:
            raise failures.pop()
        sent.put(lines)

    forwarder = OutputForwarder(send)
    forwarder.start()
    forwarder.add(logging.INFO, "first")
    tried.get(timeout=PATIENCE_S)
    forwarder.add(logging.INFO, "second")
    assert (logging.WARNING, "(lines that were dropped: 1)") in sent.get(timeout=PATIENCE_S)


LINES = lines_of(OF_THE_JOB)
#: One of so many lines is in the quick tier.
EVERY = 12


class Stops(LocalRunner):
    """An engine that runs nothing any more, and tells nobody, once it has stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.has_stopped = threading.Event()

    def start(self, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        super().start(request, lambda ended: self._tell(lambda: done(ended)))

    def shuffle_ahead(self, request: EpochRequest, done: Callable[[], None]) -> None:
        super().shuffle_ahead(request, lambda: self._tell(done))

    def _tell(self, done: Callable[[], None]) -> None:
        if not self.has_stopped.is_set():
            done()

    def lost(self) -> PyFlinkStateError | None:
        return self.gone()

    def gone(self, at_once: bool = False) -> PyFlinkStateError | None:
        return SparkUnavailableError("the Spark application ended") if self.has_stopped.is_set() else None


def named(line: tuple[CodeType, int]) -> str:
    return f"{line[0].co_name}:{line[1]}"


@pytest.mark.parametrize(("code", "line"), cases(LINES, quick=LINES[::EVERY]), ids=map(named, LINES))
def test_the_job_ends_wherever_its_engine_stops(
    storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch, code: CodeType, line: int
) -> None:
    before = set(threading.enumerate())
    runner = Stops()
    end = StatefulNode(numbers(), lambda number: 0, PICKLED, Count(), "count")
    run = JobRun(end, storage=storage, runner=runner, restart=FixedDelayRestart(5, 0))
    injection = Injection(code, line, passages=1, act=runner.has_stopped.set)
    injection.install()
    try:
        client = JobClient(run.job(), None)
    finally:
        injection.uninstall()
    error = client.get_job_execution_result().exception(PATIENCE_S)
    is_late = not injection.has_happened or error is None  # after the last epoch, or not passed twice
    assert is_late or isinstance(error, SparkUnavailableError), error
    for thread in set(threading.enumerate()) - before:
        with suppress(RuntimeError):  # it has yet to begin, and reaps a slot that has ended
            thread.join(PATIENCE_S)
        assert not thread.is_alive(), thread


def test_most_lines_are_passed_while_the_job_runs(
    storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the test above would show nothing."""
    passed: set[Any] = set()
    end = StatefulNode(numbers(), lambda number: 0, PICKLED, Count(), "count")
    run = JobRun(end, storage=storage)

    def watch(frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            passed.add((frame.f_code, frame.f_lineno))
        return watch

    threading.settrace(watch)
    try:
        client = JobClient(run.job(), None)
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
    client.get_job_execution_result().result(PATIENCE_S)
    assert len(passed.intersection(LINES)) > len(LINES) // 2


STRANGERS = 600


class Crowd(JobListener):
    """Connects to each port of a job after its first epoch, and stays."""

    def __init__(self, stack: ExitStack, trickles: bool) -> None:
        self.job: Job | None = None
        self.connections: list[socket.socket] = []
        self._stack = stack
        self._trickles = trickles
        self._ended = threading.Event()

    def on_epoch(self, stats: EpochStats) -> None:
        if self.connections:
            return
        slots = self.job._slots
        addresses = [slots.control.address, *slots.registry.addresses().values()]
        assert len(addresses) == 2
        for address in addresses:
            for _ in range(STRANGERS):
                made = socket.create_connection((address.host, address.port))
                self.connections.append(self._stack.enter_context(made))
            assert address.unix_path is None or self._crowd_on_unix(address.unix_path)
        if self._trickles:
            trickling = threading.Thread(target=self._trickle, daemon=True)
            trickling.start()
            self._stack.callback(trickling.join, 30)
            self._stack.callback(self._ended.set)

    def _crowd_on_unix(self, path: str) -> bool:
        for _ in range(STRANGERS):
            made = self._stack.enter_context(socket.socket(socket.AF_UNIX))
            made.connect(path)
            self.connections.append(made)
        return True

    def _trickle(self) -> None:
        while not self._ended.wait(0.001):
            for connection in self.connections:
                with suppress(OSError):
                    connection.send(b"P", socket.MSG_DONTWAIT)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.mark.parametrize("trickles", cases([False, True], quick=[True]), ids=["idle", "trickling"])
def test_its_epochs_go_on(storage: CheckpointFolders, stack: ExitStack, trickles: bool) -> None:
    keyed = StatefulNode(numbers(30), lambda n: n % 4, PICKLED, Echo(), "process")
    crowd = Crowd(stack, trickles)
    run = JobRun(keyed, storage=storage, listeners=(crowd,))
    crowd.job = run.job()
    assert len(run.results()) == 30
    assert len(crowd.connections) == 3 * STRANGERS
    assert run.heard.restarts == []
