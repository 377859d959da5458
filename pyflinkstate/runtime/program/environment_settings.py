"""The settings for the jobs of an environment, and how a ``Configuration`` and ``ExecutionConfig`` set them.

A ``Configuration`` is applied by the table of settings, which has the rows of all fields, and options that
are not fields. An option without effect is logged, as it is probably misspelled.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

import attrs

from pyflinkstate.api import (
    Configuration,
    EmbeddedRocksDBStateBackend,
    Setting as Value,
    StateBackend,
    as_text,
    check_kind,
    positive,
)
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.keys import UPPER_BOUND_MAX_PARALLELISM, check_max_parallelism, check_parallelism
from pyflinkstate.backends.rocksdb import DEFAULT_MEMORY_BYTES, RocksDBStateBackend
from pyflinkstate.errors import ConfigurationError, UnsupportedFeatureError
from pyflinkstate.runtime.master import LOOPBACK, JobListener, WebPageSettings
from pyflinkstate.runtime.plan import Node, SourceNode, upstream_of
from pyflinkstate.runtime.settings import (
    RESTART_PARTS,
    CheckpointConfig,
    CheckpointSettings,
    FallbackRestart,
    IdleCheckpointSettings,
    IdleExecutionSettings,
    IdleStreamSettings,
    Milliseconds,
    OnSigterm,
    Reader,
    RestartStrategy,
    Setting,
    SettingsGroup,
    StopSettings,
    a_switch,
    a_value_of,
    check_set,
    choice_of,
    read_restart_strategy,
    rows_of,
    why_without_effect,
)
from pyflinkstate.runtime.storage import absolute, path_text
from pyflinkstate.runtime.wire import HeartbeatSettings

if TYPE_CHECKING:
    from pyflinkstate.runtime.spark import workers


_log = logging.getLogger("pyflinkstate.configuration")


class RuntimeExecutionMode(enum.Enum):
    """Whether results are emitted whenever they change, or once at the end of the input."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2


class Engine(enum.Enum):
    """How epochs are run: as stages of Spark jobs, or by tasks that stay for as long as an attempt.

    ``AUTOMATIC`` has tasks stay in jobs that never end or take checkpoints, if they can be run so and Spark
    has a core for other jobs beside them.
    """

    STAGES = 0
    PIPELINED = 1
    AUTOMATIC = 2


# --- what is accepted, and how it is read ----------------------------------------------------------------


def _parallelism(settings: EnvironmentSettings, parallelism: int) -> int:
    return check_parallelism(parallelism, settings.max_parallelism or UPPER_BOUND_MAX_PARALLELISM)


def _state_backend(settings: EnvironmentSettings, state_backend: StateBackend) -> StateBackend:
    if isinstance(state_backend, EmbeddedRocksDBStateBackend):
        if state_backend.incremental is not None:
            settings.checkpoints.enable_incremental_checkpoints(state_backend.incremental)
        state_backend = RocksDBStateBackend.of(state_backend)
    check_kind(
        "a HashMapStateBackend or an EmbeddedRocksDBStateBackend is needed",
        state_backend,
        HashMapStateBackend,
    )
    return state_backend


_OVERRIDES = "pyflinkstate.state-backend-overrides"


def _overrides(_: object, kinds: Mapping[str, str]) -> dict[str, str]:
    for uid, kind in kinds.items():
        if kind not in ("hashmap", "rocksdb"):
            raise ConfigurationError(f"{_OVERRIDES!r} has {kind!r} for {uid!r}: choose hashmap or rocksdb")
    return dict(kinds)


def _of_kind(backend: HashMapStateBackend, kind: str) -> HashMapStateBackend:
    """Return a backend if it is of a kind, otherwise a new one."""
    if isinstance(backend, RocksDBStateBackend) == (kind == "rocksdb"):
        return backend
    chosen = EmbeddedRocksDBStateBackend()
    return RocksDBStateBackend.of(chosen) if kind == "rocksdb" else HashMapStateBackend()


