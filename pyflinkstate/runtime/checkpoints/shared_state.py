"""Which files several checkpoints share, and which of them nobody needs any more.

With incremental checkpoints a subtask writes what changed since the last completed checkpoint. That
one's files and the new one together are the state: a *chain*, a full file and increments. The files lie in
``shared/`` and belong to all checkpoints whose chains they are in (Flink: ``SharedStateRegistry``). Now and
then a subtask writes all of its state in the background (Flink: *materialization*); from then on its
chain begins there.
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
    """The chains of the checkpoints that are kept, and of those that are on their way."""

    def __init__(self) -> None:
        #: By completed checkpoint: the state of each subtask, while the attempt that wrote it goes on.
        self._chains: dict[int, dict[SlotId, OperatorSubtaskState]] = {}
        self._files: dict[int, set[str]] = {}
        #: Of checkpoints that were set aside.
        self._superseded: set[str] = set()
        self._materialized: dict[SlotId, KeyGroupsStateHandle] = {}
        #: Files that were written, and that no chain may ever take up: a newer file overtook them.
        self._heard_of: set[str] = set()

    def begin_attempt(self) -> None:
        """New slots know of no checkpoint: their first one is full, so no chain goes on."""
        self._chains.clear()
        self._materialized.clear()
        self._heard_of.clear()

    def materialized(self, slot: SlotId, handle: KeyGroupsStateHandle) -> None:
        """A subtask has written all of its state as it was at ``handle.checkpoint_id``."""
        self._heard_of |= shared_files([OperatorSubtaskState(handle)])
        known = self._materialized.get(slot)
        if known is None or _written(known) < _written(handle):
            self._materialized[slot] = handle

    def whole(self, ack: CheckpointAck) -> OperatorSubtaskState:
        """Return the state of the acknowledging subtask with the chain before its increment.

        Raises:
            CheckpointError: it is put on top of a checkpoint that is no longer known.
        """
        self._heard_of |= shared_files([ack.state])
        if ack.base_id is None:
            return ack.state
        # What changed since the base covers what changed since any later one.
        bases = [known for known in self._chains if ack.base_id <= known < ack.checkpoint_id]
        if not bases:
            raise CheckpointError(
                f"{ack.slot} wrote what changed since checkpoint {ack.base_id}, which is not there any more"
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
        if base is None:  # the subtask had no state yet: its first increment has all there is
            return added[0] if added else None
        increments = (*base.increments, *added)
        full = self._materialized.get(ack.slot)
        if full is None or not _written(base) < _written(full) <= ack.checkpoint_id:
            return attrs.evolve(base, increments=increments)
        newer = (handle for handle in increments if _written(handle) > _written(full))
        return attrs.evolve(full, increments=tuple(newer))

    def register(self, checkpoint_id: int, states: dict[SlotId, OperatorSubtaskState]) -> None:
        """A checkpoint of this attempt is complete."""
        self._chains[checkpoint_id] = states
        self._files[checkpoint_id] = shared_files(states.values())

    def register_restored(self, metadata: CheckpointMetadata) -> None:
        """A checkpoint of an earlier run is kept: its files are needed, and no chain goes on from it."""
        self._files[metadata.checkpoint_id] = _files_of(metadata)

    def keep_superseded(self, metadata: CheckpointMetadata) -> None:
        """A checkpoint was set aside, and may be gone back to: its files are needed."""
        self._superseded |= _files_of(metadata)

    def forget_superseded(self) -> None:
        """Those that were set aside are deleted."""
        self._superseded.clear()

    def keep(self, checkpoint_id: int, states: Iterable[OperatorSubtaskState]) -> None:
        """A checkpoint that was given up could not be deleted: its own files stay with it."""
        self._files[checkpoint_id] = shared_files(states)

    def unregister(self, checkpoint_id: int) -> set[str]:
        """A checkpoint is deleted: return its shared files that nobody else needs."""
        self._chains.pop(checkpoint_id, None)
        candidates = self._files.pop(checkpoint_id, set()) | self._heard_of
        needed = self.needed()
        self._heard_of &= needed
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
