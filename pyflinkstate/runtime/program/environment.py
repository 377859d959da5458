"""The execution environment, where programs begin (``pyflink.datastream.StreamExecutionEnvironment``)."""

from __future__ import annotations

import logging
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyflinkstate.api.checkpoint_storage import CheckpointStorage
from pyflinkstate.api.checks import check_text, positive
from pyflinkstate.api.configuration import Configuration
from pyflinkstate.api.metric_reporter import MetricReporter
from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.state_backend import StateBackend
from pyflinkstate.api.values import Record, SparkObject, SparkSchema
from pyflinkstate.backends.format import CheckpointMetadata
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.checkpoints import RestorePoint
from pyflinkstate.runtime.job import (
    Job,
    JobExecutionResult,
    JobListener,
    JobObserver,
    JobSettings,
    MonitorOfProgram,
    ProgressLine,
    WebPageSettings,
    load_monitor,
)
from pyflinkstate.runtime.plan import CHECK, ChainNode, JobPlan, Node, SinkNode, make_plan
from pyflinkstate.runtime.program.environment_options import apply_configuration
from pyflinkstate.runtime.program.environment_settings import (
    EnvironmentSettings,
    RuntimeExecutionMode,
)
from pyflinkstate.runtime.program.environment_sources import EnvironmentSources
from pyflinkstate.runtime.program.execution_config import ExecutionConfig
from pyflinkstate.runtime.program.job_client import JobClient
from pyflinkstate.runtime.program.job_results import CloseableIterator, run_to_end
from pyflinkstate.runtime.settings import (
    CheckpointConfig,
    CheckpointingMode,
    DefaultRestart,
    RestartStrategies,
    RestartStrategy,
)
from pyflinkstate.runtime.sinks import DriverSink, ForeachEpochSink, RddSink
from pyflinkstate.runtime.slots import ControlServer
from pyflinkstate.runtime.sources import CachedRecords, CachedSource, StreamingSource
from pyflinkstate.runtime.spark import (
    arrow,
    epoch_rdds,
    epoch_runner,
    python_files,
    row_schema,
    sessions,
    worker_python,
)
from pyflinkstate.runtime.storage import (
    AnyPath,
    CheckpointFolders,
    FileSystemCheckpointStorage,
    load_checkpoint,
    temporary_folder,
)
from pyflinkstate.runtime.wire import HeartbeatSettings, SystemClock

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_JOB_NAME = "pyflinkstate job"
#: The word for the newest completed checkpoint in the checkpoint directory.
LATEST = "latest"

_log = logging.getLogger("pyflinkstate.configuration")


