"""Spark sessions: a local one for a program that has none, and what the settings of one say."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from pyflinkstate.api.values import SparkObject
from pyflinkstate.errors import ConfigurationError, PyFlinkStateError, UnsupportedSessionError
from pyflinkstate.runtime.slots import Endpoint
from pyflinkstate.runtime.spark.application import Application
from pyflinkstate.runtime.spark.java import check_java
from pyflinkstate.runtime.spark.python_files import kept_folder


def local_session() -> SparkSession:
    """Return the active session, or a new local one that logs little.

    Its workers can import the same modules, as they get the interpreter and ``sys.path`` of this process.

    Raises:
        ConfigurationError: Spark has to be started, and there is no Java for it.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        check_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    py4j = logging.getLogger("py4j")
    if py4j.level == logging.NOTSET:  # otherwise every closed connection is logged
        py4j.setLevel(logging.WARNING)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[*]").appName("pyflinkstate")
    quiet = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_quiet_logging()}",
    }
    workers = {"spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for name, value in {**quiet, **workers}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _quiet_logging() -> str:
    """Return the URI of the JVM's settings for logging; it reads none out of a zip file."""
    settings = files("pyflinkstate.runtime.spark") / "log4j2-quiet.properties"
    if isinstance(settings, Path):
        return settings.as_uri()
    copy = kept_folder() / settings.name
    copy.write_bytes(settings.read_bytes())
    return copy.as_uri()


def context_of(session: SparkObject) -> SparkContext:
    """Return the session's context.

    Raises:
        UnsupportedSessionError: it is a Spark Connect session, which has no RDDs.
    """
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise UnsupportedSessionError(
            "a Spark Connect session has no RDDs, and state slots are fed by RDD tasks: pass a classic "
            "SparkSession (SparkSession.builder.master(...)), or run the program on the driver"
        )
    if not isinstance(session, SparkSession):
        raise ConfigurationError(f"a SparkSession is needed, not {session!r}")
    return session.sparkContext


def _let_go_of_jvm() -> None:
    """Close the pipe that tells Spark's JVM of its driver's end: forked processes must not hold it open."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None and process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()


os.register_at_fork(after_in_child=_let_go_of_jvm)


def driver_endpoint(context: SparkContext) -> Endpoint:
    """Return where the driver listens for executors, according to Spark's own settings.

    ``spark.pyflinkstate.port`` is an addition, for a firewall that lets only some ports through.
    """
    conf = context.getConf()
    port = int(conf.get("spark.pyflinkstate.port", "0") or 0)
    if str(context.master).split("[")[0] == "local":
        return Endpoint(port=port)
    host = str(conf.get("spark.driver.host"))
    bind_host = str(conf.get("spark.driver.bindAddress", host))
    return Endpoint(host.strip("[]"), bind_host.strip("[]"), port)  # Spark writes IPv6 in brackets


def is_encrypted(conf: SparkConf) -> bool:
    """Return whether Spark encrypts what its processes send each other."""
    names = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
    return any(str(conf.get(name, "false")).lower() == "true" for name in names)


def gone(session: SparkSession) -> PyFlinkStateError | None:
    """Return the error if the Spark application of a session has ended; its JVM is asked now."""
    return Application(session.sparkContext).gone()
