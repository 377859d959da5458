"""The user's settings for checkpoints (``pyflink.datastream.CheckpointConfig``). Defaults are Flink's."""

from __future__ import annotations

import enum
import os
from typing import Any

import attrs

from pyflinkstate.api.checkpoint_storage import CheckpointStorage
from pyflinkstate.api.checks import at_least
from pyflinkstate.api.time import Duration
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.settings.checkpoint_settings import CheckpointSettings
from pyflinkstate.runtime.settings.idle_settings import IdleSettings
from pyflinkstate.runtime.settings.job_status import JobStatus
from pyflinkstate.runtime.storage import AnyPath, FileSystemCheckpointStorage, JobManagerCheckpointStorage

_ALIGNS = "an epoch's end aligns barriers, at no cost"


class CheckpointingMode(enum.Enum):
    """What checkpoints guarantee (``pyflink.datastream.CheckpointingMode``)."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1


class ExternalizedCheckpointRetention(enum.Enum):
    """What happens to the last checkpoints when the job ends (Flink has an enum of the same name).

    As in Flink, each of these values deletes them when the job finishes. If none is set, they stay, as there
    is no cluster that would keep them for the next run of a program. Savepoints always stay.
    """

    #: They stay when the job fails, and are deleted when it is cancelled.
    DELETE_ON_CANCELLATION = 0
    #: They stay when the job fails or is cancelled.
    RETAIN_ON_CANCELLATION = 1
    #: They are always deleted.
    NO_EXTERNALIZED_CHECKPOINTS = 2


class CheckpointConfig:
    """The checkpoint settings of one environment; all times are in milliseconds."""

    def __init__(self) -> None:
        self._settings = CheckpointSettings()
        self._retention: ExternalizedCheckpointRetention | None = None
        self._fall_back = False
        self._storage: FileSystemCheckpointStorage | JobManagerCheckpointStorage | None = None
        self._mode = CheckpointingMode.EXACTLY_ONCE
        self._unaligned = self._force_unaligned = False
        self._aligned_timeout = Duration.of_millis(0)
        self._idle = IdleSettings()

    @property
    def settings(self) -> CheckpointSettings:
        """The settings that the coordinator uses."""
        return self._settings

    def is_checkpointing_enabled(self) -> bool:
        """Return whether an interval was set."""
        return self._settings.interval_ms is not None

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the mode that was set. Checkpoints are exactly once in both modes."""
        return self._mode

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Accept a mode. With ``AT_LEAST_ONCE`` checkpoints are exactly once as well, at no cost."""
        if not isinstance(checkpointing_mode, CheckpointingMode):
            raise ConfigurationError(f"a CheckpointingMode is needed, not {checkpointing_mode!r}")
        if checkpointing_mode is CheckpointingMode.AT_LEAST_ONCE:
            self._idle.take("CheckpointingMode.AT_LEAST_ONCE", f"checkpoints are exactly once, as {_ALIGNS}")
        self._mode = checkpointing_mode
        return self

    def get_checkpoint_interval(self) -> int:
        """Return the time between two checkpoints, or -1 if none are taken."""
        return -1 if self._settings.interval_ms is None else self._settings.interval_ms

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Set the least time between two checkpoints; 0 takes one at the end of every epoch."""
        return self._set("interval_ms", checkpoint_interval, least=0)

    def get_checkpoint_storage(self) -> FileSystemCheckpointStorage | JobManagerCheckpointStorage | None:
        """Return where checkpoints are kept, or None if that was not set."""
        return self._storage

    def checkpoint_directory(self) -> FileSystemCheckpointStorage | None:
        """Return the directory of checkpoints, or None for a temporary directory."""
        storage = self._storage
        if not isinstance(storage, JobManagerCheckpointStorage):
            return storage
        path = storage.get_checkpoint_path()
        return None if path is None else FileSystemCheckpointStorage(path)

    def set_checkpoint_storage(self, storage: AnyPath | CheckpointStorage) -> CheckpointConfig:
        """Set where checkpoints are kept: a path or URI that driver and executors can reach, or a storage."""
        if isinstance(storage, (str, os.PathLike)):
            storage = FileSystemCheckpointStorage(storage)
        elif not isinstance(storage, (FileSystemCheckpointStorage, JobManagerCheckpointStorage)):
            raise ConfigurationError(
                f"checkpoints: a storage is a path, a URI or a FileSystemCheckpointStorage, not {storage!r}"
            )
        self._storage = storage
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: AnyPath) -> CheckpointConfig:
        """Set the directory for checkpoints."""
        return self.set_checkpoint_storage(checkpoint_path)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return what was set, without effect: the end of an epoch aligns barriers."""
        return self._unaligned

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Accept it without effect: the end of an epoch aligns barriers, at no cost."""
        if enabled:
            self._idle.take("enable_unaligned_checkpoints()", _ALIGNS)
        self._unaligned = bool(enabled)
        return self

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Accept it: checkpoints are aligned anyway."""
        return self.enable_unaligned_checkpoints(False)

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return what was set."""
        return self._force_unaligned

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        """Accept it without effect; see :meth:`enable_unaligned_checkpoints`."""
        if force_unaligned_checkpoints:
            self._idle.take("set_force_unaligned_checkpoints()", _ALIGNS)
        self._force_unaligned = bool(force_unaligned_checkpoints)
        return self

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Return what was set, 0 by default."""
        return self._aligned_timeout

    get_alignment_timeout = get_aligned_checkpoint_timeout

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Accept it: there is no alignment that could take long."""
        if not isinstance(alignment_timeout, Duration):
            raise ConfigurationError(f"an alignment timeout is a Duration, not {alignment_timeout!r}")
        self._idle.take("set_aligned_checkpoint_timeout()", _ALIGNS)
        self._aligned_timeout = alignment_timeout
        return self

    set_alignment_timeout = set_aligned_checkpoint_timeout

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Return whether the first checkpoint that fails also fails the job."""
        return self._settings.tolerable_failures == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Tolerate no failing checkpoint, or any number of them."""
        return self._set("tolerable_failures", 0 if fail_on_checkpointing_errors else 2**31 - 1, least=0)

    def get_checkpoint_timeout(self) -> int:
        """Return the time after which a pending checkpoint is aborted."""
        return self._settings.timeout_ms

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Set the time after which a pending checkpoint is aborted."""
        return self._set("timeout_ms", checkpoint_timeout, least=1)

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the least time between the completion of one checkpoint and the trigger of the next."""
        return self._settings.min_pause_ms

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> CheckpointConfig:
        """Set the least time between the completion of one checkpoint and the trigger of the next."""
        return self._set("min_pause_ms", min_pause_between_checkpoints, least=0)

    def get_max_concurrent_checkpoints(self) -> int:
        """Return how many checkpoints may be pending at the same time."""
        return self._settings.max_concurrent

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Set how many checkpoints may be pending at the same time."""
        return self._set("max_concurrent", max_concurrent_checkpoints, least=1)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return how many checkpoints in a row may fail before the job fails."""
        return self._settings.tolerable_failures

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """Set how many checkpoints in a row may fail before the job fails."""
        return self._set("tolerable_failures", tolerable_checkpoint_failure_number, least=0)

    def get_max_retained_checkpoints(self) -> int:
        """Return how many completed checkpoints are kept."""
        return self._settings.num_retained

    def set_max_retained_checkpoints(self, max_retained_checkpoints: int) -> CheckpointConfig:
        """Set how many completed checkpoints are kept (``execution.checkpointing.num-retained``)."""
        return self._set("num_retained", max_retained_checkpoints, least=1)

    def is_incremental(self) -> bool:
        """Return whether checkpoints write only changes."""
        return self._settings.incremental

    def enable_incremental_checkpoints(
        self, enabled: bool = True, *, materialization_interval: int | None = None
    ) -> CheckpointConfig:
        """Write only what changed since the last completed checkpoint.

        Flink: ``execution.checkpointing.incremental``.

        Args:
            enabled: whether to write only changes; False, the default without this call, writes all state
                each time.
            materialization_interval: after that many checkpoints all state is written again in the
                background, so that a restore reads one full file and no more increments than that. Default:
                the value that was set before, or 10.
        """
        if materialization_interval is not None:
            self._set("materialization_interval", materialization_interval, least=1)
        self._settings = attrs.evolve(self._settings, incremental=enabled)
        return self

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention | None:
        """Return what happens to checkpoints when the job ends, or None if they stay."""
        return self._retention

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set what happens to checkpoints when the job ends. By default the newest ones always stay."""
        if not isinstance(retention_mode, ExternalizedCheckpointRetention):
            raise ConfigurationError(f"an ExternalizedCheckpointRetention is needed, not {retention_mode!r}")
        self._retention = retention_mode
        return self

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Return whether checkpoints outlive a job that fails."""
        return self._retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    def is_fall_back_enabled(self) -> bool:
        """Return whether the job may fall back behind a damaged checkpoint."""
        return self._fall_back

    def enable_fall_back(self, enabled: bool = True) -> CheckpointConfig:
        """If the newest checkpoint is damaged, go on from the retained one before it.

        The records after that are processed again, and sinks take back their output if they can. This is off
        by default, because damage in the storage should not go unnoticed.
        """
        self._fall_back = enabled
        return self

    def _set(self, name: str, value: int, least: int) -> CheckpointConfig:
        changes: dict[str, Any] = {name: at_least(f"checkpoints: {name}", value, least)}
        self._settings = attrs.evolve(self._settings, **changes)
        return self


def deletes_checkpoints(retention: ExternalizedCheckpointRetention | None, status: JobStatus) -> bool:
    """Return whether a job that ends with this status deletes its checkpoints."""
    if retention is None:
        return False
    if status is JobStatus.FAILED:
        return retention is ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
    return (
        status is JobStatus.FINISHED
        or retention is not ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