class StreamExecutionEnvironment(EnvironmentSources):
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
        worker_python.check_workers(self._context)
        self._python_files = python_files.PythonFiles(self._context)
        self._settings = EnvironmentSettings(
            lambda: int(self._context.defaultParallelism), code_shipper=self._python_files
        )
        self._execution_config = ExecutionConfig(self._settings)
        self._sinks: list[SinkNode] = []
        self._ran_sinks = False
        self._job_name = DEFAULT_JOB_NAME
        self._assigners = 0
        self._temporary_storage: Path | None = None
        self._caches: list[CachedSource] = []
        self._monitor: MonitorOfProgram | None = None
        #: How the page is served now.
        self._served: WebPageSettings | None = None

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

    def get_config(self) -> ExecutionConfig:
        """Return the execution settings; changing them changes this environment."""
        return self._execution_config

    def configure(self, configuration: Configuration) -> StreamExecutionEnvironment:
        """Apply the settings under Flink's keys that are known here; keep the others.

        Settings that belong together may come in several calls. If a setting comes under its present name and
        under an older one, the present name counts.

        The known keys are ``parallelism.default``, ``pipeline.*``, ``execution.runtime-mode``,
        ``execution.checkpointing.*``, ``execution.state-recovery.path``, ``state.*``, ``heartbeat.*``,
        ``restart-strategy.*``, those of the web page (``rest.port``, ``rest.bind-port``, ``rest.address``,
        ``rest.bind-address``, ``web.cancel.enable``), ``security.ssl.internal.enabled``, and
        ``python.files``, ``python.archives`` and ``python.requirements``, which ship code as
        :meth:`add_python_file` and its neighbours do.

        Raises:
            ConfigurationError: a known setting has an invalid value, or asks for a feature that does not
                exist.
        """
        apply_configuration(self._settings, configuration)
        return self

    def set_default_job_name(self, job_name: str) -> StreamExecutionEnvironment:
        """Set the name of jobs for which ``execute()`` gives none (``pipeline.name``)."""
        check_text("the name of a job", job_name, may_be_empty=True)
        self._settings.default_job_name = job_name
        return self

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
        self._settings.heartbeat = HeartbeatSettings(interval_ms, timeout_ms)
        return self

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of subtasks of each keyed operator. Default: Spark's default parallelism."""
        self._settings.set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """Return the number of subtasks of each keyed operator."""
        return self._settings.get_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of key groups, 1 to 32768: the upper bound of any later parallelism.

        Default: Flink's rule, 128 for a parallelism of up to 85.
        """
        self._settings.set_max_parallelism(max_parallelism)
        return self

    def get_default_local_parallelism(self) -> int:
        """Return the default parallelism: that of Spark, which on one machine is the number of cores."""
        return self._settings.get_default_parallelism()

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Set the default parallelism."""
        self._settings.set_default_parallelism(parallelism)

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
            ConfigurationError: a setting makes no sense, there are two storages, or the mode is a text.
        """
        mode, storage = _mode_and_storage(mode, storage)
        config = self._settings.checkpoints.set_checkpoint_interval(interval)
        if mode is not None:
            config.set_checkpointing_mode(mode)
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

    def set_default_savepoint_directory(self, directory: AnyPath) -> StreamExecutionEnvironment:
        """Set the directory for savepoints that are triggered without one."""
        self._settings.set_savepoint_directory(directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Return the directory for savepoints that are triggered without one."""
        return self._settings.savepoint_directory

    def set_slot_memory_limit(self, limit_bytes: int | None) -> StreamExecutionEnvironment:
        """Set how many bytes of memory a state slot may use; a job that needs more fails with a clear error.

        By default a slot may grow as long as the host or container has a little memory left (2 %, and 64
        MiB).
        """
        self._settings.set_slot_memory_limit(limit_bytes)
        return self

    def set_progress(self, shown: bool | None) -> StreamExecutionEnvironment:
        """Show a line of progress on standard error; with None, the default, only on a terminal."""
        self._settings.progress = shown
        return self

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        """Choose how state is kept and snapshotted. Default: ``HashMapStateBackend()``.

        ``EmbeddedRocksDBStateBackend`` is accepted with a warning, and state is still kept in memory.
        """
        self._settings.set_state_backend(state_backend)
        return self

    def set_restart_strategy(self, strategy: RestartStrategy) -> StreamExecutionEnvironment:
        """Choose what happens after a failure; see :class:`RestartStrategies`."""
        self._settings.set_restart_strategy(strategy)
        return self

    def restore_from(
        self, path: AnyPath | None = LATEST, *, allow_non_restored_state: bool = False
    ) -> StreamExecutionEnvironment:
        """Start the next job from a completed checkpoint or a savepoint, at any parallelism.

        Once all slots have restored their state, newer checkpoints of the same job are moved aside, and so is
        the output that a file sink committed after the restored checkpoint: the job starts again from there.
        The job keeps its id, so a second job that starts from a savepoint needs another checkpoint directory.
        If another program is running the job, that program ends with a ``JobSupersededError``.

        Args:
            path: the folder (``.../chk-<n>``, ``.../savepoint-...``), or ``"latest"`` for the newest
                completed checkpoint of a job with the same name in the checkpoint directory. None takes an
                earlier call back: the next job starts from the beginning.
            allow_non_restored_state: whether to drop the state of operators that the program no longer has.
        """
        self._settings.set_restore_path(path, allow_non_restored_state)
        return self

    def add_listener(self, listener: JobListener) -> StreamExecutionEnvironment:
        """Notify ``listener`` of epochs, checkpoints and restarts.

        Raises:
            ConfigurationError: it is no :class:`JobListener`.
        """
        if not isinstance(listener, JobListener):
            raise ConfigurationError(
                f"add_listener() takes an object of a JobListener, not {safe_repr(listener)}"
            )
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

        Raises:
            ConfigurationError: it cannot listen there.
        """
        self._settings.web_page = WebPageSettings((port,), host, address, metrics_without_token, actions)
        self._served = None
        self._started_monitor()
        return self

    def get_web_page_address(self) -> str | None:
        """Return the address of the web page with its token, or None if there is no page."""
        monitor = self._started_monitor()
        return None if monitor is None else monitor.address

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
            ConfigurationError: it is no reporter, or the interval is none.
        """
        if not isinstance(reporter, MetricReporter):
            raise ConfigurationError(f"add_metric_reporter() takes a MetricReporter, not {reporter!r}")
        interval_ms = positive("the interval of a reporter in ms", interval_ms)
        if self._monitor is None:
            self._monitor = load_monitor()
        self._monitor.add_reporter(reporter, interval_ms)
        return self

    def set_journal(self, kept: bool) -> StreamExecutionEnvironment:
        """Choose whether what jobs tell is kept beside their checkpoints, for ``pyflinkstate ui``.

        It is at most 8 MiB for each job, in the folder ``journal`` of the job's checkpoints. Default: it is
        kept if there is a web page.
        """
        self._settings.journal = kept
        return self

    # --- modes ---------------------------------------------------------------------------------------

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Choose when ``reduce``, ``sum`` and the like emit results: with each record, or at the end.

        ``AUTOMATIC`` means ``BATCH`` if all sources are bounded. Set it before you make streams.
        """
        self._settings.set_mode(execution_mode)
        return self

    def runs_in_batch(self, node: Node) -> bool:
        """Return whether a reader of ``node`` emits its results at the end of the input."""
        return self._settings.runs_in_batch(node)

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
            ConfigurationError: there is no such file, it is no zip, or ``target_dir`` is more than a name.
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

    # --- settings without effect ------------------------------------------------------------------------

    def set_buffer_timeout(self, timeout_millis: int) -> StreamExecutionEnvironment:
        """Accept it without effect: records travel in frames and never wait in a buffer."""
        self._settings.buffer_timeout_ms = timeout_millis
        return self

    def get_buffer_timeout(self) -> int:
        """Return the value that was set, in ms."""
        return self._settings.buffer_timeout_ms

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Accept it without effect: the results are the same."""
        self._settings.is_chaining_enabled = False
        return self

    def is_chaining_enabled(self) -> bool:
        """Return False after :meth:`disable_operator_chaining`."""
        return self._settings.is_chaining_enabled

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
        for cache in self._caches:
            cache.invalidate()
        self._close_monitor()

    def _close_monitor(self) -> None:
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = self._served = None

    def _started_monitor(self) -> MonitorOfProgram | None:
        """Return the monitor, which is loaded when it is needed for the first time."""
        page = self._settings.web_page
        if self._monitor is None and (page is not None or self._settings.keeps_journal):
            self._monitor = load_monitor()
        if self._monitor is not None and self._served is not page:  # it was chosen later
            self._monitor.serve(page)
            self._served = page
        return self._monitor

    # --- running -------------------------------------------------------------------------------

    def next_assigner_number(self) -> int:
        """Return the number of a new assigner of watermarks; it is the same in each run of a program."""
        self._assigners += 1
        return self._assigners

    def add_sink_node(self, node: SinkNode) -> None:
        """Called by :meth:`DataStream.sink_to`."""
        self._sinks.append(node)

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run everything that leads to a sink, to the end of the input.

        Each sink belongs to one job, and so does what :meth:`restore_from` was given. If the job cannot be
        started, because a setting is wrong or there is no such checkpoint, both wait for the next call.

        Raises:
            PyFlinkStateError: the error that made the job fail.
        """
        job = self._job_of_sinks(job_name)
        run_to_end(job)
        return job.result()

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Run as :meth:`execute` does, in the background; the client monitors and controls the job."""
        return JobClient(self._job_of_sinks(job_name), self._settings.savepoint_directory)

    def _job_of_sinks(self, job_name: str | None, *own: SinkNode) -> Job:
        """Make a job of the sinks that were added since the last one, and of the caller's ``own`` sinks.

        The sinks are used up when the job is made. If it cannot be made, they wait for the next try.
        """
        waiting = tuple(self._sinks)
        if not waiting and not own and self._ran_sinks:
            raise ConfigurationError(
                "there is nothing to execute: what was built has been executed, and each execute() runs what "
                "was built since the one before; build the streams and their sinks again"
            )
        job = self._job([*waiting, *own], job_name)
        del self._sinks[: len(waiting)]
        self._ran_sinks = self._ran_sinks or bool(waiting)
        return job

    def collect(self, node: Node, job_name: str | None) -> CloseableIterator:
        """Called by :meth:`DataStream.execute_and_collect`."""
        records: deque[Record] = deque()
        # It is the last sink, so a record appears when the others have committed its epoch.
        sink = DriverSink(lambda _, values: records.extend(values))
        job = self._job_of_sinks(job_name, SinkNode(node, sink, "collect"))
        return CloseableIterator(job, records)

    def foreach_epoch_sink(
        self, function: Callable[[DataFrame, int], None], schema: SparkSchema
    ) -> ForeachEpochSink:
        """Called by :meth:`DataStream.foreach_epoch`."""

        def write(frames: SparkObject, epoch: int) -> None:
            function(
                self._dataframe(self._values_of([frames]), schema),
                epoch,
            )

        return ForeachEpochSink(write)

    def run_to_rdd(self, node: Node, job_name: str | None) -> RDD[Record]:
        """Called by :meth:`DataStream.to_rdd`."""
        sink = RddSink()
        run_to_end(self._job([SinkNode(node, sink, "rdd")], job_name))
        return self._values_of(sink.committed)

    def _values_of(self, frames: list[SparkObject]) -> RDD[Record]:
        return epoch_rdds.values_of(self._context, frames, self._python_files)

    def run_to_dataframe(self, node: Node, schema: SparkSchema, job_name: str | None) -> DataFrame:
        """Called by :meth:`DataStream.to_dataframe`."""
        (frame,) = self.run_to_dataframes([(node, schema)], job_name)
        return frame

    def run_to_dataframes(
        self, outputs: list[tuple[Node, SparkSchema]], job_name: str | None
    ) -> list[DataFrame]:
        """Run one job up to several nodes and return the records of each as a DataFrame."""
        prepared = [self._rows_for_frames(node, schema) for node, schema in outputs]
        sinks = [RddSink(None if columns is None else arrow.ArrowWriter(columns)) for _, columns in prepared]
        nodes = [SinkNode(node, sink, "dataframe") for (node, _), sink in zip(prepared, sinks, strict=True)]
        run_to_end(self._job(nodes, job_name))
        frames: list[DataFrame] = []
        for (_, schema), (_, columns), sink in zip(outputs, prepared, sinks, strict=True):
            if columns is None:
                frames.append(self._dataframe(self._values_of(sink.committed), schema))
            else:
                frames.append(arrow.dataframe_of(self._spark, sink.committed, columns))
        return frames

    def _rows_for_frames(self, node: Node, schema: SparkSchema) -> tuple[Node, arrow.RowColumns | None]:
        if arrow.can_make_dataframes():
            return self.rows_for_files(node, schema)
        return self.checked_rows(node, schema), None

    def rows_for_files(self, node: Node, schema: SparkSchema) -> tuple[Node, arrow.RowColumns | None]:
        """Return the results of ``node``, and what makes Arrow batches of them.

        If a column does not travel as Arrow there is none, and the results are checked as rows of ``schema``.
        """
        kind = row_schema.schema_of(schema)
        columns = None if kind is None else arrow.RowColumns.of(kind, node.name)
        return (node if columns is not None else self.checked_rows(node, schema)), columns

    def checked_rows(self, node: Node, schema: SparkSchema, for_spark: bool = True) -> Node:
        """Return the results of ``node`` as rows that fit ``schema``: what does not fit fails the job.

        Args:
            node: what gives the records.
            schema: of the rows.
            for_spark: see ``RowCheck``.

        Raises:
            ConfigurationError: the schema is none.
        """
        wanted = row_schema.schema_of(schema)
        if wanted is None:
            return node
        return ChainNode(node, CHECK, row_schema.RowCheck(wanted, for_spark), node.name)

    def _dataframe(self, rows: RDD[Record], schema: SparkSchema) -> DataFrame:
        """Return rows that :meth:`checked_rows` has let pass as a DataFrame."""
        return self._spark.createDataFrame(rows, schema, verifySchema=row_schema.schema_of(schema) is None)

    def cached_source(self, node: Node) -> CachedSource:
        """Called by :meth:`DataStream.cache`."""
        cache = CachedSource(lambda: self._computed(node))
        self._caches.append(cache)
        return cache

    def _computed(self, node: Node) -> CachedRecords:
        """Run a job of its own; it starts from no checkpoint, as what it reads is read anew."""
        sink = RddSink()
        restores, self._settings.restore_path = self._settings.restore_path, None
        try:
            run_to_end(self._job([SinkNode(node, sink, "cache")], f"{node.name}: cache"))
        finally:
            self._settings.restore_path = restores
        kept = list(sink.committed)

        def release() -> None:
            for frames in kept:
                frames.unpersist()

        records = epoch_rdds.rdd_source(self._values_of(kept), None, is_fresh=True)
        return CachedRecords(records, release)

    def preview(self, job_name: str | None = None) -> tuple[JobPlan, str]:
        """Return the plan and the name of the job that :meth:`execute` would run; nothing is started.

        Raises:
            ConfigurationError, ParallelismError: the program cannot be executed.
        """
        plan = make_plan(self._sinks, self.get_parallelism(), self._settings.max_parallelism)
        self._check_uids(plan)
        return plan, self._name_of(job_name)

    def _name_of(self, job_name: str | None) -> str:
        if job_name is not None:
            check_text("the name of a job", job_name, may_be_empty=True)
        return job_name or self._settings.default_job_name or DEFAULT_JOB_NAME

    def _job(self, sinks: list[SinkNode], job_name: str | None) -> Job:
        """Make a job. It uses up what to restore from, unless it cannot be made."""
        name = self._name_of(job_name)
        plan = make_plan(sinks, self.get_parallelism(), self._settings.max_parallelism)
        self._check_backend()
        self._check_uids(plan)
        for node in plan.sources:
            if isinstance(node.source, CachedSource):
                node.source.fill()
        self._job_name = name
        streaming = _streaming_source(plan)
        if streaming is not None and self._settings.checkpoints.checkpoint_directory() is not None:
            streaming.locate()
        storage = self._storage()
        endpoint, heartbeat = sessions.driver_endpoint(self._context), self._settings.heartbeat
        restore = self._restore_point(plan, storage, name)
        observer = self._observer()
        job = Job(
            plan,
            self._job_settings(name, storage is not None, observer),
            epoch_runner.SparkRunner(self._context, f"pyflinkstate {uuid.uuid4().hex}", self._python_files),
            lambda secret, events, deployments: ControlServer(
                endpoint, secret, events, deployments, heartbeat
            ),
            SystemClock(),
            storage,
            restore,
        )
        if observer is not None and self._monitor is not None:
            self._monitor.attach(observer, job, self._settings.savepoint_directory)
        self._settings.restore_path = None
        return job

    def _observer(self) -> JobObserver | None:
        """Return a listener for the monitor, if there is one."""
        monitor, directory = self._started_monitor(), self._settings.checkpoints.checkpoint_directory()
        if monitor is None:
            return None
        if directory is None or not self._settings.keeps_journal:
            return monitor.observe(None)
        return monitor.observe(directory.checkpoint_path)

    def _job_settings(
        self, name: str, has_checkpoints: bool, observer: JobObserver | None = None
    ) -> JobSettings:
        default = (
            DefaultRestart(attempts=3, delay_ms=1000) if has_checkpoints else RestartStrategies.no_restart()
        )
        listeners = [*self._settings.listeners, *filter(None, [observer])]
        if self._settings.progress or (self._settings.progress is None and sys.stderr.isatty()):
            listeners.append(ProgressLine(sys.stderr, SystemClock()))
        return JobSettings(
            name=name,
            checkpoints=self._settings.checkpoints.settings,
            restart=self._settings.restart or default,
            listeners=tuple(listeners),
            state_backend=self._settings.chosen_state_backend(),
            retention=self._settings.checkpoints.get_externalized_checkpoint_retention(),
            allow_non_restored_state=self._settings.allows_non_restored_state,
            fall_back=self._settings.checkpoints.is_fall_back_enabled(),
            slot_memory_bytes=self._settings.slot_memory_bytes,
            job_parameters=dict(self._settings.job_parameters),
            epochs_ahead=self._settings.epochs_ahead,
            is_encrypted=self._is_encrypted(),
            page=self._page_without_token(),
        )

    def _is_encrypted(self) -> bool:
        chosen = self._settings.is_encrypted
        return sessions.is_encrypted(self._context.getConf()) if chosen is None else chosen

    def _page_without_token(self) -> str | None:
        address = None if self._monitor is None else self._monitor.address
        return None if address is None else address.partition("?")[0]

    def _check_uids(self, plan: JobPlan) -> None:
        missing = [operator.name for operator in plan.operators if operator.node.uid is None]
        if missing and not self._settings.has_auto_generated_uids:
            raise ConfigurationError(
                f"operator {missing[0]!r} has state and no uid(), and disable_auto_generated_uids() asks for "
                f"one: call uid() on it",
                operator=missing[0],
            )

    def _check_backend(self) -> None:
        if self._settings.checkpoints.is_incremental() and not self._settings.state_backend.async_snapshots:
            raise ConfigurationError(
                "incremental checkpoints need asynchronous snapshots: plain dicts do not track changes"
            )

    def _storage(self) -> CheckpointFolders | None:
        where = self._settings.checkpoints.checkpoint_directory()
        if not self._settings.checkpoints.is_checkpointing_enabled():
            if where is None:
                return None
            _log.warning(
                "a directory for checkpoints is set, but no interval: no checkpoints are taken until the "
                "input ends, and output becomes visible only then, or with a savepoint. Call "
                "enable_checkpointing()"
            )
        storage = CheckpointFolders(where or self._storage_of_this_run())
        storage.check_writable()
        return storage

    def _storage_of_this_run(self) -> FileSystemCheckpointStorage:
        """Return a directory that is deleted with the program; Flink uses the job manager's memory."""
        if not str(self._context.master).startswith("local"):
            raise ConfigurationError(
                "checkpoints need a directory that driver and executors can reach: pass it to "
                "enable_checkpointing() or get_checkpoint_config().set_checkpoint_storage()"
            )
        if self._temporary_storage is None:
            self._temporary_storage = temporary_folder(self, "pyflinkstate-")
        return FileSystemCheckpointStorage(str(self._temporary_storage))

    def _restore_point(
        self, plan: JobPlan, storage: CheckpointFolders | None, job_name: str
    ) -> RestorePoint | None:
        path = self._settings.restore_path
        streaming = _streaming_source(plan)
        if storage is None:
            if path is not None or plan.source.source.commits_every_epoch:
                raise ConfigurationError(
                    "restore_from() and from_streaming() need enable_checkpointing(): "
                    "restored state is kept on"
                )
            return None
        if streaming is not None:
            return _restore_streaming(streaming, storage, job_name, path)
        if path is None:
            return None
        if path == LATEST:
            metadata = storage.load_latest(job_name, self._settings.checkpoints.is_fall_back_enabled())
            uri = storage.uri_of(metadata.job_id, metadata.checkpoint_id)
            return RestorePoint(metadata, uri, is_latest=True)
        return RestorePoint(*load_checkpoint(path))


