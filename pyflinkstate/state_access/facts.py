"""Facts about a checkpoint, its operators and their states, read without the state."""

from __future__ import annotations

import difflib

import attrs

from pyflinkstate.api.safe_repr import short_repr
from pyflinkstate.api.values import Offset


@attrs.frozen
class OperatorInfo:
    """An operator in a checkpoint.

    Attributes:
        uid: the uid that the program set, or the name that it got without one.
        parallelism: the number of subtasks that wrote the checkpoint.
        max_parallelism: the number of key groups.
        size_bytes: the size of its state, with all files that it needs.
    """

    uid: str
    parallelism: int
    max_parallelism: int
    size_bytes: int


@attrs.frozen
class StateInfo:
    """A state of an operator.

    Attributes:
        name: its name; for timers the name of their service.
        kind: ``VALUE``, ``LIST``, ``MAP``, ``REDUCING`` or ``AGGREGATING`` for keyed state; ``TIMERS``;
            ``SPLIT_DISTRIBUTE``, ``UNION`` or ``BROADCAST`` for operator state; ``RAW_KEYED`` or
            ``RAW_OPERATOR``.
        value_type: the declared type of what is stored; ``PICKLED_BYTE_ARRAY`` if none was declared.
        key_type: the declared type of keys; None if it has no keys.
        namespace_type: the type of namespaces, such as windows; None if there are none.
        expires: whether it has time to live.
        ttl_ms: how long its values live, in ms; None if they do not expire, or the file does not say.
        size_bytes: the size of its sections in all files, compressed.
    """

    name: str
    kind: str
    value_type: str = attrs.field(repr=short_repr)
    key_type: str | None = attrs.field(default=None, repr=short_repr)
    namespace_type: str | None = None
    expires: bool = False
    ttl_ms: int | None = None
    size_bytes: int = 0


@attrs.frozen
class CheckpointOffsets:
    """Where the job was when the checkpoint was taken.

    Attributes:
        checkpoint_id: the number of the checkpoint.
        job_id: the id of the job.
        job_name: its name.
        epoch: the last epoch whose records are in the state.
        timestamp_ms: when the checkpoint was triggered, in ms since 1970.
        source_position: the source's position, in its own form.
        watermarks: by assigner or operator, in ms since 1970.
        counters: counts of records up to this epoch.
        operators: parallelism and sizes.
        size_bytes: the size of all state.
    """

    checkpoint_id: int
    job_id: str
    job_name: str
    epoch: int
    timestamp_ms: int
    source_position: Offset = attrs.field(repr=short_repr)
    watermarks: dict[str, int] = attrs.field(repr=short_repr)
    counters: dict[str, int] = attrs.field(repr=short_repr)
    operators: tuple[OperatorInfo, ...] = attrs.field(repr=short_repr)

    @property
    def size_bytes(self) -> int:
        return sum(operator.size_bytes for operator in self.operators)


def nearest(name: str | None, known: list[str]) -> str:
    """Return the existing names, the most similar to ``name`` first.

    >>> nearest("cuont", ["total", "count"])
    "'count', 'total'"
    """
    likeness = difflib.SequenceMatcher(b=name or "")

    def unlikeness(other: str) -> float:
        likeness.set_seq1(other)
        return -likeness.ratio()

    return ", ".join(map(repr, sorted(known, key=unlikeness))) or "none"
