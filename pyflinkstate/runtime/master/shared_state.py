"""Tracks which files several checkpoints share, and which of them are no longer needed.

With incremental checkpoints a subtask writes what changed since the last completed checkpoint. The state then
consists of that checkpoint's files and the new one: a *chain* of a full file and increments. The files are in
``shared/`` and belong to all checkpoints whose chains contain them (Flink: ``SharedStateRegistry``). Now and
then a subtask writes all of its state in the background (Flink: *materialization*), which starts a new chain.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from pyflinkstate.backends.format import (
    SHARED_PREFIX,
    CheckpointMetadata,
    KeyGroupsStateHandle,
    OperatorSubtaskState,
)
from pyflinkstate.errors import CheckpointError
from pyflinkstate.runtime.wire import CheckpointAck, SlotId


def shared_files(states: Iterable[OperatorSubtaskState]) -> set[str]:
    """Return the paths of all shared files of ``states``."""
    handles = (state.managed_keyed for state in states)
    return {
        file.path
        for handle in handles
        if handle is not None
        for file in handle.files()
        if file.path.startswith(SHARED_PREFIX)
    }


class SharedStateRegistry:
    """The chains of the retained and the pending checkpoints."""

    def __init__(self) -> None:
        #: By completed checkpoint of the current attempt: the state of each subtask.
        self._chains: dict[int, dict[SlotId, OperatorSubtaskState]] = {}
        self._files: dict[int, set[str]] = {}
        #: The files of checkpoints that were set aside.
        self._superseded: set[str] = set()
        self._materialized: dict[SlotId, KeyGroupsStateHandle] = {}
        #: Files that subtasks have reported. Some of them are in no chain, as a newer file overtook them.
        self._reported: set[str] = set()

    def begin_attempt(self) -> None:
        """Begin an attempt: new slots know no checkpoint, so their first one starts a new chain."""
        self._chains.clear()
        self._materialized.clear()
        self._reported.clear()

    def materialized(self, slot: SlotId, handle: KeyGroupsStateHandle) -> None:
        """Register that a subtask has written all of its state as of ``handle.checkpoint_id``."""
        self._reported |= shared_files([OperatorSubtaskState(handle)])
        known = self._materialized.get(slot)
        if known is None or _written(known) < _written(handle):
            self._materialized[slot] = handle

    def whole(self, ack: CheckpointAck) -> OperatorSubtaskState:
        """Return the state of the acknowledging subtask, with the chain that its increment extends.

        Raises:
            CheckpointError: the increment extends a checkpoint that is no longer known.
        """
        self._reported |= shared_files([ack.state])
        if ack.base_id is None:
            return ack.state
        # What changed since the base includes what changed since any later checkpoint.
        bases = [known for known in self._chains if ack.base_id <= known < ack.checkpoint_id]
        if not bases:
            raise CheckpointError(
                f"{ack.slot} wrote what changed since checkpoint {ack.base_id}, which no longer exists"
            )
        base = self._chains[max(bases)][ack.slot].managed_keyed
        added = () if ack.state.managed_keyed is None else (ack.state.managed_keyed,)
        return attrs.evolve(ack.state, managed_keyed=self._chain(ack, base, added))

    def _chain(
        self,
        ack: CheckpointAck,
        base: KeyGroupsStateHandle | None,
        added: tuple[KeyGroupsStateHandle, ...],
    ) -> KeyGroupsStateHandle | None:
        if base is None:  # the subtask had no state yet, so its first increment has everything
            return added[0] if added else None
        increments = (*base.increments, *added)
        full = self._materialized.get(ack.slot)
        if full is None or not _written(base) < _written(full) <= ack.checkpoint_id:
            return attrs.evolve(base, increments=increments)
        newer = (handle for handle in increments if _written(handle) > _written(full))
        return attrs.evolve(full, increments=tuple(newer))

    def register(self, checkpoint_id: int, states: dict[SlotId, OperatorSubtaskState]) -> None:
        """Register a completed checkpoint of this attempt."""
        self._chains[checkpoint_id] = states
        self._files[checkpoint_id] = shared_files(states.values())

    def register_restored(self, metadata: CheckpointMetadata) -> None:
        """Register a checkpoint of an earlier run: its files are needed, but no chain continues from it."""
        self._files[metadata.checkpoint_id] = _files_of(metadata)

    def keep_superseded(self, metadata: CheckpointMetadata) -> None:
        """Register a checkpoint that was set aside: its files are needed, as the user may go back to it."""
        self._superseded |= _files_of(metadata)

    def forget_superseded(self) -> None:
        """Forget the checkpoints that were set aside, which are deleted."""
        self._superseded.clear()

    def keep(self, checkpoint_id: int, states: Iterable[OperatorSubtaskState]) -> None:
        """Keep the files of an aborted checkpoint that could not be deleted."""
        self._files[checkpoint_id] = shared_files(states)

    def unregister(self, checkpoint_id: int) -> set[str]:
        """Unregister a deleted checkpoint and return its shared files that no other checkpoint needs."""
        self._chains.pop(checkpoint_id, None)
        candidates = self._files.pop(checkpoint_id, set()) | self._reported
        needed = self.needed()
        self._reported &= needed
        return candidates - needed

    def needed(self) -> set[str]:
        """Return the shared files that must stay."""
        on_the_way = shared_files(map(OperatorSubtaskState, self._materialized.values()))
        return on_the_way.union(self._superseded, *self._files.values())


def _files_of(metadata: CheckpointMetadata) -> set[str]:
    return shared_files(subtask for operator in metadata.operators for subtask in operator.subtasks)


def _written(handle: KeyGroupsStateHandle) -> int:
    """Return the checkpoint at which a file in ``shared/`` was written."""
    assert handle.checkpoint_id is not None
    return handle.checkpoint_id
