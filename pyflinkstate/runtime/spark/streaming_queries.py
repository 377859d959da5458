"""Streaming queries beside a job: the one whose batches feed it, and those that read its results.

The job of a streaming DataFrame commits files, and queries read them. Spark does not know that the two
belong together, and a directory that nobody writes to any more looks like one that waits for data. So when
the job has failed, its driver looks for the session's queries that read the directory, lets each read what
the job has committed, and ends it with the error. A listener does the same for queries that start later.

A query may read other sources too, of which there is always more. Spark cannot wait for one source alone, so
such a query is ended after a while.

A query that ends when it has read what there is (``availableNow``) would end at once, and with nothing, if
the job has not committed anything yet. A listener is called before such a query looks for files, so it waits
there.

Spark tells a listener in Python what happens over a connection, and logs a stack trace if the program ends in
the midst of that. So a listener is taken off before the program ends, and what Spark has begun to tell is
waited for.

Spark has no public way to end a query with an error. The error is put where Spark itself keeps the cause of a
query's end, and the query is stopped. Where a release of Spark has no such place the query is just stopped,
and the log says why.
"""

from __future__ import annotations

import atexit
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from weakref import WeakSet

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import QueryStartedEvent, StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from pyflinkstate.api import SparkObject
from pyflinkstate.errors import SourceError
from pyflinkstate.runtime.spark.sessions import has_pinned_threads, hush
from pyflinkstate.runtime.wire import spark_cause, told_by_spark

# --- queries that feed a job -----------------------------------------------------------------------


def batch_handler(
    process_batch: Callable[[DataFrame, int], None],
) -> Callable[[DataFrame, int], None]:
    """Return what a query calls with each of its batches.

    That the job has ended is told where the job is; py4j would say it once more, with a traceback. And a
    query that is stopped shall end as one that was stopped, in the middle of a batch too. It does when the
    batch ends with the interrupt of its thread. That interrupt may also break off the reading of the query's
    log, with which each batch begins.
    """
    for name in _CALLBACK_LOGGERS:
        logging.getLogger(name).addFilter(_is_news)  # one that is there already is not added again

    def handle(frame: DataFrame, number: int) -> None:
        try:
            process_batch(frame, number)
        except SourceError as error:
            is_stopped = error.context.get("is_stopped") or _INTERRUPT.search(str(error)) is not None
            if is_stopped and has_pinned_threads():
                _await_interrupt(frame, error)
            _hush_end(frame.sparkSession.sparkContext)
            raise

    return handle


def _hush_end(context: SparkContext) -> None:
    """Keep Spark from logging that the query of this thread fails: its job has told why."""
    with suppress(*_SESSION_ENDED):
        run_id = context.getLocalProperty("spark.jobGroup.id")
        hush(context, rf"Query .*runId = {run_id}\] terminated with error")


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

    def __init__(self, session: SparkSession, location: str) -> None:
        self._jvm: SparkObject = session._jvm
        self._configuration = session._jsparkSession.sessionState().newHadoopConf()
        self._location = location

    def names(self, folder: str) -> list[str]:
        """See :class:`~pyflinkstate.runtime.sources.spark_sources.QueryFiles`."""
        with self._errors(folder):
            file_system, path = self._open(folder)
            return (
                [str(status.getPath().getName()) for status in file_system.listStatus(path)]
                if file_system.exists(path)
                else []
            )

    def read(self, name: str) -> bytes | None:
        """See :class:`~pyflinkstate.runtime.sources.spark_sources.QueryFiles`."""
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


# --- queries that read results ---------------------------------------------------------------------

_log = logging.getLogger("pyflinkstate.job")

#: Queries with these triggers end by themselves when they have read what there is.
_ENDING_TRIGGERS = ("AvailableNow", "OneTime")
_ERROR_CLASS = "STREAM_FAILED"
#: What is raised if the session has ended: by Spark, by Py4J, and by the socket if the JVM is gone too.
_SESSION_ENDED = (PySparkException, Py4JError, OSError)
#: How often a query that waits looks whether it was stopped.
_LOOK_S = 1
#: How long a query may go on to read what the job has committed.
READ_TIMEOUT_S = 600
#: How long the end of a program waits until Spark has told all that has happened.
_TOLD_TIMEOUT_MS = 5_000


