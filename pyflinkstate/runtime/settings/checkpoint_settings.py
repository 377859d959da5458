"""The settings of checkpoints as the coordinator reads them: plain values."""

from __future__ import annotations

import attrs


@attrs.frozen
class CheckpointSettings:
    """How often, how long, how many.

    Attributes:
        interval_ms: between two triggers; None takes no checkpoints.
        timeout_ms: after which a checkpoint is aborted, from the alignment of its barrier; the epoch
            before it may take as long as it likes. Flink's default, 10 minutes.
        tolerable_failures: how many checkpoints in a row may fail before the job does.
        num_retained: how many completed checkpoints are kept.
        min_pause_ms: from the completion of one checkpoint to the trigger of the next, at least.
        max_concurrent: how many may be pending at once.
        incremental: checkpoints after the first write what changed since the last completed one.
        materialization_interval: each so many incremental checkpoints all state is written anew, in the
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
