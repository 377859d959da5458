"""The plan of a job: what the user's calls on streams add up to. Values, a graph that begins with sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property

import attrs

from pyflinkstate.api.functions import KeyedProcessFunction
from pyflinkstate.api.types import PickledBytesTypeInfo, TypeInformation
from pyflinkstate.api.values import Record, SelectKey, UserFunction
from pyflinkstate.backends.keys import check_parallelism, default_max_parallelism
from pyflinkstate.backends.types import rebuilds
from pyflinkstate.errors import ConfigurationError, ParallelismError
from pyflinkstate.runtime.plan.chained import CHECK, WATERMARKS, AlignedSource, ChainedOperator, OutputCheck
from pyflinkstate.runtime.plan.partitioners import CustomPartition
from pyflinkstate.runtime.plan.partitioning import Partitioning
from pyflinkstate.runtime.sinks import Sink, check_sinks
from pyflinkstate.runtime.sources import Source, SourceSet


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
        check = _output_check(self)
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

    parent: ChainNode | KeyedNode
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
class KeyedNode:
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
        return _output_check(self)

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
) -> KeyedNode:
    """Return the node of a stateful operator."""
    return KeyedNode(
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


Node = SourceNode | ChainNode | UnionNode | PartitionNode | SideOutputNode | KeyedNode | SinkNode


@attrs.frozen(eq=False)
class Exchange:
    """A stage that sends records to the subtasks of an operator without state, or of a sink: the ``reader``.

    Attributes:
        operator_id: what it is known by among all that records are sent to.
        name: for people.
        inputs: what is read, and how it is spread.
        parallelism: how many subtasks the reader has.
    """

    reader: ChainNode | SinkNode
    operator_id: str
    name: str
    inputs: tuple[tuple[Edge, Partitioning], ...]
    parallelism: int

    @property
    def max_parallelism(self) -> int:
        """As many as subtasks: there are no key groups."""
        return self.parallelism


#: What runs as a stage of its own, and is read by what comes after.
Stage = SourceNode | KeyedNode | ChainNode | Exchange
#: What reads a stage.
Head = KeyedNode | SinkNode | ChainNode | Exchange


@attrs.frozen
class KeyedOperator:
    """A keyed node with everything settled that it left open."""

    operator_id: str
    name: str
    node: KeyedNode
    parallelism: int
    max_parallelism: int
    #: The user chose the max parallelism; otherwise a restored checkpoint's is taken over.
    max_parallelism_is_set: bool


@attrs.frozen
class Branch:
    """One way from a stage to an input: a side output or the main one (None), and a chain."""

    stage: Stage
    tag_id: str | None
    operators: tuple[ChainedOperator, ...]
    input: Input | None = None
    input_number: int = 0


@attrs.frozen
class JobPlan:
    """The sources and all that hangs on them.

    Attributes:
        source: the source; where there are several, one that reads all of them.
        sources: each of them.
        shared: operators without state that run as stages, as several others read what they give.
        exchanges: what sends records to operators without state that do not run where the records are.
    """

    source: SourceNode
    sinks: tuple[SinkNode, ...]
    operators: tuple[KeyedOperator, ...]
    sources: tuple[SourceNode, ...] = ()
    shared: tuple[ChainNode, ...] = ()
    exchanges: tuple[Exchange, ...] = ()

    @property
    def uses_timers(self) -> bool:
        """Whether a function may have timers."""
        functions = (operator.node.function for operator in self.operators)
        return any(_may_have_timers(function) for function in functions)

    @cached_property
    def uses_event_time(self) -> bool:
        """Whether records carry timestamps, and watermarks follow them."""
        return any(self._assigners()) or any(operator.node.uses_event_time for operator in self.operators)

    def _assigners(self) -> Iterator[tuple[Stage, ChainedOperator]]:
        for head in self.heads():
            for branch in self.branches(head):
                for operator in branch.operators:
                    if operator.kind == WATERMARKS:
                        yield branch.stage, operator

    def idle_timeouts_ms(self) -> dict[str, int]:
        """Return the idle timeouts of assigners of watermarks, by their ids."""
        return {
            operator.assigner_id: operator.function.idle_timeout_ms
            for _, operator in self._assigners()
            if operator.function.idle_timeout_ms is not None
        }

    def aligned_sources(self) -> dict[str, AlignedSource]:
        """Return the sources that wait for others of their group, by the ids of their assigners."""
        return {
            operator.assigner_id: AlignedSource(self.source_key(stage), operator.function.alignment)
            for stage, operator in self._assigners()
            if isinstance(stage, SourceNode) and operator.function.alignment is not None
        }

    def source_key(self, node: SourceNode) -> str:
        """Return what a source is called among several."""
        return source_key(node, self.sources.index(node))

    def heads(self) -> list[Head]:
        """Return every node that reads a stage: stateful operators, shared ones without state, and sinks."""
        operators = [operator.node for operator in self.operators]
        return [*self.exchanges, *self.shared, *operators, *self.sinks]

    def operator_of(self, node: KeyedNode) -> KeyedOperator:
        """Return the settled operator of a node."""
        return next(operator for operator in self.operators if operator.node is node)

    def branches(self, head: Head) -> list[Branch]:
        """Return all ways on which records get to ``head``; a shared operator is itself in its chains."""
        return self._branches[head]

    @cached_property
    def _branches(self) -> dict[Head, list[Branch]]:
        return {head: self._ways_to(head) for head in self.heads()}

    @cached_property
    def _exchange_before(self) -> dict[Node, Exchange]:
        return {exchange.reader: exchange for exchange in self.exchanges}

    def _ways_to(self, head: Head) -> list[Branch]:
        if isinstance(head, KeyedNode):
            return list(self._ways_to_state(head))
        if isinstance(head, Exchange):
            edges = ((edge, Input(edge.node, how)) for edge, how in head.inputs)
            return [way for edge, one in edges for way in self._ways_of(edge, one, 0, head.parallelism)]
        own = head.operators(has_side_outputs=True) if isinstance(head, ChainNode) else []
        return list(self._ways_before(head, tuple(own)))

    def _ways_to_state(self, head: KeyedNode) -> Iterator[Branch]:
        parallelism = self.operator_of(head).parallelism
        for number, one in enumerate(head.inputs()):
            for edge in edges_of(one.parent):
                yield from self._ways_of(edge, _partitioned(one, edge), number, parallelism)

    def _ways_of(self, edge: Edge, one: Input, number: int, parallelism: int) -> Iterator[Branch]:
        """Yield the ways of one edge to an input; the last operator is a partitioner of the user's."""
        is_custom = one.partitioning is Partitioning.CUSTOM and edge.partition is not None
        last = edge.partition.operators(parallelism) if is_custom else []  # type: ignore[union-attr]
        for branch in self._ways(edge.node, tuple(last)):
            yield attrs.evolve(branch, input=one, input_number=number)

    def _ways_before(
        self, node: ChainNode | SinkNode, after: tuple[ChainedOperator, ...]
    ) -> Iterator[Branch]:
        exchange = self._exchange_before.get(node)
        if exchange is not None:
            yield Branch(exchange, None, after)
            return
        for edge in edges_of(node.parent):
            yield from self._ways(edge.node, after)

    def _ways(self, node: Node, after: tuple[ChainedOperator, ...]) -> Iterator[Branch]:
        if isinstance(node, SideOutputNode):
            yield Branch(node.parent, node.tag_id, (*_output_check(node), *after))
        elif isinstance(node, ChainNode) and not any(node is shared for shared in self.shared):
            yield from self._ways_before(node, (*node.operators(), *after))
        elif isinstance(node, ChainNode):
            yield Branch(node, None, after)
        else:
            assert isinstance(node, (SourceNode, KeyedNode))
            yield Branch(node, None, (*node.operators(), *after))


