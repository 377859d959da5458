"""What is said of each checkpoint under the logger ``pyflinkstate.checkpoints``; see ``docs/logging.md``."""

from __future__ import annotations

import logging

from pyflinkstate.runtime.master.reports.checkpoint_stats import CheckpointStats
from pyflinkstate.runtime.settings import CheckpointSettings

_log = logging.getLogger("pyflinkstate.checkpoints")

#: What takes less is not slow, however short the interval is.
SLOW_MS = 1000


class CheckpointLog:
    """The log of one job's checkpoints.

    A checkpoint is slow if it took more than a second after its epoch had ended, and more than the interval
    or than half of its timeout. The first slow one in a row is a warning.
    """

    def __init__(self, job_name: str, settings: CheckpointSettings) -> None:
        self._job_name = job_name
        self._settings = settings
        self._is_slow = False

    def completed(self, stats: CheckpointStats, after_epoch_ms: int) -> None:
        """It exists, ``after_epoch_ms`` after its epoch had ended."""
        why = self._slowness(stats, after_epoch_ms)
        level = logging.WARNING if why and not self._is_slow else logging.INFO
        self._is_slow = bool(why)
        _log.log(
            level,
            "job %r: %s is complete after %d ms%s (synchronous part %.1f ms, asynchronous part %.0f ms, "
            "%d bytes written, %d to restore)",
            self._job_name,
            _name(stats),
            stats.duration_ms,
            f", {after_epoch_ms} ms of it after its epoch, which is {why}" if why else "",
            stats.sync_ms,
            stats.async_ms,
            stats.checkpointed_bytes,
            stats.size_bytes,
        )

    def failed(self, stats: CheckpointStats) -> None:
        """It could not be written."""
        _log.warning("job %r: %s has failed: %s", self._job_name, _name(stats), stats.failure)

    def given_up(self, stats: CheckpointStats) -> None:
        """It is not needed any more, or the attempt that it belongs to is over."""
        _log.info("job %r: %s was given up: %s", self._job_name, _name(stats), stats.failure)

    def _slowness(self, stats: CheckpointStats, after_epoch_ms: int) -> str:
        interval_ms, timeout_ms = self._settings.interval_ms, self._settings.timeout_ms
        if after_epoch_ms <= SLOW_MS:
            return ""
        if after_epoch_ms * 2 > timeout_ms:
            return f"more than half of its timeout of {timeout_ms} ms"
        if interval_ms and after_epoch_ms > interval_ms and not stats.is_savepoint:
            return f"more than the interval of {interval_ms} ms"
        return ""


def _name(stats: CheckpointStats) -> str:
    kind = "savepoint" if stats.is_savepoint else "checkpoint"
    return f"{kind} {stats.checkpoint_id} of epoch {stats.epoch}"
