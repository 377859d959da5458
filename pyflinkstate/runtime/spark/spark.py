"""Sessions, and the Spark jobs of one epoch.

An epoch is one Spark job for each sink: source, chain, ``partitionBy`` into the subtasks of each keyed
operator, slot, chain, sink. Frames are sorted by their origin, so the input of a subtask is the same in every
run of the epoch, regardless of the order in which Spark fetched it.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from html import escape
from importlib.resources import files
from operator import itemgetter
from pathlib import Path

import attrs
from py4j.protocol import Py4JError
from pyspark import RDD, SparkConf, SparkContext, StorageLevel
from pyspark.core.rdd import PipelinedRDD
from pyspark.sql import SparkSession

from pyflinkstate.api.values import Record, Reported, SparkObject, UserFunction
from pyflinkstate.errors import (
    ConfigurationError,
    PyFlinkStateError,
    SourceError,
    SparkJobError,
    UnsupportedSessionError,
)
from pyflinkstate.runtime.engine import (
    CodeBook,
    EpochEnded,
    EpochGraph,
    EpochRequest,
    EpochRunner,
    SlotsRequest,
    Task,
)
from pyflinkstate.runtime.plan import SinkNode
from pyflinkstate.runtime.sinks import KeptRddSink
from pyflinkstate.runtime.slots import Endpoint
from pyflinkstate.runtime.sources import RddEpoch, RddSource, ReadBatches, SplitEpoch
from pyflinkstate.runtime.spark.ahead import Ahead
from pyflinkstate.runtime.spark.application import Application, has_pinned_threads, unavailable
from pyflinkstate.runtime.spark.collector import IS_AHEAD, WorkerTask
from pyflinkstate.runtime.spark.context_view import ContextView
from pyflinkstate.runtime.spark.java import check_java
from pyflinkstate.runtime.spark.placement import executors_of, missing_slots, slots_rdd
from pyflinkstate.runtime.spark.python_files import PythonFiles, kept_folder
from pyflinkstate.runtime.spark.same_version import OfThisVersion
from pyflinkstate.runtime.spark.worker_python import problem_in, unsuitable
from pyflinkstate.runtime.tasks import SinkTask, SourceTask, StartSlotsTask, TaskLink
from pyflinkstate.runtime.wire import SlotId, decode_values, spark_cause, told_by_spark, wait_for


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


def batch_handler(
    process_batch: Callable[[SparkObject, int], None],
) -> Callable[[SparkObject, int], None]:
    """Return the function that a query calls with each of its batches.

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
#: How long to wait for a thread whose Spark job has ended or was cancelled.
_END_TIMEOUT_S = 5


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


def rdd_source(
    rdd: SparkObject,
    partitions_per_epoch: int | None,
    is_fresh: bool = False,
    read: ReadBatches | None = None,
) -> RddSource:
    """Return a source over the partitions of ``rdd``; ``is_fresh`` and ``read`` as for ``RddEpoch``."""
    if not isinstance(rdd, RDD):
        raise ConfigurationError(f"from_rdd takes an RDD, not {rdd!r}")
    partitions = rdd.getNumPartitions()
    most = partitions_per_epoch or rdd.context.defaultParallelism
    return RddSource(rdd, partitions, most, is_fresh, read, is_cut=partitions_per_epoch is not None)


def _some_partitions(rdd: RDD[Record], partitions: range) -> RDD[Record]:
    """Return an RDD of only these partitions; unlike a filter it starts no tasks for the others.

    Functions in Python stay part of the RDD that is made of it. Behind the RDD of the JVM they would run in
    a worker of their own, and each of their results would be pickled on its way through the JVM.
    """
    if len(partitions) == rdd.getNumPartitions():
        return rdd
    if isinstance(rdd, PipelinedRDD) and rdd._is_pipelinable() and not rdd.is_barrier:
        read: RDD[Record] = RDD(_pruned(rdd._prev_jrdd, partitions), rdd.context, rdd._prev_jrdd_deserializer)
        return read.mapPartitionsWithIndex(_FromPartition(partitions.start, rdd.func))
    return RDD(_pruned(rdd._jrdd, partitions), rdd.context, rdd._jrdd_deserializer)


