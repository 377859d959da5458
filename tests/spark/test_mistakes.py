"""Mistakes that users make, found with a Spark session: each message helps."""

from __future__ import annotations

import datetime
import decimal
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from mistakes import Mistake, check, of_each
from operators import RunningSum
from test_keyed_process import SUMS, SumOfRows
from test_streaming import PATIENCE_S, JsonFolder

from pyflinkstate import (
    Configuration,
    FileSink,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    Types,
    errors,
    keyed_process,
    keyed_process_queries,
)
from pyflinkstate.runtime.spark import workers

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]

PAIRS = [("a", 1), ("b", 2)]
first = itemgetter(0)


@pytest.fixture
def env(spark: Any) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(spark).set_parallelism(1)


def sums(env: StreamExecutionEnvironment) -> Any:
    return env.from_collection(PAIRS).key_by(first).process(RunningSum())


# --- before anything runs ----------------------------------------------------------------------------


def executed_twice(env: StreamExecutionEnvironment, folder: Path) -> None:
    env.from_collection([1]).print()
    env.execute()
    env.execute()


def two_of_one_uid(env: StreamExecutionEnvironment, folder: Path) -> None:
    again = sums(env).uid("sums").key_by(first).process(RunningSum()).uid("sums")
    again.execute_and_collect()


def one_directory_for_two(env: StreamExecutionEnvironment, folder: Path) -> None:
    for _ in range(2):
        sums(env).sink_to(FileSink(str(folder / "out")))
    env.execute()


def checkpoints_below_a_file(env: StreamExecutionEnvironment, folder: Path) -> None:
    (folder / "file").write_text("")
    env.enable_checkpointing(0, str(folder / "file" / "checkpoints"))
    sums(env).execute_and_collect()


def restored_from(path: str) -> Callable[[StreamExecutionEnvironment, Path], Any]:
    def restore(env: StreamExecutionEnvironment, folder: Path) -> None:
        (folder / "empty").mkdir()
        env.enable_checkpointing(0, str(folder / "checkpoints")).restore_from(path.format(folder))
        sums(env).execute_and_collect()

    return restore


class WithDriver(RunningSum):
    """Holds what only the driver has."""

    def __init__(self, held: Any) -> None:
        self.held = held


def with_session(env: StreamExecutionEnvironment, folder: Path) -> None:
    function = WithDriver(env._spark)
    env.from_collection(PAIRS).key_by(first).process(function).name("sums").execute_and_collect()


def a_frame(env: StreamExecutionEnvironment) -> Any:
    return env._spark.createDataFrame(PAIRS, "key string, n long")


def configured(**settings: Any) -> Callable[[StreamExecutionEnvironment, Path], Any]:
    options = {name.replace("__", "-").replace("_", "."): value for name, value in settings.items()}
    return lambda env, _: env.configure(Configuration.from_dict(options))


