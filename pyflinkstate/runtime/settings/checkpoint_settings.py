"""The settings of checkpoints as the coordinator reads them, and settings that change nothing here.

Those of the second kind are Flink's: they are accepted, kept and given back.
"""

from __future__ import annotations

import enum
import logging

import attrs

from pyflinkstate.api import Duration
from pyflinkstate.runtime.settings.setting import (
    Reader,
    Setting,
    SettingsGroup,
    a_switch,
    a_value_of,
    check_set,
    choice_of,
    rows_of,
)


@attrs.frozen
class CheckpointSettings:
    """The settings of one job's checkpoints; the defaults are Flink's."""

    interval_ms: int | None = Setting(
        key="execution.checkpointing.interval",
        read=Reader.milliseconds,
        setter="set_checkpoint_interval",
        shown="none: no checkpoints. If a directory is set all the same, output becomes visible at the "
        "end of the input, or with a savepoint",
        meaning="the minimum time from one checkpoint to the next; 0 takes a checkpoint after every "
        "epoch, unless the previous one is still being written",
        least=0,
        named="checkpoints: interval_ms",
        drawn=(0, 0, 5, 20, 60),
    ).field()
    timeout_ms: int = Setting(
        key="execution.checkpointing.timeout",
        read=Reader.milliseconds,
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
    min_pause_ms: int = Setting(
        key="execution.checkpointing.min-pause",
        read=Reader.milliseconds,
        default=0,
        setter="set_min_pause_between_checkpoints",
        meaning="the minimum time from the completion of one checkpoint to the trigger of the next",
        least=0,
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

    auto_watermark_interval_ms: int = Setting(
        key="pipeline.auto-watermark-interval",
        read=Reader.milliseconds,
        default=200,
        setter="set_auto_watermark_interval",
        why_idle="watermarks follow every frame of records",
        least=0,
        named="the interval of watermarks in milliseconds",
    ).field()
    latency_tracking_interval_ms: int = Setting(
        key="metrics.latency.interval",
        read=Reader.milliseconds,
        default=0,
        setter="set_latency_tracking_interval",
        why_idle="there are no latency markers",
        least=0,
        named="the interval of latency markers in milliseconds",
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
    cancellation_interval_ms: int = Setting(
        key="task.cancellation.interval",
        read=Reader.milliseconds,
        default=30_000,
        setter="set_task_cancellation_interval",
        why_idle=_SPARK_ENDS,
        least=0,
        named="the interval of cancellation in milliseconds",
    ).field()
    cancellation_timeout_ms: int = Setting(
        key="task.cancellation.timeout",
        read=Reader.milliseconds,
        default=180_000,
        setter="set_task_cancellation_timeout",
        why_idle=_SPARK_ENDS,
        least=0,
        named="the timeout of cancellation in milliseconds",
    ).field()


@attrs.define(on_setattr=check_set)
class IdleStreamSettings(IdleSettings):
    """Settings of the environment itself that change nothing."""

    buffer_timeout_ms: int = Setting(
        key="execution.buffer-timeout.interval",
        older=("execution.buffer-timeout",),
        read=Reader.milliseconds,
        default=100,
        setter="set_buffer_timeout",
        why_idle="records travel in frames and never wait in a buffer",
    ).field()
    is_chaining_enabled: bool = Setting(
        key="pipeline.operator-chaining.enabled",
        older=("pipeline.operator-chaining",),
        read=Reader.switch,
        default=True,
        setter="disable_operator_chaining",
        why_idle="the results are the same",
    ).field()
