"""Nothing between "epoch asked for" and "epoch running" can fail so that the job waits for ever."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from injections import LINES, ON_THE_WAY, GatewayGone, Injection

from pyflinkstate import RestartStrategies, StreamExecutionEnvironment

pytestmark = [pytest.mark.spark]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failure_at_each_line_is_an_error_or_a_restart_and_never_a_hang(spark: Any, tmp_path: Path) -> None:
    before = sys.gettrace()
    happened = []
    for number, (code, line) in enumerate(LINES):
        injection = Injection(code, line)
        injection.install()
        try:
            seen = sums(spark, tmp_path / str(number))
        except GatewayGone:
            seen = None  # on the job's own thread: the job has ended with it
        finally:
            threading.settrace(None)  # type: ignore[arg-type]
            sys.settrace(before)
        assert seen in (None, [0, 1, 2, 3, 4, 5]), (code, line)
        happened += [code.co_name] * injection.has_happened
    assert {function.__name__ for function in ON_THE_WAY} <= set(happened)


def sums(spark: Any, folder: Path) -> list[int]:
    env = StreamExecutionEnvironment(spark).set_parallelism(1).enable_checkpointing(0, str(folder))
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
