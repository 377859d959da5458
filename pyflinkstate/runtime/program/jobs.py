"""The jobs of an environment: made of its streams, started, monitored, and turned into results."""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from pyflinkstate.api import MetricReporter, Record, SparkSchema, check_text
from pyflinkstate.backends.format import CheckpointMetadata
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.errors import ConfigurationError, UnsupportedFeatureError
from pyflinkstate.runtime.engine import EpochRunner
from pyflinkstate.runtime.master import (
    FlowSettings,
    Job,
    JobObserver,
    JobParts,
    JobSettings,
    MonitorOfProgram,
    ProgressLine,
    RestorePoint,
    WebPageSettings,
    load_monitor,
)
from pyflinkstate.runtime.pipelined import runner, vertices
from pyflinkstate.runtime.plan import CHECK, ChainNode, JobPlan, Node, SinkNode, make_plan
from pyflinkstate.runtime.program.environment_settings import Engine, EnvironmentSettings, told_settings
from pyflinkstate.runtime.program.job_client import FLINK, CloseableIterator, run_to_end
from pyflinkstate.runtime.settings import DefaultRestart, RestartStrategies
from pyflinkstate.runtime.sinks import DriverSink, ForeachEpoch, ForeachEpochSink, RddSink
from pyflinkstate.runtime.slots import ControlServer
from pyflinkstate.runtime.sources import CachedRecords, CachedSource, StreamingSource
from pyflinkstate.runtime.spark import (
    epoch_rdds,
    epoch_runner,
    row_columns,
    sessions,
    workers,
)
from pyflinkstate.runtime.storage import (
    CheckpointFolders,
    FileSystemCheckpointStorage,
    child_uri,
    is_flink_savepoint,
    load_checkpoint,
    temporary_folder,
)
from pyflinkstate.runtime.wire import SystemClock

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession


#: The word for the newest completed checkpoint in the checkpoint directory.
LATEST = "latest"

_log = logging.getLogger("pyflinkstate.configuration")


@attrs.define(eq=False)
class StartPoints:
    """Finds the storage of an environment's jobs, and the checkpoint that each starts from.

    Attributes:
        settings: the settings of the environment.
        is_local: whether Spark runs on this machine.
    """

    settings: EnvironmentSettings
    is_local: bool
    _temporary_storage: Path | None = None

    def storage(self) -> CheckpointFolders | None:
        """Return the directory of checkpoints, or None if there is none."""
        where = self.settings.checkpoints.checkpoint_directory()
        if not self.settings.checkpoints.is_checkpointing_enabled():
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
        if not self.is_local:
            raise ConfigurationError(
                "checkpoints need a directory that driver and executors can reach: pass it to "
                "enable_checkpointing() or get_checkpoint_config().set_checkpoint_storage()"
            )
        if self._temporary_storage is None:
            self._temporary_storage = temporary_folder(self, "pyflinkstate-")
        return FileSystemCheckpointStorage(str(self._temporary_storage))

    def restore_point(
        self, plan: JobPlan, storage: CheckpointFolders | None, job_name: str
    ) -> RestorePoint | None:
        """Return what a job starts from, or None if it starts from the beginning."""
        path = self.settings.restore_path
        streaming = streaming_source_of(plan)
        if storage is None:
            if path is not None or plan.source.source.commits_every_epoch:
                raise ConfigurationError(
                    "restore_from() and from_streaming() need enable_checkpointing(): "
                    "restored state is kept on"
                )
            return None
        if streaming is not None:
            return restore_streaming(streaming, storage, job_name, path)
        if path is None:
            return None
        if path == LATEST:
            found = storage.load_latest(job_name, self.settings.checkpoints.is_fall_back_enabled())
            return RestorePoint(*found, is_latest=True)
        if is_flink_savepoint(path):
            target = child_uri(storage.uri, f"from-flink-{uuid.uuid4().hex[:12]}")
            path = importlib.import_module(FLINK).convert_savepoint(
                path,
                target,
                program=plan,
                job_name=job_name,
                drop_unknown=self.settings.allows_non_restored_state,
            )
        return RestorePoint(*load_checkpoint(path))


def restore_streaming(
    source: StreamingSource, storage: CheckpointFolders, job_name: str, path: str | None
) -> RestorePoint | None:
    """Choose the checkpoint that fits the position of the query; check that a given savepoint fits.

    If it is the newest one, an older driver that still runs may complete another one before it is excluded.
    """
    if path is None or path == LATEST:
        read: list[RestorePoint] = []
        chosen = source.choose(_read(storage.load_retained(job_name), read))
        if chosen is None:
            if path == LATEST:
                storage.load_latest(job_name)  # raises an error that there is none
            return None
        return next(point for point in read if point.metadata is chosen)
    named = RestorePoint(*load_checkpoint(path))
    source.choose([named.metadata])
    return named


