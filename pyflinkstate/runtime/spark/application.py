"""Whether a Spark application still runs, and the threads of its JVM in which a job waits.

A context can end while its JVM lives: a program stops it, or Spark does after an error of its own. Spark
drops what is submitted in that moment, and its caller waits for ever. So a job looks at the context while it
waits, and at its end it interrupts what still waits inside the JVM.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from py4j.clientserver import ClientServer
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from pyflinkstate.api.values import SparkObject
from pyflinkstate.errors import SparkUnavailableError
from pyflinkstate.runtime.wire import LOOK_EVERY_S


class Application:
    """The Spark application of a job.

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

    def gone(self, description: str = "") -> SparkUnavailableError | None:
        """Return the error if the application has ended. The JVM is asked at most every ``LOOK_EVERY_S``."""
        if self._context._jsc is None or self._jvm_has_ended():
            return unavailable(description)
        now_s = self._now_s()
        if not self._has_stopped and now_s - self._asked_s >= LOOK_EVERY_S:
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


def has_pinned_threads() -> bool:
    """Return whether each thread of Python has one of the JVM; otherwise all share them."""
    return isinstance(SparkContext._gateway, ClientServer)


def unavailable(description: str = "") -> SparkUnavailableError:
    """Return the error that the application has ended."""
    where = f" in {description}" if description else ""
    return SparkUnavailableError(
        f"the Spark application ended{where}; start another session, and restore_from() the last checkpoint"
    )
