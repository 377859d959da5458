"""What a job logs about itself and, under ``pyflinkstate.checkpoints``, about each of its checkpoints.

``docs/logging.md`` lists the messages.
"""

from __future__ import annotations

import logging

from pyflinkstate.errors import JobCancelledError, PyFlinkStateError
from pyflinkstate.runtime.master.deployment import RestorePoint
from pyflinkstate.runtime.master.observe import CheckpointStats
from pyflinkstate.runtime.operators import LATE_RECORDS_DROPPED
from pyflinkstate.runtime.settings import CheckpointSettings, JobStatus
from pyflinkstate.runtime.wire import Address, TaskReport

_log = logging.getLogger("pyflinkstate.job")

_LATE_SUFFIX = f".{LATE_RECORDS_DROPPED}"


class JobLog:
    """The log of one job.

    Args:
        name: of the job.
        job_id: the folder of its checkpoints.
    """

    def __init__(self, name: str, job_id: str) -> None:
        self._job = f"job {name!r} ({job_id})"
        #: By operator and slot: the late records that the slot has dropped.
        self._late: dict[str, dict[str, int]] = {}
        self._told_late: set[str] = set()

    def started(self, address: Address, restore: RestorePoint | None) -> None:
        """Its driver listens at ``address``."""
        begin = "from the beginning" if restore is None else f"from {restore.uri}"
        _log.info("%s starts %s; its driver listens at %s:%d", self._job, begin, address.host, address.port)

    def restarts(self, attempt: int, error: PyFlinkStateError, restore: RestorePoint | None) -> None:
        """Its attempt number ``attempt`` begins, because of ``error``."""
        begin = "from the beginning" if restore is None else f"from {restore.uri}"
        _log.warning("%s restarts %s, restart %d, because of %s", self._job, begin, attempt, _whole(error))

    def falls_back(self, error: PyFlinkStateError, uri: str) -> None:
        """A checkpoint is damaged, and the job goes back to the one before it."""
        _log.warning("%s: %s; going back to %s", self._job, error, uri)

    def not_ahead(self, epoch: int, error: PyFlinkStateError) -> None:
        """An epoch could not be planned while the one before it runs; it is tried again in its turn."""
        _log.debug("%s: epoch %d is not read ahead: %s", self._job, epoch, _whole(error))

    def counted(self, report: TaskReport) -> None:
        """A slot tells its metrics: note the late records among them."""
        for name, value in report.metrics.items():
            if value.count and name.endswith(_LATE_SUFFIX):
                self._late.setdefault(name.removesuffix(_LATE_SUFFIX), {})[report.task] = value.count

    def epoch_ended(self, epoch: int) -> None:
        """Say once of each operator that it drops late records."""
        for operator in self._late.keys() - self._told_late:
            self._told_late.add(operator)
            _log.warning(
                "%s: operator %r has dropped %d late records up to epoch %d, and goes on to drop them; "
                "side_output_late_data() collects them, allowed_lateness() still takes them, and the metric "
                "%s%s counts them",
                self._job,
                operator,
                sum(self._late[operator].values()),
                epoch,
                operator,
                _LATE_SUFFIX,
            )

    def failed_late(self, error: PyFlinkStateError) -> None:
        """Something has failed when all results were committed."""
        _log.warning("%s has ended, but: %s", self._job, error)

    def source_not_closed(self, error: BaseException) -> None:
        """Its source could not be closed at the end of a job that had not ended well anyway."""
        _log.warning("%s: its source could not be closed: %s", self._job, _whole(error))

    def ended(self, status: JobStatus, epoch: int, error: BaseException | None, is_heard: bool) -> None:
        """It has ended.

        Args:
            status: how.
            epoch: the last one that has run.
            error: why, unless well.
            is_heard: the error is raised where somebody waits for it; otherwise all of it is said here.
        """
        late = sum(sum(slots.values()) for slots in self._late.values())
        ran = f"{self._job} is {status.name} after epoch {epoch}" + (
            f", {late} late records dropped" * bool(late)
        )
        if (by := told_to_end_by(error)) and status is JobStatus.CANCELED:
            _log.warning("%s, by %s", ran, by)
        elif status is not JobStatus.FAILED or error is None:
            _log.info("%s", ran)
        else:
            _log.error("%s: %s", ran, _whole(error).splitlines()[0] if is_heard else _whole(error))


def told_to_end_by(error: BaseException | None) -> str:
    """Return the signal or exception by which the program is told to end; empty if it is not."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return type(error).__name__
    return str(error.context.get("by", "")) if isinstance(error, JobCancelledError) else ""


def _whole(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


_checkpoint_log = logging.getLogger("pyflinkstate.checkpoints")

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
        _checkpoint_log.log(
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
        _checkpoint_log.warning("job %r: %s has failed: %s", self._job_name, _name(stats), stats.failure)

    def given_up(self, stats: CheckpointStats) -> None:
        """It is not needed any more, or the attempt that it belongs to is over."""
        _checkpoint_log.info("job %r: %s was given up: %s", self._job_name, _name(stats), stats.failure)

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
