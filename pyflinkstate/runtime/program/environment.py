"""The execution environment: where a program begins (``pyflink.datastream.StreamExecutionEnvironment``)."""

from __future__ import annotations

import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pyflinkstate.api.configuration import Configuration
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.watermark_strategy import WatermarkStrategy
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.keys import check_max_parallelism, check_parallelism
from pyflinkstate.backends.types import rebuilds
from pyflinkstate.errors import ConfigurationError, PyFlinkStateError
from pyflinkstate.runtime.checkpoints import RestorePoint
from pyflinkstate.runtime.job import Job, JobExecutionResult, JobListener, JobSettings, ProgressLine
from pyflinkstate.runtime.plan import JobPlan, Node, SinkNode, SourceNode, make_plan
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.program.environment_settings import EnvironmentSettings
from pyflinkstate.runtime.program.job_client import JobClient
from pyflinkstate.runtime.program.job_results import CloseableIterator
from pyflinkstate.runtime.program.stream_types import converted_at_source
from pyflinkstate.runtime.settings import CheckpointingMode, RestartStrategies, RestartStrategy
from pyflinkstate.runtime.sinks import DriverSink, ForeachEpochSink, RddSink
from pyflinkstate.runtime.slots import ControlServer
from pyflinkstate.runtime.sources import (
    FORMATS,
    RECORDS_PER_EPOCH,
    BatchReaderSource,
    CollectionSource,
    DirectorySource,
    FileSource,
    PartitionOffsets,
    QueryLog,
    RateSource,
    Source,
    StreamFormat,
    StreamingSource,
    type_of_source,
)
from pyflinkstate.runtime.spark import spark as on_spark
from pyflinkstate.runtime.storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    absolute,
    check_spark_reaches,
    child_uri,
    load_checkpoint,
)
from pyflinkstate.runtime.wire import SystemClock, steady

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_JOB_NAME = "pyflinkstate job"
#: The word for the newest completed checkpoint in the checkpoint directory.
LATEST = "latest"


