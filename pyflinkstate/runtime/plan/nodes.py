"""The nodes of a plan, which calls on streams build, and partitioners, which choose a subtask without a key.

Nodes are values that form a graph from the sources on. A chain runs an operator without state as a
:class:`ChainedOperator`.

Partitioners are Flink's, made repeatable. An epoch that is run again must send each record where it went
before, so nothing depends on chance or on a counter that outlives the epoch. What Flink draws at random is
derived from the epoch, the part of the plan and the partition that a record comes from, and a round-robin
starts one subtask further in each epoch.
"""

from __future__ import annotations

import enum
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
    PickledBytesTypeInfo,
    Record,
    RuntimeContext,
    SelectKey,
    TimestampAssigner,
    TypeInformation,
    UserFunction,
    WatermarkAlignment,
    safe_repr,
)
from pyflinkstate.backends.types import rebuilds
from pyflinkstate.errors import BadRecordError, ConfigurationError
from pyflinkstate.runtime.operators import close_functions, open_function
from pyflinkstate.runtime.sinks import Sink
from pyflinkstate.runtime.sources import Source

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


class Partitioning(enum.Enum):
    """How the records of an input are distributed over subtasks."""

    #: By key group.
    KEY = "key"
    #: The records of a partition stay together.
    FORWARD = "forward"
    #: Every record goes to every subtask.
    BROADCAST = "broadcast"
    #: Records go to all subtasks in turn.
    REBALANCE = "rebalance"
    #: Records go in turn to the subtasks that belong to the partition.
    RESCALE = "rescale"
    #: Records go to random subtasks.
    SHUFFLE = "shuffle"
    #: All records go to the first subtask.
    GLOBAL = "global_"
    #: Every record goes to the subtask that comes with it: it is a pair of subtask and record.
    CUSTOM = "partition_custom"


#: The kind of operator that assigns timestamps and watermarks; its function is a ``WatermarkStrategy``.
WATERMARKS = "watermarks"
#: The kind that calls an ``AsyncFunction``; its function is an ``AsyncFunctionDescriptor``.
ASYNC = "async"
#: The kind that checks the results of the operator before it; its function is an :class:`OutputCheck`.
CHECK = "check"
#: What an :class:`OutputCheck` says of a result that it refuses.
RESULT_MISFIT = "result does not fit output_type"


@attrs.frozen
class ChainedOperator:
    """One operator of a chain; ``kind`` decides how a chain runs it.

    Attributes:
        has_side_outputs: whether its side outputs are read.
        assigner_id: the id of an assigner of watermarks in checkpoints.
        isolates: whether its results are isolated; not if the check after it makes new values of them anyway.
    """

    kind: str
    name: str
    function: Any
    has_side_outputs: bool = False
    assigner_id: str = ""
    isolates: bool = True


@attrs.frozen
class OutputCheck:
    """Checks the results of an operator against its ``output_type``; ``misfit`` says what is wrong."""

    operator: str
    output_type: TypeInformation
    misfit: str = RESULT_MISFIT

    def __call__(self, value: Any) -> Record:
        try:
            return self.output_type.check(value)
        except ValueError as error:
            raise BadRecordError(
                f"operator {self.operator!r}: {self.misfit}: {error}",
                operator=self.operator,
            ) from None


