"""Settings of Flink's that are accepted, kept and given back, and that change nothing here."""

from __future__ import annotations

import enum
import logging
from typing import Any

import attrs

from pyflinkstate.api.time import Duration
from pyflinkstate.runtime.settings.reading import Reader
from pyflinkstate.runtime.settings.setting import (
    Setting,
    SettingsGroup,
    a_switch,
    a_value_of,
    check_set,
    choice_of,
    rows_of,
)

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

    def keep(self, **values: Any) -> None:
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