BUILDING = [
    Mistake(
        "nothing to execute",
        lambda env, _: env.execute(),
        errors.ConfigurationError,
        ("the job has no sink", r"call print\(\), sink_to\(\) or execute_and_collect\(\)"),
    ),
    Mistake(
        "executed twice",
        executed_twice,
        errors.ConfigurationError,
        ("nothing to execute: what was built has been executed", "build the streams and their sinks again"),
    ),
    Mistake(
        "more subtasks than key groups",
        lambda env, _: sums(env).set_parallelism(5).set_max_parallelism(4).execute_and_collect(),
        errors.ParallelismError,
        ("parallelism not within bounds: 5", "between 1 and the max parallelism 4"),
    ),
    Mistake(
        "two of one uid",
        two_of_one_uid,
        errors.ConfigurationError,
        ("two operators have the same uid: sums",),
    ),
    Mistake(
        "two sinks on one directory",
        one_directory_for_two,
        errors.ConfigurationError,
        ("/out", "FileSink"),
    ),
    Mistake(
        "a scheme that nobody knows",
        lambda env, _: env.enable_checkpointing(1000, "wasb://container/checkpoints"),
        errors.ConfigurationError,
        ("wasb:", "s3:", "Mount the storage"),
    ),
    Mistake(
        "checkpoints where nothing can be written",
        checkpoints_below_a_file,
        errors.CheckpointStorageError,
        ("checkpoint storage", "file/checkpoints", "(?i)not a directory"),
    ),
    Mistake(
        "restored from where nothing is",
        restored_from("{}/nowhere"),
        errors.CheckpointNotFoundError,
        ("nowhere/_metadata does not exist", "no completed checkpoint in that folder"),
    ),
    Mistake(
        "restored from a folder that is no checkpoint",
        restored_from("{}/empty"),
        errors.CheckpointNotFoundError,
        ("empty/_metadata does not exist", "no completed checkpoint in that folder"),
    ),
    Mistake(
        "restored from the latest of none",
        restored_from("latest"),
        errors.CheckpointNotFoundError,
        ("has no completed checkpoint of job 'pyflinkstate job'", "start without restore"),
    ),
    Mistake(
        "restored without checkpoints",
        lambda env, _: sums(env.restore_from("/x/chk-1")).execute_and_collect(),
        errors.ConfigurationError,
        (r"restore_from\(\)", r"enable_checkpointing\(\)"),
    ),
    Mistake(
        "the session in a function",
        with_session,
        errors.ConfigurationError,
        ("operator 'sums': its function cannot be pickled", "(?i)sparkcontext", r"in open\(\)"),
    ),
    Mistake(
        "the environment in a lambda",
        lambda env, _: (
            env.from_collection(PAIRS).map(lambda pair: (env, pair)).name("pairs").execute_and_collect()
        ),
        errors.ConfigurationError,
        ("operator 'pairs': its function cannot be pickled", "(?i)sparkcontext"),
    ),
    Mistake(
        "a restart strategy by its name",
        lambda env, _: env.set_restart_strategy("fixed-delay"),
        errors.ConfigurationError,
        (r"RestartStrategies.fixed_delay_restart\(3, 1000\), not 'fixed-delay'",),
    ),
    Mistake(
        "a number of times in words",
        lambda env, _: env.set_parallelism("4"),
        errors.ParallelismError,
        ("parallelism must be a whole number, not '4'",),
    ),
    Mistake(
        "a collection that is none",
        lambda env, _: env.from_collection(5),
        errors.ConfigurationError,
        (r"from_collection\(\) takes a list of records, not 5",),
    ),
    Mistake(
        "records that do not fit their type",
        lambda env, _: env.from_collection([1, "x"], Types.LONG()),
        errors.BadRecordError,
        ("operator 'collection': a record does not fit type_info", "'x'"),
    ),
    Mistake(
        "a storage that is a number",
        lambda env, _: env.enable_checkpointing(1000, 5),
        errors.ConfigurationError,
        ("a storage is a path, a URI or a FileSystemCheckpointStorage, not 5",),
    ),
    Mistake(
        "an interval in words",
        lambda env, _: env.enable_checkpointing("10 s"),
        errors.ConfigurationError,
        ("interval_ms must be a whole number, at least 0, not '10 s'",),
    ),
    Mistake(
        "an interval in fortnights",
        configured(execution_checkpointing_interval="10 fortnights"),
        errors.ConfigurationError,
        ("setting 'execution.checkpointing.interval' is '10 fortnights'", "such as '10 s' is needed"),
    ),
    Mistake(
        "a format that is not there",
        lambda env, folder: env.from_files(str(folder), "xml"),
        errors.ConfigurationError,
        ("there is no format 'xml'; choose one of csv",),
    ),
    Mistake(
        "no such folder",
        lambda env, folder: env.from_files(str(folder / "nowhere")),
        errors.ConfigurationError,
        ("nowhere", "cannot list"),
    ),
    Mistake(
        "a column that is not there",
        lambda env, _: keyed_process(a_frame(env), key="user", function=SumOfRows(), schema=SUMS),
        errors.ConfigurationError,
        ("there is no column 'user'; the columns are key, n",),
    ),
    Mistake(
        "keyed_process with a class",
        lambda env, _: keyed_process(a_frame(env), key="key", function=SumOfRows, schema=SUMS),  # type: ignore[arg-type]
        errors.ConfigurationError,
        (r"takes an object, and SumOfRows is a class: write SumOfRows\(\)",),
    ),
    Mistake(
        "a schema with a type that is not there",
        lambda env, _: keyed_process(
            a_frame(env), key="key", function=SumOfRows(), schema="key strng, total long"
        ),
        errors.ConfigurationError,
        (
            "schema 'key strng, total long'",
            "(?i)strng.*is not supported|unsupported",
            "such as 'user string, n long'",
        ),
    ),
    Mistake(
        "no session",
        lambda env, _: StreamExecutionEnvironment("local[2]"),  # type: ignore[arg-type]
        errors.ConfigurationError,
        (r"a SparkSession is needed, not 'local\[2\]'",),
    ),
]


