"""The RDDs of one epoch, those that a job reads or gives back, and where the tasks that start slots run.

An epoch is one Spark job for each sink: source, chain, ``partitionBy`` into the subtasks of each keyed
operator, slot, chain, sink. Frames are sorted by their origin, so the input of a subtask is the same in every
run of the epoch, regardless of the order in which Spark fetched it.

Spark gives a task to whichever executor has a core to spare, so the first available executor would start
most slots. A slot stays where it was started for as long as the attempt lasts. So the tasks that start slots
prefer an executor each: hosts share them evenly, and so do the executors of a host. Spark waits for it as
long as ``spark.locality.wait`` says, and then takes another.
"""

from __future__ import annotations

import logging
import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Generic, TypeVar, cast

import attrs
from py4j.java_collections import ListConverter, MapConverter
from py4j.java_gateway import JavaClass, JavaMember
from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext, StorageLevel
from pyspark.core.rdd import PipelinedRDD

from pyflinkstate.api import Record, Reported, SparkObject, UserFunction, check_kind
from pyflinkstate.runtime.engine import EpochGraph, EpochRequest, Task
from pyflinkstate.runtime.plan import SinkNode
from pyflinkstate.runtime.sinks import KeptRddSink
from pyflinkstate.runtime.sources import RddEpoch, RddSource, ReadBatches, SplitEpoch
from pyflinkstate.runtime.spark.worker_tasks import OfThisVersion, WorkerTask
from pyflinkstate.runtime.spark.workers import PythonFiles
from pyflinkstate.runtime.tasks import SinkTask, SourceTask
from pyflinkstate.runtime.wire import FrameKey, SlotId, decode_values


def rdd_source(
    rdd: RDD[Any],
    partitions_per_epoch: int | None,
    is_fresh: bool = False,
    read: ReadBatches | None = None,
) -> RddSource:
    """Return a source over the partitions of ``rdd``; ``is_fresh`` and ``read`` as for ``RddEpoch``."""
    check_kind("from_rdd takes an RDD", rdd, RDD)
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
    context: SparkContext, frame_rdds: list[RDD[tuple[int, bytes]]], files: PythonFiles | None = None
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


def _decoded(_: int, frames: Iterable[tuple[int, bytes]]) -> Iterator[Record]:
    for _partition, frame in frames:
        yield from decode_values(frame)


class SparkGraph(EpochGraph["RDD[Record]"]):
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
        #: How many partitions an RDD has, where that is known without asking the JVM.
        self._sizes: dict[RDD[Record], int] = {}
        #: What the stages that end with an RDD are called.
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
        pairs = cast("RDD[tuple[FrameKey, bytes]]", data)
        made = pairs.repartitionAndSortWithinPartitions(parallelism, itemgetter(0))
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


# --- the context -----------------------------------------------------------------------------------

#: Something that PySpark would convert for each call.
C = TypeVar("C")


class ContextView:
    """A Spark context as PySpark's RDDs see it, which asks the JVM only once for what does not change.

    PySpark looks a class of the JVM up whenever it uses it, then the method, and copies the workers'
    environment into a new Java map for each function, with a call for each entry. For RDDs that are built
    once that is nothing; a job builds them for each epoch, and waits for every one of these calls. So the
    RDDs of epochs hold this view in place of the context, of which all that is not here is asked.

    ``variables`` are added to the environment of Python workers, so these RDDs have workers of their own.
    """

    def __init__(self, context: SparkContext, variables: Mapping[str, str] | None = None) -> None:
        self._context = context
        self._variables = dict(variables or {})
        client = context._gateway._gateway_client  # type: ignore[union-attr]
        self._jvm = _KnownNames(context._jvm)
        #: Text that Spark shows instead of the line of code that makes the next stage; None shows the line.
        self.stage_name: str | None = None
        self._jsc = _NamedStages(context._jsc, self)
        self._conf = dict(context._conf.getAll())  # it is fixed when the context starts
        self._environment = _Converted[dict[str, str]](lambda env: MapConverter().convert(env, client))
        self._includes = _Converted[list[str]](lambda names: ListConverter().convert(names, client))

    def __getattr__(self, name: str) -> SparkObject:
        return getattr(self._context, name)

    @property
    def environment(self) -> SparkObject:
        """The environment of Python workers, as a Java map."""
        return self._environment.of({**self._context.environment, **self._variables})

    @property
    def _python_includes(self) -> SparkObject:
        """The names of the files on the workers' path, as a Java list; a program may add some at any time."""
        return self._includes.of(list(self._context._python_includes or ()))


