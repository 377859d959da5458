"""The settings of checkpoints: as the coordinator reads them, and as users set them (``CheckpointConfig``).

Defaults are Flink's. Settings of Flink's that change nothing here are accepted, kept and given back.
"""

from __future__ import annotations

import enum
import logging
import os
from typing import Any

import attrs

from pyflinkstate.api import CheckpointStorage, Duration, check_kind
from pyflinkstate.runtime.settings.restart import JobStatus
from pyflinkstate.runtime.settings.setting import (
    Milliseconds,
    Reader,
    Setting,
    SettingsGroup,
    a_switch,
    a_value_of,
    check_set,
    choice_of,
    rows_of,
)
from pyflinkstate.runtime.storage import (
    INLINE_THRESHOLD_BYTES,
    WRITE_BUFFER_BYTES,
    AnyPath,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)


@attrs.frozen
class CheckpointSettings:
    """The settings of one job's checkpoints; the defaults are Flink's."""

    interval_ms: int | None = Milliseconds(
        key="execution.checkpointing.interval",
        setter="set_checkpoint_interval",
        shown="none: no checkpoints. If a directory is set all the same, output becomes visible at the "
        "end of the input, or with a savepoint",
        meaning="the minimum time from one checkpoint to the next; 0 takes a checkpoint after every "
        "epoch, unless the previous one is still being written",
        named="checkpoints: interval_ms",
        drawn=(0, 0, 5, 20, 60),
    ).field()
    timeout_ms: int = Milliseconds(
        key="execution.checkpointing.timeout",
        default=600_000,
        setter="set_checkpoint_timeout",
        meaning="how long a checkpoint may take to be written, from the alignment of its barrier, before "
        "it is abandoned",
        least=1,
        named="checkpoints: timeout_ms",
        drawn=(60, 60, 250, 10_000),
    ).field()
    tolerable_failures: int = Setting(
        key="execution.checkpointing.tolerable-failed-checkpoints",
        read=Reader.number,
        default=0,
        setter="set_tolerable_checkpoint_failure_number",
        meaning="how many checkpoints in a row may fail before the job fails",
        least=0,
        named="checkpoints: tolerable_failures",
        drawn=(0, 0, 1, 5),
    ).field()
    num_retained: int = Setting(
        key="execution.checkpointing.num-retained",
        older=("state.checkpoints.num-retained",),
        read=Reader.number,
        default=1,
        setter="set_max_retained_checkpoints",
        meaning="how many completed checkpoints are kept",
        least=1,
        named="checkpoints: num_retained",
        drawn=(1, 2, 3),
    ).field()
    min_pause_ms: int = Milliseconds(
        key="execution.checkpointing.min-pause",
        default=0,
        setter="set_min_pause_between_checkpoints",
        meaning="the minimum time from the completion of one checkpoint to the trigger of the next",
        named="checkpoints: min_pause_ms",
        drawn=(0, 0, 15),
    ).field()
    max_concurrent: int = Setting(
        key="execution.checkpointing.max-concurrent-checkpoints",
        read=Reader.number,
        default=1,
        setter="set_max_concurrent_checkpoints",
        meaning="how many checkpoints may be written at the same time",
        least=1,
        named="checkpoints: max_concurrent",
        drawn=(1, 2),
    ).field()
    incremental: bool = Setting(
        key="execution.checkpointing.incremental",
        older=("state.backend.incremental",),
        read=Reader.switch,
        default=False,
        setter="enable_incremental_checkpoints",
        shown="off",
        meaning="whether a checkpoint writes only what changed since the last completed one",
        drawn=0.6,
    ).field()
    materialization_interval: int = Setting(
        default=10,
        setter="enable_incremental_checkpoints(materialization_interval=...)",
        meaning="after how many incremental checkpoints all state is written again, in the background",
        least=1,
        named="checkpoints: materialization_interval",
        drawn=(1, 2, 3, 10),
    ).field()


_ALIGNS = "an epoch's end aligns barriers, at no cost"
_SPARK_ENDS = "Spark ends its tasks"
_log = logging.getLogger("pyflinkstate.configuration")


