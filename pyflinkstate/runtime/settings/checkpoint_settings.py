"""The settings of checkpoints as the coordinator reads them: plain values."""

from __future__ import annotations

import attrs

from pyflinkstate.runtime.settings.reading import Reader
from pyflinkstate.runtime.settings.setting import Setting


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
