"""The ways through a plan: from node to node, through unions and partitioners, and to other subtasks.

Each walk is linear in the size of the plan: a node that is reached on many paths is visited once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import Generic, TypeVar

import attrs

from pyflinkstate.api import FlatMapFunction, Record
from pyflinkstate.backends.keys import check_parallelism, default_max_parallelism
from pyflinkstate.errors import ParallelismError
from pyflinkstate.runtime.plan.nodes import (
    Assigner,
    ChainedOperator,
    ChainNode,
    Node,
    Partitioning,
    PartitionNode,
    SinkNode,
    SourceNode,
    StatefulNode,
    UnionNode,
    parents_of,
)

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


class Edges:
    """Finds the nodes behind unions and partitioners, each of which is visited once.

    A stream that is part of a union more than once is one edge, with the number of its copies.
    """

    def __init__(self) -> None:
        self._known: dict[Edge, dict[Edge, int]] = {}

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
        merged: dict[Edge, int] = {}
        for inner in _within(edge):
            for found, copies in self._known[inner].items():
                merged[found] = merged.get(found, 0) + copies
        return merged

    def read_by(self, node: Node) -> dict[Edge, int]:
        """Return the edges that an operator reads; unions and partitioners read nothing themselves."""
        if isinstance(node, (UnionNode, PartitionNode)):
            return {}
        found: dict[Edge, int] = {}
        for parent in parents_of(node):
            for edge, copies in self.of(parent).items():
                found[edge] = found.get(edge, 0) + copies
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
        for edge in self._forwarded(node):
            self._check_forward(node, edge)
        exchange = self._exchange(node) if isinstance(node, (ChainNode, SinkNode)) else None
        if exchange is not None:
            self.made.append(exchange)
        if isinstance(node, StatefulNode):
            self.rebalanced.update((node, edge) for edge in self._unequal(node))
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

    def _unequal(self, node: StatefulNode) -> Iterator[Edge]:
        """Yield what is read without key and partitioner, and has another number of partitions."""
        for one in node.inputs():
            for edge in self._edges.of(one.parent) if one.partitioning is Partitioning.FORWARD else ():
                if edge.partition is None and self._partitions[edge.node] not in (None, self._keyed[node]):
                    yield edge

    def _forwarded(self, node: Node) -> Iterator[Edge]:
        """Yield the edges on which an operator reads through ``forward``."""
        edges = list(self._edges.read_by(node))
        if isinstance(node, StatefulNode):  # a key or broadcast() takes precedence over forward()
            forwarded = [one.parent for one in node.inputs() if one.partitioning is Partitioning.FORWARD]
            edges = [edge for parent in forwarded for edge in self._edges.of(parent)]
        for edge in edges:
            if edge.partition is not None and edge.partition.partitioning is Partitioning.FORWARD:
                yield edge


S = TypeVar("S", bound=Hashable)


class Regions(Generic[S]):
    """The stages without state that run over the partitions of one stage before them.

    A source, a stateful operator or an exchange determines partitions, and is called a *root* here. A stage
    without state keeps the partitions of its input. If it reads stages of several roots, each partition of
    each root is a partition of it. If it reads several stages of one root, as a union does where streams meet
    again that were one before, these have the same partitions, and so does the union.

    Args:
        stages: all stages, each after those that it reads.
        read_by: returns the stages that a stage without state reads, once for each of its branches; None for
            a root.
    """

    def __init__(self, stages: Iterable[S], read_by: Callable[[S], list[S] | None]) -> None:
        self._roots: dict[S, tuple[S, ...]] = {}
        self._stages: dict[S, list[S]] = {}
        #: The roots whose stages each have one branch, from the root itself.
        self._flat: set[S] = set()
        for stage in stages:
            read = read_by(stage)
            if read is None:
                self._roots[stage] = (stage,)
                self._stages[stage] = []
                self._flat.add(stage)
            else:
                self._add(stage, read)

    def _add(self, stage: S, read: list[S]) -> None:
        roots = [root for one in read for root in self._roots[one]]
        self._roots[stage] = tuple(dict.fromkeys(roots))
        for root in self._roots[stage]:
            self._stages[root].append(stage)
            if root not in read or roots.count(root) > 1:
                self._flat.discard(root)

    def roots_of(self, stage: S) -> tuple[S, ...]:
        """Return the stages whose partitions are those of ``stage``, one after the other."""
        return self._roots[stage]

    def stages_of(self, root: S) -> list[S]:
        """Return the stages without state over the partitions of a root, each after those that it reads."""
        return self._stages[root]

    def is_flat(self, root: S) -> bool:
        """Return whether all stages of a root read the root itself, each once: they need not run together."""
        return root in self._flat
