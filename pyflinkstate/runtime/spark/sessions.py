"""Spark sessions: a local one for a program without one, its Java, and whether its application runs."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path

import pyarrow as pa
from py4j.clientserver import ClientServer
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from pyflinkstate.api import SparkObject, check_kind
from pyflinkstate.errors import (
    ConfigurationError,
    PyFlinkStateError,
    SparkUnavailableError,
    UnsupportedSessionError,
)
from pyflinkstate.runtime.slots import Endpoint
from pyflinkstate.runtime.storage import temporary_folder
from pyflinkstate.runtime.wire import LOOK_EVERY_S


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


def frame_of(given: SparkObject, session: SparkSession | None = None) -> SparkObject:
    """Return a table of pandas, polars or Arrow as a Spark DataFrame, and anything else as it is.

    Args:
        given: the table; what is not from pandas has the Arrow PyCapsule interface.
        session: the session that makes the DataFrame. Default: see :func:`local_session`.
    """
    is_of_spark = isinstance(getattr(given, "isStreaming", None), bool)
    if is_of_spark or not hasattr(given, "__arrow_c_stream__"):
        return given
    if not type(given).__module__.startswith("pandas."):
        given = given.to_arrow() if hasattr(given, "to_arrow") else pa.table(given)
    return (session or local_session()).createDataFrame(given)


@cache
def kept_folder() -> Path:
    """Return a folder that lasts as long as the program: Spark sends its files to later executors too."""
    return temporary_folder(SparkContext, "pyflinkstate-files-")


def _quiet_logging() -> str:
    """Return the URI of the JVM's settings for logging; it reads none out of a zip file."""
    settings = files("pyflinkstate.runtime.spark") / "log4j2-quiet.properties"
    if isinstance(settings, Path):
        return settings.as_uri()
    copy = kept_folder() / settings.name
    copy.write_bytes(settings.read_bytes())
    return copy.as_uri()


def context_of(session: SparkSession) -> SparkContext:
    """Return the session's context.

    Raises:
        UnsupportedSessionError: it is a Spark Connect session, which has no RDDs.
    """
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise UnsupportedSessionError(
            "a Spark Connect session has no RDDs, and state slots are fed by RDD tasks: pass a classic "
            "SparkSession (SparkSession.builder.master(...)), or run the program on the driver"
        )
    check_kind("a SparkSession is needed", session, SparkSession)
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
    return any(
        str(conf.get(name, "false")).lower() == "true"
        for name in ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
    )


def kills_idle_workers(conf: SparkConf) -> bool:
    """Return whether Spark ends Python workers that send nothing for a while, as tasks that stay do."""
    return (
        str(conf.get("spark.python.worker.killOnIdleTimeout", "false")).lower() == "true"
        and str(conf.get("spark.python.worker.idleTimeoutSeconds", "0")) != "0"
    )


def gone(session: SparkSession) -> PyFlinkStateError | None:
    """Return the error if the Spark application of a session has ended; its JVM is asked now."""
    return Application(session.sparkContext).gone()


# --- applications ----------------------------------------------------------------------------------


