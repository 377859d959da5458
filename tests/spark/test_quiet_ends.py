"""What a user sees of the end of a job: of one that is cancelled nothing, of a failed one its error once."""

from __future__ import annotations

import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyflinkstate import KeyedProcessFunction, StreamExecutionEnvironment, errors

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

#: Begins jobs on a session of a user's own, which logs as Spark does by itself, and cancels each in the midst
#: of a record, and one as it looks into the log of its query for the batch that has come.
PROGRAM = """
import os, sys, threading, time
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from pyflinkstate import KeyedProcessFunction, StreamExecutionEnvironment
from pyflinkstate import keyed_process, keyed_process_queries
from pyflinkstate.runtime.spark.streaming_queries import ResultQueries
from pyflinkstate.runtime.spark.streaming_queries import SparkQueryFiles

folder = os.path.dirname(os.path.abspath(__file__))
there = folder + "/is there"
os.mkfifo(there)
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()

class Waits(KeyedProcessFunction):
    def process_element(self, value, ctx):
        with open(there, "w") as file:
            file.write("yes")
        threading.Event().wait()
        yield value

def end(what, client):
    open(there).read()
    client.cancel().result(60)
    error = client.get_job_execution_result().exception(0)
    print(what, type(error).__name__, [query for query in spark.streams.active if query.isActive])

def environment():
    return StreamExecutionEnvironment(spark).set_parallelism(1)

def rows():
    return spark.readStream.format("rate").option("rowsPerSecond", 5).load()

env = environment()
env.from_collection([1]).key_by(lambda n: n).process(Waits()).print()
end("collection", env.execute_async("of a collection"))
print("-- the next", file=sys.stderr)
env = environment().enable_checkpointing(0, folder + "/checkpoints")
env.from_streaming(rows()).key_by(lambda row: 1).process(Waits()).print()
end("streaming", env.execute_async("of a query"))
print("-- the next", file=sys.stderr)
options = {"parallelism": 1, "schema": "n long", "checkpoint_directory": folder + "/state"}
keyed_process(rows(), key=lambda row: 1, function=Waits(), **options)
end("keyed_process", keyed_process_queries()[0].client)
print("-- the next", file=sys.stderr)
read, is_reading = SparkQueryFiles.read, threading.Event()

def interrupted_read(self, name):
    if name == "offsets/0" and is_reading.set() is None:
        while not self._jvm.java.lang.Thread.currentThread().isInterrupted():
            pass
    return read(self, name)

def slow_listener(self, event):
    is_told.set()
    time.sleep(1)

ResultQueries.onQueryTerminated, is_told = slow_listener, threading.Event()
SparkQueryFiles.read = interrupted_read
options["checkpoint_directory"] = folder + "/more state"
keyed_process(rows(), key=lambda row: 1, function=Waits(), **options)
is_reading.wait(60)
keyed_process_queries()[-1].stop()
print("begins a batch", [query for query in spark.streams.active if query.isActive])
is_told.wait(60)  # the program ends while Spark tells the listener of an earlier job
"""


def test_no_traceback_of_a_job_that_is_cancelled_is_seen(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)
    ends = [f"{what} JobCancelledError []" for what in ("collection", "streaming", "keyed_process")]
    assert done.stdout.splitlines() == [*ends, "begins a batch []"], done.stderr
    for trace in ("Traceback", "\tat ", "Exception", "Error"):
        assert trace not in done.stderr


