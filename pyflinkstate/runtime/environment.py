"""The execution environment: where a program begins (``pyflink.datastream.StreamExecutionEnvironment``)."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import attrs

from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.key_groups import check_max_parallelism, check_parallelism
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime import spark as on_spark
from pyflinkstate.runtime.clock import SystemClock
from pyflinkstate.runtime.coordinator import CheckpointSettings
from pyflinkstate.runtime.data_stream import DataStream
from pyflinkstate.runtime.formats import FORMATS
from pyflinkstate.runtime.job import Job, JobSettings, RestorePoint
from pyflinkstate.runtime.observe import JobExecutionResult, JobListener
from pyflinkstate.runtime.plan import Node, SinkNode, SourceNode, make_plan
from pyflinkstate.runtime.restart import RestartStrategies, RestartStrategy
from pyflinkstate.runtime.sinks import DriverSink, RddSink
from pyflinkstate.runtime.sources import RECORDS_PER_EPOCH, CollectionSource, FileSource, Source
from pyflinkstate.runtime.storage import CheckpointStorage, FileSystemCheckpointStorage, load_checkpoint

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_JOB_NAME = "pyflinkstate job"
#: The word for the newest completed checkpoint in the checkpoint directory.
LATEST = "latest"


class StreamExecutionEnvironment:
    """Makes streams and runs jobs on one Spark session.

    Args:
        spark: the session to run on; without it the active one, else a new local one.

    Raises:
        UnsupportedSessionError: the session is a Spark Connect one.
    """

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._spark = on_spark.local_session() if spark is None else spark
        self._context = on_spark.context_of(self._spark)
        self._parallelism: int | None = None
        self._max_parallelism: int | None = None
        self._checkpoints = CheckpointSettings()
        self._checkpoint_storage: FileSystemCheckpointStorage | None = None
        self._state_backend = HashMapStateBackend()
        self._restart: RestartStrategy | None = None
        self._restore_from: str | None = None
        self._listeners: list[JobListener] = []
        self._sinks: list[SinkNode] = []

    @classmethod
    def get_execution_environment(cls, spark: SparkSession | None = None) -> StreamExecutionEnvironment:
        """Return a new environment."""
        return cls(spark)

    # --- settings ------------------------------------------------------------------------------

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of subtasks of each keyed operator. Default: Spark's default parallelism."""
        check_parallelism(parallelism, self._max_parallelism or parallelism)
        self._parallelism = parallelism
        return self

    def get_parallelism(self) -> int:
        """Return the number of subtasks of each keyed operator."""
        return self._parallelism or int(self._context.defaultParallelism)

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of key groups, 1 to 32768: the upper bound of any later parallelism.

        Default: Flink's rule, 128 for a parallelism of up to 85.
        """
        check_max_parallelism(max_parallelism)
        self._max_parallelism = max_parallelism
        return self

    def get_max_parallelism(self) -> int | None:
        """Return the max parallelism that was set, or None."""
        return self._max_parallelism

    def enable_checkpointing(
        self,
        interval: int,
        storage: str | FileSystemCheckpointStorage,
        *,
        timeout: int = 600_000,
        tolerable_failures: int = 0,
        num_retained: int = 1,
    ) -> StreamExecutionEnvironment:
        """Take checkpoints, and restart from them.

        A checkpoint is taken at the end of the first epoch by whose end the interval has passed, and
        after the last epoch. Sinks commit with checkpoints.

        Args:
            interval: milliseconds between two checkpoints, at least; 0 for one after every epoch.
            storage: a path or URI that driver and executors reach, or a :class:`FileSystemCheckpointStorage`.
            timeout: milliseconds after which a checkpoint that is being written is given up.
            tolerable_failures: how many checkpoints in a row may fail before the job does.
            num_retained: how many completed checkpoints are kept.
        """
        if interval < 0 or timeout <= 0 or tolerable_failures < 0 or num_retained < 1:
            raise ConfigurationError(
                f"interval {interval} and tolerable_failures {tolerable_failures} must be 0 or more, "
                f"timeout {timeout} and num_retained {num_retained} 1 or more"
            )
        self._checkpoints = CheckpointSettings(interval, timeout, tolerable_failures, num_retained)
        if not isinstance(storage, FileSystemCheckpointStorage):
            storage = FileSystemCheckpointStorage(str(storage))
        self._checkpoint_storage = storage
        return self

    def set_state_backend(self, state_backend: HashMapStateBackend) -> StreamExecutionEnvironment:
        """Choose how state is kept and snapshotted; the default is ``HashMapStateBackend()``."""
        if not isinstance(state_backend, HashMapStateBackend):
            raise ConfigurationError(f"a HashMapStateBackend is needed, not {state_backend!r}")
        self._state_backend = state_backend
        return self

    def set_restart_strategy(self, strategy: RestartStrategy) -> StreamExecutionEnvironment:
        """Choose what happens after a failure; see :class:`RestartStrategies`."""
        self._restart = strategy
        return self

    def restore_from(self, path: str = LATEST) -> StreamExecutionEnvironment:
        """Start the next job from a completed checkpoint, at any parallelism.

        Newer checkpoints of the same job are deleted, and so is output that a file sink committed after
        the restored one: the job begins again from there.

        Args:
            path: the checkpoint's folder (``.../chk-<n>``), or ``"latest"`` for the newest completed
                one of a job of the same name in the checkpoint directory.
        """
        self._restore_from = str(path)
        return self

    def add_listener(self, listener: JobListener) -> StreamExecutionEnvironment:
        """Have ``listener`` told of epochs, checkpoints and restarts."""
        self._listeners.append(listener)
        return self

    # --- sources -------------------------------------------------------------------------------

    def from_collection(
        self, collection: Iterable[Any], *, records_per_epoch: int = RECORDS_PER_EPOCH
    ) -> DataStream:
        """Read a collection in its order; with checkpoints, ``records_per_epoch`` at a time."""
        _check_positive("records_per_epoch", records_per_epoch)
        return self._stream(CollectionSource(list(collection), records_per_epoch), "collection")

    def from_rdd(self, rdd: RDD[Any], *, partitions_per_epoch: int | None = None) -> DataStream:
        """Read an RDD; with checkpoints, some partitions at a time (default: Spark's parallelism).

        For an exact restart a partition must give the same records whenever it is computed.
        """
        if partitions_per_epoch is not None:
            _check_positive("partitions_per_epoch", partitions_per_epoch)
        return self._stream(on_spark.rdd_source(rdd, partitions_per_epoch), "rdd")

    def from_dataframe(self, df: DataFrame, *, partitions_per_epoch: int | None = None) -> DataStream:
        """Read a DataFrame as Spark ``Row`` records; see :meth:`from_rdd`."""
        return self.from_rdd(df.rdd, partitions_per_epoch=partitions_per_epoch).name("dataframe")

    def from_files(
        self,
        directory: str,
        format: str = "csv",
        *,
        files_per_epoch: int = 1,
        max_files: int | None = None,
        **options: Any,
    ) -> DataStream:
        """Read the files of a directory in the order of their names.

        Args:
            directory: a path or URI that driver and executors reach.
            format: ``"csv"`` (dicts of strings), ``"json"`` (one value on each line) or ``"parquet"``
                (dicts). ``.gz`` and other compressions are told by the name.
            files_per_epoch: with checkpoints, how many files are one epoch.
            max_files: read just the first so many.
            **options: ``on_malformed`` (``"fail"``, ``"drop"`` or ``"collect"``: the result counts
                dropped rows and has collected ones in ``rejected``); ``delimiter`` for CSV.
        """
        _check_positive("files_per_epoch", files_per_epoch)
        if format not in FORMATS:
            raise ConfigurationError(f"no format {format!r}; choose one of {', '.join(FORMATS)}")
        try:
            record_format = FORMATS[format](**options)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"format {format!r}: {error}") from error
        source = FileSource(str(directory), record_format, files_per_epoch, max_files)
        source.check()
        return self._stream(source, "files")

    def _stream(self, source: Source, name: str) -> DataStream:
        return DataStream(self, SourceNode(source, name))

    # --- running -------------------------------------------------------------------------------

    def add_sink_node(self, node: SinkNode) -> None:
        """Called by :meth:`DataStream.sink_to`."""
        self._sinks.append(node)

    def execute(self, job_name: str = DEFAULT_JOB_NAME) -> JobExecutionResult:
        """Run everything that leads to a sink, to the end of the input.

        Raises:
            PyFlinkStateError: what made the job fail.
        """
        sinks, self._sinks = self._sinks, []
        job = self._job(sinks, job_name)
        deque(job.run(), maxlen=0)
        return job.result()

    def collect(self, node: Node, job_name: str | None, limit: int | None) -> ResultIterator:
        """Called by :meth:`DataStream.execute_and_collect`."""
        records: deque[Any] = deque()
        sink = DriverSink(lambda _, values: records.extend(values))
        job = self._job([SinkNode(node, sink, "collect")], job_name)
        return ResultIterator(job, records, limit)

    def run_to_rdd(self, node: Node, job_name: str | None) -> RDD[Any]:
        """Called by :meth:`DataStream.to_rdd`."""
        sink = RddSink()
        deque(self._job([SinkNode(node, sink, "rdd")], job_name).run(), maxlen=0)
        return on_spark.values_of(self._context, sink.committed)

    def run_to_dataframe(self, node: Node, schema: Any, job_name: str | None) -> DataFrame:
        """Called by :meth:`DataStream.to_dataframe`."""
        return self._spark.createDataFrame(self.run_to_rdd(node, job_name), schema)

    def _job(self, sinks: list[SinkNode], job_name: str | None) -> Job:
        name = job_name or DEFAULT_JOB_NAME
        plan = make_plan(sinks, self.get_parallelism(), self._max_parallelism)
        storage = self._storage()
        restore, self._restore_from = self._restore_point(storage, name), None
        default = (
            RestartStrategies.no_restart()
            if storage is None
            else RestartStrategies.fixed_delay_restart(3, 1000)
        )
        settings = JobSettings(
            name,
            self._checkpoints,
            self._restart or default,
            tuple(self._listeners),
            self._state_backend,
        )
        return Job(
            plan,
            settings,
            on_spark.SparkRunner(self._context, f"pyflinkstate {uuid.uuid4().hex}"),
            on_spark.driver_endpoint(self._context),
            SystemClock(),
            storage,
            restore,
        )

    def _storage(self) -> CheckpointStorage | None:
        if self._checkpoint_storage is None:
            return None
        storage = CheckpointStorage(self._checkpoint_storage)
        storage.check_writable()
        return storage

    def _restore_point(self, storage: CheckpointStorage | None, job_name: str) -> RestorePoint | None:
        if self._restore_from is None:
            return None
        if storage is None:
            raise ConfigurationError("restore_from() needs enable_checkpointing(): restored state is kept on")
        if self._restore_from == LATEST:
            metadata = storage.load_latest(job_name)
            return RestorePoint(metadata, storage.uri_of(metadata.job_id, metadata.checkpoint_id))
        return RestorePoint(*load_checkpoint(self._restore_from))


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ConfigurationError(f"{name} must be at least 1, not {value}")


@attrs.define
class ResultIterator:
    """The records of a running job (PyFlink: ``CloseableIterator``)."""

    _job: Job
    _records: deque[Any]
    _limit: int | None
    _epochs: Iterator[int] = attrs.field(init=False)
    _returned: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._epochs = self._job.run()

    def __iter__(self) -> ResultIterator:
        return self

    def __next__(self) -> Any:
        if self._limit is not None and self._returned >= self._limit:
            self.close()
            raise StopIteration
        while not self._records:
            if next(self._epochs, None) is None and not self._records:
                raise StopIteration
        self._returned += 1
        return self._records.popleft()

    def __enter__(self) -> ResultIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the job and its slots. Idempotent."""
        self._epochs.close()  # type: ignore[attr-defined]  # it is a generator