def _restart_strategy(_: object, strategy: RestartStrategy) -> RestartStrategy | None:
    check_kind(
        "a strategy is needed, such as RestartStrategies.fixed_delay_restart(3, 1000)",
        strategy,
        RestartStrategy,
    )
    return None if isinstance(strategy, FallbackRestart) else strategy


def _job_parameters(_: object, parameters: Mapping[str, Value]) -> dict[str, str]:
    if not isinstance(parameters, Mapping) or not all(isinstance(key, str) for key in parameters):
        raise ConfigurationError(f"global job parameters are a dict with texts as keys, not {parameters!r}")
    return {key: value if isinstance(value, str) else as_text(value) for key, value in parameters.items()}


def _epochs_ahead(_: object, number: int) -> int:
    if number not in (0, 1):
        raise ConfigurationError(f"0 or 1 epochs can be read ahead, not {number!r}")
    return number


_TOKEN_FILE, _HEALTH = "pyflinkstate.rest.token-file", "pyflinkstate.rest.health-timeout"


def _read_web_page(reader: Reader) -> WebPageSettings:
    """Read all settings of the page together; a port, which may be a range, switches it on."""
    ports = reader.text() or reader.text("rest.port")
    page = WebPageSettings(
        _ports(reader.key, ports),
        reader.text("rest.bind-address", LOOPBACK),
        reader.text("rest.address") or None,
        has_actions=reader.switch("web.cancel.enable", True),
        token_file=reader.text(_TOKEN_FILE) or None,
    )
    if not reader.text(_HEALTH):
        return page
    return attrs.evolve(page, health_timeout_ms=reader.milliseconds(_HEALTH))


def _ports(key: str, text: str) -> tuple[int, ...] | range:
    """Read a port, several of them, or a range as Flink writes it: ``50100-50200``."""
    first, dash, last = text.strip().partition("-")
    parts = [first, last] if dash else text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise ConfigurationError(
            f"setting {key!r} is {text!r}: a port is needed, such as 8081 or 50100-50200"
        )
    numbers = tuple(int(part) for part in parts)
    return range(numbers[0], numbers[1] + 1) if dash else numbers


# --- the settings ----------------------------------------------------------------------------------------


