"""Snapshots of operators under test, and who restores what of them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pyflinkstate.backends.format import OperatorSubtaskState, StateAssignment
from pyflinkstate.backends.keys import check_parallelism
from pyflinkstate.backends.operator_state import assign_state
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError
from pyflinkstate.runtime.wire import NO_WATERMARK

#: The number of key groups where nobody says another.
DEFAULT_MAX_PARALLELISM = 128


@attrs.frozen
class OperatorSnapshot:
    """All that one subtask has written, kept in memory.

    Attributes:
        state: the handles of its state.
        checkpoint_id: the checkpoint that it was written for.
        watermark: where event time stood.
        max_parallelism: the number of key groups.
    """

    state: OperatorSubtaskState
    checkpoint_id: int
    watermark: int
    max_parallelism: int


@attrs.frozen
class SnapshotPart:
    """What one subtask restores; made by :func:`split`."""

    assignment: StateAssignment
    subtask: int
    parallelism: int
    max_parallelism: int
    checkpoint_id: int | None
    watermark: int


def split(snapshots: OperatorSnapshot | Sequence[OperatorSnapshot], parallelism: int) -> list[SnapshotPart]:
    """Deal out what one or more subtasks wrote, as a job does that is restored at another parallelism.

    Keyed state goes by key group; lists of operator state are dealt out evenly, union lists and broadcast
    state go to all. Event time goes on from the least watermark.

    Args:
        snapshots: of all subtasks of the operator, in their order.
        parallelism: how many subtasks there are to be.

    Returns:
        a part for each of the new subtasks, to be given to a harness as ``restore``.

    Raises:
        ConfigurationError: there is no snapshot.
        ParallelismError: the parallelism is less than 1, or more than the max parallelism.
        IncompatibleCheckpointError: the snapshots have not one max parallelism.
    """
    written = [snapshots] if isinstance(snapshots, OperatorSnapshot) else list(snapshots)
    if not written:
        raise ConfigurationError("there is nothing to restore: give the snapshots of all subtasks")
    max_parallelism = written[0].max_parallelism
    if {snapshot.max_parallelism for snapshot in written} != {max_parallelism}:
        raise IncompatibleCheckpointError(
            "the snapshots differ in max parallelism: they are not of one operator"
        )
    check_parallelism(parallelism, max_parallelism)
    states = [snapshot.state for snapshot in written]
    checkpoint_id = max(snapshot.checkpoint_id for snapshot in written)
    watermark = min(snapshot.watermark for snapshot in written)
    return [
        SnapshotPart(assignment, subtask, parallelism, max_parallelism, checkpoint_id, watermark)
        for subtask, assignment in enumerate(assign_state(states, parallelism, max_parallelism))
    ]


def part_to_restore(
    restore: SnapshotPart | Sequence[OperatorSnapshot],
    parallelism: int,
    subtask: int,
    max_parallelism: int | None,
) -> SnapshotPart:
    """Return what a harness restores, empty where there is nothing; errors as of :func:`split`."""
    if isinstance(restore, SnapshotPart):
        part = restore
    elif restore:
        part = split(restore, parallelism)[_checked(subtask, parallelism)]
    else:
        max_parallelism = DEFAULT_MAX_PARALLELISM if max_parallelism is None else max_parallelism
        check_parallelism(parallelism, max_parallelism)
        subtask = _checked(subtask, parallelism)
        part = SnapshotPart(StateAssignment(), subtask, parallelism, max_parallelism, None, NO_WATERMARK)
    if max_parallelism not in (None, part.max_parallelism):
        raise IncompatibleCheckpointError(
            f"the snapshot has max parallelism {part.max_parallelism}, which cannot become {max_parallelism}"
        )
    return part


def _checked(subtask: int, parallelism: int) -> int:
    if not 0 <= subtask < parallelism:
        raise ConfigurationError(f"of {parallelism} subtasks none is number {subtask}: they count from 0")
    return subtask
