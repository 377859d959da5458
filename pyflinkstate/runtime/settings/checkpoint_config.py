"""What a user sets about checkpoints (``pyflink.datastream.CheckpointConfig``). Defaults are Flink's."""

from __future__ import annotations

import enum
from typing import Any

import attrs

from pyflinkstate.api.checkpoint_storage import CheckpointStorage
from pyflinkstate.api.time import Duration
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.settings.checkpoint_settings import CheckpointSettings
from pyflinkstate.runtime.settings.idle_settings import IdleSettings
from pyflinkstate.runtime.settings.job_status import JobStatus
from pyflinkstate.runtime.storage import FileSystemCheckpointStorage, JobManagerCheckpointStorage

_ALIGNS = "an epoch's end aligns barriers, at no cost"


class CheckpointingMode(enum.Enum):
    """What checkpoints guarantee (``pyflink.datastream.CheckpointingMode``)."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1


class ExternalizedCheckpointRetention(enum.Enum):
    """What becomes of the last checkpoints when the job ends (Flink: the enum of the same name).

    As in Flink, all of these delete them when the job finishes. Only where none was set they stay: a program
    has no cluster that would keep them for its next run. Savepoints always stay.
    """

    #: They stay when the job fails, and are deleted when it is cancelled.
    DELETE_ON_CANCELLATION = 0
    #: They stay when the job fails or is cancelled.
    RETAIN_ON_CANCELLATION = 1
    #: They are deleted however the job ends.
    NO_EXTERNALIZED_CHECKPOINTS = 2


class CheckpointConfig:
    """The settings of one environment; all times in milliseconds."""

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
        """What the coordinator goes by."""
        return self._settings

    def is_checkpointing_enabled(self) -> bool:
        """Return whether an interval was set."""
        return self._settings.interval_ms is not None

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the mode that was set; what checkpoints give is ``EXACTLY_ONCE`` in either."""
        return self._mode

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Accept a mode. ``AT_LEAST_ONCE`` gets exactly once: it would be no faster here."""
        if not isinstance(checkpointing_mode, CheckpointingMode):
            raise ConfigurationError(f"a CheckpointingMode is needed, not {checkpointing_mode!r}")
        if checkpointing_mode is CheckpointingMode.AT_LEAST_ONCE:
            self._idle.take("CheckpointingMode.AT_LEAST_ONCE", f"checkpoints are exactly once, as {_ALIGNS}")
        self._mode = checkpointing_mode
        return self

    def get_checkpoint_interval(self) -> int:
        """Return the time between two checkpoints; -1 where none are taken."""
        return -1 if self._settings.interval_ms is None else self._settings.interval_ms

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Set the time between two checkpoints, at least; 0 takes one at the end of every epoch."""
        return self._set("interval_ms", checkpoint_interval, at_least=0)

    def get_checkpoint_storage(self) -> FileSystemCheckpointStorage | JobManagerCheckpointStorage | None:
        """Return where checkpoints go; None where that was not said."""
        return self._storage

    def checkpoint_directory(self) -> FileSystemCheckpointStorage | None:
        """Return the directory that checkpoints go to; None for one that is gone with the program."""
        storage = self._storage
        if not isinstance(storage, JobManagerCheckpointStorage):
            return storage
        path = storage.get_checkpoint_path()
        return None if path is None else FileSystemCheckpointStorage(path)

    def set_checkpoint_storage(self, storage: str | CheckpointStorage) -> CheckpointConfig:
        """Set where checkpoints go: a path or URI that driver and executors reach, or a storage."""
        if not isinstance(storage, (FileSystemCheckpointStorage, JobManagerCheckpointStorage)):
            storage = FileSystemCheckpointStorage(str(storage))
        self._storage = storage
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Set the directory that checkpoints go to."""
        return self.set_checkpoint_storage(checkpoint_path)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return what was set; an epoch's end aligns barriers in any case."""
        return self._unaligned

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Accept it: checkpoints are aligned all the same, and cost no alignment."""
        if enabled:
            self._idle.take("enable_unaligned_checkpoints()", _ALIGNS)
        self._unaligned = bool(enabled)
        return self

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Accept it: checkpoints are aligned."""
        return self.enable_unaligned_checkpoints(False)

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return what was set."""
        return self._force_unaligned

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        """Accept it: see :meth:`enable_unaligned_checkpoints`."""
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
        """Return whether the first checkpoint that fails is the end of the job."""
        return self._settings.tolerable_failures == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Tolerate no failing checkpoint, or any number in a row."""
        return self._set("tolerable_failures", 0 if fail_on_checkpointing_errors else 2**31 - 1, at_least=0)

    def get_checkpoint_timeout(self) -> int:
        """Return after how long a checkpoint that is being written is given up."""
        return self._settings.timeout_ms

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Set after how long a checkpoint that is being written is given up."""
        return self._set("timeout_ms", checkpoint_timeout, at_least=1)

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the least time between the completion of one and the trigger of the next."""
        return self._settings.min_pause_ms

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> CheckpointConfig:
        """Set the least time between the completion of one checkpoint and the trigger of the next."""
        return self._set("min_pause_ms", min_pause_between_checkpoints, at_least=0)

    def get_max_concurrent_checkpoints(self) -> int:
        """Return how many checkpoints may be written at once."""
        return self._settings.max_concurrent

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Set how many checkpoints may be written at once."""
        return self._set("max_concurrent", max_concurrent_checkpoints, at_least=1)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return how many checkpoints in a row may fail before the job does."""
        return self._settings.tolerable_failures

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """Set how many checkpoints in a row may fail before the job does."""
        return self._set("tolerable_failures", tolerable_checkpoint_failure_number, at_least=0)

    def get_max_retained_checkpoints(self) -> int:
        """Return how many completed checkpoints are kept."""
        return self._settings.num_retained

    def set_max_retained_checkpoints(self, max_retained_checkpoints: int) -> CheckpointConfig:
        """Set how many completed checkpoints are kept (``execution.checkpointing.num-retained``)."""
        return self._set("num_retained", max_retained_checkpoints, at_least=1)

    def is_incremental(self) -> bool:
        """Return whether checkpoints write changes only."""
        return self._settings.incremental

    def enable_incremental_checkpoints(
        self, enabled: bool = True, *, materialization_interval: int | None = None
    ) -> CheckpointConfig:
        """Write just what changed since the last completed checkpoint.

        Flink: ``execution.checkpointing.incremental``.

        Args:
            enabled: False writes all state each time, the default.
            materialization_interval: each so many checkpoints all state is written anew in the background,
                so that a restore reads one full file and no more increments than that. Default: what was
                set before, else 10.
        """
        if materialization_interval is not None:
            self._set("materialization_interval", materialization_interval, at_least=1)
        self._settings = attrs.evolve(self._settings, incremental=enabled)
        return self

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention | None:
        """Return what becomes of checkpoints when the job ends; None where they all stay."""
        return self._retention

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set what becomes of checkpoints when the job ends. Default: the newest stay, however it ends."""
        if not isinstance(retention_mode, ExternalizedCheckpointRetention):
            raise ConfigurationError(f"an ExternalizedCheckpointRetention is needed, not {retention_mode!r}")
        self._retention = retention_mode
        return self

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Return whether checkpoints outlive a job that fails."""
        return self._retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    def is_fall_back_enabled(self) -> bool:
        """Return whether a damaged checkpoint is passed over."""
        return self._fall_back

    def enable_fall_back(self, enabled: bool = True) -> CheckpointConfig:
        """Where the newest checkpoint turns out damaged, go on from the one retained before it.

        Its records are processed again, and sinks that can take back what came after it. Off by default,
        as somebody should hear of a damaged storage.
        """
        self._fall_back = enabled
        return self

    def _set(self, name: str, value: int, at_least: int) -> CheckpointConfig:
        if type(value) is not int or value < at_least:
            raise ConfigurationError(
                f"checkpoints: {name} {value!r} must be a whole number from {at_least} on"
            )
        changes: dict[str, Any] = {name: value}
        self._settings = attrs.evolve(self._settings, **changes)
        return self


def deletes_checkpoints(retention: ExternalizedCheckpointRetention | None, status: JobStatus) -> bool:
    """Return whether a job that has ended so leaves no checkpoint."""
    if retention is None:
        return False
    if status is JobStatus.FAILED:
        return retention is ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
    return (
        status is JobStatus.FINISHED
        or retention is not ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