@attrs.define(eq=False, on_setattr=check_set)
class EnvironmentSettings(SettingsGroup):
    """The settings that an environment and its ``ExecutionConfig`` share.

    A value that is assigned is checked as its row says.

    Attributes:
        spark_parallelism: returns Spark's default parallelism; called only when it is needed.
        restore_path: what the next job starts from; None for nothing.
        configuration: all that ``configure`` was given, known or not.
        code_shipper: ships Python code; None where nothing runs in other processes.
    """

    spark_parallelism: Callable[[], int]
    max_parallelism: int | None = Setting(
        key="pipeline.max-parallelism",
        read=Reader.number,
        setter="set_max_parallelism",
        shown="Flink's rule: 128 for a parallelism of up to 85",
        meaning="the number of key groups: the upper bound of any later parallelism",
        takes=lambda _, most: check_max_parallelism(most),
    ).field()
    parallelism: int | None = Setting(
        key="parallelism.default",
        read=Reader.number,
        setter="set_parallelism",
        shown="Spark's default parallelism",
        meaning="the number of subtasks of each keyed operator",
        takes=_parallelism,
    ).field()
    default_parallelism: int | None = Setting(
        setter="set_default_local_parallelism",
        shown="Spark's default parallelism",
        meaning="the parallelism if none is set",
        takes=lambda _, parallelism: check_parallelism(parallelism),
    ).field()
    mode: RuntimeExecutionMode = Setting(
        key="execution.runtime-mode",
        read=choice_of(RuntimeExecutionMode),
        default=RuntimeExecutionMode.STREAMING,
        setter="set_runtime_mode",
        meaning="whether `reduce`, `sum` and the like emit results with each record, or at the end",
        takes=a_value_of(RuntimeExecutionMode),
    ).field()
    checkpoints: CheckpointConfig = attrs.field(factory=CheckpointConfig)
    state_backend: HashMapStateBackend = Setting(
        setter="set_state_backend",
        default=attrs.Factory(HashMapStateBackend),
        shown="`HashMapStateBackend()`",
        meaning="how state is kept and snapshotted",
        takes=_state_backend,
    ).field()
    state_backend_overrides: dict[str, str] = Setting(
        key=_OVERRIDES,
        read=Reader.entries,
        default=attrs.Factory(dict),
        shown="none",
        meaning="the backends of single operators by uid, such as `sums:rocksdb,names:hashmap`",
        takes=_overrides,
    ).field()
    rocksdb_directories: tuple[str, ...] = Setting(
        key="state.backend.rocksdb.localdir",
        read=lambda reader: tuple(reader.items()),
        default=(),
        shown="the temporary directory",
        meaning="local directories, separated by commas, for the state that is not in memory",
    ).field()
    rocksdb_memory_bytes: int | None = Setting(
        key="state.backend.rocksdb.memory.fixed-per-slot",
        read=lambda reader: reader.size_bytes(reader.key, 0),
        shown="256 MiB",
        meaning="how much memory RocksDB and the state in memory take in a slot",
        takes=lambda _, size: None if size is None else positive("the memory for state", size),
    ).field()
    manages_rocksdb_memory: bool = Setting(
        key="state.backend.rocksdb.memory.managed",
        read=Reader.switch,
        default=True,
        meaning="whether that is half of what a slot may use, if it has a limit and the size is not set",
    ).field()
    has_timers_on_disk: bool = Setting(
        key="state.backend.rocksdb.timer-service.factory",
        read=lambda reader: reader.one_of({"rocksdb": True, "heap": False}),
        default=True,
        shown="`ROCKSDB`",
        meaning="where timers are: `ROCKSDB`: on disk, except the next ones; `HEAP`: in memory",
    ).field()
    restart: RestartStrategy | None = Setting(
        key="restart-strategy.type",
        older=("restart-strategy",),
        read=read_restart_strategy,
        setter="set_restart_strategy",
        shown="3 restarts with checkpoints, none without",
        meaning="what happens after a failure",
        takes=_restart_strategy,
        parts=RESTART_PARTS,
    ).field()
    restore_path: str | None = Setting(
        takes=lambda _, path: None if path is None else path_text(path)
    ).field()
    allows_non_restored_state: bool = False
    savepoint_directory: str | None = Setting(
        key="execution.checkpointing.savepoint-dir",
        older=("state.savepoints.dir",),
        setter="set_default_savepoint_directory",
        shown="none",
        meaning="where savepoints go that are triggered without a directory",
        takes=lambda _, directory: absolute(directory),
    ).field()
    heartbeat: HeartbeatSettings = attrs.field(factory=HeartbeatSettings)
    slot_memory_bytes: int | None = Setting(
        setter="set_slot_memory_limit",
        shown="what the host has",
        meaning="how many bytes of memory a state slot may use",
        takes=lambda _, limit: None if limit is None else positive("the memory limit of a slot", limit),
    ).field()
    progress: bool | None = Setting(
        setter="set_progress", shown="on a terminal", meaning="whether a line of progress is shown"
    ).field()
    web_page: WebPageSettings | None = Setting(
        key="rest.port",
        instead=("rest.bind-port",),
        read=_read_web_page,
        setter="enable_web_page",
        shown="no page",
        meaning="the port of the web page",
        parts=dict.fromkeys(("rest.address", "rest.bind-address", "web.cancel.enable", _TOKEN_FILE, _HEALTH)),
    ).field()
    journal: bool | None = Setting(
        setter="set_journal",
        shown="if there is a web page",
        meaning="whether what jobs tell is kept beside their checkpoints",
    ).field()
    listeners: list[JobListener] = attrs.field(factory=list)
    default_job_name: str | None = Setting(
        key="pipeline.name",
        setter="set_default_job_name",
        shown="`pyflinkstate job`",
        meaning="the name of jobs for which `execute()` gives none",
    ).field()
    configuration: Configuration = attrs.field(factory=Configuration)
    job_parameters: dict[str, str] = Setting(
        key="pipeline.global-job-parameters",
        read=Reader.entries,
        default=attrs.Factory(dict),
        setter="set_global_job_parameters",
        shown="none",
        meaning="what functions are given by name",
        takes=_job_parameters,
    ).field()
    snapshot_compression: bool | None = Setting(
        key="execution.checkpointing.snapshot-compression",
        read=Reader.switch,
        setter="set_use_snapshot_compression",
        shown="as the state backend says: `zstd`",
        meaning="whether state files are compressed",
        takes=a_switch,
    ).field()
    has_auto_generated_uids: bool = Setting(
        key="pipeline.auto-generate-uids",
        read=Reader.switch,
        default=True,
        setter="disable_auto_generated_uids",
        shown="on",
        meaning="whether an operator with state may do without `uid()`",
    ).field()
    code_shipper: workers.PythonFiles | None = None
    epochs_ahead: int = Setting(
        key="pyflinkstate.epochs-ahead",
        read=Reader.number,
        default=1,
        meaning="how many epochs are read and shuffled while another one runs: 0 or 1",
        takes=_epochs_ahead,
    ).field()
    engine: Engine = Setting(
        key="pyflinkstate.engine",
        read=choice_of(Engine),
        default=Engine.STAGES,
        meaning="how epochs are run: by Spark in `STAGES`, by tasks that stay (`PIPELINED`), or `AUTOMATIC`",
        takes=a_value_of(Engine),
    ).field()
    buffer_timeout_ms: int = Milliseconds(
        key="execution.buffer-timeout.interval",
        older=("execution.buffer-timeout",),
        default=5,
        setter="set_buffer_timeout",
        meaning="how long a record of a source that is read live may wait for more, in ms",
        named="the buffer timeout in milliseconds",
    ).field()
    latency_tracking_interval_ms: int = Milliseconds(
        key="metrics.latency.interval",
        default=0,
        setter="set_latency_tracking_interval",
        meaning="the interval of latency markers in ms, with the engine `PIPELINED`; 0 for none",
        named="the interval of latency markers in milliseconds",
    ).field()
    on_sigterm: OnSigterm = Setting(
        key="pyflinkstate.on-sigterm",
        read=choice_of(OnSigterm),
        default=OnSigterm.CHECKPOINT,
        meaning="how jobs end when the program gets `SIGTERM`: with a `SAVEPOINT`, at the next `CHECKPOINT`, "
        "or `AT_ONCE`",
        takes=a_value_of(OnSigterm),
    ).field()
    on_sigterm_timeout_ms: int = Milliseconds(
        key="pyflinkstate.on-sigterm.timeout",
        default=20_000,
        shown="20 s",
        meaning="how long that may take before jobs are cancelled",
        named="pyflinkstate.on-sigterm.timeout",
    ).field()
    is_encrypted: bool | None = Setting(
        key="security.ssl.internal.enabled",
        read=Reader.switch,
        shown="if Spark's are",
        meaning="whether connections between processes are encrypted",
    ).field()
    idle: IdleExecutionSettings = attrs.field(factory=IdleExecutionSettings)
    idle_streams: IdleStreamSettings = attrs.field(factory=IdleStreamSettings)

    @property
    def keeps_journal(self) -> bool:
        """Whether what jobs tell is kept; asked for each job, as it may be chosen after the page is there."""
        return self.web_page is not None if self.journal is None else self.journal

    def get_parallelism(self) -> int:
        """Return the parallelism that was set, or the default one."""
        return self.parallelism or self.get_default_parallelism()

    def get_default_parallelism(self) -> int:
        """Return the default parallelism."""
        return self.default_parallelism or self.spark_parallelism()

    def chosen_state_backend(self) -> HashMapStateBackend:
        """Return the state backend, with the compression, directories and memory that other settings say.

        Raises:
            ConfigurationError: it does not go together with incremental checkpoints.
        """
        return self._settled(self.state_backend)

    def own_state_backends(self) -> dict[str, HashMapStateBackend]:
        """Return the state backends of the operators that have one of their own, by uid, settled as well.

        Raises:
            ConfigurationError: as for :meth:`chosen_state_backend`, or rocksdict is not installed.
        """
        return {
            uid: self._settled(_of_kind(self.state_backend, kind))
            for uid, kind in self.state_backend_overrides.items()
        }

    def _settled(self, chosen: HashMapStateBackend) -> HashMapStateBackend:
        if self.checkpoints.is_incremental() and not chosen.async_snapshots:
            raise ConfigurationError(
                "incremental checkpoints need asynchronous snapshots: plain dicts do not track changes"
            )
        if isinstance(chosen, RocksDBStateBackend):
            chosen = attrs.evolve(
                chosen,
                directories=chosen.directories or self.rocksdb_directories,
                memory_bytes=self._rocksdb_memory_bytes(),
                has_timers_on_disk=self.has_timers_on_disk,
            )
        if self.snapshot_compression is None:
            return chosen
        compression = (chosen.snapshot_compression or "zstd") if self.snapshot_compression else None
        return attrs.evolve(chosen, snapshot_compression=compression)

    def _rocksdb_memory_bytes(self) -> int:
        if self.rocksdb_memory_bytes is not None:
            return self.rocksdb_memory_bytes
        if self.manages_rocksdb_memory and self.slot_memory_bytes is not None:
            return self.slot_memory_bytes // 2
        return DEFAULT_MEMORY_BYTES

    def stopping(self) -> StopSettings:
        """Return how jobs end when the program gets ``SIGTERM``.

        Raises:
            ConfigurationError: with a savepoint, for which there is no directory.
        """
        return StopSettings(self.on_sigterm, self.on_sigterm_timeout_ms, self.savepoint_directory)

    def required_code_shipper(self) -> workers.PythonFiles:
        """Return what ships Python code."""
        if self.code_shipper is None:
            raise ConfigurationError("functions run in this process, so there is nowhere to ship code to")
        return self.code_shipper

    def runs_in_batch(self, node: Node) -> bool:
        """Return whether a reader of ``node`` emits its results at the end of the input."""
        if self.mode is not RuntimeExecutionMode.AUTOMATIC:
            return self.mode is RuntimeExecutionMode.BATCH
        return all(one.source.is_bounded for one in upstream_of(node) if isinstance(one, SourceNode))


