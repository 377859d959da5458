"""What every test may use: the fixtures of both houses, which lie with what the tests share."""

from __future__ import annotations

import gc
import os

import pytest

pytest_plugins = ["shared_fixtures"]
#: What is left open is shown there, and is no error: Spark leaves connections to its JVM open.
MAY_LEAVE_OPEN = ("spark", "full", "slow")
#: Variables of somebody with another Spark: they would decide which Spark is tested, with which Python.
OF_ANOTHER_SPARK = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_REMOTE",
    "HADOOP_CONF_DIR",
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
    "PYSPARK_SUBMIT_ARGS",
)

for name in OF_ANOTHER_SPARK:
    os.environ.pop(name, None)
# The servers of tests are on this host, where a proxy does not find them.
for name in ("no_proxy", "NO_PROXY"):
    os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1,localhost"]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a quick test leaves open is an error, in that test or in the one during which it is collected."""
    for item in items:
        if not any(item.get_closest_marker(name) for name in MAY_LEAVE_OPEN):
            item.add_marker(pytest.mark.filterwarnings("error::ResourceWarning"))


def pytest_collection_finish() -> None:
    """The thousands of tests stay as they are: no collection of garbage need look at them again."""
    gc.collect()
    gc.freeze()