def _read(
    retained: Iterable[tuple[CheckpointMetadata, str]], read: list[RestorePoint]
) -> Iterator[CheckpointMetadata]:
    """Yield checkpoints, and note each in ``read``; the first one is the latest."""
    for metadata, uri in retained:
        read.append(RestorePoint(metadata, uri, is_latest=not read))
        yield metadata


def streaming_source_of(plan: JobPlan) -> StreamingSource | None:
    """Return the source that reads a streaming query, if there is one: it has no other beside it."""
    sources = (node.source for node in plan.sources)
    return next((source for source in sources if isinstance(source, StreamingSource)), None)


@attrs.define(eq=False)
class Monitoring:
    """Monitors the jobs of one environment: web page, journal and reporters."""

    settings: EnvironmentSettings
    _monitor: MonitorOfProgram | None = None
    #: How the page is served now.
    _served: WebPageSettings | None = None

    def add_reporter(self, reporter: MetricReporter, interval_ms: int) -> None:
        """Tell a reporter the metrics of all jobs at an interval."""
        if self._monitor is None:
            self._monitor = load_monitor()
        self._monitor.add_reporter(reporter, interval_ms)

    def serve_anew(self) -> None:
        """Serve the page by the present settings, even if they have not changed."""
        self._served = None
        self._started()

    def address(self) -> str | None:
        """Return the address of the page with its token, or None if there is no page."""
        monitor = self._started()
        return None if monitor is None else monitor.address

    def page(self) -> str | None:
        """Return the address of the page without its token, if it is served."""
        address = None if self._monitor is None else self._monitor.address
        return None if address is None else address.partition("?")[0]

    def observer(self, spark_page: str | None) -> JobObserver | None:
        """Return a listener for a new job, if there is a monitor."""
        monitor, directory = self._started(), self.settings.checkpoints.checkpoint_directory()
        if monitor is None:
            return None
        told = {**told_settings(self.settings), **({"spark.page": spark_page} if spark_page else {})}
        if directory is None or not self.settings.keeps_journal:
            return monitor.observe(None, told)
        return monitor.observe(directory.checkpoint_path, told)

    def attach(self, observer: JobObserver | None, job: Job) -> None:
        """Let the page steer the job of an observer."""
        if observer is not None and self._monitor is not None:
            self._monitor.attach(observer, job, self.settings.savepoint_directory)

    def close(self) -> None:
        """Close the page and the reporters."""
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = self._served = None

    def _started(self) -> MonitorOfProgram | None:
        """Return the monitor, which is loaded when it is needed for the first time."""
        page = self.settings.web_page
        if self._monitor is None and (page is not None or self.settings.keeps_journal):
            self._monitor = load_monitor()
        if self._monitor is not None and self._served is not page:  # it was chosen later
            self._monitor.serve(page)
            self._served = page
        return self._monitor


DEFAULT_JOB_NAME = "pyflinkstate job"