def _may_have_timers(function: UserFunction) -> bool:
    if not isinstance(function, KeyedProcessFunction):
        return hasattr(function, "on_timer") or hasattr(function, "on_processing_time")
    return type(function).on_timer is not KeyedProcessFunction.on_timer


def _output_check(node: ChainNode | KeyedNode | SideOutputNode) -> list[ChainedOperator]:
    if node.output_type is None or isinstance(node.output_type, PickledBytesTypeInfo):
        return []
    return [ChainedOperator(CHECK, f"{node.name} output", OutputCheck(node.name, node.output_type))]


def functions_of(plan: JobPlan) -> Iterator[tuple[str, UserFunction]]:
    """Yield name and function of everything of the user's that runs inside Spark tasks."""
    for head in plan.heads():
        for branch in plan.branches(head):
            for operator in branch.operators:
                yield operator.name, operator.function
            if branch.input is not None and branch.input.partitioning is Partitioning.KEY:
                yield f"key_by before {head.name}", branch.input.select_key


def make_plan(sinks: list[SinkNode], parallelism: int, max_parallelism: int | None) -> JobPlan:
    """Settle names, ids and parallelisms of all that leads to ``sinks``.

    Raises:
        ConfigurationError: no sink, sinks that would replace each other's output, a source that must be
            alone and is not, or two operators with one uid.
        ParallelismError: a parallelism is out of bounds.
    """
    if not sinks:
        raise ConfigurationError("the job has no sink: call print(), sink_to() or execute_and_collect()")
    check_sinks((sink.name, sink.sink) for sink in sinks)
    nodes = list(dict.fromkeys(node for sink in sinks for node in upstream_of(sink)))
    sources = tuple(node for node in nodes if isinstance(node, SourceNode))
    keyed = [node for node in nodes if isinstance(node, KeyedNode)]
    operators = tuple(
        _settle(node, number, parallelism, max_parallelism) for number, node in enumerate(keyed, start=1)
    )
    _check_unique([operator.operator_id for operator in operators])
    exchanges = _Exchanges(operators, parallelism, max_parallelism)
    for node in nodes:
        exchanges.settle(node)
    return JobPlan(_all_sources(sources), tuple(sinks), operators, sources, _shared(nodes), exchanges.made())


