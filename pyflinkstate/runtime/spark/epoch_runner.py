"""Runs the epochs of a job as Spark jobs, each in a thread of its own, and the map stages of the next one.

Spark's scheduler can run the map stage of a shuffle alone, as SQL's adaptive execution does. A later job that
reads the same shuffle skips the stage, since the shuffle's files are there, or joins it while it runs. If
files were lost, Spark computes the stage again, as it does for any job. No reduce task runs before the job
of its epoch, so a state slot still gets the epochs one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from functools import partial
from html import escape

import attrs
from pyspark import RDD, SparkContext

from pyflinkstate.api import Record, Reported, SparkObject
from pyflinkstate.errors import PyFlinkStateError, SparkJobError
from pyflinkstate.runtime.engine import CodeBook, EpochEnded, EpochRequest, EpochRunner, SlotsRequest, Task
from pyflinkstate.runtime.sinks import KeptRddSink
from pyflinkstate.runtime.spark.epoch_rdds import (
    ContextView,
    SparkGraph,
    executors_of,
    missing_slots,
    slots_rdd,
)
from pyflinkstate.runtime.spark.sessions import (
    Application,
    has_pinned_threads,
    hush_killed_tasks,
    unavailable,
)
from pyflinkstate.runtime.spark.worker_tasks import IS_AHEAD, OfThisVersion, WorkerTask
from pyflinkstate.runtime.spark.workers import PythonFiles, problem_in, unsuitable
from pyflinkstate.runtime.tasks import StartSlotsTask, TaskLink
from pyflinkstate.runtime.wire import SlotId, result_of, spark_cause, told_by_spark, wait_for

#: How long to wait for a thread whose Spark job has ended or was cancelled.
_END_TIMEOUT_S = 5


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
        self._ahead: Ahead | None = None
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
        ahead = self._ahead = Ahead(request, is_cancelled, spark)

        def make() -> SparkGraph:
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

    def start_tasks(
        self, task: Task, number: int, description: str, done: Callable[[EpochEnded], None]
    ) -> None:
        """Run a task for each of some partitions as one Spark job; ``done`` is called once at its end."""

        def run() -> list[list[Reported]]:
            self._run_over(self._context.parallelize(range(number), number), task)
            return []

        self._begin(description, run, done)

    def await_end(self, timeout_s: float) -> bool:
        """Wait for the thread of what was started last; return whether it has ended."""
        return _has_ended(self._thread, timeout_s)

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
            self._thread = threading.Thread(
                target=self._run_and_tell,
                args=(description, about, self._properties, job, done),
                daemon=True,
            )
            self._thread.start()
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

    def gone(self, at_once: bool = False) -> PyFlinkStateError | None:
        """See :class:`EpochRunner`: the JVM has ended, or the context was stopped."""
        return self._application.gone(at_once=at_once)

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
        return all(_has_ended(thread, _END_TIMEOUT_S) for thread in (self._thread, self._thread_ahead))

    def cancel(self) -> None:
        """See :class:`EpochRunner`."""
        self._cancels.set()
        self._cancels_ahead.set()
        self._is_built.set()  # what is ahead waits for it, and the thread that sets it may have died
        with suppress(Exception):  # if Spark is gone there is nothing to cancel
            hush_killed_tasks(self._context)
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
        self._context.setJobGroup(self._group, _shown_by_spark(description, about), interruptOnCancel=True)

    def _results(
        self, request: EpochRequest, ahead: Ahead | None, built: Callable[[], None]
    ) -> list[list[Reported]]:
        missing = missing_slots(request)
        if missing and len(executors_of(self._context)) > 1:  # otherwise the tasks that feed them start them
            self._start_slots(request.link, missing)
        known = None if ahead is None else ahead.graph_for(request)
        with closing(known or self._graph(request)) as graph:
            return [graph.run(sink, built) for sink in request.plan.sinks]

    def _graph(self, request: EpochRequest) -> SparkGraph:
        if self._code is not request.code:
            self._view = self._new_view()
            self._code, self._codes = request.code, self._context.broadcast(request.code.codes)
            self._keeps_results = any(isinstance(sink.sink, KeptRddSink) for sink in request.plan.sinks)
        return SparkGraph(self._context, self._view, request, self._codes, self._files)

    def _new_view(self) -> ContextView:
        return ContextView(self._context, self._files.environment())

    def _started(self, request: SlotsRequest, is_cancelled: threading.Event) -> list[list[Reported]]:
        _check_wanted(is_cancelled)
        self._start_slots(request.link, request.slots)
        return []

    def _start_slots(self, link: TaskLink, slots: Sequence[SlotId]) -> None:
        self._run_over(slots_rdd(self._context, slots), StartSlotsTask(link))

    def _run_over(self, data: RDD[Record], task: Task) -> None:
        """Run a task without results for each partition, and wait for the end of all."""
        made = data.mapPartitionsWithIndex(OfThisVersion(WorkerTask(self._files.prepared(task))))
        made.ctx = self._new_view()  # type: ignore[assignment]
        made.collect()

    def _failure(self, description: str, error: Exception) -> PyFlinkStateError:
        if not self._application.is_alive():
            return unavailable(description)
        problem = problem_in(str(error))
        if problem:
            return unsuitable(str(self._context.pythonExec), problem)
        failure = SparkJobError(f"Spark failed {description}: {told_by_spark(error)}")
        failure.__cause__ = spark_cause(error)
        return failure


def _has_ended(thread: threading.Thread | None, timeout_s: float) -> bool:
    """Wait for a thread, if it was started; return whether it does not run."""
    if thread is not None and thread.ident is not None:
        thread.join(timeout_s)
        return not thread.is_alive()
    return True


def _check_wanted(is_cancelled: threading.Event) -> None:
    if is_cancelled.is_set():
        raise SparkJobError("cancelled before Spark began with it")


def _shown_by_spark(description: str, about: str) -> str:
    """Return what Spark's page says of a job: it takes texts for markup, in which links lead nowhere else."""
    return escape(f"{description} ({about})" if about else description, quote=False)


