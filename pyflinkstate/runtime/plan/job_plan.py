"""The plan of a job: its stages, and the branches on which records get from one stage to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

import attrs

from pyflinkstate.api import KeyedProcessFunction, Position, UserFunction
from pyflinkstate.backends.keys import check_parallelism, default_max_parallelism
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.operators import StatefulOperator
from pyflinkstate.runtime.plan.nodes import (
    ASYNC,
    WATERMARKS,
    AlignedSource,
    Assigner,
    ChainedOperator,
    ChainNode,
    Edge,
    Edges,
    Exchange,
    Exchanges,
    Input,
    Node,
    Partitioning,
    SideOutputNode,
    SinkNode,
    SourceNode,
    StatefulNode,
    copying,
    in_order,
    output_check,
    upstream_of,
)
from pyflinkstate.runtime.sinks import check_sinks
from pyflinkstate.runtime.sources import InitialRows, SeededSource, SourceSet, key_of_place, key_of_uid

#: A node that runs as a stage of its own, which later nodes read.
Stage = SourceNode | StatefulNode | ChainNode | Exchange
#: A node that reads a stage.
Head = StatefulNode | SinkNode | ChainNode | Exchange


@attrs.frozen
class SettledOperator:
    """A stateful node together with everything that the node left open and the plan decided."""

    operator_id: str
    name: str
    node: StatefulNode
    parallelism: int
    max_parallelism: int
    #: Whether the user chose the max parallelism; otherwise that of a restored checkpoint is used.
    max_parallelism_is_set: bool


@attrs.frozen
class Branch:
    """One path from a stage to an input: a side output or the main output (None), and a chain."""

    stage: Stage
    tag_id: str | None
    operators: tuple[ChainedOperator, ...]
    input: Input | None = None
    input_number: int = 0


class Regions:
    """The stages without state that run over the partitions of one stage before them.

    A source, a stateful operator or an exchange determines partitions, and is called a *root* here. A stage
    without state keeps the partitions of its input. If it reads stages of several roots, each partition of
    each root is a partition of it. If it reads several stages of one root, as a union does where streams meet
    again that were one before, these have the same partitions, and so does the union.

    Args:
        stages: all stages, each after those that it reads.
        branches: returns the branches of a stage without state, each of which reads one of these stages.
    """

    def __init__(self, stages: Iterable[Stage], branches: Callable[[Head], list[Branch]]) -> None:
        self._roots: dict[Stage, tuple[Stage, ...]] = {}
        self._stages: dict[Stage, list[Stage]] = {}
        #: The roots whose stages each have one branch, from the root itself.
        self._flat: set[Stage] = set()
        for stage in stages:
            if isinstance(stage, ChainNode):
                self._add(stage, [branch.stage for branch in branches(stage)])
            else:
                self._roots[stage] = (stage,)
                self._stages[stage] = []
                self._flat.add(stage)

    def _add(self, stage: Stage, read: list[Stage]) -> None:
        roots = [root for one in read for root in self._roots[one]]
        self._roots[stage] = tuple(dict.fromkeys(roots))
        for root in self._roots[stage]:
            self._stages[root].append(stage)
            if root not in read or roots.count(root) > 1:
                self._flat.discard(root)

    def roots_of(self, stage: Stage) -> tuple[Stage, ...]:
        """Return the stages whose partitions are those of ``stage``, one after the other."""
        return self._roots[stage]

    def stages_of(self, root: Stage) -> list[Stage]:
        """Return the stages without state over the partitions of a root, each after those that it reads."""
        return self._stages[root]

    def is_flat(self, root: Stage) -> bool:
        """Return whether all stages of a root read the root itself, each once: they need not run together."""
        return root in self._flat


@attrs.frozen
class JobPlan:
    """The sources and everything that depends on them.

    Attributes:
        source: the source; if there are several, one that reads all of them.
        sources: every single source.
        shared: operators without state that run as stages because several others read their results.
        exchanges: send records to operators without state that do not run where their input is.
        rebalanced: the inputs whose records are rebalanced, because the operator has another parallelism.
    """

    source: SourceNode
    sinks: tuple[SinkNode, ...]
    operators: tuple[SettledOperator, ...]
    sources: tuple[SourceNode, ...] = ()
    shared: tuple[ChainNode, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    rebalanced: frozenset[tuple[Node, Edge]] = frozenset()

    def vertex_id(self, node: Stage | SinkNode) -> str:
        """Return the id of a stage or a sink, by which the job tells of it."""
        if isinstance(node, StatefulNode):
            return self.operator_of(node).operator_id
        nodes: list[Stage | SinkNode] = [*self.stages, *self.sinks]
        return f"{node.name}-{nodes.index(node)}"

    @property
    def uses_timers(self) -> bool:
        """Whether a function may have timers."""
        return any(_may_have_timers(operator.node.function) for operator in self.operators)

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

    def watermarks_of(self, watermarks: Mapping[str, int], position: Position) -> dict[str, int]:
        """Return a checkpoint's watermarks by the ids that the assigners have now.

        A source that has got a uid goes on where it was, and so do its assigners; an only source goes on
        whatever its uid was.

        Args:
            watermarks: the watermarks in the checkpoint.
            position: the position of the source in it.
        """
        assigners = [
            node.assigner
            for node in upstream_of(*self.sinks)
            if isinstance(node, ChainNode) and node.assigner
        ]
        found, ids = dict(watermarks), {assigner.id for assigner in assigners}
        for assigner in assigners:
            earlier = [one for one in self._earlier_ids(assigner, watermarks, position) if one not in ids]
            known = next((one for one in earlier if one in found), None)
            if assigner.id not in watermarks and known is not None:
                found[assigner.id] = found.pop(known)
        return found

    def _earlier_ids(
        self, assigner: Assigner, watermarks: Iterable[str], position: Position
    ) -> Iterable[str]:
        """Return under which ids a checkpoint may have an assigner, other than its own."""
        source = self.source.source
        if not isinstance(source, SourceSet):
            return [*filter(assigner.is_under_another_uid, watermarks), assigner.place]
        is_new_uid = assigner.source is not None and source.had_no_uid(
            self.source_key(assigner.source), position
        )
        return [assigner.place] if is_new_uid else []

    def source_key(self, node: SourceNode) -> str:
        """Return the key of a source among several."""
        return source_key(node, self.sources.index(node))

    def heads(self) -> list[Head]:
        """Return every node that reads a stage: stateful operators, shared stateless operators, and sinks."""
        operators = [operator.node for operator in self.operators]
        return [*self.exchanges, *self.shared, *operators, *self.sinks]

    def operator_of(self, node: StatefulNode) -> SettledOperator:
        """Return the settled operator of a node."""
        return next(operator for operator in self.operators if operator.node is node)

    def branches(self, head: Head) -> list[Branch]:
        """Return all branches to ``head``; the chains of a shared operator include the operator itself."""
        return self._branches[head]

    @cached_property
    def _branches(self) -> dict[Head, list[Branch]]:
        return {head: self._ways_to(head) for head in self.heads()}

    @cached_property
    def _exchange_before(self) -> dict[Node, Exchange]:
        return {exchange.reader: exchange for exchange in self.exchanges}

    def _ways_to(self, head: Head) -> list[Branch]:
        if isinstance(head, StatefulNode):
            return list(self._ways_to_state(head))
        if isinstance(head, Exchange):
            return [
                way
                for edge, how, copies in head.inputs
                for way in self._ways_of(edge, copies, Input(edge.node, how), 0, head.parallelism)
            ]
        own = head.operators(has_side_outputs=head in self._tagged) if isinstance(head, ChainNode) else []
        return [way for before, chain in self._read(head, tuple(own)) for way in self._ways(before, chain)]

    def _ways_to_state(self, head: StatefulNode) -> Iterator[Branch]:
        parallelism = self.operator_of(head).parallelism
        for number, one in enumerate(head.inputs()):
            for edge, copies in self._edges.of(one.parent).items():
                sent = _partitioned(one, edge, (head, edge) in self.rebalanced)
                yield from self._ways_of(edge, copies, sent, number, parallelism)

    def _ways_of(
        self, edge: Edge, copies: int, one: Input, number: int, parallelism: int
    ) -> Iterator[Branch]:
        """Yield the branches of one edge to an input; a user's partitioner is the last operator."""
        is_custom = one.partitioning is Partitioning.CUSTOM and edge.partition is not None
        last = edge.partition.operators(parallelism) if is_custom else []  # type: ignore[union-attr]
        yield from (
            attrs.evolve(branch, input=one, input_number=number)
            for branch in self._ways(edge.node, (*copying(copies), *last))
        )

    def _read(
        self, node: ChainNode | SinkNode, after: tuple[ChainedOperator, ...]
    ) -> list[tuple[Node | Exchange, tuple[ChainedOperator, ...]]]:
        """Return the inputs of a node, each with the operators that a chain runs after it."""
        exchange = self._exchange_before.get(node)
        if exchange is not None:
            return [(exchange, after)]
        return [
            (edge.node, (*copying(copies), *after)) for edge, copies in self._edges.of(node.parent).items()
        ]

    def _ways(self, node: Node | Exchange, after: tuple[ChainedOperator, ...]) -> Iterator[Branch]:
        """Yield the branches from stages through ``node`` and then ``after``."""
        ahead = [(node, after)]
        while ahead:
            one, operators = ahead.pop()
            if isinstance(one, ChainNode) and one not in self._stages_without_state:
                ahead += reversed(self._read(one, (*one.operators(), *operators)))
            else:
                yield self._way_from(one, operators)

    def _way_from(self, node: Node | Exchange, after: tuple[ChainedOperator, ...]) -> Branch:
        if isinstance(node, SideOutputNode):
            return Branch(node.parent, node.tag_id, (*output_check(node), *after))
        if isinstance(node, (SourceNode, StatefulNode)):
            return Branch(node, None, (*node.operators(), *after))
        assert isinstance(node, (ChainNode, Exchange))
        return Branch(node, None, after)

    @cached_property
    def _stages_without_state(self) -> frozenset[Node]:
        return frozenset(self.shared)

    @cached_property
    def _tagged(self) -> frozenset[Node]:
        return _with_side_outputs(upstream_of(*self.sinks))

    @cached_property
    def _edges(self) -> Edges:
        return Edges()

    @cached_property
    def stages(self) -> list[Stage]:
        """Return all stages, each after the stages that it reads."""
        heads: list[Stage | SinkNode] = [*self.sinks]
        return [stage for stage in in_order(heads, self._stages_before) if not isinstance(stage, SinkNode)]

    @cached_property
    def regions(self) -> Regions:
        """Which stages without state run over the partitions of which other stage."""
        return Regions(self.stages, self.branches)

    @cached_property
    def stages_before_shuffles(self) -> list[Stage]:
        """Return the sources, and the shared stages that only read such stages, each after what it reads."""
        found: list[Stage] = []
        for stage in self.stages:
            if isinstance(stage, (SourceNode, ChainNode)) and self._only_reads(stage, found):
                found.append(stage)
        return found

    @cached_property
    def first_shuffles(self) -> list[StatefulNode | Exchange]:
        """Return the operators whose whole input comes from stages before all shuffles."""
        before = self.stages_before_shuffles
        heads = [stage for stage in self.stages if isinstance(stage, (StatefulNode, Exchange))]
        return [head for head in heads if self._only_reads(head, before)]

    def _only_reads(self, stage: Stage, others: list[Stage]) -> bool:
        return all(before in others for before in self._stages_before(stage))

    @property
    def can_shuffle_ahead(self) -> bool:
        """Whether the input of an epoch can be read and shuffled before the epoch before it has ended.

        Watermarks go from one epoch to the next, and an async function must not run twice in an epoch.
        """
        kinds = {o.kind for head in self.heads() for branch in self.branches(head) for o in branch.operators}
        return bool(self.first_shuffles) and not self.uses_event_time and ASYNC not in kinds

    def _stages_before(self, head: Stage | SinkNode) -> list[Stage | SinkNode]:
        return [] if isinstance(head, SourceNode) else [branch.stage for branch in self.branches(head)]