@of_each(BUILDING)
def test_found_before_anything_runs(
    env: StreamExecutionEnvironment, tmp_path: Path, mistake: Mistake
) -> None:
    check(mistake, env, tmp_path)


# --- in a job ----------------------------------------------------------------------------------------


class Gives(KeyedProcessFunction):
    """Gives a result for each record, whatever it is."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield self.result


class Returns(Gives):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        return self.result


def gives(result: Any, schema: str = SUMS) -> Callable[[StreamExecutionEnvironment, Path], Any]:
    return lambda env, _: keyed_process(
        a_frame(env), key="key", function=Gives(result), schema=schema, parallelism=1
    )


def with_other_key_groups(env: StreamExecutionEnvironment, folder: Path) -> None:
    for groups in (4, 8):
        env.set_max_parallelism(groups).enable_checkpointing(0, str(folder))
        if groups == 8:
            env.restore_from()
        list(sums(env).uid("sums").execute_and_collect())


def another_operator(env: StreamExecutionEnvironment, folder: Path) -> None:
    env.enable_checkpointing(0, str(folder))
    list(sums(env).uid("sums").execute_and_collect())
    list(sums(env.restore_from()).uid("totals").execute_and_collect())


def event_time_without_watermarks(env: StreamExecutionEnvironment, folder: Path) -> None:
    windows = env.from_collection(PAIRS).key_by(first).window(TumblingEventTimeWindows.of(10))
    list(windows.reduce(lambda a, b: a).execute_and_collect())


ROW = "operator 'Gives', record "

RUNNING = [
    Mistake(
        "a text returned",
        lambda env, _: list(
            env.from_collection(PAIRS).key_by(first).process(Returns("hello")).execute_and_collect()
        ),
        errors.FunctionResultError,
        (
            r"Returns.process_element\(\) \(test_mistakes.py, line \d+\) returned a str",
            "operator 'Returns', key 'a'",
        ),
    ),
    Mistake(
        "windows by event time without watermarks",
        event_time_without_watermarks,
        errors.BadRecordError,
        ("needs timestamps", r"assign_timestamps_and_watermarks\(\)", "operator 'window reduce', key 'a'"),
    ),
    Mistake(
        "another number of key groups",
        with_other_key_groups,
        errors.IncompatibleCheckpointError,
        ("max parallelism", "4", "8"),
    ),
    Mistake(
        "an operator that is gone",
        another_operator,
        errors.IncompatibleCheckpointError,
        ("sums", "allow_non_restored_state"),
    ),
    Mistake(
        "a text in a column of numbers",
        gives(("a", "x")),
        errors.RowError,
        (
            "column 'total' takes bigint, in Python int of 64 bits, and is 'x', of type str",
            ROW + r"\('a', 'x'\)",
        ),
    ),
    Mistake(
        "a number in a column of texts",
        gives((7, 1)),
        errors.RowError,
        ("column 'key' takes string, in Python str, and is 7, of type int", ROW),
    ),
    Mistake(
        "a class that Spark does not know",
        gives(("a", datetime.timedelta(1))),
        errors.RowError,
        ("column 'total' takes bigint.*of type timedelta", ROW),
    ),
    Mistake(
        "a number that is too large",
        gives(("a", 2**31), "key string, total int"),
        errors.RowError,
        ("column 'total' takes int, in Python int of 32 bits, and is 2147483648", ROW),
    ),
    Mistake(
        "a field too many",
        gives(("a", 1, 2)),
        errors.RowError,
        (r"a row takes tuples, dicts or rows of 2 fields \(key, total\), and is \('a', 1, 2\)", ROW),
    ),
    Mistake(
        "a misspelled field",
        gives({"key": "a", "totl": 2}),
        errors.RowError,
        (
            r"2 fields \(key, total\), none of which is 'totl', and is {'key': 'a', 'totl': 2}",
            ROW,
        ),
    ),
    Mistake(
        "a row that is none",
        gives(7),
        errors.RowError,
        ("a row takes tuples, dicts or rows of 2 fields", "is 7, of type int", ROW),
    ),
    Mistake(
        "None where there must be something",
        gives((None, 1), "key string not null, total long"),
        errors.RowError,
        ("column 'key' takes string, never None, and is None", ROW),
    ),
    Mistake(
        "a text deep inside",
        gives(({"x": [(1, 2), (1, "2")]},), "m map<string, array<struct<a: long, b: long>>>"),
        errors.RowError,
        (r"column \"m\['x'\]\[1\].b\" takes bigint.*is '2', of type str", ROW),
    ),
    Mistake(
        "a result that cannot be pickled",
        lambda env, _: list(
            env.from_collection(PAIRS).flat_map(lambda pair: [(n for n in ())]).execute_and_collect()
        ),
        errors.BadRecordError,
        ("pickle", "generator"),
    ),
]


@of_each(RUNNING)
def test_found_by_a_job(env: StreamExecutionEnvironment, tmp_path: Path, mistake: Mistake) -> None:
    check(mistake, env, tmp_path)


def test_there_are_enough_of_them() -> None:
    assert len(BUILDING) + len(RUNNING) >= 40


# --- rows and schemas --------------------------------------------------------------------------------

SCHEMA = (
    "key string, total double, d decimal(5, 2), b binary, day date, at timestamp, l array<int>, "
    "s struct<x: int>"
)
FITTING = {
    "key": "a",
    "total": 3,
    "d": 7,
    "b": b"x",
    "day": datetime.date(2024, 1, 2),
    "at": datetime.datetime(2024, 1, 2, 3, 4, 5),
    "l": [1, None, 2.0],
    "s": {"x": 5},
}


@pytest.mark.quick
def test_what_fits_comes_out_as_its_columns_say(env: StreamExecutionEnvironment) -> None:
    rows = gives(FITTING, SCHEMA)(env, Path()).collect()
    expected = {**FITTING, "total": 3.0, "d": decimal.Decimal(7), "b": bytearray(b"x"), "l": [1, None, 2]}
    assert [row.asDict(recursive=True) for row in rows] == [expected, expected]


def test_a_schema_that_is_one_type(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1, 2])
    assert [row.value for row in stream.to_dataframe("long").collect()] == [1, 2]
    with pytest.raises(errors.RowError, match="a row takes bigint, in Python int of 64 bits, and is 'x'"):
        env.from_collection([1, "x"]).to_dataframe("long")


def test_names_alone_leave_the_types_to_spark(env: StreamExecutionEnvironment) -> None:
    assert env.from_collection(PAIRS).to_dataframe(["key", "n"]).collect() == PAIRS


def test_foreach_epoch_checks_rows_too(env: StreamExecutionEnvironment) -> None:
    env.from_collection([("a", "x")]).foreach_epoch(lambda frame, epoch: None, SUMS)
    with pytest.raises(errors.RowError, match="column 'total' takes bigint"):
        env.execute()


@pytest.fixture
def no_query_left(spark: Any) -> Iterator[None]:
    yield
    for query in keyed_process_queries():
        query.client.cancel().result(PATIENCE_S)
    for query in spark.streams.active:
        query.stop()


@pytest.mark.usefixtures("no_query_left")
@pytest.mark.parametrize("result", [(7, 1), ("a", "x"), ("a", 1, 2)], ids=repr)
def test_behind_a_streaming_frame_rows_are_checked_the_same_way(
    env: StreamExecutionEnvironment, tmp_path: Path, result: Any
) -> None:
    with pytest.raises(errors.RowError) as in_batch:
        gives(result)(env, tmp_path)
    folder = JsonFolder(tmp_path / "input")
    folder.add()
    keyed_process(
        folder.stream(env._spark),
        key="key",
        function=Gives(result),
        schema=SUMS,
        parallelism=1,
        checkpoint_directory=str(tmp_path / "state"),
    )
    (job,) = keyed_process_queries()
    error = job.client.get_job_execution_result().exception(PATIENCE_S)
    assert isinstance(error, errors.RowError)
    assert str(error) == str(in_batch.value)


# --- another Python ----------------------------------------------------------------------------------

OTHER_PYTHON = """
import os, sys
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
if sys.argv[1] != "-":
    os.environ["PYSPARK_PYTHON"] = sys.argv[1]
