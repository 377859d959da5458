"""The RDDs of one epoch, and those that a job reads or gives back.

An epoch is one Spark job for each sink: source, chain, ``partitionBy`` into the subtasks of each keyed
operator, slot, chain, sink. Frames are sorted by their origin, so the input of a subtask is the same in every
run of the epoch, regardless of the order in which Spark fetched it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter

import attrs
from pyspark import RDD, SparkContext, StorageLevel
from pyspark.core.rdd import PipelinedRDD

from pyflinkstate.api.values import Record, Reported, SparkObject, UserFunction
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.engine import EpochGraph, EpochRequest, Task
from pyflinkstate.runtime.plan import SinkNode
from pyflinkstate.runtime.sinks import KeptRddSink
from pyflinkstate.runtime.sources import RddEpoch, RddSource, ReadBatches, SplitEpoch
from pyflinkstate.runtime.spark.collector import WorkerTask
from pyflinkstate.runtime.spark.context_view import ContextView
from pyflinkstate.runtime.spark.python_files import PythonFiles
from pyflinkstate.runtime.spark.same_version import OfThisVersion
from pyflinkstate.runtime.tasks import SinkTask, SourceTask
from pyflinkstate.runtime.wire import decode_values


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