def _may_have_timers(function: UserFunction) -> bool:
    if isinstance(function, StatefulOperator) and not function.is_keyed:
        return False
    if not isinstance(function, KeyedProcessFunction):
        return hasattr(function, "on_timer") or hasattr(function, "on_processing_time")
    return type(function).on_timer is not KeyedProcessFunction.on_timer


def functions_of(plan: JobPlan) -> Iterator[tuple[str, UserFunction]]:
    """Yield every user function that runs inside Spark tasks, once, after the name of its operator.

    An operator that is reached on many ways is part of many branches.
    """
    found: dict[int, tuple[str, UserFunction]] = {}
    for head in plan.heads():
        for branch in plan.branches(head):
            named = [(operator.name, operator.function) for operator in branch.operators]
            if branch.input is not None and branch.input.partitioning is Partitioning.KEY:
                named.append((f"key_by before {head.name}", branch.input.select_key))
            for name, function in named:
                found.setdefault(id(function), (name, function))
    yield from found.values()


def make_plan(sinks: list[SinkNode], parallelism: int, max_parallelism: int | None) -> JobPlan:
    """Decide on names, ids and parallelisms of everything that leads to ``sinks``.

    Raises:
        ConfigurationError: there is no sink, sinks would replace each other's output, a source that must be
            the only one is not, or two operators or two sources have the same uid.
        ParallelismError: a parallelism is out of bounds.
    """
    if not sinks:
        raise ConfigurationError("the job has no sink: call print(), sink_to() or execute_and_collect()")
    check_sinks((sink.name, sink.sink) for sink in sinks)
    nodes, edges = upstream_of(*sinks), Edges()
    sources = tuple(node for node in nodes if isinstance(node, SourceNode))
    keyed = [node for node in nodes if isinstance(node, StatefulNode)]
    operators = tuple(
        _settle(node, number, parallelism, max_parallelism) for number, node in enumerate(keyed, start=1)
    )
    _check_unique("operators", [operator.operator_id for operator in operators])
    keyed_parallelism: dict[Node, int] = {operator.node: operator.parallelism for operator in operators}
    exchanges = Exchanges(keyed_parallelism, edges, parallelism, max_parallelism)
    for node in nodes:
        exchanges.settle(node)
    return JobPlan(
        _all_sources(sources),
        tuple(sinks),
        operators,
        sources,
        _shared(nodes, edges),
        tuple(exchanges.made),
        frozenset(exchanges.rebalanced),
    )


