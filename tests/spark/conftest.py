"""Fixtures of the tests that run on a real local Spark; one session serves them all."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from processes import MARK, slots_left
from pyspark import cloudpickle as cloudpickle_of_spark

from pyflinkstate import keyed_process_queries

#: How long jobs may take to end.
PATIENCE_S = 60

HERE = Path(__file__).parent
# Read by each JVM that a test starts.
os.environ["SPARK_CONF_DIR"] = str(HERE / "conf")
# Inherited by all that a test starts: by Spark's JVM, by its workers, and by the slots.
os.environ[MARK] = uuid.uuid4().hex

SHARED_DATA = HERE.parents[2] / "shared" / "data" / "online_retail"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test on Spark takes seconds, so it belongs to the full tier unless it is marked as quick."""
    for item in items:
        if item.path.parent == HERE and not item.get_closest_marker("quick"):
            item.add_marker(pytest.mark.full)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Ship what test files define by value: a worker that imported one would import pytest and PySpark."""
    for name in {item.path.stem for item in session.items if item.path.parent == HERE}:
        for pickler in (cloudpickle, cloudpickle_of_spark):
            pickler.register_pickle_by_value(sys.modules[name])


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    from pyspark.sql import SparkSession

    from pyflinkstate.runtime.spark.sessions import local_session

    session = local_session()
    if session.sparkContext.defaultParallelism < 2:  # some tests need two tasks at a time, also on one core
        conf = session.sparkContext.getConf().setMaster("local[2]")
        session.stop()
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def retail_dir() -> Path:
    """The real event stream, which lies beside the project on machines that have it."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real event stream is not here")
    return SHARED_DATA


@pytest.fixture
def no_slot_left() -> Iterator[None]:
    """Assert that a test left no state slot behind; a slot that is just ending may finish."""
    yield
    assert slots_left() == []


@pytest.fixture
def path_as_before() -> Iterator[None]:
    """What is brought along goes on the driver's path too; the next test does not need it."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture
def no_query_left(spark: Any) -> Iterator[None]:
    """Stop the streaming queries that a test left, and assert that there was none.

    Spark lists a query for a moment after it has ended.
    """
    yield
    left = [query for query in spark.streams.active if query.isActive]
    for query in left:
        query.stop()
    assert not left


@pytest.fixture
def jobs_end() -> Iterator[None]:
    """End the jobs behind streaming DataFrames."""
    yield
    for query in keyed_process_queries():
        query.client.cancel().result(PATIENCE_S)