@attrs.frozen(eq=False)
class _NamedStages:
    """The context in the JVM: PySpark tells it the line that makes a stage, and Spark names the stage so."""

    _context: SparkObject
    _view: ContextView

    def setCallSite(self, line: str | None) -> None:
        """Tell the name of the stage, where there is one; None forgets what was told."""
        self._context.setCallSite(line if line is None else self._view.stage_name or line)

    def __getattr__(self, name: str) -> SparkObject:
        return getattr(self._context, name)


@attrs.define(eq=False)
class _Converted(Generic[C]):
    """The Java object for a Python object, made again only when that has changed. The JVM only reads it."""

    _convert: Callable[[C], SparkObject]
    _python: C | None = attrs.field(init=False, default=None)
    _java: SparkObject = attrs.field(init=False, default=None)

    def of(self, python: C) -> SparkObject:
        if self._python is None or self._python != python:
            self._java = self._convert(python)
            self._python = python
        return self._java


class _KnownNames:
    """The JVM or a class of it, whose classes and static methods are each looked up once."""

    def __init__(self, owner: SparkObject) -> None:
        self._owner = owner

    def __call__(self, *arguments: SparkObject) -> SparkObject:
        return self._owner(*arguments)

    def __getattr__(self, name: str) -> SparkObject:
        found = getattr(self._owner, name)
        if isinstance(found, JavaClass):
            found = _KnownNames(found)
        if isinstance(found, (_KnownNames, JavaMember)):
            setattr(self, name, found)
        return found


# --- places of slots -------------------------------------------------------------------------------

_log = logging.getLogger("pyflinkstate.job")

#: The driver is listed with the executors, also where it runs no tasks.
_DRIVER = "driver"


@attrs.frozen(order=True)
class Executor:
    """A process that runs tasks."""

    host: str
    executor_id: str

    def location(self) -> str:
        """Return how Spark's scheduler names the executor as a place for a task."""
        return f"executor_{self.host}_{self.executor_id}"


def executors_of(context: SparkContext) -> list[Executor]:
    """Return the executors that there are now; none if tasks run in the driver's own process.

    Spark tells them in no public way; a release that does not tell them at all has none here.
    """
    try:
        listed: SparkObject = context._jsc.sc().statusStore().executorList(True)
        there = (listed.apply(index) for index in range(listed.size()))
        found = (Executor(str(each.hostPort()).rpartition(":")[0], str(each.id())) for each in there)
        return sorted(executor for executor in found if executor.executor_id != _DRIVER)
    except Py4JError as error:
        _log.debug("this release of Spark does not tell its executors: %s", error)
        return []


def missing_slots(request: EpochRequest) -> list[SlotId]:
    """Return the slots of an epoch that do not run yet."""
    slots = (
        SlotId(operator.operator_id, subtask)
        for operator in request.plan.operators
        for subtask in range(operator.parallelism)
    )
    return [slot for slot in slots if slot not in request.addresses]


def placed(slots: Iterable[SlotId], executors: Sequence[Executor]) -> list[tuple[SlotId, Executor]]:
    """Return an executor for each slot, one host after the other.

    >>> one, other, another = Executor("a", "0"), Executor("a", "1"), Executor("b", "2")
    >>> slots = [SlotId("count", subtask) for subtask in range(4)]
    >>> [executor.executor_id for _, executor in placed(slots, [one, other, another])]
    ['0', '2', '1', '2']
    """
    of_host: dict[str, list[Executor]] = defaultdict(list)
    for executor in executors:
        of_host[executor.host].append(executor)
    hosts, given = sorted(of_host), Counter[str]()
    found = []
    for number, slot in enumerate(slots):
        host = hosts[number % len(hosts)]
        found.append((slot, of_host[host][given[host] % len(of_host[host])]))
        given[host] += 1
    return found


def slots_rdd(context: SparkContext, slots: Sequence[SlotId]) -> RDD[Record]:
    """Return an RDD with a partition for each slot, which prefers the executor that the slot is for."""
    executors = executors_of(context)
    if len(executors) < 2:
        return context.parallelize(slots, len(slots))
    jvm: SparkObject = context._jvm
    to_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    elements = jvm.java.util.ArrayList()
    for slot, executor in placed(slots, executors):
        locations = jvm.java.util.ArrayList()
        locations.add(executor.location())
        elements.add(jvm.scala.Tuple2(pickle.dumps(slot), to_seq(locations)))
    return RDD(
        context._jsc.sc().makeRDD(to_seq(elements), context._jsc.emptyRDD().classTag()).toJavaRDD(),
        context,
        context._unbatched_serializer,
    )
