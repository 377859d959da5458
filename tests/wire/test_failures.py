"""What is shown of an error in user code: its message, the place, the user's lines, nothing of ours."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from pyflinkstate.errors import StateValueError, UserFunctionError
from pyflinkstate.runtime.wire import spark_cause, told_by_spark, user_failure

HERE = str(Path(__file__))


def caught(function: Callable[[], Any]) -> BaseException:
    try:
        function()
    except Exception as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError("nothing was raised")


def told(function: Callable[[], Any]) -> list[str]:
    failure = user_failure(caught(function), "sums", ("ann", 0), "ann")
    assert isinstance(failure, UserFunctionError)
    return str(failure).splitlines()


def lines_of(message: list[str]) -> list[str]:
    """Return the frames alone, without the marks below their lines."""
    return [line for line in message if line.startswith("  File ")]


def divide() -> float:
    return 1 / 0


class TestUserCode:
    def test_the_error_comes_first_then_the_place_then_the_users_line(self) -> None:
        message = told(divide)
        assert message[:2] == [
            "ZeroDivisionError: division by zero",
            "  in operator 'sums', key 'ann', record ('ann', 0)",
        ]
        assert (
            lines_of(message)[-1] == f'  File "{HERE}", line {divide.__code__.co_firstlineno + 1}, in divide'
        )
        assert "    return 1 / 0" in message
        assert len(message) <= 12

    def test_what_led_to_it_comes_after_it(self) -> None:
        def look_up() -> None:
            try:
                divide()
            except ZeroDivisionError as error:
                raise LookupError("no quotient") from error

        message = told(look_up)
        assert message[0] == "LookupError: no quotient"
        at = message.index("because of ZeroDivisionError: division by zero")
        assert "in look_up" in "".join(message[:at])
        assert "in divide" in lines_of(message[at:])[-1]
        assert len(message) <= 14

    @pytest.mark.parametrize("is_left_out", [False, True])
    def test_what_was_being_handled_comes_after_it_too_unless_left_out_on_purpose(
        self, is_left_out: bool
    ) -> None:
        def clean_up() -> None:
            try:
                divide()
            except ZeroDivisionError:
                error = KeyError("ann")
                if is_left_out:
                    raise error from None
                raise error  # noqa: B904

        assert ("because of ZeroDivisionError: division by zero" in told(clean_up)) != is_left_out

    def test_a_deep_one_shows_where_it_was_raised(self) -> None:
        def sink(depth: int) -> float:
            if depth % 2:
                return sink(depth - 1)
            return sink(depth - 1) if depth else divide()

        message = told(lambda: sink(40))
        assert "in divide" in lines_of(message)[-1]
        assert len(message) <= 12

    def test_frames_of_this_package_and_of_pyspark_are_left_out(self, tmp_path: Path) -> None:
        """Also in the midst: a state may call back what the user has written."""
        from pyflinkstate.runtime.wire.pickling import dumps

        class Secret:
            def __reduce__(self) -> Any:
                divide()

        inner = tmp_path / "site-packages" / "pyspark"
        inner.mkdir(parents=True)
        (inner / "stand_in.py").write_text("def call(function):\n    return function()\n")
        scope: dict[str, Any] = {}
        exec(compile((inner / "stand_in.py").read_text(), str(inner / "stand_in.py"), "exec"), scope)
        for call in (lambda: dumps(Secret()), lambda: scope["call"](divide)):
            message = "\n".join(told(call))
            assert "in divide" in message
            assert "pyflinkstate/runtime" not in message
            assert "stand_in.py" not in message

    def test_an_error_of_the_projects_own_keeps_its_type(self) -> None:
        def update() -> None:
            raise StateValueError("state 'n': not a LONG", state="n")

        failure = user_failure(caught(update), "sums", ("ann", "x"), "ann")
        assert isinstance(failure, StateValueError)
        assert str(failure).startswith("state 'n': not a LONG\n  in operator 'sums', key 'ann'")


#: What Spark 4 says when a function raises in a DataFrame that the job reads; shortened where it is alike.
IN_A_WORKER = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: \
Task 0 in stage 1.0 failed 1 times, most \
recent failure: Lost task 0.0 in stage 1.0 (TID 1) (localhost executor driver): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 2044, in main
    process()
  File "/home/ann/orders.py", line 12, in <lambda>
    frame = spark.read.text("in").rdd.map(lambda row: int(row[0]))
                                                      ^^^^^^^^^^^
ValueError: invalid literal for int() with base 10: 'x'

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\tat org.apache.spark.api.python.PythonRunner$$anon$3.read(PythonRunner.scala:940)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$2(DAGScheduler.scala:2935)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 2044, in main
    process()
  File "/home/ann/orders.py", line 12, in <lambda>
    frame = spark.read.text("in").rdd.map(lambda row: int(row[0]))
                                                      ^^^^^^^^^^^
ValueError: invalid literal for int() with base 10: 'x'

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\t... 1 more
"""
IN_THE_JVM = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: \
Task 3 in stage 1.0 failed 4 times, most recent failure: \
Lost task 3.3 in stage 1.0 (TID 9) (10.0.0.7 executor 2): java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$2(DAGScheduler.scala:2935)
Caused by: java.io.IOException: No space left on device
\t... 1 more
"""


class TestSpark:
    def test_the_error_of_a_worker_once_with_the_users_lines(self) -> None:
        assert told_by_spark(RuntimeError(IN_A_WORKER)).splitlines() == [
            "ValueError: invalid literal for int() with base 10: 'x'",
            '  File "/home/ann/orders.py", line 12, in <lambda>',
            '    frame = spark.read.text("in").rdd.map(lambda row: int(row[0]))',
            "                                                      ^^^^^^^^^^^",
        ]

    def test_of_errors_that_led_to_each_other_the_last(self) -> None:
        chained = IN_A_WORKER.partition("\n\n\tat")[0] + (
            "\n\nDuring handling of the above exception, another exception occurred:\n\n"
            'Traceback (most recent call last):\n  File "/home/ann/orders.py", line 14, in read\n'
            "    raise LookupError(row)\nLookupError: x\n\n\tat org.apache.spark.X\n"
        )
        assert told_by_spark(RuntimeError(chained)).splitlines()[:2] == [
            "LookupError: x",
            '  File "/home/ann/orders.py", line 14, in read',
        ]

    def test_a_failure_in_the_jvm(self) -> None:
        assert told_by_spark(RuntimeError(IN_THE_JVM)) == "java.io.IOException: No space left on device"

    def test_what_is_no_error_of_sparks_is_told_as_it_is(self) -> None:
        assert told_by_spark(LookupError("no brokers")) == "no brokers"
        error = LookupError("no brokers")
        assert spark_cause(error) is error

    def test_the_cause_says_it_once_and_has_all_of_it_for_who_asks(self) -> None:
        error = RuntimeError(IN_A_WORKER)
        cause = spark_cause(error)
        assert str(cause).count("ValueError: invalid literal") == 1
        assert "\tat " not in str(cause)
        assert cause.__context__ is error
        assert cause.__suppress_context__


@pytest.mark.parametrize("limit", [700 << 20, resource.RLIM_INFINITY])
def test_what_limits_the_address_space_is_named_where_memory_lacks(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Arrow says only ``realloc of size 512 failed``, on a host with gigabytes left."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    text = str(user_failure(pyarrow.ArrowMemoryError("realloc of size 512 failed"), "sums", 1))
    assert text.startswith("ArrowMemoryError: realloc of size 512 failed")
    named = "may have 700 MiB of address space (limited by spark.executor.pyspark.memory, or by ulimit -v)"
    assert (named in text) == (limit != resource.RLIM_INFINITY)