#: One slot fails while another one is in the midst of a record; then what comes before a slot fails.
FAILING = """
import os, sys, threading
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from pyflinkstate import KeyedProcessFunction, RestartStrategies, StreamExecutionEnvironment, errors
from pyflinkstate import keyed_process, keyed_process_queries

there = os.path.dirname(os.path.abspath(__file__)) + "/is there"
os.mkfifo(there)
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.adaptive.enabled", "false")  # streams would warn of it
spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()

class Fails(KeyedProcessFunction):
    def process_element(self, value, ctx):
        if value == 4:  # the other subtask's
            open(there, "w").close()
            threading.Event().wait()
        open(there).close()
        yield 1 + "x"

def fails(what, mapped, parallelism):
    env = StreamExecutionEnvironment(spark).set_parallelism(parallelism)
    env.from_collection([1, 4]).map(mapped).key_by(lambda n: n).process(Fails()).print()
    try:
        env.execute(what)
    except errors.UserFunctionError as error:
        print(str(error).splitlines()[0])

def fails_in_a_frame():
    numbers = spark.createDataFrame([(1,), (4,)], "n long").coalesce(1)
    try:
        keyed_process(numbers, key=lambda row: row.n, function=Broken(), schema="n long", parallelism=2)
    except errors.UserFunctionError as error:
        print(str(error).splitlines()[0])

class Broken(Fails):
    def process_element(self, value, ctx):
        return super().process_element(value.n, ctx)

def fails_in_a_stream():
    folder = os.path.dirname(there)
    os.mkdir(folder + "/input")
    with open(folder + "/input/1.json", "w") as file:
        file.write('{"n": 1}\\n{"n": 4}\\n')
    rows = spark.readStream.schema("n long").json(folder + "/input")
    options = {"schema": "n long", "parallelism": 2, "checkpoint_directory": folder + "/state"}
    keyed_process(
        rows, key=lambda row: row.n, function=Broken(), on_failure=RestartStrategies.no_restart(), **options
    )
    try:
        keyed_process_queries()[-1].await_termination()
    except errors.UserFunctionError as error:
        print(str(error).splitlines()[0])
    while any(query.isActive for query in spark.streams.active):
        pass

print("-- begins", file=sys.stderr)
fails_in_a_stream()
fails_in_a_frame()
fails("in a slot", lambda n: n, 2)
fails("before a slot", lambda n: n.real + "y", 1)
"""


def test_a_users_error_is_told_once_and_without_the_frames_of_the_jvm(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(FAILING)
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)
    error = "TypeError: unsupported operand type(s) for +: 'int' and 'str'"
    assert done.stdout.splitlines() == [error] * 4, done.stderr
    assert done.stderr.partition("-- begins\n")[2] == "", "it is raised, and that is all"


@pytest.fixture
def env(spark: Any) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(spark).set_parallelism(1)


def broken(row: Any) -> int:
    return int(row.value) + 1


class TestFailed:
    def test_what_spark_says_is_told_once(self, spark: Any, env: StreamExecutionEnvironment) -> None:
        texts = spark.createDataFrame([("1",), ("x",)], "value string").rdd.map(broken)
        env.from_rdd(texts).key_by(lambda n: n).sum().print()
        with pytest.raises(errors.SparkJobError) as caught:
            env.execute("upstream")
        message = str(caught.value).splitlines()
        assert message[0] == (
            "Spark failed upstream: epoch 1: ValueError: invalid literal for int() with base 10: 'x'"
        )
        assert re.match(rf'  File "{__file__}", line \d+, in broken', message[1])
        assert len(message) <= 4
        cause = caught.value.__cause__
        assert str(cause).count("ValueError: invalid literal") == 1
        assert "\tat org.apache.spark" in str(cause.__context__), "all of it, for who asks"  # type: ignore[union-attr]

    def test_a_program_that_fails_shows_its_error_and_not_where_we_found_it(
        self, env: StreamExecutionEnvironment
    ) -> None:
        env.from_collection([1, 0]).key_by(lambda n: 1).process(Divides()).print()
        with pytest.raises(errors.UserFunctionError) as caught:
            env.execute("divides")
        shown = "".join(traceback.format_exception(caught.value)).splitlines()
        assert "pyflinkstate.errors.UserFunctionError: ZeroDivisionError: division by zero" in shown
        frames = [line for line in shown if line.startswith("  File ")]
        assert __file__ in frames[0], "where the job was executed"
        assert __file__ in frames[-1], "and where it was raised"
        assert len(frames) <= 4
        assert len(shown) <= 16


class Divides(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[float]:
        yield 1 / value