class ExecutionConfig:
    """The settings of an environment under PyFlink's names; changing them changes the environment.

    Switches of the JVM's serializers are not there. What changes nothing here says so; it is kept, given
    back, and logged once. Two configurations are equal where all that they give back is.
    """

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def __init__(self, settings: EnvironmentSettings) -> None:
        self._settings = settings
        self._idle = settings.idle

    def _set(self, **values: object) -> ExecutionConfig:
        self._settings.put(**values)
        return self

    def _keep(self, **values: object) -> ExecutionConfig:
        self._idle.keep(**values)
        return self

    def get_parallelism(self) -> int:
        """Return the number of subtasks of each keyed operator."""
        return self._settings.get_parallelism()

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the number of subtasks of each keyed operator."""
        return self._set(parallelism=parallelism)

    def get_max_parallelism(self) -> int:
        """Return the number of key groups that was set, or -1."""
        return self._settings.max_parallelism or self.PARALLELISM_DEFAULT

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the number of key groups."""
        return self._set(max_parallelism=max_parallelism)

    # --- what jobs are given -------------------------------------------------------------------------

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return what functions find under ``RuntimeContext.get_job_parameter``."""
        return dict(self._settings.job_parameters)

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Value]) -> ExecutionConfig:
        """Give functions values by name, converted with ``str()``. They replace the values set before."""
        return self._set(job_parameters=global_job_parameters_dict)

    def is_use_snapshot_compression(self) -> bool:
        """Return what was set, or False if the state backend decides (by default ``zstd``)."""
        return bool(self._settings.snapshot_compression)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Have state files compressed, or not, whatever the state backend says."""
        return self._set(snapshot_compression=use_snapshot_compression)

    def get_latency_tracking_interval(self) -> int:
        """Return the interval of latency markers in ms; 0, the default, for none."""
        return self._settings.latency_tracking_interval_ms

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Let sources send latency markers, whose latencies are metrics and are shown on the web page.

        It counts with the engine ``PIPELINED``.

        Args:
            interval: the time between two markers of a source in ms; 0 for none.

        Raises:
            ConfigurationError: it is not a whole number, or less than 0.
        """
        return self._set(latency_tracking_interval_ms=interval)

    def has_auto_generated_uids_enabled(self) -> bool:
        """Return whether an operator with state may do without ``uid()``; True by default."""
        return self._settings.has_auto_generated_uids

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Make ids of names and places where there is no ``uid()``."""
        return self._set(has_auto_generated_uids=True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Refuse a job in which an operator with state has no ``uid()``: ``ConfigurationError``."""
        return self._set(has_auto_generated_uids=False)

    # --- what changes nothing ------------------------------------------------------------------------

    def get_auto_watermark_interval(self) -> int:
        """Return what was set, in ms."""
        return self._idle.auto_watermark_interval_ms

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Accept an interval in ms: watermarks follow every frame of records."""
        return self._keep(auto_watermark_interval_ms=interval)

    def enable_object_reuse(self) -> ExecutionConfig:
        """Accept it: a result that can change is copied when it is emitted, whatever is set."""
        return self._keep(object_reuse=True)

    def disable_object_reuse(self) -> ExecutionConfig:
        """Accept it."""
        return self._keep(object_reuse=False)

    def is_object_reuse_enabled(self) -> bool:
        """Return what was set."""
        return self._idle.object_reuse

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Accept it: functions are pickled with what they use, and with nothing else."""
        return self._keep(closure_cleaner=True)

    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Accept it: see :meth:`enable_closure_cleaner`."""
        return self._keep(closure_cleaner=False)

    def is_closure_cleaner_enabled(self) -> bool:
        """Return what was set; True by default."""
        return self._idle.closure_cleaner

    def get_task_cancellation_interval(self) -> int:
        """Return what was set, in ms."""
        return self._idle.cancellation_interval_ms

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        """Accept an interval in ms: Spark ends its tasks, and a slot's process is ended as a whole."""
        return self._keep(cancellation_interval_ms=interval)

    def get_task_cancellation_timeout(self) -> int:
        """Return what was set, in ms."""
        return self._idle.cancellation_timeout_ms

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        """Accept a timeout in ms: see :meth:`set_task_cancellation_interval`."""
        return self._keep(cancellation_timeout_ms=timeout)

    # --- as a value ------------------------------------------------------------------------------------

    def _content(self) -> dict[str, object]:
        return {
            "parallelism": self.get_parallelism(),
            "max_parallelism": self.get_max_parallelism(),
            "global_job_parameters": dict(sorted(self.get_global_job_parameters().items())),
            "use_snapshot_compression": self.is_use_snapshot_compression(),
            "auto_generated_uids": self.has_auto_generated_uids_enabled(),
            **attrs.asdict(self._idle),
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self._content().items())
        return f"ExecutionConfig({settings})"

    __repr__ = __str__


#: Gives a setting to the settings of an environment.
_Apply: TypeAlias = Callable[[EnvironmentSettings, Reader], None]


#: Settings that are not shown: users may put secrets into parameters, and the page has its own table.
_NOT_TOLD = frozenset({"job_parameters", "web_page"})


def told_settings(settings: EnvironmentSettings) -> dict[str, str]:
    """Return the settings of jobs as strings by key, to be shown."""
    return {
        row.key: (row.shown or "not set").replace("`", "") if value is None else _told(value)
        for group in (settings.checkpoints.settings, settings)
        for name, row in rows_of(type(group)).items()
        if row.key and name not in _NOT_TOLD
        for value in [getattr(group, name)]
    }


def _told(value: Value) -> str:
    return value.name if isinstance(value, enum.Enum) else as_text(value)


@attrs.frozen
class Option:
    """A row of the table, and what a ``Configuration`` with its key does."""

    row: Setting
    apply: _Apply


#: Where the objects are whose fields are settings.
_OWNERS: tuple[tuple[type, str], ...] = (
    (EnvironmentSettings, ""),
    (CheckpointConfig, "checkpoints"),
    (CheckpointSettings, "checkpoints"),
    (IdleCheckpointSettings, "checkpoints.idle"),
    (IdleExecutionSettings, "idle"),
    (IdleStreamSettings, "idle_streams"),
)


def _put(path: str, name: str, row: Setting, settings: EnvironmentSettings, reader: Reader) -> None:
    owner = attrgetter(path)(settings) if path else settings
    owner.put(**{name: row.read(attrs.evolve(reader, now=getattr(owner, name, None)))})


# --- options that are not fields ------------------------------------------------------------------------


def _set_restore_path(settings: EnvironmentSettings, reader: Reader) -> None:
    """Take the path with its switch; a switch that comes later does not bring an older path back."""
    name, older = _IGNORE_UNCLAIMED_STATE
    if reader.is_given():
        settings.restore_path = reader.text()
    settings.allows_non_restored_state = reader.switch(name, reader.switch(older))


def _check_backend(settings: EnvironmentSettings, reader: Reader) -> None:
    if reader.word() not in ("rocksdb", "hashmap", "jobmanager", "filesystem"):
        raise UnsupportedFeatureError(
            f"setting {reader.key!r} is {reader.text()!r}: choose hashmap or rocksdb"
        )
    settings.state_backend = _of_kind(settings.state_backend, reader.word())


def _set_heartbeat(settings: EnvironmentSettings, reader: Reader) -> None:
    """Apply interval and timeout together, as they are checked together; the one not given stays."""
    times_ms = {"heartbeat.interval": settings.heartbeat.interval_ms}
    times_ms["heartbeat.timeout"] = settings.heartbeat.timeout_ms
    times_ms |= {key: reader.milliseconds(key) for key in times_ms if reader.is_given(key)}
    settings.heartbeat = HeartbeatSettings(*times_ms.values())


def _add_python_files(settings: EnvironmentSettings, reader: Reader) -> None:
    for path in reader.items():
        settings.required_code_shipper().add_file(path)


def _add_python_archives(settings: EnvironmentSettings, reader: Reader) -> None:
    for path, target in reader.paths():
        settings.required_code_shipper().add_archive(path, target)


def _add_python_requirements(settings: EnvironmentSettings, reader: Reader) -> None:
    """Take one file, after a ``#`` the folder with its packages."""
    path, _, cache = reader.text().strip().partition("#")
    settings.required_code_shipper().add_requirements(path, cache or None)


#: Whether state that no operator of the program claims is given up: the option, and its older name.
_IGNORE_UNCLAIMED_STATE = (
    "execution.state-recovery.ignore-unclaimed-state",
    "execution.savepoint.ignore-unclaimed-state",
)
_OTHERS = (
    Option(
        Setting(
            key="execution.state-recovery.path",
            older=("execution.savepoint.path",),
            setter="restore_from",
            shown="none",
            meaning="the checkpoint or savepoint that the next job starts from",
            parts=dict.fromkeys(_IGNORE_UNCLAIMED_STATE),
        ),
        _set_restore_path,
    ),
    Option(
        Setting(
            key="state.backend.type",
            older=("state.backend",),
            setter="set_state_backend",
            shown="`hashmap`",
            meaning="where state is: `hashmap`: in memory; `rocksdb`: on disk, except what is used",
        ),
        _check_backend,
    ),
    Option(
        Setting(
            key="heartbeat.interval",
            setter="set_heartbeat",
            shown="10 s",
            meaning="the time between two heartbeats of driver and slots",
        ),
        _set_heartbeat,
    ),
    Option(
        Setting(
            key="heartbeat.timeout",
            setter="set_heartbeat",
            shown="50 s",
            meaning="the silence after which a slot counts as lost",
        ),
        _set_heartbeat,
    ),
    Option(
        Setting(key="python.files", setter="add_python_file", shown="none", meaning="Python code to ship"),
        _add_python_files,
    ),
    Option(
        Setting(
            key="python.archives", setter="add_python_archive", shown="none", meaning="zip files to ship"
        ),
        _add_python_archives,
    ),
    Option(
        Setting(
            key="python.requirements",
            setter="set_python_requirements",
            shown="none",
            meaning="packages to install with pip, and to ship",
        ),
        _add_python_requirements,
    ),
)

_FIELDS = [
    Option(row, partial(_put, path, name, row)) for cls, path in _OWNERS for name, row in rows_of(cls).items()
]
#: All settings; those that no ``Configuration`` has come without a key.
TABLE = (*_FIELDS, *_OTHERS)
_OPTIONS = {option.row.key: option for option in TABLE if option.row.key}
_USED = {key for key, option in _OPTIONS.items() if not option.row.why_idle}
#: The option that an older name, or one that counts before its own, is about.
_OLDER = {name: key for key, option in _OPTIONS.items() for name in option.row.older}
_INSTEAD = {name: key for key, option in _OPTIONS.items() for name in option.row.instead}
#: Keys that are read with another one: that option, and the value that it must have (None: any).
_READ_WITH = {
    part: (key, needed) for key, option in _OPTIONS.items() for part, needed in option.row.parts.items()
}


def apply_configuration(settings: EnvironmentSettings, configuration: Configuration) -> None:
    """Apply the settings that an environment knows; settings without effect are kept and logged once.

    Raises:
        ConfigurationError: a setting that it knows has a value that makes no sense, or that is not there.
    """
    check_kind("configure() takes a Configuration", configuration, Configuration)
    before = Configuration(settings.configuration)
    settings.configuration.add_all(configuration)
    changed: set[str] = set()
    for key in sorted(configuration.key_set()):
        why, option = _why_without_effect(key, settings.configuration), _option_of(key)
        if option in _OPTIONS and (why is None or _OPTIONS[option].row.why_idle):
            changed.add(option)
        if why is not None and not _is_told(key, before, configuration):
            _log.warning("setting %r changes nothing: %s", key, why)
    # The max parallelism first: a parallelism must fit it.
    for option in sorted(changed, key=lambda option: (option != "pipeline.max-parallelism", option)):
        name = next(filter(settings.configuration.contains_key, _OPTIONS[option].row.names()))
        _apply(_OPTIONS[option].apply, settings, Reader(settings.configuration, name, configuration))


def _is_told(key: str, before: Configuration, given: Configuration) -> bool:
    """Return whether a setting was logged before: an earlier call had the same value."""
    return before.contains_key(key) and before.get_string(key, "") == given.get_string(key, "")


def _option_of(key: str) -> str:
    """Return the option that a key is about: the one with that name, or the one that reads it along."""
    if key in _READ_WITH:
        return _READ_WITH[key][0]
    return _OLDER.get(key) or _INSTEAD.get(key) or key


def _apply(apply: _Apply, settings: EnvironmentSettings, reader: Reader) -> None:
    """Take one setting; whatever is wrong with it, the error names it."""
    try:
        apply(settings, reader)
    except ConfigurationError as error:
        if error.message.startswith("setting "):
            raise
        message = f"setting {reader.key!r} is {reader.text()!r}: {error.message}"
        raise type(error)(message, **error.context) from None


def _why_without_effect(key: str, configuration: Configuration) -> str | None:
    """Return why a setting changes nothing, if it does not, and is not the program's own either."""
    newer = _OLDER.get(key)
    if newer is not None and configuration.contains_key(newer):
        return f"{newer!r} is set, of which it is an older name"
    if _option_of(key) not in _USED:
        idle = _OPTIONS.get(_option_of(key))
        if idle is not None:
            is_default = idle.row.read(Reader(configuration, key, configuration)) == idle.row.default
            return None if is_default else idle.row.why_idle
        return why_without_effect(key, [*_USED, *_OLDER, *_INSTEAD, *_READ_WITH])
    if key not in _READ_WITH:
        return None
    other, needed = _READ_WITH[key]
    names = filter(configuration.contains_key, _OPTIONS[other].row.names())
    found = [Reader(configuration, name, configuration).word() for name in names]
    if not found:
        return f"{other!r} is not set" + (f", to {needed!r}" if needed else "")
    is_other = needed is not None and found[0].replace("-", "") != needed.replace("-", "")
    return f"{other!r} is {found[0]!r}, not {needed!r}" if is_other else None