from pyspark.sql import SparkSession
from pyflinkstate import StreamExecutionEnvironment, errors
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for shipped in sys.argv[2:]:
    session.sparkContext.addPyFile(shipped)
try:
    env = StreamExecutionEnvironment(session)
    print("an environment")
    env.from_collection([1]).print()
    env.execute()
except errors.UnsupportedSessionError as error:
    print(error)
finally:
    session.stop()
"""


def run_with_workers_of(python: Path | str, folder: Path, *shipped: Path, **env: str) -> list[str]:
    """Run a program whose workers are of another Python, and return what it printed."""
    command = [sys.executable, "-c", OTHER_PYTHON, str(python), *map(str, shipped)]
    clean = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=folder, env={**clean, **env}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def told_of(python: Path, problem: str) -> list[str]:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return [
        f"Spark's workers run another Python than this program: {str(python)!r} {problem}; "
        f"this is {version}.",
        'Before the session is made, set os.environ["PYSPARK_PYTHON"] = sys.executable;',
        f"on a cluster set spark.pyspark.python to a Python {version} with pyflinkstate on every host,",
        "or bring the package there with pyflinkstate.ship(session).",
    ]


@pytest.fixture
def other_python(tmp_path: Path) -> Path:
    """A Python of the same version that has no packages."""
    venv.create(tmp_path / "other", symlinks=True, with_pip=False)
    return tmp_path / "other" / "bin" / "python"


def test_workers_with_another_python_are_told_of_before_anything_runs(
    other_python: Path, tmp_path: Path
) -> None:
    assert run_with_workers_of(other_python, tmp_path) == told_of(
        other_python, "has no module 'pyflinkstate'"
    )


def test_where_no_python_was_chosen_workers_have_the_programs(other_python: Path, tmp_path: Path) -> None:
    """As in a virtual environment that is not activated, where ``python3`` is the system's."""
    assert (other_python.parent / "python3").exists()
    path = os.pathsep.join([str(other_python.parent), os.environ["PATH"]])
    assert run_with_workers_of("-", tmp_path, PATH=path) == ["an environment", "1"]