def source_key(node: SourceNode, number: int) -> str:
    """Return the key of the ``number``-th source of a plan in the job's position."""
    return key_of_uid(node.uid) if node.uid else key_of_place(node.name, number)


def _all_sources(sources: tuple[SourceNode, ...]) -> SourceNode:
    if len(sources) == 1:
        return sources[0]
    keys = {node: source_key(node, n) for n, node in enumerate(sources)}
    _check_unique("sources", [node.uid for node in sources if node.uid])
    assert len(set(keys.values())) == len(sources), "a uid is never the key of a place"
    if any(isinstance(node.source, InitialRows) for node in sources):
        return _seeded(keys)
    alone = [node.name for node in sources if node.source.commits_every_epoch]
    if alone:
        raise ConfigurationError(
            f"source {alone[0]!r} reads a streaming query, so it must be the only source of its job: union "
            f"the DataFrames instead"
        )
    places = {keys[node]: key_of_place(node.name, n) for n, node in enumerate(sources)}
    return SourceNode(SourceSet({key: node.source for node, key in keys.items()}, places), "sources")


def _seeded(keys: dict[SourceNode, str]) -> SourceNode:
    """Return the source of a job that has initial rows for its only other source."""
    ((rows, rows_key),) = ((n.source, key) for n, key in keys.items() if isinstance(n.source, InitialRows))
    ((rest, rest_key),) = ((n, key) for n, key in keys.items() if not isinstance(n.source, InitialRows))
    return SourceNode(SeededSource((rows_key, rows), (rest_key, rest.source)), rest.name)


