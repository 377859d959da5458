"""Decides which subtask restores which state.

Flink: ``StateAssignmentOperation``, ``RoundRobinOperatorStateRepartitioner``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import attrs

from pyflinkstate.api import TypeInformation
from pyflinkstate.backends.format import (
    KeyGroupsStateHandle,
    OperatorStateEntry,
    OperatorStateHandle,
    OperatorSubtaskState,
    RawOperatorStateHandle,
    StateAssignment,
    StreamStateHandle,
)
from pyflinkstate.backends.keys import KeyGroupRange, hash_has_changed, key_group_range
from pyflinkstate.backends.types import OperatorStateMode

T = TypeVar("T")


def assign_state(
    subtasks: Sequence[OperatorSubtaskState],
    parallelism: int,
    max_parallelism: int,
    key_type: TypeInformation | None = None,
) -> list[StateAssignment]:
    """Return the part that each of ``parallelism`` subtasks restores of the state that ``subtasks`` wrote.

    Keyed state is assigned by key group. If keys of ``key_type`` had another hash when it was written, every
    subtask gets all of it and keeps its own keys. List state stays where it is if the parallelism is the
    same; otherwise its elements are distributed evenly. Every subtask gets all union list state, and one copy
    of broadcast state.
    """
    managed = _repartition([subtask.managed_operator for subtask in subtasks], parallelism)
    raw = _repartition_raw([subtask.raw_operator for subtask in subtasks], parallelism)
    assignments = []
    for index in range(parallelism):
        owned = key_group_range(max_parallelism, parallelism, index)
        assignments.append(
            StateAssignment(
                _intersecting((subtask.managed_keyed for subtask in subtasks), owned, key_type),
                _intersecting((subtask.raw_keyed for subtask in subtasks), owned),
                tuple(managed[index]),
                tuple(raw[index]),
            )
        )
    return assignments


def deal_out(counts: Sequence[int], parallelism: int, first: int = 0) -> tuple[list[list[slice]], int]:
    """Distribute elements evenly in contiguous slices; the remainder goes to ``first`` and those after it.

    Args:
        counts: how many elements each old subtask has.
        parallelism: the number of new subtasks.
        first: the new subtask that gets the first element of the remainder.

    Returns:
        for each new subtask one slice of each old one's elements; and the value of ``first`` for the next
        state, so that the remainders of several states do not all go to the same subtasks.

    >>> deal_out([3, 2], 2)[0]
    [[slice(0, 3, None), slice(0, 0, None)], [slice(3, 3, None), slice(0, 2, None)]]
    """
    base, left_over = divmod(sum(counts), parallelism)
    starts = [sum(counts[:index]) for index in range(len(counts))]
    shares: list[list[slice]] = [[] for _ in range(parallelism)]
    begin = 0
    for step in range(parallelism):
        end = begin + base + (step < left_over)
        shares[(first + step) % parallelism] = [
            slice(_within(begin - start, count), _within(end - start, count))
            for start, count in zip(starts, counts, strict=True)
        ]
        begin = end
    return shares, (first + left_over) % parallelism


def _within(position: int, count: int) -> int:
    return max(0, min(position, count))


def _intersecting(
    handles: Iterator[KeyGroupsStateHandle | None],
    owned: KeyGroupRange,
    key_type: TypeInformation | None = None,
) -> tuple[KeyGroupsStateHandle, ...]:
    return tuple(
        handle
        for handle in handles
        if handle is not None
        and (
            len(handle.key_group_range.intersection(owned))
            or (key_type is not None and hash_has_changed(key_type, handle.key_hash_version))
        )
    )


def _repartition(
    handles: Sequence[OperatorStateHandle | None], parallelism: int
) -> list[list[OperatorStateHandle]]:
    #: For each new subtask: the stream, the name of a state, and which of its elements.
    picked: list[list[tuple[StreamStateHandle, str, OperatorStateEntry]]] = [[] for _ in range(parallelism)]
    first = 0
    names = dict.fromkeys(name for handle in handles if handle is not None for name in handle.states)
    for name in names:
        holders = [handle for handle in handles if handle is not None and name in handle.states]
        mode = holders[0].states[name].mode
        if mode is OperatorStateMode.SPLIT_DISTRIBUTE and parallelism != len(handles):
            counts = [holder.states[name].count for holder in holders]
            shares, first = deal_out(counts, parallelism, first)
            for index, share in enumerate(shares):
                for holder, part in zip(holders, share, strict=True):
                    entry = attrs.evolve(holder.states[name], start=part.start, stop=part.stop)
                    if part.start < part.stop:
                        picked[index].append((holder.stream, name, entry))
            continue
        for index in range(parallelism):
            for holder in _whole(handles, holders, mode, index):
                picked[index].append((holder.stream, name, holder.states[name]))
    return [[OperatorStateHandle(stream, {name: entry}) for stream, name, entry in parts] for parts in picked]


def _whole(
    handles: Sequence[OperatorStateHandle | None],
    holders: list[OperatorStateHandle],
    mode: OperatorStateMode,
    index: int,
) -> list[OperatorStateHandle]:
    """Return the handles from which subtask ``index`` restores the whole state."""
    if mode is OperatorStateMode.UNION:
        return holders
    if mode is OperatorStateMode.BROADCAST:
        return [holders[index % len(holders)]]
    return [holder for holder in holders if holder is handles[index]]


def _repartition_raw(
    handles: Sequence[RawOperatorStateHandle | None], parallelism: int
) -> list[list[RawOperatorStateHandle]]:
    if parallelism == len(handles):
        return [[] if handle is None else [handle] for handle in handles]
    holders = [handle for handle in handles if handle is not None]
    shares, _ = deal_out([len(holder.partitions) for holder in holders], parallelism)
    return [
        [
            RawOperatorStateHandle(holder.stream, holder.partitions[part])
            for holder, part in zip(holders, share, strict=True)
            if part.start < part.stop
        ]
        for share in shares
    ]
