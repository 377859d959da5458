"""Snapshots of operators under test, and which subtask restores which part."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pyflinkstate.backends.format import OperatorSubtaskState, StateAssignment
from pyflinkstate.backends.keys import check_parallelism
from pyflinkstate.backends.operator_state import assign_state
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError
from pyflinkstate.runtime.wire import NO_WATERMARK

#: The default number of key groups.
DEFAULT_MAX_PARALLELISM = 128


@attrs.frozen
class OperatorSnapshot:
    """The snapshot of one subtask, kept in memory.

    Attributes:
        state: the handles of its state.
        checkpoint_id: the checkpoint that it was written for.
        watermark: the watermark at the snapshot.
        max_parallelism: the number of key groups.
    """

    state: OperatorSubtaskState
    checkpoint_id: int
    watermark: int
    max_parallelism: int


@attrs.frozen
class SnapshotPart:
    """The part that one subtask restores; :func:`split` makes it."""

    assignment: StateAssignment
    subtask: int
    parallelism: int
    max_parallelism: int
    checkpoint_id: int | None
    watermark: int


def split(snapshots: OperatorSnapshot | Sequence[OperatorSnapshot], parallelism: int) -> list[SnapshotPart]:
    """Distribute the snapshots of subtasks, as a job does that is restored at another parallelism.

    Keyed state is assigned by key group. Lists of operator state are distributed evenly; union lists and
    broadcast state go to all subtasks. Event time continues from the least watermark.

    Args:
        snapshots: the snapshots of all subtasks of the operator, in order.
        parallelism: the new number of subtasks.

    Returns:
        a part for each new subtask, to be passed to a harness as ``restore``.

    Raises:
        ConfigurationError: there is no snapshot.
        ParallelismError: the parallelism is less than 1, or more than the max parallelism.
        IncompatibleCheckpointError: the snapshots differ in max parallelism.
    """
    written = [snapshots] if isinstance(snapshots, OperatorSnapshot) else list(snapshots)
    if not written:
        raise ConfigurationError("there is nothing to restore: pass the snapshots of all subtasks")
    max_parallelism = written[0].max_parallelism
    if {snapshot.max_parallelism for snapshot in written} != {max_parallelism}:
        raise IncompatibleCheckpointError(
            "the snapshots differ in max parallelism, so they do not belong to one operator"
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
    """Return the part that a harness restores, which may be empty; errors are those of :func:`split`."""
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
        raise ConfigurationError(
            f"there is no subtask {subtask} among {parallelism} subtasks, which count from 0"
        )
    return subtask
