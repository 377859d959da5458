"""The engine on Spark and that of the tests, without Spark: what ends, what is lost, queries over results."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from contract_engine import EngineContract
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from support_job import LocalRunner
from support_runtime import PATIENCE_S, raising

from pyflinkstate.errors import SparkJobError, SparkUnavailableError
from pyflinkstate.runtime.engine import EpochEnded, SlotsRequest
from pyflinkstate.runtime.sinks import DriverSink, RddSink
from pyflinkstate.runtime.spark import epoch_runner, streaming_queries
from pyflinkstate.runtime.spark.epoch_runner import Ahead, SparkRunner
from pyflinkstate.runtime.spark.sessions import Application
from pyflinkstate.runtime.spark.streaming_queries import ResultQueries

REQUEST: Any = SimpleNamespace(description="orders: ahead for epoch 2")


def context_of(process: Any = None) -> Any:
    """Return a Spark context that runs, in a JVM that ``process`` tells of."""
    context: Any = MagicMock()
    context._gateway.proc = process
    context._jsc.sc().isStopped.return_value = False
    return context


@pytest.fixture
def runner() -> SparkRunner:
    """A runner whose running epoch has built nothing yet."""
    files: Any = object()
    return SparkRunner(context_of(), "group", files)


def test_what_is_to_be_shuffled_ahead_ends_when_the_epoch_before_it_is_cancelled(runner: SparkRunner) -> None:
    done = threading.Event()
    runner.shuffle_ahead(REQUEST, done.set)
    runner.cancel()
    assert done.wait(PATIENCE_S)


#: What a system without threads raises.
NO_THREAD = raising(RuntimeError("can't start new thread"))


def test_a_system_without_threads_is_an_error_that_the_job_expects(
    runner: SparkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", NO_THREAD)
        with pytest.raises(SparkJobError, match="ahead for epoch 2: can't start new thread"):
            runner.shuffle_ahead(REQUEST, lambda: None)


def test_what_could_not_be_begun_is_not_waited_for_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = SparkRunner(context_of(), "group", MagicMock())
    runner._codes = MagicMock()
    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", NO_THREAD)
        with pytest.raises(SparkJobError, match="can't start new thread"):
            runner.start_slots(SlotsRequest(MagicMock(), [], "job: restore"), print)
    codes = runner._codes
    runner.close()
    codes.destroy.assert_called_once_with()


class Graph:
    """An epoch's RDDs, which are built when the test says so."""

    def __init__(self) -> None:
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.submitted: list[Any] = []

    def run(self, sink: Any, built: Callable[[], None]) -> list[Any]:
        self.begun.set()
        assert self.may_go_on.wait(PATIENCE_S)
        built()
        self.submitted.append(sink)
        return []

    def close(self) -> None:
        return


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_an_epoch_that_is_cancelled_while_its_rdds_are_built_never_begins(
    monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    """Spark has no job yet that it could cancel."""
    graph, ended = Graph(), queue.SimpleQueue[EpochEnded]()
    monkeypatch.setattr(epoch_runner, "missing_slots", lambda _: [])
    monkeypatch.setattr(SparkRunner, "_graph", lambda *_: graph)
    context: Any = MagicMock(_gateway=None)
    context._jsc.sc().isStopped.return_value = False
    runner = SparkRunner(context, "group", MagicMock())
    plan = SimpleNamespace(sinks=["sink"])
    request: Any = SimpleNamespace(description="epoch 2", about="", plan=plan)
    runner.start(request, ended.put)
    assert graph.begun.wait(PATIENCE_S)
    if is_cancelled:
        runner.cancel()
    graph.may_go_on.set()
    error = ended.get(timeout=PATIENCE_S).error
    assert graph.submitted == ([] if is_cancelled else ["sink"])
    assert (error is not None) == is_cancelled


def test_slots_are_not_started_for_a_job_that_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, may_go_on, ended = threading.Event(), threading.Event(), queue.SimpleQueue[EpochEnded]()

    def enter(*_: Any) -> None:
        entered.set()
        assert may_go_on.wait(PATIENCE_S)

    monkeypatch.setattr(SparkRunner, "_enter", enter)
    monkeypatch.setattr(SparkRunner, "_start_slots", raising(AssertionError("it was begun")))
    context: Any = MagicMock(_gateway=None)
    context._jsc.sc().isStopped.return_value = False
    runner = SparkRunner(context, "group", MagicMock())
    request: Any = SimpleNamespace(description="restore", link=None, slots=())
    runner.start_slots(request, ended.put)
    assert entered.wait(PATIENCE_S)
    runner.cancel()
    may_go_on.set()
    assert "cancelled before Spark began" in str(ended.get(timeout=PATIENCE_S).error)


def test_it_is_gone_when_its_jvm_has_ended_or_its_session_was_stopped() -> None:
    process = MagicMock()
    process.poll.return_value = None
    context = context_of(process)
    runner = SparkRunner(context, "group", MagicMock())
    assert runner.gone() is None
    process.poll.return_value = -9
    assert isinstance(runner.gone(), SparkUnavailableError)
    process.poll.return_value = None
    context._jsc = None
    assert isinstance(runner.gone(), SparkUnavailableError)
    runner.close()


def stops_context(context: Any) -> None:
    context._jsc.sc().isStopped.return_value = True


def test_it_is_gone_when_the_context_was_stopped_inside_a_jvm_that_lives() -> None:
    """The JVM is asked at most once in a second."""
    context, now_s = context_of(), [0.0]
    application = Application(context, lambda: now_s[0])
    asked = context._jsc.sc().isStopped
    for now_s[0] in (0.0, 0.5, 0.9):
        assert application.gone() is None
    assert asked.call_count == 1
    stops_context(context)
    assert application.gone() is None
    now_s[0] = 1.0
    assert isinstance(application.gone(), SparkUnavailableError)
    assert isinstance(application.gone(), SparkUnavailableError)
    assert asked.call_count == 2


def test_when_an_attempt_has_failed_the_jvm_is_asked_at_once() -> None:
    context = context_of()
    application = Application(context, lambda: 0.0)
    assert application.gone() is None
    stops_context(context)
    assert application.gone() is None
    assert isinstance(application.gone(at_once=True), SparkUnavailableError)


def test_what_is_ahead_ends_when_the_epoch_before_it_never_builds_its_rdds_and_spark_is_gone() -> None:
    context, done = context_of(), threading.Event()
    stops_context(context)
    runner = SparkRunner(context, "group", MagicMock())
    runner.shuffle_ahead(REQUEST, done.set)
    assert done.wait(PATIENCE_S)


class DroppedStage(Application):
    """A map stage that Spark has dropped: nobody runs it, and it never ends."""

    def __init__(self) -> None:
        super().__init__(context_of())
        self.look_up()
        self.looks = 0

    def has_ended(self, stage: Any, timeout_s: float) -> bool:
        self.looks += 1
        return False

    def gone(self, description: str = "", at_once: bool = False) -> SparkUnavailableError | None:
        return SparkUnavailableError("the Spark application ended") if self.looks > 3 else None


def test_what_is_ahead_ends_when_spark_has_dropped_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped, graph = DroppedStage(), MagicMock()
    graph.shuffled_ahead.return_value = ["rdd"]
    monkeypatch.setattr(epoch_runner, "shuffle_dependency", lambda rdd: rdd)
    Ahead(REQUEST, threading.Event(), dropped).run(lambda: graph)
    assert dropped.looks > 3


def test_an_epoch_waits_for_what_is_ahead_only_as_long_as_spark_lives() -> None:
    dropped = DroppedStage()
    dropped.looks = 9
    assert Ahead(REQUEST, threading.Event(), dropped).graph_for(REQUEST) is None


def test_a_stage_is_waited_for_in_spark_and_a_look_does_not_wait() -> None:
    application, stage = Application(context_of()), MagicMock()
    application.look_up()
    stage.isCompleted.return_value = False
    stage.ready.side_effect = Py4JJavaError("it takes longer", MagicMock(_target_id="o1"))
    assert not application.has_ended(stage, 1.0)
    assert stage.ready.call_count == 1
    assert not application.has_ended(stage, 0)
    assert stage.ready.call_count == 1
    stage.ready.side_effect = None
    assert application.has_ended(stage, 1.0)


def test_an_epoch_that_spark_has_dropped_is_lost_and_what_waits_in_the_jvm_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context, entered, interrupted = context_of(), threading.Event(), threading.Event()
    context._jvm.java.lang.Thread.currentThread().interrupt = interrupted.set

    def wait_in_jvm(*_: Any) -> list[Any]:
        entered.set()
        assert interrupted.wait(PATIENCE_S)
        raise InterruptedError

    monkeypatch.setattr(epoch_runner, "has_pinned_threads", lambda: True)
    monkeypatch.setattr(SparkRunner, "_results", wait_in_jvm)
    runner, ended = SparkRunner(context, "group", MagicMock()), queue.SimpleQueue[EpochEnded]()
    request: Any = SimpleNamespace(description="orders: epoch 2", about="")
    runner.start(request, ended.put)
    assert entered.wait(PATIENCE_S)
    assert runner.lost() is None
    stops_context(context)
    runner._application._asked_s = float("-inf")
    lost = runner.lost()
    assert isinstance(lost, SparkUnavailableError)
    assert "in orders: epoch 2" in str(lost)
    runner.close()
    assert interrupted.is_set()
    assert isinstance(ended.get(timeout=PATIENCE_S).error, SparkUnavailableError)


def ran(sink: Any) -> tuple[SparkRunner, Any]:
    """Return a runner that has built the RDDs of an epoch, and the code that it has sent."""
    context = context_of()
    runner = SparkRunner(context, "group", MagicMock())
    plan: Any = MagicMock(sinks=[SimpleNamespace(sink=sink)])
    plan.heads.return_value = []
    request: Any = SimpleNamespace(code=MagicMock(), plan=plan)
    runner._graph(request)
    return runner, context.broadcast.return_value


def test_the_code_of_a_job_that_has_ended_is_destroyed() -> None:
    runner, code = ran(DriverSink(lambda *_: None))
    runner.close()
    runner.close()
    assert code.destroy.call_count == 1


def test_the_code_of_results_that_are_kept_is_not() -> None:
    runner, code = ran(RddSink())
    runner.close()
    assert code.destroy.call_count == 0


def test_what_was_shuffled_ahead_of_the_end_is_released() -> None:
    closed, graph = threading.Event(), MagicMock()
    graph.close = closed.set
    graph.shuffled_ahead.return_value = []
    runner = SparkRunner(context_of(), "group", MagicMock())
    runner._graph = lambda _: graph  # type: ignore[method-assign]
    runner._enter = lambda *_: None  # type: ignore[method-assign]
    runner._is_built.set()
    request: Any = SimpleNamespace(description="orders: ahead for epoch 2", about="")
    done = threading.Event()
    runner.shuffle_ahead(request, done.set)
    assert done.wait(PATIENCE_S)
    assert not closed.is_set()
    runner.close()
    assert closed.is_set()


def test_a_query_that_always_has_more_to_read_is_ended_nevertheless(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It reads another source too, which never ends."""
    monkeypatch.setattr(streaming_queries, "READ_TIMEOUT_S", 0)
    stopped = threading.Event()
    query: Any = MagicMock(id="42", processAllAvailable=lambda: stopped.wait(PATIENCE_S), stop=stopped.set)
    queries = ResultQueries(MagicMock(), "file:/out")
    causes: list[bool] = []
    queries._set_cause = lambda _: causes.append(stopped.is_set())  # type: ignore[method-assign]
    ending = threading.Thread(target=queries._end, args=(query,), daemon=True)
    ending.start()
    ending.join(PATIENCE_S / 2)
    assert not ending.is_alive()
    assert stopped.is_set()
    assert causes == [False]
    assert "query 42 still reads" in caplog.text


@pytest.mark.parametrize("error", [ConnectionRefusedError(111), Py4JNetworkError("empty")])
def test_nothing_is_raised_where_the_jvm_has_gone_with_all_queries(error: Exception) -> None:
    session = MagicMock()
    session.streams.addListener.side_effect = session.streams.removeListener.side_effect = error
    queries = ResultQueries(session, "file:/out")
    queries.fail("job 'sums' has failed")
    queries._listens = True
    queries.forget()


class TestLocalEngine(EngineContract):
    @pytest.fixture
    def engine(self) -> LocalRunner:
        return LocalRunner()
