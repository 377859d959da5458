"""All state of one operator subtask: keyed and operator state, managed and raw.

Flink: ``StreamOperatorStateHandler``, with the contexts of a ``CheckpointedFunction``.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from pyflinkstate.api import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedStateStore,
    OperatorStateStore,
    RawKeyedStateOutput,
    RawOperatorStateOutput,
)
from pyflinkstate.backends.format import (
    CheckpointStreamFactory,
    KeyGroupsStateHandle,
    StateAssignment,
    StateReader,
)
from pyflinkstate.backends.heap import HeapKeyedStateBackend, HeapRestoreOperation, snapshot_runner
from pyflinkstate.backends.operator_state import (
    DefaultOperatorStateBackend,
    OperatorStateRestoreOperation,
    OperatorStateSnapshotStrategy,
)
from pyflinkstate.backends.snapshots import (
    ChangeHistory,
    Changes,
    OperatorSnapshotFutures,
    RawKeyedStateBuffer,
    RawOperatorStateBuffer,
    SnapshotStrategyRunner,
    SnapshotTask,
    read_raw_keyed_state,
    read_raw_operator_state,
)
from pyflinkstate.runtime.operators.context import OperatorContext
from pyflinkstate.runtime.wire import CheckpointTrigger


@attrs.frozen
class RawOutputs:
    """The outputs for the raw state of one snapshot."""

    keyed: RawKeyedStateBuffer
    operator: RawOperatorStateBuffer


def _nothing() -> None:
    """Do nothing: raw state is a copy."""


@attrs.define
class StreamOperatorState:
    """The backends of one subtask, and its restored raw state."""

    keyed: HeapKeyedStateBackend
    operator: DefaultOperatorStateBackend
    compression: str | None
    restored_checkpoint_id: int | None = None
    #: The changes between barriers; None if every checkpoint is full.
    history: ChangeHistory | None = None
    raw_keyed: tuple[tuple[int, bytes], ...] = ()
    raw_operator: tuple[bytes, ...] = ()

    def restore(self, assignment: StateAssignment, reader: StateReader) -> None:
        """Load the state that was assigned to the subtask; see the restore operations for errors."""
        HeapRestoreOperation(self.keyed, reader).restore(assignment.managed_keyed)
        OperatorStateRestoreOperation(self.operator, reader).restore(assignment.managed_operator)
        self.raw_keyed = tuple(read_raw_keyed_state(assignment.raw_keyed, self.keyed.key_group_range, reader))
        self.raw_operator = tuple(read_raw_operator_state(assignment.raw_operator, reader))

    def raw_outputs(self) -> RawOutputs:
        """Return new, empty outputs for one snapshot."""
        return RawOutputs(RawKeyedStateBuffer(self.keyed.key_group_range), RawOperatorStateBuffer())

    def track_changes(self) -> None:
        """Track changes, so that snapshots can be increments from now on."""
        self.history = ChangeHistory(self.keyed)

    def snapshot(
        self,
        outputs: RawOutputs,
        streams: CheckpointStreamFactory,
        keyed_streams: CheckpointStreamFactory | None = None,
        changes: Changes | None = None,
    ) -> OperatorSnapshotFutures:
        """Run the synchronous part of a snapshot.

        Args:
            outputs: the raw state.
            streams: makes the streams for all state.
            keyed_streams: makes the streams for managed keyed state, if they differ.
            changes: the changes of managed keyed state to write; None writes all of it.
        """
        raw_keyed, raw_operator = outputs.keyed.snapshot(), outputs.operator.snapshot()
        operator = SnapshotStrategyRunner(
            OperatorStateSnapshotStrategy(self.operator, self.compression),
            self.operator.snapshots,
            is_async=True,
        )
        # Keyed state comes last: copying operator state may fail, and then nothing must stay frozen.
        managed_operator = operator.snapshot(streams)
        return OperatorSnapshotFutures(
            streams,
            snapshot_runner(self.keyed, self.compression, changes).snapshot(keyed_streams or streams),
            SnapshotTask(lambda cancelled: raw_keyed.write(streams, cancelled), _nothing),
            managed_operator,
            SnapshotTask(lambda cancelled: raw_operator.write(streams, cancelled), _nothing),
            keyed_streams,
        )

    def full_snapshot(self, streams: CheckpointStreamFactory) -> SnapshotTask[KeyGroupsStateHandle]:
        """Run the synchronous part of a snapshot of all managed keyed state, and of nothing else."""
        return snapshot_runner(self.keyed, self.compression).snapshot(streams)

    def dispose(self) -> None:
        """Cancel the snapshots that are being written."""
        self.keyed.dispose()
        self.operator.dispose()


@attrs.frozen
class InitializationContext(FunctionInitializationContext):
    """See :class:`~pyflinkstate.api.context.FunctionInitializationContext`."""

    _state: StreamOperatorState
    _runtime_context: OperatorContext

    def is_restored(self) -> bool:
        return self._state.restored_checkpoint_id is not None

    def get_restored_checkpoint_id(self) -> int | None:
        return self._state.restored_checkpoint_id

    def get_operator_state_store(self) -> OperatorStateStore:
        return self._state.operator

    def get_keyed_state_store(self) -> KeyedStateStore:
        return self._runtime_context

    def get_raw_keyed_state_inputs(self) -> Iterable[tuple[int, bytes]]:
        return self._state.raw_keyed

    def get_raw_operator_state_inputs(self) -> Iterable[bytes]:
        return self._state.raw_operator


@attrs.frozen
class SnapshotContext(FunctionSnapshotContext):
    """See :class:`~pyflinkstate.api.context.FunctionSnapshotContext`."""

    _checkpoint: CheckpointTrigger
    _outputs: RawOutputs

    def get_checkpoint_id(self) -> int:
        return self._checkpoint.checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        return self._checkpoint.timestamp_ms

    def get_raw_keyed_operator_state_output(self) -> RawKeyedStateOutput:
        return self._outputs.keyed

    def get_raw_operator_state_output(self) -> RawOperatorStateOutput:
        return self._outputs.operator