def _restore_streaming(
    source: StreamingSource, storage: CheckpointFolders, job_name: str, path: str | None
) -> RestorePoint | None:
    """Choose the checkpoint that fits the position of the query; check that a given savepoint fits.

    If it is the newest one, an older driver that still runs may complete another one before it is excluded.
    """
    if path is None or path == LATEST:
        read: list[CheckpointMetadata] = []
        metadata = source.choose(_noted(storage.load_retained(job_name), read))
        if metadata is None:
            if path == LATEST:
                storage.load_latest(job_name)  # raises an error that there is none
            return None
        uri = storage.uri_of(metadata.job_id, metadata.checkpoint_id)
        return RestorePoint(metadata, uri, is_latest=metadata is read[0])
    named = RestorePoint(*load_checkpoint(path))
    source.choose([named.metadata])
    return named


def _noted(
    retained: Iterable[CheckpointMetadata], read: list[CheckpointMetadata]
) -> Iterator[CheckpointMetadata]:
    """Yield checkpoints, and put those that were asked for into a list."""
    for metadata in retained:
        read.append(metadata)
        yield metadata


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


def _streaming_source(plan: JobPlan) -> StreamingSource | None:
    """Return the source that reads a streaming query, if there is one: it has no other beside it."""
    sources = (node.source for node in plan.sources)
    return next((source for source in sources if isinstance(source, StreamingSource)), None)
