"""The execution settings of a job (``pyflink.common.ExecutionConfig``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from pyflinkstate.api.values import Setting
from pyflinkstate.runtime.program.environment_settings import EnvironmentSettings


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

    def _set(self, **values: Any) -> ExecutionConfig:
        self._settings.put(**values)
        return self

    def _keep(self, **values: Any) -> ExecutionConfig:
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

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Setting]) -> ExecutionConfig:
        """Give functions values by name, converted with ``str()``. They replace the values set before."""
        return self._set(job_parameters=global_job_parameters_dict)

    def is_use_snapshot_compression(self) -> bool:
        """Return what was set; False where nothing was, and the state backend says it (``zstd``)."""
        return bool(self._settings.snapshot_compression)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Have state files compressed, or not, whatever the state backend says."""
        return self._set(snapshot_compression=use_snapshot_compression)

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

    def get_latency_tracking_interval(self) -> int:
        """Return what was set, in ms."""
        return self._idle.latency_tracking_interval_ms

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Accept an interval in ms: there are no latency markers."""
        return self._keep(latency_tracking_interval_ms=interval)

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