class CheckpointingMode(enum.Enum):
    """What checkpoints guarantee (``pyflink.datastream.CheckpointingMode``)."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1


@attrs.define(on_setattr=check_set)
class IdleSettings(SettingsGroup):
    """The base of settings that change nothing."""

    _told: set[str] = attrs.field(factory=set, init=False, eq=False, repr=False)

    def keep(self, **values: object) -> None:
        """Set fields; log of each once that it changes nothing, if the value is not the default."""
        self.put(**values)
        for name in values:
            row = rows_of(type(self))[name]
            if getattr(self, name) != row.default and name not in self._told:
                self._told.add(name)
                _log.info("%s() is accepted and changes nothing: %s", row.setter, row.why_idle)


@attrs.define(on_setattr=check_set)
class IdleCheckpointSettings(IdleSettings):
    """Settings of ``CheckpointConfig`` that change nothing."""

    mode: CheckpointingMode = Setting(
        key="execution.checkpointing.mode",
        read=choice_of(CheckpointingMode),
        default=CheckpointingMode.EXACTLY_ONCE,
        setter="set_checkpointing_mode",
        why_idle=f"checkpoints are exactly once, as {_ALIGNS}",
        takes=a_value_of(CheckpointingMode),
    ).field()
    unaligned: bool = Setting(
        key="execution.checkpointing.unaligned.enabled",
        older=("execution.checkpointing.unaligned",),
        read=Reader.switch,
        default=False,
        setter="enable_unaligned_checkpoints",
        why_idle=_ALIGNS,
        takes=a_switch,
    ).field()
    force_unaligned: bool = Setting(
        key="execution.checkpointing.unaligned.forced",
        read=Reader.switch,
        default=False,
        setter="set_force_unaligned_checkpoints",
        why_idle=_ALIGNS,
        takes=a_switch,
    ).field()
    aligned_timeout: Duration = Setting(
        key="execution.checkpointing.aligned-checkpoint-timeout",
        read=lambda reader: Duration.of_millis(reader.milliseconds()),
        default=Duration.of_millis(0),
        shown="0",
        setter="set_aligned_checkpoint_timeout",
        why_idle=_ALIGNS,
        takes=a_value_of(Duration),
    ).field()


@attrs.define(on_setattr=check_set)
class IdleExecutionSettings(IdleSettings):
    """Settings of ``ExecutionConfig`` that change nothing."""

    auto_watermark_interval_ms: int = Milliseconds(
        key="pipeline.auto-watermark-interval",
        default=200,
        setter="set_auto_watermark_interval",
        why_idle="watermarks follow every frame of records",
        named="the interval of watermarks in milliseconds",
    ).field()
    object_reuse: bool = Setting(
        key="pipeline.object-reuse",
        read=Reader.switch,
        default=False,
        setter="enable_object_reuse",
        why_idle="a result that can change is copied when it is emitted",
    ).field()
    closure_cleaner: bool = Setting(
        key="pipeline.closure-cleaner-level",
        read=lambda reader: reader.word() != "none",
        default=True,
        setter="disable_closure_cleaner",
        why_idle="there is none: functions are pickled with what they use",
    ).field()
    cancellation_interval_ms: int = Milliseconds(
        key="task.cancellation.interval",
        default=30_000,
        setter="set_task_cancellation_interval",
        why_idle=_SPARK_ENDS,
        named="the interval of cancellation in milliseconds",
    ).field()
    cancellation_timeout_ms: int = Milliseconds(
        key="task.cancellation.timeout",
        default=180_000,
        setter="set_task_cancellation_timeout",
        why_idle=_SPARK_ENDS,
        named="the timeout of cancellation in milliseconds",
    ).field()


@attrs.define(on_setattr=check_set)
class IdleStreamSettings(IdleSettings):
    """Settings of the environment itself that change nothing."""

    is_chaining_enabled: bool = Setting(
        key="pipeline.operator-chaining.enabled",
        older=("pipeline.operator-chaining",),
        read=Reader.switch,
        default=True,
        setter="disable_operator_chaining",
        why_idle="the results are the same",
    ).field()


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


def _take_storage(_: object, storage: AnyPath | CheckpointStorage) -> CheckpointStorage:
    if isinstance(storage, (str, os.PathLike)):
        return FileSystemCheckpointStorage(storage)
    check_kind(
        "checkpoints: a storage is a path, a URI or a FileSystemCheckpointStorage",
        storage,
        (FileSystemCheckpointStorage, JobManagerCheckpointStorage),
    )
    return storage


_INLINE_THRESHOLD, _WRITE_BUFFER = (
    f"execution.checkpointing.{name}" for name in ("data-inline-threshold", "write-buffer-size")
)


def _read_storage(reader: Reader) -> FileSystemCheckpointStorage:
    """Read the directory with its sizes; a size that comes later does not bring an older directory back."""
    path = reader.text()
    if isinstance(reader.now, FileSystemCheckpointStorage) and not reader.is_given():
        path = reader.now.checkpoint_path
    return FileSystemCheckpointStorage(
        path,
        reader.size_bytes(_INLINE_THRESHOLD, INLINE_THRESHOLD_BYTES),
        reader.size_bytes(_WRITE_BUFFER, WRITE_BUFFER_BYTES),
    )


@attrs.define(eq=False, on_setattr=check_set)
class CheckpointConfig:
    """The checkpoint settings of one environment; all times are in milliseconds."""

    #: As the coordinator reads them; :meth:`put` replaces them.
    settings: CheckpointSettings = attrs.field(factory=CheckpointSettings, init=False)
    _storage: FileSystemCheckpointStorage | JobManagerCheckpointStorage | None = Setting(
        key="execution.checkpointing.dir",
        older=("state.checkpoints.dir",),
        read=_read_storage,
        setter="set_checkpoint_storage",
        shown="on a local Spark a temporary directory",
        meaning="where checkpoints are written",
        takes=_take_storage,
        parts={_INLINE_THRESHOLD: None, _WRITE_BUFFER: None},
    ).field(init=False)
    _retention: ExternalizedCheckpointRetention | None = Setting(
        key="execution.checkpointing.externalized-checkpoint-retention",
        read=choice_of(ExternalizedCheckpointRetention),
        setter="set_externalized_checkpoint_retention",
        shown="the newest are kept",
        meaning="what happens to the checkpoints when the job ends",
        takes=a_value_of(ExternalizedCheckpointRetention),
    ).field(init=False)
    _fall_back: bool = Setting(
        default=False,
        setter="enable_fall_back",
        shown="off",
        meaning="whether the job continues from the previous checkpoint if the newest one is damaged",
    ).field(init=False)
    #: Settings that change nothing.
    idle: IdleCheckpointSettings = attrs.field(factory=IdleCheckpointSettings, init=False)

    def put(self, **values: Any) -> CheckpointConfig:
        """Check and set fields, and those of :class:`CheckpointSettings`."""
        for name, value in values.items():
            row = rows_of(CheckpointSettings).get(name)
            if row is None:
                setattr(self, name, value)
            else:
                self.settings = attrs.evolve(self.settings, **{name: row.checked(self, value)})
        return self

    def _keep(self, **values: object) -> CheckpointConfig:
        self.idle.keep(**values)
        return self

    def is_checkpointing_enabled(self) -> bool:
        """Return whether an interval was set."""
        return self.settings.interval_ms is not None

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the mode that was set. Checkpoints are exactly once in both modes."""
        return self.idle.mode

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Accept a mode. With ``AT_LEAST_ONCE`` checkpoints are exactly once as well, at no cost."""
        return self._keep(mode=checkpointing_mode)

    def get_checkpoint_interval(self) -> int:
        """Return the time between two checkpoints, or -1 if none are taken."""
        return -1 if self.settings.interval_ms is None else self.settings.interval_ms

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Set the least time between two checkpoints; 0 takes one at the end of every epoch."""
        return self.put(interval_ms=checkpoint_interval)

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
        return self.put(_storage=storage)

    def set_checkpoint_storage_dir(self, checkpoint_path: AnyPath) -> CheckpointConfig:
        """Set the directory for checkpoints."""
        return self.set_checkpoint_storage(checkpoint_path)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return what was set, without effect: the end of an epoch aligns barriers."""
        return self.idle.unaligned

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Accept it without effect: the end of an epoch aligns barriers, at no cost."""
        return self._keep(unaligned=enabled)

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Accept it: checkpoints are aligned anyway."""
        return self.enable_unaligned_checkpoints(False)

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return what was set."""
        return self.idle.force_unaligned

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        """Accept it without effect; see :meth:`enable_unaligned_checkpoints`."""
        return self._keep(force_unaligned=force_unaligned_checkpoints)

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Return what was set, 0 by default."""
        return self.idle.aligned_timeout

    get_alignment_timeout = get_aligned_checkpoint_timeout

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Accept it: there is no alignment that could take long."""
        return self._keep(aligned_timeout=alignment_timeout)

    set_alignment_timeout = set_aligned_checkpoint_timeout

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Return whether the first checkpoint that fails also fails the job."""
        return self.settings.tolerable_failures == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Tolerate no failing checkpoint, or any number of them."""
        return self.put(tolerable_failures=0 if fail_on_checkpointing_errors else 2**31 - 1)

    def get_checkpoint_timeout(self) -> int:
        """Return the time after which a pending checkpoint is aborted."""
        return self.settings.timeout_ms

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Set the time after which a pending checkpoint is aborted."""
        return self.put(timeout_ms=checkpoint_timeout)

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the least time between the completion of one checkpoint and the trigger of the next."""
        return self.settings.min_pause_ms

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> CheckpointConfig:
        """Set the least time between the completion of one checkpoint and the trigger of the next."""
        return self.put(min_pause_ms=min_pause_between_checkpoints)

    def get_max_concurrent_checkpoints(self) -> int:
        """Return how many checkpoints may be pending at the same time."""
        return self.settings.max_concurrent

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Set how many checkpoints may be pending at the same time."""
        return self.put(max_concurrent=max_concurrent_checkpoints)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return how many checkpoints in a row may fail before the job fails."""
        return self.settings.tolerable_failures

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """Set how many checkpoints in a row may fail before the job fails."""
        return self.put(tolerable_failures=tolerable_checkpoint_failure_number)

    def get_max_retained_checkpoints(self) -> int:
        """Return how many completed checkpoints are kept."""
        return self.settings.num_retained

    def set_max_retained_checkpoints(self, max_retained_checkpoints: int) -> CheckpointConfig:
        """Set how many completed checkpoints are kept (``execution.checkpointing.num-retained``)."""
        return self.put(num_retained=max_retained_checkpoints)

    def is_incremental(self) -> bool:
        """Return whether checkpoints write only changes."""
        return self.settings.incremental

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
        if materialization_interval is None:
            return self.put(incremental=enabled)
        return self.put(materialization_interval=materialization_interval, incremental=enabled)

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention | None:
        """Return what happens to checkpoints when the job ends, or None if they stay."""
        return self._retention

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set what happens to checkpoints when the job ends. By default the newest ones always stay."""
        return self.put(_retention=retention_mode)

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
        return self.put(_fall_back=enabled)


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
