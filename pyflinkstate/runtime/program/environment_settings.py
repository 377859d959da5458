"""What PyFlink's environments have beside: modes, a ``Configuration``, switches that change nothing here."""

from __future__ import annotations

from typing import Any, TypeVar

from pyflinkstate.api.configuration import Configuration
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.plan import Node, SourceNode, upstream_of
from pyflinkstate.runtime.program.environment_options import apply_configuration
from pyflinkstate.runtime.program.execution_config import ExecutionConfig, RuntimeExecutionMode
from pyflinkstate.runtime.settings import CheckpointConfig, CheckpointingMode
from pyflinkstate.runtime.wire import HeartbeatSettings

E = TypeVar("E", bound="EnvironmentSettings")


class EnvironmentSettings:
    """The settings of an environment that need no Spark."""

    def __init__(self) -> None:
        self._checkpoints = CheckpointConfig()
        self._mode = RuntimeExecutionMode.STREAMING
        self._configuration = Configuration()
        self._buffer_timeout_ms = 100
        self._is_chaining_enabled = True
        self._heartbeat = HeartbeatSettings()
        self._default_job_name: str | None = None

    def get_config(self: E) -> ExecutionConfig:
        """Return how jobs are to run; what is set there is set here."""
        env: Any = self
        if not hasattr(self, "_execution_config"):
            self._execution_config = ExecutionConfig(env)
        return self._execution_config

    def configure(self: E, configuration: Configuration) -> E:
        """Take the settings that are known here under Flink's keys; the others are kept.

        Known are ``parallelism.default``, ``pipeline.*``, ``execution.runtime-mode``,
        ``execution.checkpointing.*``, ``execution.state-recovery.path``, ``state.*``, ``heartbeat.*`` and
        ``restart-strategy.*``.

        Raises:
            ConfigurationError: one of them has a value that makes no sense, or asks for what is not there.
        """
        if not isinstance(configuration, Configuration):
            raise ConfigurationError(f"configure() takes a Configuration, not {configuration!r}")
        self._configuration.add_all(configuration)
        env: Any = self
        apply_configuration(env, configuration)
        return self

    def set_default_job_name(self: E, job_name: str) -> E:
        """Name jobs that ``execute()`` gives no name (``pipeline.name``)."""
        self._default_job_name = job_name
        return self

    def set_heartbeat(self: E, interval_ms: int = 10_000, timeout_ms: int = 50_000) -> E:
        """Choose how often driver and slots give each other a sign of life, and how long they wait for one.

        Flink's ``heartbeat.interval`` and ``heartbeat.timeout``, with its defaults. A slot that was silent
        for the timeout is lost, and one that hears nothing from the driver ends its process. A function may
        keep the interpreter lock for the timeout less the interval.

        Raises:
            ConfigurationError: the interval is not more than 0, or longer than the timeout.
        """
        self._heartbeat = HeartbeatSettings(interval_ms, timeout_ms)
        return self

    # --- modes ---------------------------------------------------------------------------------------

    def set_runtime_mode(self: E, execution_mode: RuntimeExecutionMode) -> E:
        """Choose when ``reduce``, ``sum`` and the like give results: with each record, or at the end.

        ``AUTOMATIC`` is ``BATCH`` where all sources end by themselves. Set it before the streams are made.
        """
        if not isinstance(execution_mode, RuntimeExecutionMode):
            raise ConfigurationError(f"a RuntimeExecutionMode is needed, not {execution_mode!r}")
        self._mode = execution_mode
        return self

    def runs_in_batch(self, node: Node) -> bool:
        """Return whether what reads ``node`` gives its results when the input has ended."""
        if self._mode is not RuntimeExecutionMode.AUTOMATIC:
            return self._mode is RuntimeExecutionMode.BATCH
        return all(one.source.is_bounded for one in upstream_of(node) if isinstance(one, SourceNode))

    # --- checkpoints ---------------------------------------------------------------------------------

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Return the settings of checkpoints, to be changed in place."""
        return self._checkpoints

    def get_checkpoint_interval(self) -> int:
        """Return the time between two checkpoints in ms; -1 where none are taken."""
        return self._checkpoints.get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return ``EXACTLY_ONCE``, the only mode there is."""
        return self._checkpoints.get_checkpointing_mode()

    get_checkpointing_consistency_mode = get_checkpointing_mode

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return False: an epoch's end aligns barriers."""
        return False

    is_force_unaligned_checkpoints = is_unaligned_checkpoints_enabled

    # --- what changes nothing ------------------------------------------------------------------------

    def set_buffer_timeout(self: E, timeout_millis: int) -> E:
        """Accept it: records travel in frames, as many as there are."""
        self._buffer_timeout_ms = timeout_millis
        return self

    def get_buffer_timeout(self) -> int:
        """Return what was set, in ms."""
        return self._buffer_timeout_ms

    def disable_operator_chaining(self: E) -> E:
        """Accept it: the results are the same."""
        self._is_chaining_enabled = False
        return self

    def is_chaining_enabled(self) -> bool:
        """Return False after :meth:`disable_operator_chaining`."""
        return self._is_chaining_enabled

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Return True: what has no state is part of any chain."""
        return True

    def register_slot_sharing_group(self: E, slot_sharing_group: Any) -> E:
        """Accept it: Spark places its tasks."""
        return self

    def close(self) -> None:
        """Do nothing: the Spark session is the caller's, and a job gives up its slots when it ends."""
