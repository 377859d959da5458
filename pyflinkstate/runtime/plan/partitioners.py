"""Partitioners, which choose a subtask for each record if no key does: Flink's, made repeatable.

An epoch that is run again must send each record where it went before, so nothing depends on chance or on a
counter that outlives the epoch. What Flink draws at random is derived from the epoch, the part of the plan
and the partition that a record comes from, and a round-robin starts one subtask further in each epoch.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import Any

import attrs

from pyflinkstate.api import (
    KeySelector,
    MapFunction,
    Partitioner,
    Record,
    RuntimeContext,
    safe_repr,
)
from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.operators import close_functions, open_function

#: Called with a number of records, returns the subtask of each; it continues where the last call ended.
Spread = Callable[[int], Sequence[int]]


@attrs.frozen
class Sender:
    """The sender of records.

    Attributes:
        operator_id: the id of the operator that receives them.
        epoch: the epoch in which they are sent, from 1.
        branch: the part of the plan that they come from, as its number among the inputs of the operator.
        partition: the number of their partition in that part.
        partitions: the number of partitions of that part.
        parallelism: the number of subtasks of the operator.
    """

    operator_id: str
    epoch: int
    branch: int
    partition: int
    partitions: int
    parallelism: int


def rebalance(sender: Sender) -> Spread:
    """Return all subtasks in turn (Flink's ``RebalancePartitioner``)."""
    return _in_turns(range(sender.parallelism), sender.epoch - 1 + sender.branch + sender.partition)


def rescale(sender: Sender) -> Spread:
    """Return in turn the subtasks that belong to the partition (``RescalePartitioner``)."""
    return _in_turns(
        rescale_targets(sender.partition, sender.partitions, sender.parallelism), sender.epoch - 1
    )


def shuffle(sender: Sender) -> Spread:
    """Return random subtasks, all equally likely (``ShufflePartitioner``)."""
    seed = f"{sender.operator_id}/{sender.epoch}/{sender.branch}/{sender.partition}"
    draw, subtasks = random.Random(seed), range(sender.parallelism)
    return lambda count: draw.choices(subtasks, k=count)


def first_only(_: Sender) -> Spread:
    """Return the first subtask (``GlobalPartitioner``)."""
    return lambda count: [0] * count


def rescale_targets(partition: int, partitions: int, parallelism: int) -> range:
    """Return the subtasks to which a partition is connected, as in Flink's pointwise edges.

    >>> [list(rescale_targets(partition, 2, 5)) for partition in range(2)]
    [[0, 1, 2], [3, 4]]
    >>> [list(rescale_targets(partition, 5, 2)) for partition in range(5)]
    [[0], [0], [1], [1], [1]]
    """
    if partitions <= parallelism:
        return range(
            -(-partition * parallelism // partitions), -(-(partition + 1) * parallelism // partitions)
        )
    subtask = ((partition + 1) * parallelism - 1) // partitions
    return range(subtask, subtask + 1)


def _in_turns(subtasks: range, first: int) -> Spread:
    turns = cycle([*subtasks[first % len(subtasks) :], *subtasks[: first % len(subtasks)]])
    return lambda count: list(islice(turns, count))


class CustomPartition(MapFunction):
    """Calls a user's partitioner; the result is the subtask and the record.

    Args:
        partitioner: a ``Partitioner``, or a function of the key and the number of subtasks.
        key_selector: a ``KeySelector``, or a function of the record.
        parallelism: the number of subtasks.
    """

    def __init__(self, partitioner: Any, key_selector: Any, parallelism: int) -> None:
        self._partitioner = partitioner
        self._key_selector = key_selector
        self._parallelism = parallelism

    def open(self, runtime_context: RuntimeContext) -> None:
        open_function(self._partitioner, runtime_context)
        open_function(self._key_selector, runtime_context)
        rich, select = self._partitioner, self._key_selector
        self._partition = rich.partition if isinstance(rich, Partitioner) else rich
        self._key_of = select.get_key if isinstance(select, KeySelector) else select

    def close(self) -> None:
        close_functions(self._partitioner, self._key_selector)

    def map(self, value: Record) -> tuple[int, Record]:
        key = self._key_of(value)
        found = self._partition(key, self._parallelism)
        try:
            subtask = operator.index(found)
        except TypeError:
            subtask = -1
        if not 0 <= subtask < self._parallelism:
            raise BadRecordError(
                f"the partitioner of partition_custom() returned {safe_repr(found)} for key {safe_repr(key)}"
                f"; it must return the number of a subtask, from 0 to {self._parallelism - 1}"
            )
        return subtask, value