def _pruned(java_rdd: SparkObject, partitions: range) -> SparkObject:
    jvm: SparkObject = SparkContext._jvm
    wanted = jvm.java.util.ArrayList()
    for index in partitions:
        wanted.add(index)
    # A Scala set is a function from element to Boolean, which is what the pruning asks for.
    as_function = jvm.org.apache.spark.api.python.PythonUtils.toSeq(wanted).toSet()
    return jvm.org.apache.spark.rdd.PartitionPruningRDD.create(java_rdd.rdd(), as_function).toJavaRDD()


@attrs.frozen
class _FromPartition:
    """A function over partitions that gets the numbers that they have in the RDD of which these are some."""

    first: int
    function: Callable[[int, Iterable[Record]], Iterable[Record]]

    def __call__(self, partition: int, records: Iterable[Record]) -> Iterable[Record]:
        return self.function(self.first + partition, records)


def values_of(
    context: SparkContext, frame_rdds: list[SparkObject], files: PythonFiles | None = None
) -> RDD[Record]:
    """Return the records of RDDs of ``(partition, frame)``; they are read where ``files`` are."""
    if not frame_rdds:
        return context.emptyRDD()
    frames = context.union(frame_rdds)
    if files is None or not files.environment():
        return frames.mapPartitionsWithIndex(_decoded)
    read = frames.mapPartitionsWithIndex(files.prepared(_decoded))
    read.ctx = ContextView(context, files.environment())  # type: ignore[assignment]
    return read


def _decoded(_: int, frames: Iterable[Record]) -> Iterator[Record]:
    for _partition, frame in frames:
        yield from decode_values(frame)