def _shared(nodes: list[Node], edges: Edges) -> tuple[ChainNode, ...]:
    """Return the stateless operators that have several readers, or whose side outputs are read."""
    readers: Counter[Node] = Counter()
    for node in nodes:
        for edge, copies in edges.read_by(node).items():
            readers[edge.node] += copies
    tagged = _with_side_outputs(nodes)
    return tuple(
        node for node in nodes if isinstance(node, ChainNode) and (readers[node] > 1 or node in tagged)
    )


def _with_side_outputs(nodes: list[Node]) -> frozenset[Node]:
    """Return the operators whose side outputs are read."""
    return frozenset(node.parent for node in nodes if isinstance(node, SideOutputNode))


def _partitioned(one: Input, edge: Edge, is_rebalanced: bool) -> Input:
    """Return the input with its partitioner, unless a key or ``broadcast`` decides."""
    if one.partitioning is not Partitioning.FORWARD:
        return one
    if edge.partition is None:
        return attrs.evolve(one, partitioning=Partitioning.REBALANCE) if is_rebalanced else one
    return attrs.evolve(one, partitioning=edge.partition.partitioning)


def _settle(
    node: StatefulNode, number: int, parallelism: int, max_parallelism: int | None
) -> SettledOperator:
    own_parallelism = node.parallelism or parallelism
    chosen_max = node.max_parallelism or max_parallelism
    own_max = chosen_max or default_max_parallelism(own_parallelism)
    check_parallelism(own_parallelism, own_max)
    return SettledOperator(
        node.uid or f"{node.name}-{number}", node.name, node, own_parallelism, own_max, chosen_max is not None
    )


def _check_unique(what: str, ids: list[str]) -> None:
    twice = {one for one in ids if ids.count(one) > 1}
    if twice:
        raise ConfigurationError(f"two {what} have the same uid: {', '.join(sorted(twice))}")