def _local_properties(java_context: SparkObject) -> SparkObject:
    """Return a copy of this thread's properties for Spark jobs; None if all threads share one JVM thread."""
    return java_context.getLocalProperties().clone() if has_pinned_threads() else None


# --- the stages of the next epoch ------------------------------------------------------------------


@attrs.define(eq=False)
class Ahead:
    """An epoch of which only the map stages before its first shuffles run.

    Args:
        request: the epoch.
        is_cancelled: set when no more stages are to start; those that run are cancelled with their job group.
        application: runs the stages, or has ended.
    """

    _request: EpochRequest
    _is_cancelled: threading.Event
    _application: Application
    _graph: Future[SparkGraph] = attrs.field(init=False, factory=Future)

    def run(self, make: Callable[[], SparkGraph]) -> None:
        """Build the RDDs, run their map stages and wait for the end of all of them."""
        try:
            graph = make()
            shuffles = [shuffle_dependency(rdd) for rdd in graph.shuffled_ahead()]
            self._graph.set_result(graph)
        except BaseException as error:
            self._graph.set_exception(error)
            raise
        for stage in [*map(self._submitted, shuffles)]:
            self._wait(stage)

    def _submitted(self, shuffle: SparkObject) -> SparkObject:
        """Return the map stage of a shuffle, which runs now; None if it does not."""
        if self._is_cancelled.is_set():
            return None
        with suppress(Exception):  # Spark refuses a stage without partitions, for one
            return self._application.java.submitMapStage(shuffle)
        return None

    def _wait(self, stage: SparkObject) -> None:
        """Wait for a stage; whether it has failed matters only to the job that reads it.

        A stage that was submitted while the context was being stopped never ends.
        """
        if stage is not None:
            with suppress(Exception):
                wait_for(partial(self._ended, stage), self._application.gone)

    def _ended(self, stage: SparkObject, timeout_s: float) -> bool | None:
        if self._is_cancelled.is_set():  # perhaps before Spark knew the stage
            stage.cancel()
        return self._application.has_ended(stage, timeout_s) or None

    def graph_for(self, request: EpochRequest) -> SparkGraph | None:
        """Return the RDDs for the epoch's own request; None if they are of another one, or there are none."""
        with suppress(Exception):  # the epoch builds its own, and tells what is wrong
            graph = result_of(self._graph, self._application.gone)
            if self._is_same(request):
                graph.request = request
                return graph
            graph.close()
        return None

    def close(self) -> None:
        """Release what is kept as soon as the RDDs are built, as no epoch will ask for them."""
        self._graph.add_done_callback(_released)

    def _is_same(self, request: EpochRequest) -> bool:
        """Return whether it is the same epoch of the same attempt, and nobody wants to see more of it now."""
        own, other = self._request, request
        is_same_link = own.link == attrs.evolve(other.link, sampled=own.link.sampled)
        is_same_epoch = own.epoch is other.epoch and own.plan is other.plan
        return is_same_link and is_same_epoch and other.link.sampled <= own.link.sampled


def _released(graph: Future[SparkGraph]) -> None:
    with suppress(Exception):  # the RDDs were not built, or Spark is gone
        graph.result(timeout=0).close()


def shuffle_dependency(rdd: SparkObject) -> SparkObject:
    """Return the shuffle that an RDD of ``repartitionAndSortWithinPartitions`` reads."""
    values = rdd._prev_jrdd.rdd()  # sorted in Python; before that, the values of the shuffled pairs
    return values.dependencies().head().rdd().dependencies().head()