def source_key(node: SourceNode, number: int) -> str:
    """Return what the ``number``-th source of a plan is called in the job's position."""
    return f"{node.name}-{number}"


def _all_sources(sources: tuple[SourceNode, ...]) -> SourceNode:
    if len(sources) == 1:
        return sources[0]
    alone = [node.name for node in sources if node.source.commits_every_epoch]
    if alone:
        raise ConfigurationError(
            f"source {alone[0]!r} follows a streaming query, and must be the only one of its job: union the "
            f"DataFrames instead"
        )
    return SourceNode(
        SourceSet({source_key(node, n): node.source for n, node in enumerate(sources)}), "sources"
    )


def _shared(nodes: list[Node]) -> tuple[ChainNode, ...]:
    """Return the operators without state that more than one other reads, or whose side outputs are read."""
    readers = Counter(edge.node for node in nodes for edge in _read_by(node))
    tagged = {node.parent for node in nodes if isinstance(node, SideOutputNode)}
    return tuple(
        node for node in nodes if isinstance(node, ChainNode) and (readers[node] > 1 or node in tagged)
    )


@attrs.frozen(eq=False)
class Edge:
    """What an operator reads: results of ``node``, sent as ``partition`` says, if anything says it."""

    node: Node
    partition: PartitionNode | None = None


def edges_of(parent: Node, partition: PartitionNode | None = None) -> Iterator[Edge]:
    """Yield what ``parent`` stands for; of several partitioners, one after the other, the last one counts."""
    if isinstance(parent, PartitionNode):
        yield from edges_of(parent.parent, parent if partition is None else partition)
    elif isinstance(parent, UnionNode):
        for one in parent.parents:
            yield from edges_of(one, partition)
    else:
        yield Edge(parent, partition)


def _partitioned(one: Input, edge: Edge) -> Input:
    """Return the input as its partitioner has it, where neither a key nor ``broadcast`` says it."""
    if one.partitioning is not Partitioning.FORWARD or edge.partition is None:
        return one
    return attrs.evolve(one, partitioning=edge.partition.partitioning)


def _read_by(node: Node) -> Iterator[Edge]:
    """Yield what an operator reads; unions and partitioners read nothing themselves."""
    if not isinstance(node, (UnionNode, PartitionNode)):
        for parent in _parents(node):
            yield from edges_of(parent)


