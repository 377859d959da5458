"""What an epoch costs beside its records, and how it begins; Spark as an engine."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from contract_engine import EngineContract
from injections import ON_THE_WAY, GatewayGone, Injection, lines_of
from py4j import clientserver

from pyflinkstate import (
    Configuration,
    JobListener,
    KeyedProcessFunction,
    RestartStrategies,
    StreamExecutionEnvironment,
)
from pyflinkstate.runtime.spark import worker_tasks
from pyflinkstate.runtime.spark.epoch_rdds import ContextView
from pyflinkstate.runtime.spark.epoch_runner import SparkRunner

pytestmark = [pytest.mark.spark]

#: The commands with which py4j only tells that Python no longer needs an object: they come at any time.
GARBAGE = "m\n"
#: One JVM call more or less is not worth a failure; before these RDDs had a view there were 119. A job also
#: asks once in a second whether the context still runs.
MOST_CALLS = 57


class Calls(JobListener):
    """Counts the calls to the JVM in each epoch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now: Counter[str] = Counter()
        self.of_epochs: list[Counter[str]] = []
        send = clientserver.ClientServerConnection.send_command

        def counted(connection: Any, command: str) -> Any:
            if not command.startswith(GARBAGE):
                self.now[command[:1]] += 1
            return send(connection, command)

        monkeypatch.setattr(clientserver.ClientServerConnection, "send_command", counted)

    def on_epoch(self, stats: Any) -> None:
        self.of_epochs.append(self.now)
        self.now = Counter()


class Double(KeyedProcessFunction):
    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        yield 2 * value


def test_an_epoch_needs_few_calls_to_the_jvm_and_looks_no_class_up(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    env = StreamExecutionEnvironment(spark).set_parallelism(2).enable_checkpointing(0, str(tmp_path))
    env.add_listener(calls)
    stream = env.from_collection(range(16), records_per_epoch=4).key_by(lambda number: number)
    assert sorted(stream.process(Double()).execute_and_collect()) == list(range(0, 32, 2))
    _, *later = calls.of_epochs
    assert len(later) >= 3
    for count in later:
        assert count.total() <= MOST_CALLS, count
        assert count["r"] == 0, "classes and methods were looked up before"


def test_workers_freeze_what_they_have_loaded(spark: Any) -> None:
    """The last epoch of one partition runs in a worker that has run the one before it."""
    env = StreamExecutionEnvironment(spark).set_parallelism(1)
    frozen = env.from_collection(range(4), records_per_epoch=1).map(lambda _: gc.get_freeze_count())
    assert list(frozen.execute_and_collect())[-1] > 0


def test_a_process_freezes_again_only_when_it_has_loaded_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_tasks, "_frozen_modules", 0)
    try:
        worker_tasks.freeze_what_is_loaded()
        before = gc.get_freeze_count()
        kept = [[] for _ in range(1_000)]
        worker_tasks.freeze_what_is_loaded()
        assert gc.get_freeze_count() <= before
        monkeypatch.setitem(sys.modules, "a module that was not there", sys)
        worker_tasks.freeze_what_is_loaded()
        assert gc.get_freeze_count() > before
        assert len(kept) == 1_000
    finally:
        gc.unfreeze()


def test_a_view_shows_what_a_program_changes_after_it_was_made(spark: Any, tmp_path: Path) -> None:
    context = spark.sparkContext
    view = ContextView(context)
    assert view.environment is view.environment
    context.environment["A_TEST_IS"] = "here"
    try:
        assert view.environment["A_TEST_IS"] == "here"
    finally:
        del context.environment["A_TEST_IS"]
    assert "A_TEST_IS" not in view.environment
    archive = tmp_path / "added_later.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("added_later.py", "ANSWER = 42\n")
    assert "added_later.zip" not in list(view._python_includes)
    context.addPyFile(str(archive))
    assert "added_later.zip" in list(view._python_includes)


# --- the start -------------------------------------------------------------------------------------


#: What is on the way for tasks that stay.
BEGINS_TASKS = [
    SparkRunner.start_tasks,
    SparkRunner._begin,
    SparkRunner._run_and_tell,
    SparkRunner._run,
]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("engine", "on_the_way"), [("STAGES", ON_THE_WAY), ("PIPELINED", BEGINS_TASKS)])
def test_a_failure_at_each_line_is_an_error_or_a_restart_and_never_a_hang(
    spark: Any, tmp_path: Path, engine: str, on_the_way: list[Callable[..., Any]]
) -> None:
    before = sys.gettrace()
    happened = []
    for number, (code, line) in enumerate(lines_of(on_the_way)):
        injection = Injection(code, line)
        injection.install()
        try:
            seen = sums(spark, tmp_path / str(number), engine)
        except GatewayGone:
            seen = None  # on the job's own thread: the job has ended with it
        finally:
            threading.settrace(None)  # type: ignore[arg-type]
            sys.settrace(before)
        assert seen in (None, [0, 1, 2, 3, 4, 5]), (code, line)
        happened += [code.co_name] * injection.has_happened
    assert {function.__name__ for function in on_the_way} <= set(happened)


def sums(spark: Any, folder: Path, engine: str) -> list[int]:
    env = StreamExecutionEnvironment(spark).set_parallelism(1).enable_checkpointing(0, str(folder))
    env.configure(Configuration().set_string("pyflinkstate.engine", engine))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    stream = env.from_collection(range(6), records_per_epoch=3).map(lambda number: number)
    return list(stream.execute_and_collect())


KILLED_JVM = """
import os, signal, sys, threading
from pyflinkstate import StreamExecutionEnvironment, errors
from pyflinkstate.runtime.spark import epoch_rdds, epoch_runner
from pyflinkstate.runtime.master.actions import EngineRequests

def kill_before(owner, name):
    function = getattr(owner, name)
    def killing(*arguments):
        if arguments[-1] is not None and calls.append(name) is None and len(calls) == 2:
            process = env._context._gateway.proc
            os.kill(process.pid, signal.SIGKILL)
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return function(*arguments)
    setattr(owner, name, killing)

calls = []
env = StreamExecutionEnvironment().set_parallelism(1).enable_checkpointing(0, sys.argv[1])
kill_before(*PLACE)
numbers = env.from_collection(range(50), records_per_epoch=10)
if sys.argv[2] == "ahead":
    numbers = numbers.key_by(lambda number: number % 3).reduce(lambda a, b: a + b)
numbers.print()
try:
    env.execute()
except errors.SparkUnavailableError as error:
    print("unavailable:", str(error).splitlines()[0])
os._exit(0)
"""


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("(EngineRequests, '_start')", "alone"),
        ("(epoch_runner.SparkRunner, '_run_and_tell')", "alone"),
        ("(epoch_runner.SparkRunner, '_run')", "alone"),
        ("(epoch_rdds.SparkGraph, 'run')", "alone"),
        ("(epoch_runner.SparkRunner, '_run')", "ahead"),
    ],
    ids=["asked for", "thread begins", "properties", "collect", "while another is ahead"],
)
def test_a_jvm_that_dies_as_an_epoch_starts_is_an_error_and_no_hang(
    tmp_path: Path, place: str, kind: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(KILLED_JVM.replace("PLACE", place))
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "checkpoints"), kind],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "unavailable: the Spark application ended in" in done.stdout, done.stderr


# --- the engine ------------------------------------------------------------------------------------


class TestSparkEngine(EngineContract):
    @pytest.fixture
    def engine(self, spark: Any) -> SparkRunner:
        return SparkRunner(spark.sparkContext, "contract")
