"""What is told of a checkpoint that has ended."""

from __future__ import annotations

import attrs


@attrs.frozen
class CheckpointStats:
    """One checkpoint or savepoint that has completed, or failed.

    Attributes:
        checkpoint_id: the ``n`` of its folder ``chk-n``.
        epoch: the last epoch in it.
        sync_ms: the longest synchronous part of any subtask: how long records waited.
        async_ms: the longest asynchronous part of any subtask, beside which records went on.
        size_bytes: the size of all state files that it needs.
        checkpointed_bytes: the size of those that were written for it.
        triggered_ms: when it was triggered, since 1970.
        duration_ms: from the alignment of its barrier until it was complete, or given up.
        is_incremental: whether only changes were written.
        is_savepoint: whether a person asked for it.
        uri: its folder; None for a failed one, which is deleted.
        failure: why it failed; None for a completed one.
    """

    checkpoint_id: int
    epoch: int
    sync_ms: float = 0.0
    async_ms: float = 0.0
    size_bytes: int = 0
    checkpointed_bytes: int = 0
    triggered_ms: int = 0
    duration_ms: int = 0
    is_incremental: bool = False
    is_savepoint: bool = False
    uri: str | None = None
    failure: str | None = None