class _Exchanges:
    """Settles how many subtasks operators without state have, and how records get to them.

    As in Flink, a partitioner, or another parallelism than that of what is read, sends records on; else an
    operator runs where they are.
    """

    def __init__(
        self, operators: Iterable[KeyedOperator], parallelism: int, max_parallelism: int | None
    ) -> None:
        self._keyed: dict[Node, int] = {operator.node: operator.parallelism for operator in operators}
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._settled: dict[Node, Exchange | None] = {}

    def made(self) -> tuple[Exchange, ...]:
        """Return the exchanges of all nodes that were settled."""
        return tuple(exchange for exchange in self._settled.values() if exchange is not None)

    def settle(self, node: Node) -> None:
        """Settle a node; those before it are settled already.

        Raises:
            ParallelismError: its parallelism is out of bounds, or ``forward`` would change it.
        """
        for edge in _forwarded(node):
            self._check_forward(node, edge)
        if isinstance(node, (ChainNode, SinkNode)):
            self._settled[node] = self._exchange(node)

    def _exchange(self, node: ChainNode | SinkNode) -> Exchange | None:
        edges = list(edges_of(node.parent))
        parallelism = node.parallelism
        if parallelism is None and all(_keeps_partitions(edge) for edge in edges):
            return None
        if parallelism is None:
            parallelism = self._parallelism
        upper = node.max_parallelism or self._max_parallelism
        check_parallelism(parallelism, upper or default_max_parallelism(parallelism))
        inputs = tuple((edge, self._partitioning(edge, parallelism)) for edge in edges)
        if len(inputs) == 1 and inputs[0][1] is Partitioning.FORWARD:
            return None
        how = "/".join(dict.fromkeys(how.value for _, how in inputs))
        number = len(self.made()) + 1
        return Exchange(node, f"{how}-{number}", f"{how} -> {node.name}", inputs, parallelism)

    def _partitioning(self, edge: Edge, parallelism: int) -> Partitioning:
        if edge.partition is not None:
            return edge.partition.partitioning
        has_as_many = self._parallelism_of(edge.node) == parallelism
        return Partitioning.FORWARD if has_as_many else Partitioning.REBALANCE

    def _parallelism_of(self, node: Node) -> int | None:
        """Return how many partitions results are in; None where it is up to the source."""
        if isinstance(node, SideOutputNode):
            return self._parallelism_of(node.parent)
        if isinstance(node, KeyedNode):
            return self._keyed[node]
        if isinstance(node, SourceNode):
            return None if node.source.is_parallel else 1
        exchange = self._settled[node]
        if exchange is not None:
            return exchange.parallelism
        edges = [edge for parent in _parents(node) for edge in edges_of(parent)]
        return self._parallelism_of(edges[0].node) if len(edges) == 1 else None

    def _check_forward(self, node: Node, edge: Edge) -> None:
        own = self._keyed.get(node) or getattr(node, "parallelism", None)
        before = self._parallelism_of(edge.node)
        if own is not None and before != own:
            raise ParallelismError(
                f"forward() does not allow a change of parallelism: {edge.node.name!r} has "
                f"{before or 'as many subtasks as its source has partitions'}, {node.name!r} has {own}; use "
                f"rebalance(), rescale(), shuffle(), broadcast() or global_()"
            )


def _keeps_partitions(edge: Edge) -> bool:
    return edge.partition is None or edge.partition.partitioning is Partitioning.FORWARD


def _forwarded(node: Node) -> Iterator[Edge]:
    """Yield what an operator reads behind ``forward``."""
    parents = [] if isinstance(node, (UnionNode, PartitionNode)) else list(_parents(node))
    if isinstance(node, KeyedNode):  # a key, or broadcast(), goes before forward()
        parents = [one.parent for one in node.inputs() if one.partitioning is Partitioning.FORWARD]
    for edge in (edge for parent in parents for edge in edges_of(parent)):
        if edge.partition is not None and edge.partition.partitioning is Partitioning.FORWARD:
            yield edge


def _parents(node: Node) -> tuple[Node, ...]:
    if isinstance(node, SourceNode):
        return ()
    if isinstance(node, UnionNode):
        return node.parents
    if isinstance(node, KeyedNode):
        return tuple(one.parent for one in node.inputs())
    return (node.parent,)


def upstream_of(node: Node) -> Iterator[Node]:
    """Yield all that leads to ``node``, from the sources on, and the node; some more than once."""
    for parent in _parents(node):
        yield from upstream_of(parent)
    yield node


def _settle(node: KeyedNode, number: int, parallelism: int, max_parallelism: int | None) -> KeyedOperator:
    own_parallelism = node.parallelism or parallelism
    chosen_max = node.max_parallelism or max_parallelism
    own_max = chosen_max or default_max_parallelism(own_parallelism)
    check_parallelism(own_parallelism, own_max)
    operator_id = node.uid or f"{node.name}-{number}"
    return KeyedOperator(operator_id, node.name, node, own_parallelism, own_max, chosen_max is not None)


def _check_unique(operator_ids: list[str]) -> None:
    twice = {operator_id for operator_id in operator_ids if operator_ids.count(operator_id) > 1}
    if twice:
        raise ConfigurationError(f"two operators have the same uid: {', '.join(sorted(twice))}")