class Jobs:
    """Collects the sinks of an environment's streams, and makes and runs its jobs.

    Args:
        spark: the session.
        shipper: ships Python code to where functions run.
        settings: the settings of the environment.
    """

    def __init__(
        self, spark: SparkSession, shipper: workers.PythonFiles, settings: EnvironmentSettings
    ) -> None:
        self._spark = spark
        self._context = sessions.context_of(spark)
        self._python_files = shipper
        self._settings = settings
        self.monitoring = Monitoring(settings)
        self._start_points = StartPoints(settings, str(self._context.master).startswith("local"))
        self._sinks: list[SinkNode] = []
        self._ran_sinks = False
        #: The name of the newest job.
        self.name = DEFAULT_JOB_NAME
        self._assigners = 0
        self._caches: list[CachedSource] = []

    def close(self) -> None:
        """Release cached streams, and close the web page and the reporters of metrics."""
        for cache in self._caches:
            cache.invalidate()
        self.monitoring.close()

    # --- what streams need ---------------------------------------------------------------------------

    def next_assigner_number(self) -> int:
        """Return the number of a new assigner of watermarks; it is the same in each run of a program."""
        self._assigners += 1
        return self._assigners

    def add_sink_node(self, node: SinkNode) -> None:
        """Add a sink to the next job."""
        self._sinks.append(node)

    def job_of_sinks(self, job_name: str | None, *own: SinkNode) -> Job:
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
        """Run the job, with all sinks that wait for one, and iterate over the records of ``node``."""
        records: deque[Record] = deque()
        # It is the last sink, so a record appears when the others have committed its epoch.
        sink = DriverSink(lambda _, values: records.extend(values))
        return CloseableIterator(self.job_of_sinks(job_name, SinkNode(node, sink, "collect")), records)

    def foreach_epoch_sink(self, function: ForeachEpoch, schema: SparkSchema) -> ForeachEpochSink:
        """Return a sink that calls ``function`` with each epoch's records as a DataFrame."""
        call: Callable[..., None] = function
        takes_job_id = len(inspect.signature(call).parameters) > 2

        def write(frames: RDD[Any], epoch: int) -> None:
            rows = self._dataframe(self._values_of([frames]), schema)
            call(rows, epoch, *([sink.job_id] if takes_job_id else []))

        sink = ForeachEpochSink(write)
        return sink

    def run_to_rdd(self, node: Node, job_name: str | None) -> RDD[Any]:
        """Run a job up to ``node`` and return its records as an RDD; sinks that were added wait."""
        sink = RddSink()
        run_to_end(self._job([SinkNode(node, sink, "rdd")], job_name))
        return self._values_of(sink.committed)

    def _values_of(self, frames: list[RDD[Any]]) -> RDD[Any]:
        return epoch_rdds.values_of(self._context, frames, self._python_files)

    def run_to_dataframes(
        self, outputs: list[tuple[Node, SparkSchema]], job_name: str | None
    ) -> list[DataFrame]:
        """Run one job up to several nodes and return the records of each as a DataFrame; sinks wait."""
        of_batches = row_columns.can_make_dataframes()
        prepared = [
            self.rows_for_files(node, schema) if of_batches else (self.checked_rows(node, schema), None)
            for node, schema in outputs
        ]
        sinks = [
            RddSink(None if columns is None else row_columns.ArrowWriter(columns)) for _, columns in prepared
        ]
        nodes = [SinkNode(node, sink, "dataframe") for (node, _), sink in zip(prepared, sinks, strict=True)]
        run_to_end(self._job(nodes, job_name))
        frames: list[DataFrame] = []
        for (_, schema), (_, columns), sink in zip(outputs, prepared, sinks, strict=True):
            if columns is None:
                frames.append(self._dataframe(self._values_of(sink.committed), schema))
            else:
                frames.append(row_columns.dataframe_of(self._spark, sink.committed, columns))
        return frames

    def rows_for_files(self, node: Node, schema: SparkSchema) -> tuple[Node, row_columns.RowColumns | None]:
        """Return the results of ``node``, and what makes Arrow batches of them.

        If a column cannot be sent as Arrow, that is None, and the results are checked as rows of ``schema``.
        """
        kind = row_columns.schema_of(schema)
        columns = None if kind is None else row_columns.RowColumns.of(kind, node.name)
        return (node if columns is not None else self.checked_rows(node, schema)), columns

    def checked_rows(self, node: Node, schema: SparkSchema, for_spark: bool = True) -> Node:
        """Return the results of ``node`` as rows that fit ``schema``: what does not fit fails the job.

        Args:
            node: what gives the records.
            schema: of the rows.
            for_spark: see ``RowCheck``.

        Raises:
            ConfigurationError: the schema is not valid.
        """
        wanted = row_columns.schema_of(schema)
        if wanted is None:
            return node
        return ChainNode(node, CHECK, row_columns.RowCheck(wanted, for_spark), node.name)

    def _dataframe(self, rows: RDD[Any], schema: Any) -> DataFrame:
        """Return rows that :meth:`checked_rows` has let pass as a DataFrame."""
        return self._spark.createDataFrame(rows, schema, verifySchema=row_columns.schema_of(schema) is None)

    def cached_source(self, node: Node) -> CachedSource:
        """Return a source of what leads to ``node``, computed when a job first reads it."""
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

        return CachedRecords(epoch_rdds.rdd_source(self._values_of(kept), None, is_fresh=True), release)

    def preview(self, job_name: str | None = None) -> tuple[JobPlan, str]:
        """Return the plan and the name of the job that :meth:`execute` would run; nothing is started.

        Raises:
            ConfigurationError, ParallelismError: the program cannot be executed.
        """
        plan = make_plan(self._sinks, self._settings.get_parallelism(), self._settings.max_parallelism)
        self._check_uids(plan)
        return plan, self._name_of(job_name)

    def _name_of(self, job_name: str | None) -> str:
        if job_name is not None:
            check_text("the name of a job", job_name, may_be_empty=True)
        return job_name or self._settings.default_job_name or DEFAULT_JOB_NAME

    def _job(self, sinks: list[SinkNode], job_name: str | None) -> Job:
        """Make a job. It uses up what to restore from, unless it cannot be made."""
        name = self._name_of(job_name)
        plan = make_plan(sinks, self._settings.get_parallelism(), self._settings.max_parallelism)
        state_backend = self._settings.chosen_state_backend()
        self._check_uids(plan)
        for node in plan.sources:
            if isinstance(node.source, CachedSource):
                node.source.fill()
        self.name = name
        streaming = streaming_source_of(plan)
        if streaming is not None and self._settings.checkpoints.checkpoint_directory() is not None:
            streaming.locate()
        storage = self._start_points.storage()
        endpoint, heartbeat = sessions.driver_endpoint(self._context), self._settings.heartbeat
        restore = self._start_points.restore_point(plan, storage, name)
        observer = self.monitoring.observer(self._context.uiWebUrl)
        parts = JobParts(
            plan,
            self._job_settings(name, state_backend, storage is not None, observer),
            self._runner(plan, storage is not None),
            lambda secret, events, deployment_of: ControlServer(
                endpoint, secret, events, deployment_of, heartbeat
            ),
            SystemClock(),
            storage,
            restore,
        )
        job = Job(parts)
        self.monitoring.attach(observer, job)
        self._settings.restore_path = None
        return job

    def _runner(self, plan: JobPlan, has_checkpoints: bool) -> EpochRunner:
        """Return the engine that runs a job."""
        stages = epoch_runner.SparkRunner(
            self._context, f"pyflinkstate {uuid.uuid4().hex}", self._python_files
        )
        engine, cores = self._settings.engine, self._context.defaultParallelism
        if engine is Engine.STAGES:
            return stages
        reason = vertices.why_in_stages(plan)
        if sessions.kills_idle_workers(self._context.getConf()):
            reason = "spark.python.worker.killOnIdleTimeout is on, so Spark would end the tasks that stay"
        if engine is Engine.AUTOMATIC:
            goes_on = has_checkpoints or not all(node.source.is_bounded for node in plan.sources)
            cores -= 1  # for whatever else the session runs
            if reason is not None or not goes_on or not cores:
                return stages
        if reason is not None:
            raise UnsupportedFeatureError(f"pyflinkstate.engine is PIPELINED, and {reason}: choose STAGES")
        tasks = min(self._settings.get_parallelism(), cores)
        endpoint = sessions.driver_endpoint(self._context)
        return runner.PipelinedRunner(stages, endpoint, tasks, self._settings.heartbeat)

    def _job_settings(
        self,
        name: str,
        state_backend: HashMapStateBackend,
        has_checkpoints: bool,
        observer: JobObserver | None,
    ) -> JobSettings:
        default = (
            DefaultRestart(attempts=3, delay_ms=1000) if has_checkpoints else RestartStrategies.no_restart()
        )
        encrypts = self._settings.is_encrypted
        listeners = [*self._settings.listeners, *filter(None, [observer])]
        if self._settings.progress or (self._settings.progress is None and sys.stderr.isatty()):
            listeners.append(ProgressLine(sys.stderr, SystemClock()))
        return JobSettings(
            name=name,
            checkpoints=self._settings.checkpoints.settings,
            restart=self._settings.restart or default,
            listeners=tuple(listeners),
            state_backend=state_backend,
            own_state_backends=self._settings.own_state_backends(),
            retention=self._settings.checkpoints.get_externalized_checkpoint_retention(),
            allow_non_restored_state=self._settings.allows_non_restored_state,
            fall_back=self._settings.checkpoints.is_fall_back_enabled(),
            slot_memory_bytes=self._settings.slot_memory_bytes,
            job_parameters=dict(self._settings.job_parameters),
            flow=FlowSettings(
                self._settings.epochs_ahead,
                self._settings.buffer_timeout_ms,
                self._settings.latency_tracking_interval_ms,
            ),
            is_encrypted=sessions.is_encrypted(self._context.getConf()) if encrypts is None else encrypts,
            page=self.monitoring.page(),
            stopping=self._settings.stopping(),
        )

    def _check_uids(self, plan: JobPlan) -> None:
        missing = [operator.name for operator in plan.operators if operator.node.uid is None]
        if missing and not self._settings.has_auto_generated_uids:
            raise ConfigurationError(
                f"operator {missing[0]!r} has state and no uid(), and disable_auto_generated_uids() asks for "
                f"one: call uid() on it",
                operator=missing[0],
            )
        uids = {operator.operator_id for operator in plan.operators}
        unknown = sorted(self._settings.state_backend_overrides.keys() - uids)
        if unknown:
            raise ConfigurationError(
                f"'pyflinkstate.state-backend-overrides' names {unknown[0]!r}, and no operator "
                f"with keyed state has this uid: they have {', '.join(map(repr, sorted(uids))) or 'none'}"
            )