class KeptTimestamp(TimestampAssigner):
    """Takes each timestamp from a pair of a record and its timestamp, which is None if there is none."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1]  # type: ignore[no-any-return]


@attrs.frozen
class AlignedSource:
    """A source, by its key in the plan, that must not get too far ahead of the others in its group."""

    source: str
    alignment: WatermarkAlignment


@attrs.define(eq=False)
class SourceNode:
    """A source of records."""

    source: Source
    name: str
    output_type: TypeInformation | None = None
    #: Whether its records are checked against the type; a source may be known to make records of its type.
    is_checked: bool = False
    uid: str | None = None
    #: Number of assigners of watermarks that read this source and no other one.
    assigners: int = 0

    def operators(self) -> list[ChainedOperator]:
        """Return the operators that a chain runs right after this node."""
        return output_check(self, "a record does not fit type_info") if self.is_checked else []


@attrs.frozen(eq=False)
class Assigner:
    """The identity of an assigner of watermarks among the others of a program."""

    #: Its number among all of the program, from 1.
    number: int
    #: The only source that it reads, and its number among the assigners of that one.
    source: SourceNode | None = None
    number_of_source: int = 1

    @property
    def id(self) -> str:
        """Its id in checkpoints, which stays if a source with a uid changes its place in the program."""
        if self.source is None or self.source.uid is None:
            return self.place
        return self._of_source + self.source.uid

    @property
    def place(self) -> str:
        """The id that it has if its source has no uid."""
        return f"watermarks-{self.number}"

    @property
    def _of_source(self) -> str:
        return f"watermarks-{self.number_of_source} of "

    def is_under_another_uid(self, other: str) -> bool:
        """Return whether its id would be this one if its source had another uid."""
        return self.source is not None and other.startswith(self._of_source)


@attrs.define(eq=False)
class ChainNode:
    """An operator without state; it runs in the Spark task of the node before it."""

    parent: Node
    kind: str
    function: Any
    name: str
    output_type: TypeInformation | None = None
    #: Whether, and as which one, it assigns watermarks.
    assigner: Assigner | None = None
    #: Whether it belongs to its source, so that settings apply to the source.
    is_of_source: bool = False
    #: The number of subtasks; None for the number of partitions of its input.
    parallelism: int | None = None
    max_parallelism: int | None = None
    #: Whether it never has more than one subtask.
    is_non_parallel: bool = False

    def operators(self, has_side_outputs: bool = False) -> list[ChainedOperator]:
        """Return the operators that a chain runs for this node."""
        check = output_check(self)
        isolates = not check or self.output_type is None or not rebuilds(self.output_type)
        assigner_id = "" if self.assigner is None else self.assigner.id
        return [
            ChainedOperator(self.kind, self.name, self.function, has_side_outputs, assigner_id, isolates),
            *check,
        ]


@attrs.define(eq=False)
class UnionNode:
    """All records of several streams."""

    parents: tuple[Node, ...]
    name: str = "union"


@attrs.define(eq=False)
class PartitionNode:
    """The records of ``parent``, and how they are distributed over the subtasks of a reader.

    Like Flink's ``PartitionTransformation`` it is not an operator: the records are sent to each reader
    separately.
    """

    parent: Node
    partitioning: Partitioning
    name: str
    #: The partitioner of ``partition_custom``; see :class:`CustomPartition`.
    partitioner: Any = None
    key_selector: Any = None

    def operators(self, parallelism: int) -> list[ChainedOperator]:
        """Return the operators that a chain runs last, before records go to that many subtasks."""
        if self.partitioning is not Partitioning.CUSTOM:
            return []
        function = CustomPartition(self.partitioner, self.key_selector, parallelism)
        return [ChainedOperator("map", self.name, function, isolates=False)]


@attrs.define(eq=False)
class SideOutputNode:
    """The records of one side output of ``parent``."""

    parent: ChainNode | StatefulNode
    tag_id: str
    name: str
    output_type: TypeInformation | None = None


def _no_key(_: Record) -> None:
    return None


@attrs.frozen(eq=False)
class Input:
    """One input of a stateful operator."""

    parent: Node
    partitioning: Partitioning = Partitioning.KEY
    select_key: SelectKey | KeySelector = _no_key
    key_type: TypeInformation = attrs.Factory(PickledBytesTypeInfo)


@attrs.define(eq=False)
class StatefulNode:
    """An operator with state; its subtasks live in state slots. ``others`` are the inputs after the first."""

    parent: Node
    select_key: SelectKey | KeySelector
    key_type: TypeInformation
    function: UserFunction
    name: str
    output_type: TypeInformation | None = None
    uid: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    partitioning: Partitioning = Partitioning.KEY
    others: tuple[Input, ...] = ()
    #: Whether it uses event time, or sets timestamps of its results.
    uses_event_time: bool = False
    #: Whether results have the type of the first input if there is no output type.
    keeps_type: bool = False
    #: Whether it never has more than one subtask.
    is_non_parallel: bool = False

    def operators(self) -> list[ChainedOperator]:
        """Return the operators that a chain runs right behind this node."""
        return output_check(self)

    def inputs(self) -> tuple[Input, ...]:
        """Return all inputs, in order."""
        return Input(self.parent, self.partitioning, self.select_key, self.key_type), *self.others


def stateful_node(
    inputs: tuple[Input, ...],
    function: UserFunction,
    name: str,
    output_type: TypeInformation | None,
    uses_event_time: bool = False,
) -> StatefulNode:
    """Return the node of a stateful operator.

    Raises:
        ConfigurationError: the keys of its inputs have different types.
    """
    _check_key_types(name, [one.key_type for one in inputs if one.partitioning is Partitioning.KEY])
    first, *others = inputs
    return StatefulNode(
        first.parent,
        first.select_key,
        first.key_type,
        function,
        name,
        output_type,
        partitioning=first.partitioning,
        others=tuple(others),
        uses_event_time=uses_event_time,
    )


def _check_key_types(name: str, key_types: list[TypeInformation]) -> None:
    """Raise ``ConfigurationError`` unless all types are equal: each input is routed by its own type."""
    for other in key_types[1:]:
        if other != key_types[0]:
            raise ConfigurationError(
                f"{name!r}: its inputs have keys of different types, {key_types[0]} and {other}, so equal "
                f"keys would not meet: pass the same key_type to key_by() of each (without a key_type, keys "
                f"are of PICKLED_BYTE_ARRAY)"
            )


@attrs.define(eq=False)
class SinkNode:
    """A sink of records."""

    parent: Node
    sink: Sink
    name: str
    #: The number of subtasks that write; None for the number of partitions of its input.
    parallelism: int | None = None
    max_parallelism: int | None = None


Node = SourceNode | ChainNode | UnionNode | PartitionNode | SideOutputNode | StatefulNode | SinkNode


def output_check(
    node: SourceNode | ChainNode | StatefulNode | SideOutputNode, misfit: str = RESULT_MISFIT
) -> list[ChainedOperator]:
    """Return the operator that checks a node's results against their declared type, if there is one."""
    if node.output_type is None or isinstance(node.output_type, PickledBytesTypeInfo):
        return []
    return [ChainedOperator(CHECK, f"{node.name} output", OutputCheck(node.name, node.output_type, misfit))]


def parents_of(node: Node) -> tuple[Node, ...]:
    """Return the nodes that a node reads, in order."""
    if isinstance(node, SourceNode):
        return ()
    if isinstance(node, UnionNode):
        return node.parents
    return tuple(one.parent for one in node.inputs()) if isinstance(node, StatefulNode) else (node.parent,)