class Application:
    """The Spark application of a job: whether it runs, and the threads of its JVM in which the job waits.

    A context can end while its JVM lives: a program stops it, or Spark does after an error of its own. Spark
    drops what is submitted in that moment, and its caller waits for ever. So a job looks at the context while
    it waits, and at its end it interrupts what still waits inside the JVM.

    Args:
        context: its context.
        now_s: returns monotonic time.
    """

    def __init__(self, context: SparkContext, now_s: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._now_s = now_s
        self._asked_s = float("-inf")
        self._has_stopped = False
        #: The context in the JVM.
        self.java: SparkObject = None
        self._current_thread: SparkObject = None
        self._slice: SparkObject = None
        #: The threads of the JVM that work for threads of the job.
        self._waiting: dict[threading.Thread, SparkObject] = {}

    def look_up(self) -> None:
        """Look up in the JVM what each epoch needs, the first time that this is called."""
        if self.java is None:
            jvm: SparkObject = self._context._jvm
            self._current_thread = jvm.java.lang.Thread.currentThread
            self._slice = jvm.scala.concurrent.duration.Duration.apply(int(LOOK_EVERY_S * 1000), "ms")
            self.java = self._context._jsc.sc()

    def gone(self, description: str = "", at_once: bool = False) -> SparkUnavailableError | None:
        """Return the error if the application has ended.

        The JVM is asked at most every ``LOOK_EVERY_S``, but for ``at_once``.
        """
        if self._context._jsc is None or self._jvm_has_ended():
            return unavailable(description)
        now_s = self._now_s()
        if not self._has_stopped and (at_once or now_s - self._asked_s >= LOOK_EVERY_S):
            self._asked_s = now_s
            self._has_stopped = not self.is_alive()
        return unavailable(description) if self._has_stopped else None

    def is_alive(self) -> bool:
        """Ask the JVM now whether the context runs."""
        if self._jvm_has_ended():
            return False
        try:
            return not (self.java or self._context._jsc.sc()).isStopped()
        except Exception:  # noqa: BLE001 - a stopped context, a closed gateway and a dead JVM raise different errors
            return False

    def _jvm_has_ended(self) -> bool:
        """Return whether the JVM that PySpark started has ended; False if another program started the JVM."""
        process = getattr(self._context._gateway, "proc", None)
        return process is not None and process.poll() is not None

    def enter(self) -> None:
        """Note the thread of the JVM that works for this one, so that :meth:`interrupt` reaches it."""
        self._waiting[threading.current_thread()] = self._current_thread()

    def leave(self) -> None:
        """Forget the thread of the JVM that works for this one."""
        self._waiting.pop(threading.current_thread(), None)

    def has_ended(self, stage: SparkObject, timeout_s: float) -> bool:
        """Return whether a stage that was submitted alone has ended.

        Wait ``LOOK_EVERY_S`` for it, or not at all if ``timeout_s`` is 0.
        """
        if timeout_s > 0:
            with suppress(Py4JJavaError):  # it takes longer, or the wait was interrupted
                stage.ready(self._slice, None)
                return True
        return bool(stage.isCompleted())

    def interrupt(self) -> None:
        """End what still waits inside the JVM, once the application has ended."""
        if self._jvm_has_ended():
            return
        for thread in list(self._waiting.values()):
            with suppress(Exception):  # the JVM may end at this moment
                thread.interrupt()


#: What Spark warns of when the tasks of a job of this package are killed: jobs have groups of that name.
_OF_KILLED_TASKS = (
    r"(Lost task|Putting block rdd_\S+ failed) .*job group pyflinkstate .*"
    r"|Block rdd_\S+ could not be removed as it was not found on disk or in memory"
    r"|Failed to cancel job group .* Cannot find active jobs for it\."
    r"|Incomplete task interrupted: Attempting to kill Python Worker.*"
    r"|Attempt to delete using native Unix OS command failed .*/blockmgr-.*"  # they still write at the end
)


@cache
def hush_killed_tasks(context: SparkContext) -> None:
    """Keep the JVM from warning of tasks that are killed with their job, which tells its error itself."""
    hush(context, _OF_KILLED_TASKS)


def hush(context: SparkContext, messages: str) -> None:
    """Keep the JVM from logging some messages, which a regular expression matches as a whole."""
    with suppress(Exception):  # it logs with something else, or has ended
        jvm: SparkObject = context._jvm
        log4j = jvm.org.apache.logging.log4j
        deny, neutral = map(getattr(log4j.core, "Filter$Result").valueOf, ("DENY", "NEUTRAL"))
        rule = log4j.core.filter.RegexFilter.createFilter(messages, None, False, deny, neutral)
        log4j.LogManager.getContext(False).getConfiguration().addFilter(rule)


def has_pinned_threads() -> bool:
    """Return whether each thread of Python has one of the JVM; otherwise all share them."""
    return isinstance(SparkContext._gateway, ClientServer)


def unavailable(description: str = "") -> SparkUnavailableError:
    """Return the error that the application has ended."""
    where = f" in {description}" if description else ""
    return SparkUnavailableError(
        f"the Spark application ended{where}; start another session, and restore_from() the last checkpoint"
    )


# --- Java ------------------------------------------------------------------------------------------

#: The least that PySpark 4 runs on.
NEEDED = 17
#: An installed Java prints its version in a fraction of a second.
_TIMEOUT_S = 30
_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', re.MULTILINE)
_SAID = re.compile(r'\bversion "(\d+)(?:\.(\d+))?')

_HOW = f"""\
Get one in one of these ways:
  Debian, Ubuntu:  sudo apt-get install openjdk-{NEEDED}-jre-headless
  macOS:           brew install openjdk@{NEEDED}
  conda:           conda install -c conda-forge openjdk={NEEDED}
  pip:             pip install install-jdk && python -c "import jdk; print(jdk.install('{NEEDED}'))"
If java is not on the PATH then, set JAVA_HOME to the folder that it was put into. Then start again."""


def check_java(environment: Mapping[str, str] | None = None) -> None:
    """Raise an error of a few lines if there is no Java for Spark, before Spark is started.

    Java is looked for where Spark's own start script looks: in ``JAVA_HOME``, and where that is not set on
    the ``PATH``. Its version is in the file ``release`` of its folder; without that file, Java is asked.

    Args:
        environment: the variables to go by; by default those of this process.

    Raises:
        ConfigurationError: there is no Java, or it is too old.
    """
    environment = os.environ if environment is None else environment
    if _has_script_of_its_own(environment):
        return
    fault = _fault(environment)
    if fault is not None:
        raise ConfigurationError(f"Spark needs Java {NEEDED} or newer, and {fault}.\n{_HOW}", needed=NEEDED)


def _has_script_of_its_own(environment: Mapping[str, str]) -> bool:
    """Return whether a ``spark-env.sh`` may say where Java is: then only Spark knows."""
    return os.path.exists(
        os.path.join(
            environment.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf"), "spark-env.sh"
        )
    )


def _fault(environment: Mapping[str, str]) -> str | None:
    home = environment.get("JAVA_HOME")
    if home:
        java = shutil.which(os.path.join(home, "bin", "java"))
        where = f"JAVA_HOME is {home}"
        return f"{where}, which has no bin/java" if java is None else _fault_of(java, where)
    java = shutil.which("java", path=environment.get("PATH"))
    if java is None:
        return "there is none: JAVA_HOME is not set, and there is no java on the PATH"
    return _fault_of(java, f"JAVA_HOME is not set, and the first on the PATH is {java}")


def _fault_of(java: str, where: str) -> str | None:
    """Return the problem of ``java``; None also if it runs with unknown output."""
    version = _released_version(java)
    if version is None:
        try:
            done = subprocess.run(
                [java, "-version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{where}, which does not run: {error}"
        said = done.stderr + done.stdout
        if done.returncode != 0:
            fault = next(iter(said.splitlines()), f"exit code {done.returncode}").rstrip(".")
            return f"{where}, which does not run: {fault}"
        version = _version(_SAID, said)
    return None if version is None or version >= NEEDED else f"{where}, which is Java {version}"


def _released_version(java: str) -> int | None:
    with suppress(OSError, ValueError):  # ValueError: it is no text
        return _version(_RELEASE, (Path(java).resolve().parents[1] / "release").read_text())
    return None


def _version(pattern: re.Pattern[str], text: str) -> int | None:
    """Return the feature version: 8 of ``1.8.0_402``, 17 of ``17.0.9``."""
    found = pattern.search(text)
    if found is None:
        return None
    first, second = int(found[1]), found[2]
    return int(second) if first == 1 and second is not None else first
