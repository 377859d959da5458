"""The settings for the jobs of an environment, in one object."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

import attrs

from pyflinkstate.api.checks import positive
from pyflinkstate.api.configuration import Configuration, as_text
from pyflinkstate.api.state_backend import EmbeddedRocksDBStateBackend, StateBackend
from pyflinkstate.api.values import Setting
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.keys import UPPER_BOUND_MAX_PARALLELISM, check_max_parallelism, check_parallelism
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.master import JobListener, WebPageSettings
from pyflinkstate.runtime.plan import Node, SourceNode, upstream_of
from pyflinkstate.runtime.settings import CheckpointConfig, FallbackRestart, RestartStrategy
from pyflinkstate.runtime.storage import AnyPath, absolute, path_text
from pyflinkstate.runtime.wire import HeartbeatSettings

_log = logging.getLogger("pyflinkstate.configuration")


class RuntimeExecutionMode(enum.Enum):
    """Whether results are emitted whenever they change, or once at the end of the input."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2


class CodeShipper(Protocol):
    """Ships what a program brings along to where its functions run."""

    def add_file(self, path: AnyPath) -> None:
        """Ship a module, a zip of modules, or a folder that holds them."""
        ...

    def add_archive(self, path: AnyPath, target_dir: str | None) -> None:
        """Ship an archive, which is unpacked in the working directory of functions."""
        ...

    def add_requirements(self, file_path: AnyPath, cache_dir: AnyPath | None) -> None:
        """Install packages with pip, and ship them."""
        ...


@attrs.define
class IdleValues:
    """Settings of the execution that are kept but have no effect here, with Flink's defaults."""

    auto_watermark_interval_ms: int = 200
    latency_tracking_interval_ms: int = 0
    object_reuse: bool = False
    closure_cleaner: bool = True
    cancellation_interval_ms: int = 30_000
    cancellation_timeout_ms: int = 180_000