def test_workers_that_are_shipped_something_are_told_of_when_they_fail(
    other_python: Path, tmp_path: Path
) -> None:
    """What is shipped may be this package, so nobody asks before."""
    shipped = tmp_path / "shipped.zip"
    with zipfile.ZipFile(shipped, "w") as archive:
        archive.writestr("shipped.py", "")
    assert run_with_workers_of(other_python, tmp_path, shipped) == [
        "an environment",
        *told_of(other_python, "has no module 'pyflinkstate'"),
    ]


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    (first_line, *_) = run_with_workers_of(tmp_path / "nowhere", tmp_path)
    assert "nowhere' cannot be started" in first_line


#: What PySpark 4.3 says, and the JVM before it.
VERSIONS_DIFFER = (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has "
    "different version: 3.10 than that in driver: 3.11, PySpark cannot run with different minor versions.\n"
    "Please check environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are correctly set."
)


@pytest.mark.parametrize(
    ("trace", "problem"),
    [
        (VERSIONS_DIFFER, "is Python 3.10"),
        ("ModuleNotFoundError: No module named 'pyflinkstate.runtime.spark'", "has no module 'pyflinkstate"),
        ("errors.PackageMismatchError: this worker has pyflinkstate 0.0.9, and the program has 1", "has pyf"),
        ('java.io.IOException: Cannot run program "python3": error=2', "is not there"),
        ("ModuleNotFoundError: No module named 'my_functions'", ""),
        ("ZeroDivisionError", ""),
    ],
)
def test_what_a_trace_says_of_the_workers(trace: str, problem: str) -> None:
    found = workers.problem_in(trace)
    assert found.startswith(problem)
    assert bool(found) is bool(problem)
