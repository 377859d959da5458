"""Statistics of a checkpoint that has ended."""

from __future__ import annotations

import attrs

from pyflinkstate import notebook
from pyflinkstate.backends.format import OperatorSubtaskState
from pyflinkstate.runtime.wire import SlotId


@attrs.frozen
class CheckpointStats:
    """Statistics of one checkpoint or savepoint that has completed or failed.

    Attributes:
        checkpoint_id: the ``n`` of its folder ``chk-n``.
        epoch: the last epoch that it covers.
        sync_ms: the longest synchronous part of any subtask, during which records waited.
        async_ms: the longest asynchronous part of any subtask, during which records went on.
        size_bytes: the total size of the state files that a restore from it reads (Flink: full size). With
            incremental checkpoints, it grows with each increment, and falls when all state is written again.
        checkpointed_bytes: the total size of the state files that were written for it.
        triggered_ms: when it was triggered, in ms since 1970.
        duration_ms: the time from the moment when the first subtask reached its barrier until it completed
            or was aborted. Both parts of every subtask are in it.
        is_incremental: whether only changes were written.
        is_savepoint: whether it is a savepoint.
        uri: its folder; None if it failed, as the folder is then deleted.
        failure: why it failed; None if it completed.
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

    def _repr_html_(self) -> str:
        kind = "savepoint" if self.is_savepoint else "checkpoint"
        return notebook.facts(
            f"{kind} {self.checkpoint_id}",
            [
                ("failure", self.failure),
                ("epoch", self.epoch),
                ("size", None if self.failure else notebook.size(self.size_bytes)),
                ("written", None if self.failure else notebook.size(self.checkpointed_bytes)),
                ("took", f"{self.duration_ms} ms, records waited {self.sync_ms:.1f} ms"),
                ("folder", self.uri),
            ],
        )


@attrs.frozen
class CheckpointPart:
    """What one subtask contributed to a completed checkpoint.

    Attributes:
        slot: the subtask.
        sync_ms: its synchronous part, during which its records waited.
        async_ms: its asynchronous part, during which its records went on.
        checkpointed_bytes: the size of what it wrote for this checkpoint.
        state: handles of all its state, with what it wrote for earlier checkpoints.
    """

    slot: SlotId
    sync_ms: float
    async_ms: float
    checkpointed_bytes: int
    state: OperatorSubtaskState
