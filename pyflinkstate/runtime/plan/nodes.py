"""The nodes of a plan: what calls on streams add up to. Values, a graph that begins with sources."""

from __future__ import annotations

import attrs

from pyflinkstate.api.types import PickledBytesTypeInfo, TypeInformation
from pyflinkstate.api.values import Record, SelectKey, UserFunction
from pyflinkstate.backends.types import rebuilds
from pyflinkstate.runtime.plan.chained import CHECK, ChainedOperator, OutputCheck
from pyflinkstate.runtime.plan.partitioners import CustomPartition
from pyflinkstate.runtime.plan.partitioning import Partitioning
from pyflinkstate.runtime.sinks import Sink
from pyflinkstate.runtime.sources import Source


@attrs.define(eq=False)
class SourceNode:
    """Where records come from."""

    source: Source
    name: str
    output_type: TypeInformation | None = None

    def operators(self) -> list[ChainedOperator]:
        """Return what a chain runs right behind this node: nothing."""
        return []


@attrs.define(eq=False)
class ChainNode:
    """An operator without state; it runs in the Spark task of what comes before it."""

    parent: Node
    kind: str
    function: UserFunction
    name: str
    output_type: TypeInformation | None = None
    #: Of one that assigns watermarks: what checkpoints know it by.
    assigner_id: str = ""
    #: It came with its source, and what is set is the source's.
    is_of_source: bool = False
    #: How many subtasks; None for as many as what precedes it has partitions.
    parallelism: int | None = None
    max_parallelism: int | None = None
    #: It never has more than one subtask.
    is_non_parallel: bool = False

    def operators(self, has_side_outputs: bool = False) -> list[ChainedOperator]:
        """Return what a chain runs for this node."""
        check = output_check(self)
        isolates = not check or self.output_type is None or not rebuilds(self.output_type)
        own = ChainedOperator(
            self.kind, self.name, self.function, has_side_outputs, self.assigner_id, isolates
        )
        return [own, *check]


@attrs.define(eq=False)
class UnionNode:
    """All records of several streams."""

    parents: tuple[Node, ...]
    name: str = "union"


@attrs.define(eq=False)
class PartitionNode:
    """The records of ``parent``, and which subtasks of what reads them they go to.

    No operator, as Flink's ``PartitionTransformation`` is none: each that reads it is sent them anew.
    """

    parent: Node
    partitioning: Partitioning
    name: str
    #: Of ``partition_custom``: see :class:`CustomPartition`.
    partitioner: UserFunction = None
    key_selector: UserFunction = None

    def operators(self, parallelism: int) -> list[ChainedOperator]:
        """Return what a chain runs last, before records go to so many subtasks."""
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
    select_key: SelectKey = _no_key
    key_type: TypeInformation = attrs.Factory(PickledBytesTypeInfo)


@attrs.define(eq=False)
class StatefulNode:
    """An operator with state; its subtasks live in state slots. ``others`` are inputs after the first."""

    parent: Node
    select_key: SelectKey
    key_type: TypeInformation
    function: UserFunction
    name: str
    output_type: TypeInformation | None = None
    uid: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    partitioning: Partitioning = Partitioning.KEY
    others: tuple[Input, ...] = ()
    #: It goes by event time, or stamps its results.
    uses_event_time: bool = False
    #: Without an output type, results are of the type of the first input.
    keeps_type: bool = False
    #: It never has more than one subtask.
    is_non_parallel: bool = False

    def operators(self) -> list[ChainedOperator]:
        """Return what a chain runs right behind this node."""
        return output_check(self)

    def inputs(self) -> tuple[Input, ...]:
        """Return all inputs, in order."""
        return Input(self.parent, self.partitioning, self.select_key, self.key_type), *self.others


def stateful_node(
    first: Input,
    others: tuple[Input, ...],
    function: UserFunction,
    name: str,
    output_type: TypeInformation | None,
    uses_event_time: bool = False,
) -> StatefulNode:
    """Return the node of a stateful operator."""
    return StatefulNode(
        first.parent,
        first.select_key,
        first.key_type,
        function,
        name,
        output_type,
        partitioning=first.partitioning,
        others=others,
        uses_event_time=uses_event_time,
    )


@attrs.define(eq=False)
class SinkNode:
    """Where records go."""

    parent: Node
    sink: Sink
    name: str
    #: How many subtasks write; None for as many as what precedes it has partitions.
    parallelism: int | None = None
    max_parallelism: int | None = None


Node = SourceNode | ChainNode | UnionNode | PartitionNode | SideOutputNode | StatefulNode | SinkNode


def output_check(node: ChainNode | StatefulNode | SideOutputNode) -> list[ChainedOperator]:
    """Return what checks the results of a node against their declared type, if they have one."""
    if node.output_type is None or isinstance(node.output_type, PickledBytesTypeInfo):
        return []
    return [ChainedOperator(CHECK, f"{node.name} output", OutputCheck(node.name, node.output_type))]


def parents_of(node: Node) -> tuple[Node, ...]:
    """Return what a node reads, in order."""
    if isinstance(node, SourceNode):
        return ()
    if isinstance(node, UnionNode):
        return node.parents
    if isinstance(node, StatefulNode):
        return tuple(one.parent for one in node.inputs())
    return (node.parent,)
