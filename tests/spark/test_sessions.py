"""Which Spark sessions a job runs on."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from pyflinkstate import StreamExecutionEnvironment, errors

pytestmark = pytest.mark.spark

CONNECT = """
from pyspark.sql import SparkSession
from pyflinkstate import StreamExecutionEnvironment, errors
session = SparkSession.builder.remote("local[1]").getOrCreate()
try:
    StreamExecutionEnvironment(session)
except errors.UnsupportedSessionError as error:
    print(error)
finally:
    session.stop()
"""


def test_a_spark_connect_session_is_refused() -> None:
    pytest.importorskip("grpc", reason="Spark Connect's client needs it")
    # The port of the server is fixed, and another run of these tests may use it: Spark takes a free one then.
    environment = {**os.environ, "SPARK_TESTING": "1"}
    command = [sys.executable, "-c", CONNECT]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert "a Spark Connect session has no RDDs" in done.stdout, done.stderr


def test_something_else_is_no_session() -> None:
    with pytest.raises(errors.ConfigurationError, match="a SparkSession is needed"):
        StreamExecutionEnvironment("local[2]")  # type: ignore[arg-type]


def test_without_a_session_the_active_one_is_used(spark: Any) -> None:
    assert StreamExecutionEnvironment()._spark is spark