class ResultQueries(StreamingQueryListener):
    """The queries of a session that read a directory of results.

    Args:
        session: the session of the DataFrame; queries on it run there.
        output: the directory, as the DataFrame was told to read it.
        until: for what queries that end by themselves wait, for the log.
        have_come: returns whether what they wait for is there; asked again and again.
    """

    def __init__(
        self, session: SparkSession, output: str, until: str = "", have_come: Callable[[], bool] = bool
    ) -> None:
        self._session = session
        self._until = until
        self._have_come = have_come
        self._is_released = threading.Event()
        self._listens = False
        #: What Spark calls the source of such a query in its plan.
        self._source = f"FileSource[{output}]"
        self._text: str | None = None
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def hold(self) -> None:
        """Have queries that end by themselves wait when they start, until :meth:`release` is called."""
        if not self._is_released.is_set():
            self._listen()
        if self._is_released.is_set():  # perhaps in the meantime
            self.forget()

    def release(self) -> None:
        """Let the queries go on that wait, and those that start from now on."""
        self._is_released.set()
        if self._text is None:
            self.forget()

    def fail(self, text: str) -> None:
        """Have every query fail with ``text``; also those that start from now on. Returns at once."""
        self._text = text
        with suppress(*_SESSION_ENDED):  # and its queries with it
            self._listen()
            for query in self._session.streams.active:
                self._look_at(query)

    def forget(self) -> None:
        """Let queries that start from now on run, as when there is a new run of the job."""
        listens, self._listens = self._listens, False
        if listens:
            with suppress(*_SESSION_ENDED):
                self._session.streams.removeListener(self)

    def _listen(self) -> None:
        if not self._listens:
            self._session.streams.addListener(self)
            self._listens = True
            if not _listeners:
                atexit.register(_end_listening)
            _listeners.add(self)

    # --- the calls of a listener -------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Spark calls this before the query reads anything."""
        with suppress(*_SESSION_ENDED):  # it is not there any more
            query = self._session.streams.get(str(event.id))
            if query is not None:
                self._wait_with(query)
            if query is not None and self._text is not None:
                self._look_at(query)

    def onQueryProgress(self, event: object) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: object) -> None:
        """Do nothing."""

    # --- queries -----------------------------------------------------------------------------------

    def _reads(self, query: StreamingQuery) -> bool:
        return self._source in query._jsq.streamingQuery().analyzedPlan().toString()

    def _wait_with(self, query: StreamingQuery) -> None:
        if self._is_released.is_set() or not _ends_by_itself(query) or not self._reads(query):
            return
        _log.warning("query %s waits %s", query.id, self._until)
        while not (self._is_released.wait(_LOOK_S) or self._have_come()) and query.isActive:
            pass

    def _look_at(self, query: StreamingQuery) -> None:
        if not self._is_new(str(query.runId)) or not self._reads(query):
            return
        if _ends_by_itself(query):
            self._set_cause(query)
        else:
            threading.Thread(target=self._end, args=(query,), name="failed job", daemon=True).start()

    def _is_new(self, run_id: str) -> bool:
        with self._lock:
            is_new = run_id not in self._seen
            self._seen.add(run_id)
            return is_new

    def _end(self, query: StreamingQuery) -> None:
        """Let a query read what is committed, and end it, unless it has ended for a reason of its own."""
        reading = threading.Thread(target=_read_all, args=(query,), name="failed job", daemon=True)
        reading.start()
        reading.join(READ_TIMEOUT_S)
        if reading.is_alive():
            _log.warning(
                "query %s still reads %d s after the job has failed, and is ended", query.id, READ_TIMEOUT_S
            )
        with suppress(*_SESSION_ENDED):
            if query.isActive:
                self._set_cause(query)
                query.stop()

    def _set_cause(self, query: StreamingQuery) -> None:
        assert self._text is not None
        stream = query._jsq.streamingQuery()
        try:
            getattr(stream, "streamDeathCause_$eq")(_query_exception(self._session, self._text))
        except (Py4JError, TypeError) as error:
            _log.error(
                "query %s is stopped, and this release of Spark takes no cause (%s). %s",
                query.id,
                type(error).__name__,
                self._text,
            )


#: Those that Spark may tell something, or may still be telling something since they were taken off.
_listeners: WeakSet[ResultQueries] = WeakSet()


def _end_listening() -> None:
    ended = list(_listeners)
    for queries in ended:
        queries.release()
        queries.forget()
    for session in {queries._session for queries in ended}:
        with suppress(*_SESSION_ENDED, AttributeError):
            session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_TOLD_TIMEOUT_MS)


def _ends_by_itself(query: StreamingQuery) -> bool:
    return str(query._jsq.streamingQuery().trigger().toString()).startswith(_ENDING_TRIGGERS)


def _read_all(query: StreamingQuery) -> None:
    with suppress(*_SESSION_ENDED):
        query.processAllAvailable()


def _query_exception(session: SparkSession, text: str) -> SparkObject:
    """Return Spark's exception of a query that failed; releases of Spark construct it from other values.

    The string before the cause is the message, and the one before the map is the class of the error.
    """
    jvm: SparkObject = session._jvm
    error = jvm.java.lang.Class.forName("org.apache.spark.sql.streaming.StreamingQueryException")
    constructor = min(error.getConstructors(), key=lambda each: each.getParameterCount())
    types = [kind.getName() for kind in constructor.getParameterTypes()]
    arguments = session.sparkContext._gateway.new_array(jvm.java.lang.Object, len(types))  # type: ignore[union-attr]
    for number, (kind, following) in enumerate(zip(types, [*types[1:], ""], strict=True)):
        arguments[number] = _argument(jvm, kind, following, text)
    return constructor.newInstance(arguments)


def _argument(jvm: SparkObject, kind: str, following: str, text: str) -> SparkObject:
    if kind == "java.lang.Throwable":
        return jvm.java.lang.RuntimeException(text)
    if kind == "scala.Option":
        return jvm.scala.Option.empty()
    if kind != "java.lang.String":
        return jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(jvm.java.util.HashMap())
    if following == "java.lang.Throwable":
        return text
    return _ERROR_CLASS if following.endswith("Map") else ""
