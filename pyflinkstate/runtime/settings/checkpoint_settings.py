"""The settings of checkpoints as the coordinator reads them: plain values."""

from __future__ import annotations

import attrs


@attrs.frozen
class CheckpointSettings:
    """The settings of one job's checkpoints.

    Attributes:
        interval_ms: the time between two triggers; with None there are no checkpoints.
        timeout_ms: how long after the alignment of its barrier a checkpoint is aborted; the epoch before it
            may take any time. The default is Flink's, 10 minutes.
        tolerable_failures: how many checkpoints in a row may fail before the job fails.
        num_retained: how many completed checkpoints are kept.
        min_pause_ms: the least time from the completion of one checkpoint to the trigger of the next.
        max_concurrent: how many may be pending at the same time.
        incremental: whether checkpoints after the first write only what changed since the last completed one.
        materialization_interval: after that many incremental checkpoints all state is written again in the
            background, so that a restore reads no more increments than that.
    """

    interval_ms: int | None = None
    timeout_ms: int = 600_000
    tolerable_failures: int = 0
    num_retained: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    min_pause_ms: int = 0
    max_concurrent: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    incremental: bool = False
    materialization_interval: int = attrs.field(default=10, validator=attrs.validators.ge(1))
