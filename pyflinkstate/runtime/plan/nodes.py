"""The nodes of a plan, the ways through it, and partitioners, which choose a subtask without a key.

Nodes are values that form a graph from the sources on; calls on streams build them. A chain runs an operator
without state as a :class:`ChainedOperator`.

The ways go from node to node, through unions and partitioners, and to other subtasks. Each walk is linear in
the size of the plan: a node that is reached on many paths is visited once.

Partitioners are Flink's, made repeatable. An epoch that is run again must send each record where it went
before, so nothing depends on chance or on a counter that outlives the epoch. What Flink draws at random is
derived from the epoch, the part of the plan and the partition that a record comes from, and a round-robin
starts one subtask further in each epoch.
"""

from __future__ import annotations

import enum
import operator
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import cycle, islice, repeat
from typing import Any, TypeVar

import attrs

from pyflinkstate.api import (
    FlatMapFunction,
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
from pyflinkstate.backends.keys import check_parallelism, default_max_parallelism
from pyflinkstate.backends.types import rebuilds
from pyflinkstate.errors import BadRecordError, ConfigurationError, ParallelismError
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


@attrs.define(eq=False)
class CustomPartition(MapFunction):
    """Calls a user's partitioner; the result is the subtask and the record.

    Args:
        partitioner: a ``Partitioner``, or a function of the key and the number of subtasks.
        key_selector: a ``KeySelector``, or a function of the record.
        parallelism: the number of subtasks.
    """

    _partitioner: Any
    _key_selector: Any
    _parallelism: int

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
        """Return the operators of ``partition_custom``, which a chain runs last."""
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


def check_key_types(name: str, inputs: Iterable[Input]) -> None:
    """Raise ``ConfigurationError`` unless the keys of all inputs have one type, by which each is routed."""
    key_types = [one.key_type for one in inputs if one.partitioning is Partitioning.KEY]
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


N = TypeVar("N", bound=Hashable)


def in_order(ends: Iterable[N], before: Callable[[N], Iterable[N]]) -> list[N]:
    """Return ``ends`` and everything before them, each once, in topological order."""
    done: dict[N, None] = {}
    ahead = [(one, False) for one in reversed(list(ends))]
    while ahead:
        one, is_ready = ahead.pop()
        if is_ready:
            done[one] = None
        elif one not in done:
            ahead.append((one, True))
            ahead += [(other, False) for other in reversed(list(before(one))) if other not in done]
    return list(done)


def upstream_of(*nodes: Node) -> list[Node]:
    """Return everything that leads to ``nodes``, from the sources on, and the nodes themselves."""
    return in_order(nodes, parents_of)


def new_assigner(number: int, parent: Node) -> Assigner:
    """Return the identity of the program's ``number``-th assigner of watermarks, which reads ``parent``."""
    sources = [node for node in upstream_of(parent) if isinstance(node, SourceNode)]
    if len(sources) != 1:
        return Assigner(number)
    sources[0].assigners += 1
    return Assigner(number, sources[0], sources[0].assigners)


@attrs.frozen
class Edge:
    """The input of an operator: the results of ``node``, distributed by ``partition`` if there is one."""

    node: Node
    partition: PartitionNode | None = None


@attrs.define
class Edges:
    """Finds the nodes behind unions and partitioners, each of which is visited once.

    A stream that is part of a union more than once is one edge, with the number of its copies.
    """

    _known: dict[Edge, dict[Edge, int]] = attrs.field(factory=dict, init=False)

    def of(self, parent: Node) -> dict[Edge, int]:
        """Return the edges behind ``parent``, and the number of copies of each of their records.

        If several partitioners follow each other, the last one counts.
        """
        for edge in in_order([Edge(parent)], lambda edge: [] if edge in self._known else _within(edge)):
            if edge not in self._known:
                self._known[edge] = self._merged(edge)
        return self._known[Edge(parent)]

    def _merged(self, edge: Edge) -> dict[Edge, int]:
        if not isinstance(edge.node, (UnionNode, PartitionNode)):
            return {edge: 1}
        merged: Counter[Edge] = Counter()
        for inner in _within(edge):
            merged.update(self._known[inner])
        return merged

    def read_by(self, node: Node) -> dict[Edge, int]:
        """Return the edges that an operator reads; unions and partitioners read nothing themselves."""
        found: Counter[Edge] = Counter()
        if not isinstance(node, (UnionNode, PartitionNode)):
            for parent in parents_of(node):
                found.update(self.of(parent))
        return found


def _within(edge: Edge) -> list[Edge]:
    node = edge.node
    if isinstance(node, PartitionNode):
        return [Edge(node.parent, node if edge.partition is None else edge.partition)]
    return [Edge(parent, edge.partition) for parent in node.parents] if isinstance(node, UnionNode) else []


@attrs.frozen
class Copies(FlatMapFunction):
    """Repeats each record, as a union of a stream with itself does."""

    number: int

    def flat_map(self, value: Record) -> Iterable[Record]:
        return repeat(value, self.number)


def copying(copies: int) -> tuple[ChainedOperator, ...]:
    """Return the operators that repeat each record ``copies`` times; for 1 there are none."""
    return () if copies == 1 else (ChainedOperator("flat_map", "union", Copies(copies)),)


@attrs.frozen(eq=False)
class Exchange:
    """A stage that sends records to the subtasks of an operator without state, or of a sink: the ``reader``.

    Attributes:
        operator_id: its id among all receivers of records.
        name: the name that users see.
        inputs: what is read, how it is distributed, and the number of copies of each record.
        parallelism: the number of subtasks of the reader.
    """

    reader: ChainNode | SinkNode
    operator_id: str
    name: str
    inputs: tuple[tuple[Edge, Partitioning, int], ...]
    parallelism: int

    @property
    def max_parallelism(self) -> int:
        """The number of subtasks, as there are no key groups."""
        return self.parallelism


class Exchanges:
    """Decides how many subtasks operators without state have, and how records get to them.

    As in Flink, records are sent to other subtasks if there is a partitioner or if the parallelism changes;
    otherwise an operator runs where its input is.
    """

    def __init__(
        self, keyed: Mapping[Node, int], edges: Edges, parallelism: int, max_parallelism: int | None
    ) -> None:
        self._edges = edges
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._keyed = keyed
        #: The number of partitions of a node's results; None if the source decides.
        self._partitions: dict[Node, int | None] = {**keyed}
        #: The exchanges of all nodes that were processed.
        self.made: list[Exchange] = []
        #: The operators with state that are sent records in turn, for having another parallelism.
        self.rebalanced: set[tuple[Node, Edge]] = set()

    def settle(self, node: Node) -> None:
        """Process a node; those before it must have been processed already.

        Raises:
            ParallelismError: its parallelism is out of bounds, or ``forward`` would change it.
        """
        edges = self._without_key(node)
        for edge in edges:
            if edge.partition is not None and edge.partition.partitioning is Partitioning.FORWARD:
                self._check_forward(node, edge)
        exchange = self._exchange(node) if isinstance(node, (ChainNode, SinkNode)) else None
        if exchange is not None:
            self.made.append(exchange)
        if isinstance(node, StatefulNode):
            kept = (None, self._keyed[node])
            self.rebalanced.update(
                (node, edge)
                for edge in edges
                if edge.partition is None and self._partitions[edge.node] not in kept
            )
        if node not in self._keyed:
            self._partitions[node] = self._before(node) if exchange is None else exchange.parallelism

    def _exchange(self, node: ChainNode | SinkNode) -> Exchange | None:
        edges = self._edges.of(node.parent)
        parallelism = node.parallelism
        if parallelism is None:
            partitions = [edge.partition for edge in edges if edge.partition is not None]
            if all(one.partitioning is Partitioning.FORWARD for one in partitions):
                return None
            parallelism = self._parallelism
        upper = node.max_parallelism or self._max_parallelism
        check_parallelism(parallelism, upper or default_max_parallelism(parallelism))
        inputs = tuple(
            (edge, self._partitioning(edge, parallelism), copies) for edge, copies in edges.items()
        )
        if len(inputs) == 1 and inputs[0][1] is Partitioning.FORWARD:
            return None
        how = "/".join(dict.fromkeys(how.value for _, how, _ in inputs))
        number = len(self.made) + 1
        return Exchange(node, f"{how}-{number}", f"{how} -> {node.name}", inputs, parallelism)

    def _partitioning(self, edge: Edge, parallelism: int) -> Partitioning:
        if edge.partition is not None:
            return edge.partition.partitioning
        return Partitioning.FORWARD if self._partitions[edge.node] == parallelism else Partitioning.REBALANCE

    def _before(self, node: Node) -> int | None:
        """Return the number of partitions of a node's input, or of a source."""
        if isinstance(node, SourceNode):
            return None if node.source.is_parallel else 1
        edges = list(self._edges.read_by(node))
        return self._partitions[edges[0].node] if len(edges) == 1 else None

    def _check_forward(self, node: Node, edge: Edge) -> None:
        own = self._keyed.get(node) or getattr(node, "parallelism", None)
        before = self._partitions[edge.node]
        if own is not None and before != own:
            raise ParallelismError(
                f"forward() does not allow a change of parallelism: {edge.node.name!r} has "
                f"{before or 'as many subtasks as its source has partitions'}, {node.name!r} has {own}; use "
                f"rebalance(), rescale(), shuffle(), broadcast() or global_()"
            )

    def _without_key(self, node: Node) -> list[Edge]:
        """Return the edges that a node reads, except by key or broadcast, which take precedence."""
        parents = parents_of(node)
        if isinstance(node, StatefulNode):
            parents = tuple(one.parent for one in node.inputs() if one.partitioning is Partitioning.FORWARD)
        return [edge for parent in parents for edge in self._edges.of(parent)]