@attrs.define(eq=False)
class EnvironmentSettings:
    """The settings that an environment and its ``ExecutionConfig`` share.

    A setting that must be checked against others is set by a method.

    Attributes:
        spark_parallelism: returns Spark's default parallelism; called only when it is needed.
        parallelism: the number of subtasks of each keyed operator; None for the default.
        default_parallelism: the default parallelism; None for Spark's.
        max_parallelism: the number of key groups; None for Flink's rule.
        restore_path: what the next job starts from; None for nothing.
        slot_memory_bytes: how many bytes a state slot may have; None for what the host has.
        progress: whether a line of progress is shown; None for: on a terminal.
        web_page: how the web page is served; None for no page.
        journal: whether what jobs tell is kept beside their checkpoints; None for: if there is a page.
        configuration: all that ``configure`` was given, known or not.
        job_parameters: what functions are given by name.
        snapshot_compression: whether state files are compressed; None for what the state backend says.
        has_auto_generated_uids: an operator with state may do without ``uid()``.
        code_shipper: ships Python code; None where nothing runs in other processes.
        epochs_ahead: how many epochs may be read and shuffled before their turn, 0 or 1.
        is_encrypted: whether connections between processes are encrypted; None for: if Spark's are.
        idle: settings of the execution config without effect.
        buffer_timeout_ms: kept, without effect, as is ``is_chaining_enabled``.
    """

    spark_parallelism: Callable[[], int]
    parallelism: int | None = None
    default_parallelism: int | None = None
    max_parallelism: int | None = None
    mode: RuntimeExecutionMode = RuntimeExecutionMode.STREAMING
    checkpoints: CheckpointConfig = attrs.field(factory=CheckpointConfig)
    state_backend: HashMapStateBackend = attrs.field(factory=HashMapStateBackend)
    restart: RestartStrategy | None = None
    restore_path: str | None = None
    allows_non_restored_state: bool = False
    savepoint_directory: str | None = None
    heartbeat: HeartbeatSettings = attrs.field(factory=HeartbeatSettings)
    slot_memory_bytes: int | None = None
    progress: bool | None = None
    web_page: WebPageSettings | None = None
    journal: bool | None = None
    listeners: list[JobListener] = attrs.field(factory=list)
    default_job_name: str | None = None
    configuration: Configuration = attrs.field(factory=Configuration)
    job_parameters: dict[str, str] = attrs.field(factory=dict)
    snapshot_compression: bool | None = None
    has_auto_generated_uids: bool = True
    code_shipper: CodeShipper | None = None
    epochs_ahead: int = 1
    is_encrypted: bool | None = None
    idle: IdleValues = attrs.field(factory=IdleValues)
    buffer_timeout_ms: int = 100
    is_chaining_enabled: bool = True
    _was_warned_of_rocksdb: bool = attrs.field(default=False, init=False)

    @property
    def keeps_journal(self) -> bool:
        """Whether what jobs tell is kept; asked for each job, as it may be chosen after the page is there."""
        return self.web_page is not None if self.journal is None else self.journal

    def set_parallelism(self, parallelism: int) -> None:
        """Set the parallelism; it must be at least 1, and no more than the max parallelism."""
        check_parallelism(parallelism, self.max_parallelism or UPPER_BOUND_MAX_PARALLELISM)
        self.parallelism = parallelism

    def get_parallelism(self) -> int:
        """Return the parallelism that was set, or the default one."""
        return self.parallelism or self.get_default_parallelism()

    def set_default_parallelism(self, parallelism: int) -> None:
        """Set the default parallelism."""
        check_parallelism(parallelism, UPPER_BOUND_MAX_PARALLELISM)
        self.default_parallelism = parallelism

    def get_default_parallelism(self) -> int:
        """Return the default parallelism."""
        return self.default_parallelism or self.spark_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> None:
        """Set the number of key groups, 1 to 32768."""
        check_max_parallelism(max_parallelism)
        self.max_parallelism = max_parallelism

    def set_mode(self, mode: RuntimeExecutionMode) -> None:
        """Set when ``reduce``, ``sum`` and the like emit results."""
        if not isinstance(mode, RuntimeExecutionMode):
            raise ConfigurationError(f"a RuntimeExecutionMode is needed, not {mode!r}")
        self.mode = mode

    def set_state_backend(self, state_backend: StateBackend) -> None:
        """Set the state backend. RocksDB is replaced by the heap backend, with a warning."""
        if isinstance(state_backend, EmbeddedRocksDBStateBackend):
            self.warn_of_rocksdb()
            if state_backend.incremental is not None:
                self.checkpoints.enable_incremental_checkpoints(state_backend.incremental)
            state_backend = HashMapStateBackend()
        if not isinstance(state_backend, HashMapStateBackend):
            raise ConfigurationError(f"a HashMapStateBackend is needed, not {state_backend!r}")
        self.state_backend = state_backend

    def set_restart_strategy(self, strategy: RestartStrategy) -> None:
        """Set what happens after a failure."""
        if not isinstance(strategy, RestartStrategy):
            raise ConfigurationError(
                f"a strategy is needed, such as RestartStrategies.fixed_delay_restart(3, 1000), "
                f"not {strategy!r}"
            )
        self.restart = None if isinstance(strategy, FallbackRestart) else strategy

    def warn_of_rocksdb(self) -> None:
        """Say once that state is kept in memory, where RocksDB was asked for."""
        if not self._was_warned_of_rocksdb:
            self._was_warned_of_rocksdb = True
            _log.warning(
                "there is no RocksDB here: state is kept in memory, as HashMapStateBackend does, and "
                "must fit there; set_slot_memory_limit() bounds it"
            )

    def chosen_state_backend(self) -> HashMapStateBackend:
        """Return the state backend, with the compression that the execution config asks for."""
        if self.snapshot_compression is None:
            return self.state_backend
        compression = (
            (self.state_backend.snapshot_compression or "zstd") if self.snapshot_compression else None
        )
        return attrs.evolve(self.state_backend, snapshot_compression=compression)

    def set_job_parameters(self, parameters: Mapping[str, Setting]) -> None:
        """Set what functions are given by name, as texts."""
        if not isinstance(parameters, Mapping) or not all(isinstance(key, str) for key in parameters):
            raise ConfigurationError(
                f"global job parameters are a dict with texts as keys, not {parameters!r}"
            )
        self.job_parameters = {
            key: value if isinstance(value, str) else as_text(value) for key, value in parameters.items()
        }

    def required_code_shipper(self) -> CodeShipper:
        """Return what ships Python code."""
        if self.code_shipper is None:
            raise ConfigurationError("functions run in this process, so there is nowhere to ship code to")
        return self.code_shipper

    def set_savepoint_directory(self, directory: AnyPath) -> None:
        """Set the directory for savepoints that are triggered without one."""
        self.savepoint_directory = absolute(directory)

    def set_epochs_ahead(self, number: int) -> None:
        """Set how many epochs may be read and shuffled while another one runs."""
        if number not in (0, 1):
            raise ConfigurationError(f"0 or 1 epochs can be read ahead, not {number!r}")
        self.epochs_ahead = number

    def set_restore_path(self, path: AnyPath | None, allows_non_restored_state: bool = False) -> None:
        """Set the checkpoint or savepoint from which the next job starts; None for the beginning."""
        self.restore_path = None if path is None else path_text(path)
        self.allows_non_restored_state = allows_non_restored_state

    def set_slot_memory_limit(self, limit_bytes: int | None) -> None:
        """Set how many bytes of memory a state slot may use."""
        self.slot_memory_bytes = (
            None if limit_bytes is None else positive("the memory limit of a slot", limit_bytes)
        )

    def runs_in_batch(self, node: Node) -> bool:
        """Return whether a reader of ``node`` emits its results at the end of the input."""
        if self.mode is not RuntimeExecutionMode.AUTOMATIC:
            return self.mode is RuntimeExecutionMode.BATCH
        return all(one.source.is_bounded for one in upstream_of(node) if isinstance(one, SourceNode))