class SparkRunner(EpochRunner):
    """Runs the Spark jobs of one pyflinkstate job, all in one job group."""

    def __init__(self, context: SparkContext, group: str, files: PythonFiles | None = None) -> None:
        self._context = context
        self._application = Application(context)
        self._view: ContextView | None = None
        self._group = group
        self._files = PythonFiles(context) if files is None else files
        #: The description of the last request, and its place in Spark.
        self._code: CodeBook | None = None
        self._codes: SparkObject = None
        self._description = ""
        self._thread: threading.Thread | None = None
        self._thread_ahead: threading.Thread | None = None
        #: Results that outlive the job read the code: Spark sends it with each task that reads them.
        self._keeps_results = False
        #: A copy of the properties of Spark jobs that the job's thread has made.
        self._properties: SparkObject = None
        #: What is shuffled ahead, or was, for the epoch that starts next; and what cancels it.
        self._ahead: Ahead[_SparkGraph] | None = None
        self._cancels_ahead = threading.Event()
        #: Set when the RDDs of the running epoch are built.
        self._is_built = threading.Event()
        #: Set when the last request is cancelled: Spark only cancels jobs that it has.
        self._cancels = threading.Event()

    def start(self, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        """See :class:`EpochRunner`."""
        ahead, self._ahead = self._ahead, None
        is_built = self._is_built = threading.Event()
        is_cancelled = self._cancels = threading.Event()

        def built() -> None:
            is_built.set()
            _check_wanted(is_cancelled)

        def ended(event: EpochEnded) -> None:
            is_built.set()  # what is ahead waits for it, even if the epoch has failed before it was
            done(event)

        self._begin(request.description, lambda: self._results(request, ahead, built), ended, request.about)

    def shuffle_ahead(self, request: EpochRequest, done: Callable[[], None]) -> None:
        """See :class:`EpochRunner`. The stages are submitted after the job of the running epoch.

        So Spark's scheduler, which is first in, first out unless it was configured, prefers that job's tasks.
        """
        before = self._is_built
        is_cancelled = self._cancels_ahead = threading.Event()
        spark = self._application
        ahead = self._ahead = Ahead[_SparkGraph](request, spark.java, is_cancelled, spark)

        def make() -> _SparkGraph:
            wait_for(lambda timeout_s: before.wait(timeout_s) or None, spark.gone)
            if is_cancelled.is_set():
                raise RuntimeError("cancelled before it began")
            properties = None if self._properties is None else self._properties.clone()
            self._enter(properties, request.description, request.about)
            self._context.setLocalProperty(IS_AHEAD, "true")
            return self._graph(request)

        def run() -> None:
            try:
                with suppress(Exception):  # the epoch does it again, and tells what is wrong
                    ahead.run(make)
            finally:
                self._application.leave()
                done()

        try:
            self._thread_ahead = threading.Thread(target=run, daemon=True)
            self._thread_ahead.start()
        except RuntimeError as error:  # the system has no thread left
            self._ahead = self._thread_ahead = None
            raise SparkJobError(f"{request.description}: {error}") from error

    def start_slots(self, request: SlotsRequest, done: Callable[[EpochEnded], None]) -> None:
        """See :class:`EpochRunner`: one task for each slot."""
        is_cancelled = self._cancels = threading.Event()
        self._begin(request.description, lambda: self._started(request, is_cancelled), done)

    def _begin(
        self,
        description: str,
        job: Callable[[], list[list[Reported]]],
        done: Callable[[EpochEnded], None],
        about: str = "",
    ) -> None:
        """Run ``job`` in a thread of its own.

        The thread is not PySpark's ``InheritableThread``, which copies the local properties before it calls
        its target: if the JVM is gone by then, that thread ends without a report.
        """
        try:
            self._application.look_up()
            self._properties = _local_properties(self._application.java)
            self._description = description
            thread = threading.Thread(
                target=self._run_and_tell,
                args=(description, about, self._properties, job, done),
                daemon=True,
            )
            thread.start()
            self._thread = thread
        except Exception as error:  # noqa: BLE001 - whatever it is, the epoch was not begun
            raise self._failure(description, error) from spark_cause(error)

    def lost(self) -> PyFlinkStateError | None:
        """See :class:`EpochRunner`."""
        if self._thread is None:
            return None
        if (error := self._application.gone(self._description)) is not None:
            return error
        if self._thread.is_alive():
            return None
        return SparkJobError(f"{self._description}: the thread that ran it ended without a result")

    def gone(self) -> PyFlinkStateError | None:
        """See :class:`EpochRunner`: the JVM has ended, or the context was stopped."""
        return self._application.gone()

    def close(self) -> None:
        """See :class:`EpochRunner`. What does not end in time keeps its code."""
        if self.gone() is not None:
            self._application.interrupt()
            self._have_ended()
            return
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()
        if self._codes is None or self._keeps_results or not self._have_ended():
            return
        codes, self._code, self._codes = self._codes, None, None
        with suppress(Exception):  # Spark may end at this moment
            codes.destroy()

    def _have_ended(self) -> bool:
        """Wait for the threads, which end as soon as they have told of it, or were cancelled."""
        threads = [thread for thread in (self._thread, self._thread_ahead) if thread is not None]
        for thread in threads:
            thread.join(_END_TIMEOUT_S)
        return not any(thread.is_alive() for thread in threads)

    def cancel(self) -> None:
        """See :class:`EpochRunner`."""
        self._cancels.set()
        self._cancels_ahead.set()
        self._is_built.set()  # what is ahead waits for it, and the thread that sets it may have died
        with suppress(Exception):  # if Spark is gone there is nothing to cancel
            self._context.cancelJobGroup(self._group)

    def _run_and_tell(
        self,
        description: str,
        about: str,
        properties: SparkObject,
        job: Callable[[], list[list[Reported]]],
        done: Callable[[EpochEnded], None],
    ) -> None:
        ended = EpochEnded(None, SparkJobError(f"{description} was broken off"))
        try:
            ended = self._run(description, about, properties, job)
        finally:
            self._application.leave()
            done(ended)

    def _run(
        self, description: str, about: str, properties: SparkObject, job: Callable[[], list[list[Reported]]]
    ) -> EpochEnded:
        try:
            self._enter(properties, description, about)
            return EpochEnded(job(), None)
        except Exception as error:  # noqa: BLE001 - the job master decides about any error
            return EpochEnded(None, self._failure(description, error))

    def _enter(self, properties: SparkObject, description: str, about: str) -> None:
        """Have the Spark jobs of this thread belong to the job's group."""
        if properties is not None:
            self._application.java.setLocalProperties(properties)
            self._application.enter()
        shown = _shown_by_spark(description, about)
        self._context.setJobGroup(self._group, shown, interruptOnCancel=True)

    def _results(
        self, request: EpochRequest, ahead: Ahead[_SparkGraph] | None, built: Callable[[], None]
    ) -> list[list[Reported]]:
        missing = missing_slots(request)
        if missing and len(executors_of(self._context)) > 1:  # otherwise the tasks that feed them start them
            self._start_slots(request.link, missing)
        known = None if ahead is None else ahead.graph_for(request)
        with closing(known or self._graph(request)) as graph:
            return [graph.run(sink, built) for sink in request.plan.sinks]

    def _graph(self, request: EpochRequest) -> _SparkGraph:
        if self._code is not request.code:
            self._view = self._new_view()
            self._code, self._codes = request.code, self._context.broadcast(request.code.codes)
            self._keeps_results = any(isinstance(sink.sink, KeptRddSink) for sink in request.plan.sinks)
        return _SparkGraph(self._context, self._view, request, self._codes, self._files)

    def _new_view(self) -> ContextView:
        return ContextView(self._context, self._files.environment())

    def _started(self, request: SlotsRequest, is_cancelled: threading.Event) -> list[list[Reported]]:
        _check_wanted(is_cancelled)
        self._start_slots(request.link, request.slots)
        return []

    def _start_slots(self, link: TaskLink, slots: Sequence[SlotId]) -> None:
        task = self._files.prepared(StartSlotsTask(link))
        started = slots_rdd(self._context, slots).mapPartitionsWithIndex(OfThisVersion(WorkerTask(task)))
        started.ctx = self._new_view()  # type: ignore[assignment]
        started.collect()

    def _failure(self, description: str, error: Exception) -> PyFlinkStateError:
        if not self._application.is_alive():
            return unavailable(description)
        problem = problem_in(str(error))
        if problem:
            return unsuitable(str(self._context.pythonExec), problem)
        failure = SparkJobError(f"Spark failed {description}: {told_by_spark(error)}")
        failure.__cause__ = spark_cause(error)
        return failure


def _check_wanted(is_cancelled: threading.Event) -> None:
    if is_cancelled.is_set():
        raise SparkJobError("cancelled before Spark began with it")


def _shown_by_spark(description: str, about: str) -> str:
    """Return what Spark's page says of a job: it takes texts for markup, in which links lead nowhere else."""
    return escape(f"{description} ({about})" if about else description, quote=False)


def _local_properties(java_context: SparkObject) -> SparkObject:
    """Return a copy of this thread's properties for Spark jobs; None if all threads share one JVM thread."""
    if not has_pinned_threads():
        return None
    return java_context.getLocalProperties().clone()


class _SparkGraph(EpochGraph["RDD[Record]"]):
    """The RDDs of one epoch, which have ``view`` in place of the context.

    An RDD of Python functions does not exist in the JVM until something asks it for its ``_jrdd``. Only the
    last one of each stage has to exist there, with the functions of all.
    """

    def __init__(
        self,
        context: SparkContext,
        view: SparkObject,
        request: EpochRequest,
        codes: SparkObject,
        files: PythonFiles,
    ) -> None:
        super().__init__(request)
        self._context = context
        self._view = view
        self._codes = codes
        self._files = files
        self._persisted: list[RDD[Record]] = []
        #: What was computed before the job that reads it more than once.
        self._computed: set[RDD[Record]] = set()
        #: The number of partitions of RDDs, if it is known without asking the JVM.
        self._sizes: dict[RDD[Record], int] = {}
        #: The names of the stages that end with an RDD.
        self._names: dict[RDD[Record], str] = {}

    def run(self, sink: SinkNode, built: Callable[[], None]) -> list[Reported]:
        """Run a sink's job and return the results of its writers; ``built`` is called before it begins."""
        written = self.written(sink).setName(sink.name)
        self._compute_shared(sink)
        self._view.stage_name = self._names.get(written, sink.name)
        built()
        if isinstance(sink.sink, KeptRddSink):
            # Persisted, so that PySpark does not fuse it with its readers, and cut off from its lineage:
            # a lost block is an error, and never a second run through the slots.
            written.persist(StorageLevel.MEMORY_AND_DISK)
            written.localCheckpoint()
            written.count()
            written.ctx = self._context
            return [written]
        return written.collect()

    def _compute_shared(self, sink: SinkNode) -> None:
        """Compute what several tasks of a sink's job read before they do.

        If two executors look for a partition that neither has kept yet, both compute it, and so feed the same
        records to a slot.
        """
        shared = [rdd for rdd in self.read_again(sink) if rdd not in self._computed]
        if not shared or str(self._context.master).partition("[")[0] == "local":
            return
        for rdd in shared:
            self._view.stage_name = self._names.get(rdd)
            rdd._jrdd.count()
            self._computed.add(rdd)

    def close(self) -> None:
        for rdd in self._persisted:
            rdd.unpersist()

    def read(self, epoch: SplitEpoch | RddEpoch | None) -> RDD[Record]:
        if isinstance(epoch, RddEpoch):
            return epoch.rdd if epoch.partitions is None else _some_partitions(epoch.rdd, epoch.partitions)
        splits = [] if epoch is None else list(epoch.splits)
        size = 1 if epoch is None else len(splits)
        return self._known(SparkContext.parallelize(self._view, splits, size), size)

    def transform(self, data: RDD[Record], task: Task, name: str) -> RDD[Record]:
        prepared = self._files.prepared(task)
        is_source = isinstance(task, SourceTask)
        made = data.mapPartitionsWithIndex(prepared if is_source else OfThisVersion(WorkerTask(prepared)))
        made.ctx = self._view
        self._names[made] = f"{task.chain.stage} -> {name}" if isinstance(task, SinkTask) else name
        if not is_source:
            # The results are frames: PySpark would put as many of them into one batch as of the small inputs.
            made._jrdd_deserializer = self._context._unbatched_serializer
        return self._known(made, self.partitions(data))

    def concatenate(self, parts: list[RDD[Record]]) -> RDD[Record]:
        made = self._context.union(parts)
        made.ctx = self._view
        self._names[made] = ", ".join(self._names.get(part, "") for part in parts)
        return self._known(made, sum(map(self.partitions, parts)))

    def shuffle(self, data: RDD[Record], parallelism: int) -> RDD[Record]:
        self._view.stage_name = self._names.get(data)
        made = data.repartitionAndSortWithinPartitions(parallelism, itemgetter(0))
        return self._known(made, parallelism)

    def keep(self, data: RDD[Record]) -> RDD[Record]:
        self._persisted.append(data.persist(StorageLevel.MEMORY_AND_DISK))
        return data

    def partitions(self, data: RDD[Record]) -> int:
        if data not in self._sizes:
            self._sizes[data] = data.getNumPartitions()
        return self._sizes[data]

    def _known(self, data: RDD[Record], size: int) -> RDD[Record]:
        self._sizes[data] = size
        return data

    def shipped(self, function: UserFunction) -> UserFunction:
        return self.request.code.shipped(function, self._codes)
