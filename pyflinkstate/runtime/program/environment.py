"""The execution environment, where programs begin (``pyflink.datastream.StreamExecutionEnvironment``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from pyflinkstate.api import (
    ArrowTable,
    CheckpointStorage,
    Configuration,
    MetricReporter,
    Offset,
    SparkObject,
    StateBackend,
    T,
    TypedValue,
    TypeInformation,
    WatermarkStrategy,
    check_dataframe,
    check_kind,
    check_text,
    check_type,
    positive,
)
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.master import (
    JobExecutionResult,
    JobListener,
    WebPageSettings,
)
from pyflinkstate.runtime.plan import SourceNode
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.program.environment_settings import (
    EnvironmentSettings,
    ExecutionConfig,
    RuntimeExecutionMode,
    apply_configuration,
)
from pyflinkstate.runtime.program.environment_sources import (
    collection_source,
    directory_source,
    query_location,
    query_source,
)
from pyflinkstate.runtime.program.job_client import JobClient, run_to_end
from pyflinkstate.runtime.program.jobs import LATEST, Jobs
from pyflinkstate.runtime.settings import (
    CheckpointConfig,
    CheckpointingMode,
    RestartStrategy,
)
from pyflinkstate.runtime.sources import (
    BatchReaderSource,
    FileSource,
    PartitionOffsets,
    RateSource,
    ReadBatches,
    Source,
    StreamFormat,
    type_of_source,
)
from pyflinkstate.runtime.spark import epoch_rdds, row_batches, sessions, workers
from pyflinkstate.runtime.storage import AnyPath, path_text
from pyflinkstate.runtime.wire import HeartbeatSettings, SystemClock, steady

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession


class StreamExecutionEnvironment:
    """Makes streams and runs jobs on one Spark session.

    Args:
        spark: the session to run on. Default: the active session, or a new local one.

    Raises:
        UnsupportedSessionError: the session is a Spark Connect session, or its workers run a Python that
            cannot run the program.
    """

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._spark = sessions.local_session() if spark is None else spark
        self._context = sessions.context_of(self._spark)
        workers.check_workers(self._context)
        self._python_files = workers.PythonFiles(self._context)
        self._settings = EnvironmentSettings(
            lambda: int(self._context.defaultParallelism), code_shipper=self._python_files
        )
        self._execution_config = ExecutionConfig(self._settings)
        #: What runs the streams of this environment; programs do not need it.
        self._jobs = Jobs(self._spark, self._python_files, self._settings)

    @classmethod
    def get_execution_environment(
        cls, configuration: Configuration | SparkSession | None = None, *, spark: SparkSession | None = None
    ) -> StreamExecutionEnvironment:
        """Return a new environment.

        Args:
            configuration: settings for :meth:`configure`; a session is taken as ``spark``.
            spark: the session to run on. Default: the active session, or a new local one.
        """
        if configuration is not None and not isinstance(configuration, Configuration):
            spark, configuration = configuration, None
        env = cls(spark)
        return env if configuration is None else env.configure(configuration)

    # --- settings ------------------------------------------------------------------------------

    def _set(self, **values: Any) -> StreamExecutionEnvironment:
        self._settings.put(**values)
        return self

    def get_config(self) -> ExecutionConfig:
        """Return the execution settings; changing them changes this environment."""
        return self._execution_config

    def configure(self, configuration: Configuration) -> StreamExecutionEnvironment:
        """Apply the settings under Flink's keys that are known here; keep the others.

        Settings that belong together may come in several calls. If a setting comes under its present name and
        under an older one, the present name counts.

        docs/differences.md has a table of the keys.

        Raises:
            ConfigurationError: a known setting has an invalid value, or asks for a feature that does not
                exist.
        """
        apply_configuration(self._settings, configuration)
        return self

    def set_default_job_name(self, job_name: str) -> StreamExecutionEnvironment:
        """Set the name of jobs for which ``execute()`` gives none (``pipeline.name``)."""
        check_text("the name of a job", job_name, may_be_empty=True)
        return self._set(default_job_name=job_name)

    def set_heartbeat(
        self, interval_ms: int = 10_000, timeout_ms: int = 50_000
    ) -> StreamExecutionEnvironment:
        """Set the heartbeat interval of driver and slots, and the timeout for a missing heartbeat.

        These are Flink's ``heartbeat.interval`` and ``heartbeat.timeout``, with its defaults. A slot that is
        silent for the timeout counts as lost, and a slot that receives nothing from the driver exits.
        A function may hold the interpreter lock for the timeout minus the interval.

        Raises:
            ConfigurationError: the interval is not positive, or is longer than the timeout.
        """
        return self._set(heartbeat=HeartbeatSettings(interval_ms, timeout_ms))

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of subtasks of each keyed operator. Default: Spark's default parallelism."""
        return self._set(parallelism=parallelism)

    def get_parallelism(self) -> int:
        """Return the number of subtasks of each keyed operator."""
        return self._settings.get_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of key groups, 1 to 32768: the upper bound of any later parallelism.

        Default: Flink's rule, 128 for a parallelism of up to 85.
        """
        return self._set(max_parallelism=max_parallelism)

    def get_default_local_parallelism(self) -> int:
        """Return the default parallelism: that of Spark, which on one machine is the number of cores."""
        return self._settings.get_default_parallelism()

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Set the default parallelism."""
        self._settings.default_parallelism = parallelism

    def get_max_parallelism(self) -> int | None:
        """Return the max parallelism that was set, or None."""
        return self._settings.max_parallelism

    def enable_checkpointing(
        self,
        interval: int,
        mode: CheckpointingMode | AnyPath | CheckpointStorage | None = None,
        *,
        storage: AnyPath | CheckpointStorage | None = None,
        timeout: int | None = None,
        tolerable_failures: int | None = None,
        num_retained: int | None = None,
        incremental: bool | None = None,
    ) -> StreamExecutionEnvironment:
        """Take checkpoints, and restart from them.

        A checkpoint is taken at the end of the first epoch that ends after the interval has passed, and after
        the last epoch. Sinks commit with checkpoints. :meth:`get_checkpoint_config` has more settings.

        Args:
            interval: the least time between two checkpoints in milliseconds; 0 takes one after every epoch.
            mode: ``EXACTLY_ONCE`` or ``AT_LEAST_ONCE``, which have the same effect. Default: what is set. The
                storage may be given in its place.
            storage: a path or URI that driver and executors can reach, or a
                :class:`FileSystemCheckpointStorage`. Default: that of :meth:`get_checkpoint_config`, or on a
                local Spark a directory that is deleted with the program.
            timeout: the milliseconds after which a pending checkpoint is aborted. Default: 10 minutes.
            tolerable_failures: how many checkpoints in a row may fail before the job fails. Default: 0.
            num_retained: how many completed checkpoints are kept. Default: 1.
            incremental: whether to write only what changed since the last completed checkpoint. Default:
                False.

        Raises:
            ConfigurationError: a setting makes no sense, there are two storages, or the mode is a string.
        """
        mode, storage = _mode_and_storage(mode, storage)
        config = self._settings.checkpoints.set_checkpoint_interval(interval)
        if mode is not None:
            config.set_checkpointing_mode(mode)
        if storage is not None:
            config.set_checkpoint_storage(storage)
        given = {"timeout_ms": timeout, "tolerable_failures": tolerable_failures}
        given |= {"num_retained": num_retained, "incremental": incremental}
        config.put(**{name: value for name, value in given.items() if value is not None})
        return self

    def set_default_savepoint_directory(self, directory: AnyPath) -> StreamExecutionEnvironment:
        """Set the directory for savepoints that are triggered without one."""
        return self._set(savepoint_directory=directory)

    def get_default_savepoint_directory(self) -> str | None:
        """Return the directory for savepoints that are triggered without one."""
        return self._settings.savepoint_directory

    def set_slot_memory_limit(self, limit_bytes: int | None) -> StreamExecutionEnvironment:
        """Set how many bytes of memory a state slot may use; a job that needs more fails with a clear error.

        By default a slot may grow as long as the host or container has a little memory left (2 %, and 64
        MiB).
        """
        return self._set(slot_memory_bytes=limit_bytes)

    def set_progress(self, shown: bool | None) -> StreamExecutionEnvironment:
        """Show a line of progress on standard error; with None, the default, only on a terminal."""
        return self._set(progress=shown)

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        """Choose where state is. Default: ``HashMapStateBackend()``, in memory.

        With ``EmbeddedRocksDBStateBackend()`` only what is used is in memory, and all else on local disk.
        """
        return self._set(state_backend=state_backend)

    def set_restart_strategy(self, strategy: RestartStrategy) -> StreamExecutionEnvironment:
        """Choose what happens after a failure; see :class:`RestartStrategies`."""
        return self._set(restart=strategy)

    def restore_from(
        self, path: AnyPath | None = LATEST, *, allow_non_restored_state: bool = False
    ) -> StreamExecutionEnvironment:
        """Start the next job from a completed checkpoint or a savepoint, at any parallelism.

        Once all slots have restored their state, newer checkpoints of the same job are moved aside, and so is
        the output that a file sink committed after the restored checkpoint: the job starts again from there.
        The job keeps its id, so a second job that starts from a savepoint needs another checkpoint directory.
        If another program is running the job, that program ends with a ``JobSupersededError``.

        A savepoint of Flink, told from the file itself, is first converted into a folder ``from-flink-...``
        in the checkpoint directory, see ``convert_savepoint``: each function is opened once for that.

        Args:
            path: the folder (``.../chk-<n>``, ``.../savepoint-...``), or ``"latest"`` for the newest
                completed checkpoint of a job with the same name in the checkpoint directory. None takes an
                earlier call back: the next job starts from the beginning.
            allow_non_restored_state: whether to drop the state of operators that the program no longer has.
        """
        return self._set(restore_path=path, allows_non_restored_state=allow_non_restored_state)

    def add_listener(self, listener: JobListener) -> StreamExecutionEnvironment:
        """Notify ``listener`` of epochs, checkpoints and restarts.

        Raises:
            ConfigurationError: it is not a :class:`JobListener`.
        """
        check_kind("add_listener() takes an object of a JobListener", listener, JobListener)
        self._settings.listeners.append(listener)
        return self

    def enable_web_page(
        self,
        port: int = 0,
        host: str = "127.0.0.1",
        *,
        address: str | None = None,
        metrics_without_token: bool = False,
        actions: bool = True,
        token_file: AnyPath | None = None,
        health_timeout_ms: int = 600_000,
    ) -> StreamExecutionEnvironment:
        """Show the jobs of this environment on a web page, with an API and metrics: docs/monitoring.md.

        The logger ``pyflinkstate.monitor`` tells its address once, with a token that lets a browser in;
        :meth:`get_web_page_address` returns it. The page is there until :meth:`close` or the end of the
        program. What jobs tell is also kept beside their checkpoints; see :meth:`set_journal`.

        Args:
            port: the port to listen on; 0 for any free one.
            host: the address to listen on. Nothing is encrypted: leave it on loopback, and go there through
                SSH or a proxy that encrypts.
            address: the name under which browsers reach it, if that is not the host.
            metrics_without_token: whether everybody who reaches the port may read ``/metrics``.
            actions: whether the page may take savepoints, stop and cancel jobs.
            token_file: a file that keeps the token, so that a bookmark is valid after a restart; it is made
                if it is not there. Only its owner may be able to read it, or a group as well.
            health_timeout_ms: how long a job may make no progress before ``/health`` answers 503.

        Raises:
            ConfigurationError: it cannot listen there, ``pyflinkstate[web]`` is not installed, or the file
                has no token, or others can read it.
        """
        self._settings.web_page = WebPageSettings(
            (port,),
            host,
            address,
            metrics_without_token,
            actions,
            token_file=None if token_file is None else path_text(token_file),
            health_timeout_ms=positive("health_timeout_ms", health_timeout_ms),
        )
        self._jobs.monitoring.serve_anew()
        return self

    def get_web_page_address(self) -> str | None:
        """Return the address of the web page with its token, or None if there is no page."""
        return self._jobs.monitoring.address()

    def add_metric_reporter(
        self, reporter: MetricReporter, interval_ms: int = 10_000
    ) -> StreamExecutionEnvironment:
        """Tell ``reporter`` the metrics of the jobs of this environment, until :meth:`close`.

        :class:`~pyflinkstate.metrics.otel.OpenTelemetryReporter` exports them with OpenTelemetry.

        Args:
            reporter: is opened now, and told on a thread of its own.
            interval_ms: the time between two reports (Flink: ``metrics.reporter.<name>.interval``, whose
                default is the same).

        Raises:
            ConfigurationError: it is not a reporter, or the interval is not positive.
        """
        check_kind("add_metric_reporter() takes a MetricReporter", reporter, MetricReporter)
        interval_ms = positive("the interval of a reporter in ms", interval_ms)
        self._jobs.monitoring.add_reporter(reporter, interval_ms)
        return self

    def set_journal(self, kept: bool) -> StreamExecutionEnvironment:
        """Choose whether what jobs tell is kept beside their checkpoints, for ``pyflinkstate ui``.

        It is at most 8 MiB for each job, in the folder ``journal`` of the job's checkpoints. Default: it is
        kept if there is a web page.
        """
        return self._set(journal=kept)

    # --- modes ---------------------------------------------------------------------------------------

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Choose when ``reduce``, ``sum`` and the like emit results: with each record, or at the end.

        ``AUTOMATIC`` means ``BATCH`` if all sources are bounded. Set it before you make streams.
        """
        return self._set(mode=execution_mode)

    # --- checkpoints ---------------------------------------------------------------------------------

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Return the checkpoint settings, which can be changed in place."""
        return self._settings.checkpoints

    def get_checkpoint_interval(self) -> int:
        """Return the time between two checkpoints in ms, or -1 if none are taken."""
        return self._settings.checkpoints.get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the mode that was set. Checkpoints are exactly once in both modes."""
        return self._settings.checkpoints.get_checkpointing_mode()

    get_checkpointing_consistency_mode = get_checkpointing_mode

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return what was set, without effect: the end of an epoch aligns barriers."""
        return self._settings.checkpoints.is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return what was set."""
        return self._settings.checkpoints.is_force_unaligned_checkpoints()

    # --- files that functions need -------------------------------------------------------------------

    def add_python_file(self, file_path: AnyPath) -> None:
        """Ship Python code to where functions run: a module, a zip of modules, or a folder that holds them.

        It is there for the jobs of this environment from now on, and for no others. Functions find it on
        ``sys.path``, before what is installed.

        Raises:
            ConfigurationError: there is no such file, or it is something else.
        """
        self._python_files.add_file(file_path)

    def add_python_archive(self, archive_path: AnyPath, target_dir: str | None = None) -> None:
        """Ship a zip file, which is unpacked in the working directory of functions.

        Args:
            archive_path: a zip file: ``.zip``, ``.jar``, ``.whl``, ``.egg``.
            target_dir: the folder that it is unpacked in. Default: one of the archive's name. A function
                reads ``open("<target_dir>/data.txt")``.

        Raises:
            ConfigurationError: the file is missing or not a zip, or ``target_dir`` is not a plain name.
        """
        self._python_files.add_archive(archive_path, target_dir)

    def set_python_requirements(
        self, requirements_file_path: AnyPath, requirements_cache_dir: AnyPath | None = None
    ) -> None:
        """Install packages with pip, here and now, and ship them to where functions run.

        Flink installs them on each machine; here the driver does, so that must be a machine of the same kind.
        They are there for the jobs of this environment alone. What pyflinkstate itself needs (attrs,
        cloudpickle, numpy, pyarrow) has the version of this program.

        Args:
            requirements_file_path: what ``pip install -r`` takes.
            requirements_cache_dir: a folder with the packages; pip then looks nowhere else.

        Raises:
            ConfigurationError: a path is not there, or pip fails, for example because the requirements need
                another version of what pyflinkstate needs.
        """
        self._python_files.add_requirements(requirements_file_path, requirements_cache_dir)

    def set_buffer_timeout(self, timeout_millis: int) -> StreamExecutionEnvironment:
        """Set how long records wait for others before they are sent on.

        It counts for sources that are read as records come, with the engine ``PIPELINED``. Records that fill
        a frame are sent at once.

        Args:
            timeout_millis: the time in ms; 0 sends whatever has come. Default: 5 (Flink's is 100).
        """
        return self._set(buffer_timeout_ms=timeout_millis)

    def get_buffer_timeout(self) -> int:
        """Return how long records wait for others before they are sent on, in ms."""
        return self._settings.buffer_timeout_ms

    # --- settings without effect ------------------------------------------------------------------------

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Accept it without effect: the results are the same."""
        self._settings.idle_streams.keep(is_chaining_enabled=False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Return False after :meth:`disable_operator_chaining`."""
        return self._settings.idle_streams.is_chaining_enabled

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Return True: a stateless operator can be part of any chain."""
        return True

    def register_slot_sharing_group(self, slot_sharing_group: object) -> StreamExecutionEnvironment:
        """Accept it without effect: Spark places its tasks."""
        return self

    def close(self) -> None:
        """Release cached streams, and close the web page and the reporters of metrics.

        The caller owns the Spark session, and a job releases its own slots.
        """
        self._jobs.close()

    # --- sources -----------------------------------------------------------------------------------

    @overload
    def from_collection(
        self, collection: Iterable[T], type_info: None = None, *, records_per_epoch: int | None = None
    ) -> DataStream[T]: ...

    @overload
    def from_collection(
        self,
        collection: Iterable[TypedValue],
        type_info: TypeInformation[T],
        *,
        records_per_epoch: int | None = None,
    ) -> DataStream[T]: ...

    def from_collection(
        self,
        collection: Iterable[TypedValue],
        type_info: TypeInformation[T] | None = None,
        *,
        records_per_epoch: int | None = None,
    ) -> DataStream[T]:
        """Read a collection in its order, ``records_per_epoch`` at a time.

        Args:
            collection: the records.
            type_info: the type to which records are converted: to a ``Row``, or to a ``FLOAT`` of 32 bits.
            records_per_epoch: how many records an epoch has. Default: 10,000, or all without checkpoints.

        Raises:
            BadRecordError: a record does not fit the type.
            ConfigurationError: it is a single text or mapping, or a table, which is no list of records.
        """
        return self._stream(
            collection_source(collection, type_info, records_per_epoch), "collection", type_info
        )

    def from_rdd(self, rdd: RDD[T], *, partitions_per_epoch: int | None = None) -> DataStream[T]:
        """Read an RDD, some partitions at a time. Default: Spark's parallelism with checkpoints, all without.

        For an exact restart a partition must have the same records whenever it is computed.
        """
        return self._from_rdd(rdd, partitions_per_epoch, is_fresh=False)

    def _from_rdd(
        self,
        rdd: RDD[T],
        partitions_per_epoch: int | None,
        is_fresh: bool,
        read: ReadBatches | None = None,
    ) -> DataStream[T]:
        if partitions_per_epoch is not None:
            partitions_per_epoch = positive("partitions_per_epoch", partitions_per_epoch)
        return self._stream(epoch_rdds.rdd_source(rdd, partitions_per_epoch, is_fresh, read), "rdd")

    def from_dataframe(
        self, df: DataFrame | ArrowTable, *, partitions_per_epoch: int | None = None
    ) -> DataStream:
        """Read a DataFrame as Spark ``Row`` records; see :meth:`from_rdd`.

        A table of pandas, polars or Arrow is made a Spark DataFrame with ``spark.createDataFrame``.

        The rows are read as Arrow batches of ``spark.sql.execution.arrow.maxRecordsPerBatch`` rows. Where a
        column has a type that does not travel so, they are read one by one.

        Raises:
            ConfigurationError: it is not a Spark DataFrame, or it is a streaming one.
        """
        frame: DataFrame = sessions.frame_of(df, self._spark)
        check_dataframe("from_dataframe()", frame, "from a list of records: from_collection()")
        if frame.isStreaming:
            raise ConfigurationError(
                "from_dataframe() takes a batch DataFrame, and this is a streaming one: use from_streaming()"
            )
        rdd, read = row_batches.rows_of(frame)
        return self._from_rdd(rdd, partitions_per_epoch, True, read).name("dataframe")

    def from_files(
        self,
        directory: AnyPath,
        format: str = "csv",
        *,
        files_per_epoch: int | None = None,
        max_files: int | None = None,
        growing: bool = False,
        **options: object,
    ) -> DataStream:
        """Read the files of a directory in the order of their names.

        Args:
            directory: a path or URI that driver and executors can reach.
            format: ``"csv"`` (dicts of strings), ``"json"`` (one value on each line), ``"parquet"``
                (dicts) or ``"text"`` (lines). The extension tells the compression, such as ``.gz``.
            files_per_epoch: the number of files in one epoch. Default: one with checkpoints, all without.
            max_files: read only that many files, the first ones.
            growing: whether to go on with files that appear later, without end. Each file must be complete
                when it appears: write it under another name and rename it.
            **options: ``on_malformed`` (``"fail"``, ``"drop"`` or ``"collect"``: the result counts
                dropped rows and has collected ones in ``rejected``); ``delimiter`` for CSV.
        """
        return self._stream(
            directory_source(directory, format, files_per_epoch, max_files, growing, options), "files"
        )

    def from_rate(self, rows_per_second: int, *, partitions: int = 1) -> DataStream:
        """Generate records at a fixed rate, without end: dicts of ``timestamp_ms`` and ``value``."""
        rows_per_second = positive("rows_per_second", rows_per_second)
        partitions = positive("partitions", partitions)
        return self._stream(RateSource(rows_per_second, steady(SystemClock()), partitions), "rate")

    def from_batch_reader(
        self,
        load: Callable[[str, str], DataFrame],
        *,
        latest: Callable[[Offset], Offset] | None = None,
        max_records_per_epoch: int | None = None,
    ) -> DataStream:
        """Read with Spark's batch reader from offset to offset, epoch by epoch, without end.

        For Kafka::

            def load(start, end):
                reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
                reader = reader.option("subscribe", "orders")
                return reader.option("startingOffsets", start).option("endingOffsets", end).load()

        Args:
            load: returns a DataFrame of the records between two offsets, which are strings: ``"earliest"``,
                ``"latest"``, or JSON.
            latest: called with the offsets reached so far, returns the newest offsets as a JSON value.
                Without it they are found by reading: the greatest ``offset`` of each ``topic`` and
                ``partition``. Kafka needs an offset for every partition, so if one may be empty, ask Kafka
                (``end_offsets``).
            max_records_per_epoch: without ``latest``, about how many records an epoch may have.
        """
        if max_records_per_epoch is not None:
            max_records_per_epoch = positive("max_records_per_epoch", max_records_per_epoch)
        if latest is None:
            latest = PartitionOffsets(load, max_records_per_epoch)
        return self._stream(BatchReaderSource(load, latest, row_batches.epoch_of), "batch reader")

    def from_streaming(
        self,
        sdf: DataFrame,
        *,
        checkpoint_location: str | None = None,
        trigger: dict[str, SparkObject] | None = None,
    ) -> DataStream:
        """Read a streaming DataFrame as Spark ``Row`` records: each micro-batch of Spark is an epoch.

        The query runs under ``foreachBatch``. Spark considers a batch done when the state after it is
        durable, so checkpointing must be enabled, and incremental checkpoints are advisable. When it is run
        again with the same checkpoint directory and job name, the job restores itself from the retained
        checkpoint that fits the position of the query exactly. After ``stop_with_savepoint`` pass the
        savepoint to :meth:`restore_from`, as it may cover more than the checkpoints do.

        Args:
            sdf: a streaming DataFrame with any source and any stateless operators.
            checkpoint_location: Spark's own for the query. Default: a folder below the checkpoint directory.
                It is required if that is on S3, which Spark reaches under other URIs.
            trigger: arguments for ``DataStreamWriter.trigger``, such as ``{"processingTime": "1 second"}``.
        """
        location = partial(query_location, checkpoint_location, self._settings.checkpoints, self._jobs)
        return self._stream(query_source(sdf, location, trigger or {}), "streaming")

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "source",
        type_info: TypeInformation[T] | None = None,
    ) -> DataStream[T]:
        """Read a source: one of PyFlink's connectors or your own :class:`Source`.

        Args:
            source: a ``FileSource``, a ``NumberSequenceSource``, or your own.
            watermark_strategy: assigns timestamps and watermarks.
            source_name: the name in messages and counts.
            type_info: the type of the records, which are checked against it and converted, such as a tuple
                to a ``Row``. Default: that of the source, if it has one, without a check.

        Raises:
            ConfigurationError: it is not a source, or the type is not type information. A record that does
                not fit the type fails the job with ``BadRecordError``.
        """
        check_kind("from_source takes a Source", source, Source)
        check_text("source_name", source_name, may_be_empty=True)
        check_type("type_info", type_info)
        # What a source says of its own records needs no check, for which each of them would pay.
        is_checked = type_info is not None and type_info != type_of_source(source, None)
        declared = type_of_source(source, type_info)
        stream: DataStream[T] = DataStream(self, SourceNode(source, source_name, declared, is_checked))
        if watermark_strategy is None:
            return stream
        timed = stream.assign_timestamps_and_watermarks(watermark_strategy)
        timed._node.is_of_source = True  # type: ignore[union-attr]
        return timed

    def read_text_file(self, file_path: AnyPath, charset_name: str = "UTF-8") -> DataStream[str]:
        """Read the lines of a file, or of all files below a folder."""
        lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(charset_name), file_path)
        return self.from_source(lines.build(), source_name="text file")

    def _stream(self, source: Source, name: str, type_info: TypeInformation | None = None) -> DataStream:
        return DataStream(self, SourceNode(source, name, type_info))

    # --- running -------------------------------------------------------------------------------

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run everything that leads to a sink, to the end of the input.

        Each sink belongs to one job, and so does what :meth:`restore_from` was given. If the job cannot be
        started, because a setting is wrong or there is no such checkpoint, both wait for the next call.

        Raises:
            PyFlinkStateError: the error that made the job fail.
        """
        job = self._jobs.job_of_sinks(job_name)
        run_to_end(job)
        return job.result()

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Run as :meth:`execute` does, in the background; the client monitors and controls the job."""
        return JobClient(self._jobs.job_of_sinks(job_name), self._settings.savepoint_directory)


def _mode_and_storage(
    mode: CheckpointingMode | AnyPath | CheckpointStorage | None,
    storage: AnyPath | CheckpointStorage | None,
) -> tuple[CheckpointingMode | None, AnyPath | CheckpointStorage | None]:
    """Return the mode and the storage; the storage may have been passed as the mode."""
    if mode is None or isinstance(mode, CheckpointingMode):
        return mode, storage
    named = mode.upper().replace("-", "_") if isinstance(mode, str) else ""
    if named in CheckpointingMode.__members__:
        raise ConfigurationError(
            f"enable_checkpointing() takes a text for the directory of checkpoints, and {mode!r} is a mode: "
            f"write CheckpointingMode.{named}"
        )
    if storage is not None:
        raise ConfigurationError(
            f"enable_checkpointing() was given two storages, {mode!r} one of them as the mode, and "
            f"storage={storage!r}: checkpoints go to one, so leave the other out"
        )
    return None, mode
