"""The batches of a streaming query that feed a job, and the files in which the query keeps its offsets."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError

from pyflinkstate.api.values import SparkObject
from pyflinkstate.errors import SourceError
from pyflinkstate.runtime.spark.application import has_pinned_threads
from pyflinkstate.runtime.wire import spark_cause, told_by_spark


def batch_handler(
    process_batch: Callable[[SparkObject, int], None],
) -> Callable[[SparkObject, int], None]:
    """Return what a query calls with each of its batches.

    That the job has ended is told where the job is; py4j would say it once more, with a traceback. And a
    query that is stopped shall end as one that was stopped, in the middle of a batch too. It does when the
    batch ends with the interrupt of its thread. That interrupt may also break off the reading of the query's
    log, with which each batch begins.
    """
    for name in _CALLBACK_LOGGERS:
        logging.getLogger(name).addFilter(_is_news)  # one that is there already is not added again

    def handle(frame: SparkObject, number: int) -> None:
        try:
            process_batch(frame, number)
        except SourceError as error:
            is_stopped = error.context.get("is_stopped") or _INTERRUPT.search(str(error)) is not None
            if is_stopped and has_pinned_threads():
                _await_interrupt(frame, error)
            raise

    return handle


def _await_interrupt(frame: SparkObject, error: SourceError) -> None:
    """Wait for the interrupt, and raise what Spark tells it by: the text of py4j's error, without its trace.

    Spark looks for it with a regular expression that overflows the JVM's stack on a long text.
    """
    try:
        frame.sparkSession._jvm.java.lang.Thread.sleep(_INTERRUPT_TIMEOUT_MS)
    except Py4JError:
        raise SourceError(_INTERRUPTED, **{**error.context, "is_stopped": True}) from None


#: Where py4j logs what a function raises that the JVM has called.
_CALLBACK_LOGGERS = ("py4j.clientserver", "py4j.java_gateway")
_INTERRUPTED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling z:java.lang.Thread.sleep: "
    "java.lang.InterruptedException"
)
#: How Java names the end of a thread's work by an interrupt.
_INTERRUPT = re.compile(
    r"\bjava\.(lang\.InterruptedException|\S*ClosedByInterruptException|\S*InterruptedIOException)"
)
#: A query that is being stopped interrupts the thread of its batch at once.
_INTERRUPT_TIMEOUT_MS = 30_000


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether py4j logs anything but the end of a job."""
    error = record.exc_info[1] if record.exc_info else None
    told = [error, None if error is None else error.__context__]
    return not any(isinstance(each, SourceError) and "is_stopped" in each.context for each in told)


class SparkQueryFiles:
    """Reads a query's checkpoint location through Hadoop's file systems, like Spark itself."""

    def __init__(self, session: SparkObject, location: str) -> None:
        self._jvm: SparkObject = session._jvm
        self._configuration = session._jsparkSession.sessionState().newHadoopConf()
        self._location = location

    def names(self, folder: str) -> list[str]:
        """See :class:`~pyflinkstate.runtime.sources.query_log.QueryFiles`."""
        with self._errors(folder):
            file_system, path = self._open(folder)
            if not file_system.exists(path):
                return []
            return [str(status.getPath().getName()) for status in file_system.listStatus(path)]

    def read(self, name: str) -> bytes | None:
        """See :class:`~pyflinkstate.runtime.sources.query_log.QueryFiles`."""
        with self._errors(name):
            file_system, path = self._open(name)
            if not file_system.exists(path):
                return None
            stream = file_system.open(path)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def _open(self, name: str) -> tuple[SparkObject, SparkObject]:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self._location.rstrip('/')}/{name}")
        return path.getFileSystem(self._configuration), path

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever the JVM says
            raise SourceError(
                f"the streaming query's checkpoint location {self._location}: cannot read {name}: "
                f"{told_by_spark(error)}"
            ) from spark_cause(error)