class StreamExecutionEnvironment(EnvironmentSettings):
    """Makes streams and runs jobs on one Spark session.

    Args:
        spark: the session to run on; without it the active one, else a new local one.

    Raises:
        UnsupportedSessionError: the session is a Spark Connect one.
    """

    def __init__(self, spark: SparkSession | None = None) -> None:
        super().__init__()
        self._spark = on_spark.local_session() if spark is None else spark
        self._context = on_spark.context_of(self._spark)
        self._parallelism: int | None = None
        self._default_parallelism: int | None = None
        self._max_parallelism: int | None = None
        self._state_backend = HashMapStateBackend()
        self._restart: RestartStrategy | None = None
        self._restore_from: str | None = None
        self._allow_non_restored_state = False
        self._savepoint_directory: str | None = None
        self._slot_memory_bytes: int | None = None
        self._progress: bool | None = None
        self._listeners: list[JobListener] = []
        self._sinks: list[SinkNode] = []
        self._job_name = DEFAULT_JOB_NAME
        self._assigners = 0
        self._temporary_storage: TemporaryDirectory[str] | None = None

    @classmethod
    def get_execution_environment(
        cls, configuration: Configuration | SparkSession | None = None, *, spark: SparkSession | None = None
    ) -> StreamExecutionEnvironment:
        """Return a new environment.

        Args:
            configuration: what :meth:`configure` takes; a session is taken as ``spark``.
            spark: the session to run on; without it the active one, else a new local one.
        """
        if configuration is not None and not isinstance(configuration, Configuration):
            spark, configuration = configuration, None
        env = cls(spark)
        return env if configuration is None else env.configure(configuration)

    # --- settings ------------------------------------------------------------------------------

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of subtasks of each keyed operator. Default: Spark's default parallelism."""
        check_parallelism(parallelism, self._max_parallelism or parallelism)
        self._parallelism = parallelism
        return self

    def get_parallelism(self) -> int:
        """Return the number of subtasks of each keyed operator."""
        return self._parallelism or self.get_default_local_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of key groups, 1 to 32768: the upper bound of any later parallelism.

        Default: Flink's rule, 128 for a parallelism of up to 85.
        """
        check_max_parallelism(max_parallelism)
        self._max_parallelism = max_parallelism
        return self

    def get_default_local_parallelism(self) -> int:
        """Return the parallelism where none is set: Spark's default, on one machine its cores."""
        return self._default_parallelism or int(self._context.defaultParallelism)

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Set the parallelism where none is set."""
        check_parallelism(parallelism, parallelism)
        self._default_parallelism = parallelism

    def get_max_parallelism(self) -> int | None:
        """Return the max parallelism that was set, or None."""
        return self._max_parallelism

    def enable_checkpointing(
        self,
        interval: int,
        mode: CheckpointingMode | str | FileSystemCheckpointStorage = CheckpointingMode.EXACTLY_ONCE,
        *,
        storage: str | FileSystemCheckpointStorage | None = None,
        timeout: int | None = None,
        tolerable_failures: int | None = None,
        num_retained: int | None = None,
        incremental: bool | None = None,
    ) -> StreamExecutionEnvironment:
        """Take checkpoints, and restart from them.

        A checkpoint is taken at the end of the first epoch by whose end the interval has passed, and
        after the last epoch. Sinks commit with checkpoints. :meth:`get_checkpoint_config` has more settings.

        Args:
            interval: milliseconds between two checkpoints, at least; 0 for one after every epoch.
            mode: ``EXACTLY_ONCE``, or in its place the storage.
            storage: a path or URI that driver and executors reach, or a :class:`FileSystemCheckpointStorage`.
                Default: what :meth:`get_checkpoint_config` has, else on a local Spark a directory that is
                gone with the program.
            timeout: milliseconds after which a checkpoint that is being written is given up; 10 minutes.
            tolerable_failures: how many checkpoints in a row may fail before the job does; 0.
            num_retained: how many completed checkpoints are kept; 1.
            incremental: write just what changed since the last completed checkpoint; False.
        """
        config = self._checkpoints.set_checkpoint_interval(interval)
        if isinstance(mode, CheckpointingMode):
            config.set_checkpointing_mode(mode)
        else:
            storage = mode
        if storage is not None:
            config.set_checkpoint_storage(storage)
        if timeout is not None:
            config.set_checkpoint_timeout(timeout)
        if tolerable_failures is not None:
            config.set_tolerable_checkpoint_failure_number(tolerable_failures)
        if num_retained is not None:
            config.set_max_retained_checkpoints(num_retained)
        if incremental is not None:
            config.enable_incremental_checkpoints(incremental)
        return self

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """Set where savepoints go for which no directory is named."""
        self._savepoint_directory = absolute(str(directory))
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Return where savepoints go for which no directory is named."""
        return self._savepoint_directory

    def set_slot_memory_limit(self, limit_bytes: int | None) -> StreamExecutionEnvironment:
        """Set how many bytes a state slot may have; a job that needs more fails with a clear error.

        Default: as long as the host, or the container, has a little left (2 %, and 64 MiB).
        """
        if limit_bytes is not None:
            _check_positive("the memory limit of a slot", limit_bytes)
        self._slot_memory_bytes = limit_bytes
        return self

    def set_progress(self, shown: bool | None) -> StreamExecutionEnvironment:
        """Show a line of progress on standard error, or not; None, the default: if it is a terminal."""
        self._progress = shown
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

    def restore_from(
        self, path: str = LATEST, *, allow_non_restored_state: bool = False
    ) -> StreamExecutionEnvironment:
        """Start the next job from a completed checkpoint or a savepoint, at any parallelism.

        When all slots have restored their state, newer checkpoints of the same job are moved aside, and so is
        output that a file sink committed after the restored one: the job begins again from there. The job
        keeps its id, so one that goes on elsewhere from a savepoint needs another checkpoint directory. If
        another program runs the job, that one ends with a ``JobSupersededError``.

        Args:
            path: the folder (``.../chk-<n>``, ``.../savepoint-...``), or ``"latest"`` for the newest
                completed checkpoint of a job of the same name in the checkpoint directory.
            allow_non_restored_state: give up the state of operators that the program no longer has.
        """
        self._restore_from = str(path)
        self._allow_non_restored_state = allow_non_restored_state
        return self

    def add_listener(self, listener: JobListener) -> StreamExecutionEnvironment:
        """Have ``listener`` told of epochs, checkpoints and restarts."""
        self._listeners.append(listener)
        return self

    # --- sources -------------------------------------------------------------------------------

    def from_collection(
        self,
        collection: Iterable[Any],
        type_info: TypeInformation | None = None,
        *,
        records_per_epoch: int = RECORDS_PER_EPOCH,
    ) -> DataStream:
        """Read a collection in its order; with checkpoints, ``records_per_epoch`` at a time.

        Args:
            collection: the records.
            type_info: converts them: what stands for a row becomes a ``Row``, a ``FLOAT`` has 32 bits.
            records_per_epoch: how many records are one epoch.

        Raises:
            BadRecordError: a record does not fit the type.
        """
        _check_positive("records_per_epoch", records_per_epoch)
        records = list(collection)
        if type_info is not None:
            records = converted_at_source(records, type_info, "collection")
        is_fresh = type_info is not None and rebuilds(type_info)
        return self._stream(CollectionSource(records, records_per_epoch, is_fresh), "collection", type_info)

    def from_rdd(self, rdd: RDD[Any], *, partitions_per_epoch: int | None = None) -> DataStream:
        """Read an RDD; with checkpoints, some partitions at a time (default: Spark's parallelism).

        For an exact restart a partition must give the same records whenever it is computed.
        """
        return self._from_rdd(rdd, partitions_per_epoch, is_fresh=False)

    def _from_rdd(self, rdd: RDD[Any], partitions_per_epoch: int | None, is_fresh: bool) -> DataStream:
        if partitions_per_epoch is not None:
            _check_positive("partitions_per_epoch", partitions_per_epoch)
        return self._stream(on_spark.rdd_source(rdd, partitions_per_epoch, is_fresh), "rdd")

    def from_dataframe(self, df: DataFrame, *, partitions_per_epoch: int | None = None) -> DataStream:
        """Read a DataFrame as Spark ``Row`` records; see :meth:`from_rdd`."""
        return self._from_rdd(df.rdd, partitions_per_epoch, is_fresh=True).name("dataframe")

    def from_files(
        self,
        directory: str,
        format: str = "csv",
        *,
        files_per_epoch: int = 1,
        max_files: int | None = None,
        growing: bool = False,
        **options: Any,
    ) -> DataStream:
        """Read the files of a directory in the order of their names.

        Args:
            directory: a path or URI that driver and executors reach.
            format: ``"csv"`` (dicts of strings), ``"json"`` (one value on each line), ``"parquet"``
                (dicts) or ``"text"`` (lines). ``.gz`` and other compressions are told by the name.
            files_per_epoch: with checkpoints, how many files are one epoch.
            max_files: read just the first so many.
            growing: go on with files that appear later, without end. Each must be whole when it appears:
                write it under another name and rename it.
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
        source = DirectorySource(str(directory), record_format, files_per_epoch, max_files, growing)
        source.check()
        return self._stream(source, "files")

    def from_rate(self, rows_per_second: int, *, partitions: int = 1) -> DataStream:
        """Read numbers, so many in a second, without end: dicts of ``timestamp_ms`` and ``value``."""
        _check_positive("rows_per_second", rows_per_second)
        _check_positive("partitions", partitions)
        return self._stream(RateSource(rows_per_second, steady(SystemClock()), partitions), "rate")

    def from_batch_reader(
        self,
        load: Callable[[str, str], DataFrame],
        *,
        latest: Callable[[Any], Any] | None = None,
        max_records_per_epoch: int | None = None,
    ) -> DataStream:
        """Read what Spark's batch reader gives between two offsets, epoch by epoch, without end.

        For Kafka::

            def load(start, end):
                reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
                reader = reader.option("subscribe", "orders")
                return reader.option("startingOffsets", start).option("endingOffsets", end).load()

        Args:
            load: makes a DataFrame of what lies between two offsets, given as text: ``"earliest"``,
                ``"latest"``, or JSON.
            latest: gives the newest offsets, a JSON value, from those reached. Without it they are found by
                reading: the greatest ``offset`` of each ``topic`` and ``partition``. Kafka wants every
                partition named, so where one may be without records ask Kafka for them (``end_offsets``).
            max_records_per_epoch: without ``latest``, how many records an epoch has at most, about.
        """
        if latest is None:
            latest = PartitionOffsets(load, max_records_per_epoch)
        return self._stream(BatchReaderSource(load, latest), "batch reader")

    def from_streaming(
        self,
        sdf: DataFrame,
        *,
        checkpoint_location: str | None = None,
        trigger: dict[str, Any] | None = None,
    ) -> DataStream:
        """Read a streaming DataFrame as Spark ``Row`` records: each batch of Spark's is an epoch.

        The query runs under ``foreachBatch``. A batch is done for Spark when the state after it is durable,
        so checkpointing must be enabled, and incremental checkpoints are advisable. Run again with the same
        checkpoint directory and job name the job restores itself: of the retained checkpoints it takes the
        one with which the query goes on exactly. After ``stop_with_savepoint`` name the savepoint with
        :meth:`restore_from`: it may cover more than the checkpoints do.

        Args:
            sdf: with any source and any stateless operators.
            checkpoint_location: the query's own, Spark's. Default: below the checkpoint directory. Needed
                where that is on S3, which Spark reaches under other URIs.
            trigger: as for ``DataStreamWriter.trigger``, such as ``{"processingTime": "1 second"}``.
        """
        if not getattr(sdf, "isStreaming", False):
            raise ConfigurationError(f"from_streaming takes a streaming DataFrame, not {sdf!r}")

        def location() -> str:
            return checkpoint_location or self._default_location()

        def start(process_batch: Callable[[Any, int], None]) -> Any:
            writer = sdf.writeStream.foreachBatch(process_batch).option("checkpointLocation", location())
            return (writer.trigger(**trigger) if trigger else writer).start()

        def open_log() -> QueryLog:
            return QueryLog(on_spark.SparkQueryFiles(sdf.sparkSession, location()))

        return self._stream(StreamingSource(start, open_log), "streaming")

    def _default_location(self) -> str:
        storage = self._checkpoints.get_checkpoint_storage()
        assert storage is not None
        directory = storage.checkpoint_path
        check_spark_reaches(
            directory,
            "from_streaming() with checkpoints in",
            "name a checkpoint_location that Spark reaches, such as s3a://...",
        )
        return child_uri(directory, f"spark-{quote(self._job_name, safe='')}")

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "source",
        type_info: TypeInformation | None = None,
    ) -> DataStream:
        """Read a source: one of PyFlink's connectors, or a :class:`Source` of your own.

        Args:
            source: a ``FileSource``, a ``NumberSequenceSource``, or your own.
            watermark_strategy: gives records their event time.
            source_name: what messages and counts call it.
            type_info: of the records; they are checked against it.
        """
        if not isinstance(source, Source):
            raise ConfigurationError(f"from_source takes a Source, not {source!r}")
        stream = self._stream(source, source_name, type_of_source(source, type_info))
        if watermark_strategy is None:
            return stream
        timed = stream.assign_timestamps_and_watermarks(watermark_strategy)
        timed.node.is_of_source = True  # type: ignore[union-attr]
        return timed

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> DataStream:
        """Read the lines of a file, or of all files below a folder."""
        lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(charset_name), file_path)
        return self.from_source(lines.build(), source_name="text file")

    def next_assigner_id(self) -> str:
        """Return a new id for an assigner of watermarks; the same in each run of a program."""
        self._assigners += 1
        return f"watermarks-{self._assigners}"

    def _stream(self, source: Source, name: str, type_info: TypeInformation | None = None) -> DataStream:
        return DataStream(self, SourceNode(source, name, type_info))

    # --- running -------------------------------------------------------------------------------

    def add_sink_node(self, node: SinkNode) -> None:
        """Called by :meth:`DataStream.sink_to`."""
        self._sinks.append(node)

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run everything that leads to a sink, to the end of the input.

        Raises:
            PyFlinkStateError: what made the job fail.
        """
        sinks, self._sinks = self._sinks, []
        job = self._job(sinks, job_name)
        deque(job.run(), maxlen=0)
        return job.result()

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Run as :meth:`execute` does, beside the program; the client watches and steers the job."""
        sinks, self._sinks = self._sinks, []
        return JobClient(self._job(sinks, job_name), self._savepoint_directory)

    def collect(self, node: Node, job_name: str | None, limit: int | None) -> CloseableIterator:
        """Called by :meth:`DataStream.execute_and_collect`."""
        records: deque[Any] = deque()
        sink = DriverSink(lambda _, values: records.extend(values))
        job = self._job([SinkNode(node, sink, "collect")], job_name)
        return CloseableIterator(job, records, limit)

    def foreach_epoch_sink(self, function: Callable[[DataFrame, int], None], schema: Any) -> ForeachEpochSink:
        """Called by :meth:`DataStream.foreach_epoch`."""

        def write(frames: Any, epoch: int) -> None:
            values = on_spark.values_of(self._context, [frames])
            function(self._spark.createDataFrame(values, schema), epoch)

        return ForeachEpochSink(write)

    def run_to_rdd(self, node: Node, job_name: str | None) -> RDD[Any]:
        """Called by :meth:`DataStream.to_rdd`."""
        sink = RddSink()
        deque(self._job([SinkNode(node, sink, "rdd")], job_name).run(), maxlen=0)
        return on_spark.values_of(self._context, sink.committed)

    def run_to_dataframe(self, node: Node, schema: Any, job_name: str | None) -> DataFrame:
        """Called by :meth:`DataStream.to_dataframe`."""
        return self._spark.createDataFrame(self.run_to_rdd(node, job_name), schema)

    def _job(self, sinks: list[SinkNode], job_name: str | None) -> Job:
        name = self._job_name = job_name or self._default_job_name or DEFAULT_JOB_NAME
        plan = make_plan(sinks, self.get_parallelism(), self._max_parallelism)
        self._check_backend()
        has_storage = self._checkpoints.get_checkpoint_storage() is not None
        if isinstance(plan.source.source, StreamingSource) and has_storage:
            plan.source.source.locate()
        storage = self._storage()
        endpoint, heartbeat = on_spark.driver_endpoint(self._context), self._heartbeat
        try:
            restore = self._restore_point(plan, storage, name)
            return Job(
                plan,
                self._settings(name, storage is not None),
                on_spark.SparkRunner(self._context, f"pyflinkstate {uuid.uuid4().hex}"),
                lambda secret, events, deployments: ControlServer(
                    endpoint, secret, events, deployments, heartbeat
                ),
                SystemClock(),
                storage,
                restore,
            )
        except PyFlinkStateError as error:
            plan.source.source.close(error)  # a streaming query may be waiting for the job
            raise

    def _settings(self, name: str, has_checkpoints: bool) -> JobSettings:
        default = (
            RestartStrategies.fixed_delay_restart(3, 1000)
            if has_checkpoints
            else RestartStrategies.no_restart()
        )
        listeners = list(self._listeners)
        if self._progress or (self._progress is None and sys.stderr.isatty()):
            listeners.append(ProgressLine(sys.stderr, SystemClock()))
        return JobSettings(
            name,
            self._checkpoints.settings,
            self._restart or default,
            tuple(listeners),
            self._state_backend,
            self._checkpoints.get_externalized_checkpoint_retention(),
            self._allow_non_restored_state,
            self._checkpoints.is_fall_back_enabled(),
            self._slot_memory_bytes,
        )

    def _check_backend(self) -> None:
        if self._checkpoints.is_incremental() and not self._state_backend.async_snapshots:
            raise ConfigurationError(
                "incremental checkpoints need asynchronous snapshots: plain dicts do not know what changed"
            )

    def _storage(self) -> CheckpointStorage | None:
        where = self._checkpoints.get_checkpoint_storage()
        if where is None and not self._checkpoints.is_checkpointing_enabled():
            return None
        storage = CheckpointStorage(where or self._storage_of_this_run())
        storage.check_writable()
        return storage

    def _storage_of_this_run(self) -> FileSystemCheckpointStorage:
        """Return a directory that is gone with the program, where Flink has the job manager's memory."""
        if not str(self._context.master).startswith("local"):
            raise ConfigurationError(
                "checkpoints need a directory that driver and executors reach: name it in "
                "enable_checkpointing(), or in get_checkpoint_config().set_checkpoint_storage()"
            )
        if self._temporary_storage is None:
            self._temporary_storage = TemporaryDirectory(prefix="pyflinkstate-", ignore_cleanup_errors=True)
        return FileSystemCheckpointStorage(self._temporary_storage.name)

    def _restore_point(
        self, plan: JobPlan, storage: CheckpointStorage | None, job_name: str
    ) -> RestorePoint | None:
        path, self._restore_from = self._restore_from, None
        source = plan.source.source
        if storage is None:
            if path is not None or source.commits_every_epoch:
                raise ConfigurationError(
                    "restore_from() and from_streaming() need enable_checkpointing(): "
                    "restored state is kept on"
                )
            return None
        if isinstance(source, StreamingSource):
            return self._restore_streaming(source, storage, job_name, path)
        if path is None:
            return None
        if path == LATEST:
            metadata = storage.load_latest(job_name, self._checkpoints.is_fall_back_enabled())
            uri = storage.uri_of(metadata.job_id, metadata.checkpoint_id)
            return RestorePoint(metadata, uri, is_latest=True)
        return RestorePoint(*load_checkpoint(path))

    def _restore_streaming(
        self, source: StreamingSource, storage: CheckpointStorage, job_name: str, path: str | None
    ) -> RestorePoint | None:
        """Take the checkpoint that fits where the query will go on; of a savepoint, see that it does."""
        if path is None or path == LATEST:
            metadata = source.choose(storage.load_retained(job_name))
            if metadata is None:
                if path == LATEST:
                    storage.load_latest(job_name)  # says that there is none
                return None
            return RestorePoint(metadata, storage.uri_of(metadata.job_id, metadata.checkpoint_id))
        named = RestorePoint(*load_checkpoint(path))
        source.choose([named.metadata])
        return named


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ConfigurationError(f"{name} must be at least 1, not {value}")
