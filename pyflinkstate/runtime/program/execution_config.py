"""The execution settings of a job (``pyflink.common.ExecutionConfig``)."""

from __future__ import annotations

from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.program.environment_settings import EnvironmentSettings


class ExecutionConfig:
    """The settings of an environment under PyFlink's names; changing them changes the environment.

    The switches of the JVM's serializers do not exist here. Object reuse, latency markers and the watermark
    interval are accepted without effect: watermarks advance after a number of records.
    """

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def __init__(self, settings: EnvironmentSettings) -> None:
        self._settings = settings
        self._auto_watermark_interval_ms = 200
        self._latency_tracking_interval_ms = 0
        self._object_reuse = False

    def get_parallelism(self) -> int:
        """Return the number of subtasks of each keyed operator."""
        return self._settings.get_parallelism()

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the number of subtasks of each keyed operator."""
        self._settings.set_parallelism(parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups that was set, or -1."""
        return self._settings.max_parallelism or self.PARALLELISM_DEFAULT

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the number of key groups."""
        self._settings.set_max_parallelism(max_parallelism)
        return self

    def get_auto_watermark_interval(self) -> int:
        """Return the value that was set, in ms."""
        return self._auto_watermark_interval_ms

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Accept an interval in ms, without effect."""
        self._auto_watermark_interval_ms = _not_negative("the interval of watermarks", interval)
        return self

    def get_latency_tracking_interval(self) -> int:
        """Return the value that was set, in ms."""
        return self._latency_tracking_interval_ms

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Accept an interval in ms, without effect."""
        self._latency_tracking_interval_ms = _not_negative("the interval of latency markers", interval)
        return self

    def enable_object_reuse(self) -> ExecutionConfig:
        """Accept it without effect: operators of one chain pass on the objects themselves anyway."""
        self._object_reuse = True
        return self

    def disable_object_reuse(self) -> ExecutionConfig:
        """Accept it without effect."""
        self._object_reuse = False
        return self

    def is_object_reuse_enabled(self) -> bool:
        """Return the value that was set."""
        return self._object_reuse


def _not_negative(what: str, interval: int) -> int:
    if type(interval) is not int or interval < 0:
        raise ConfigurationError(
            f"{what} must be a whole number of milliseconds, 0 or more, not {interval!r}"
        )
    return interval
