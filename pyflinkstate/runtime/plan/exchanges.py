"""Exchanges, which send records to operators without state that do not run where their input is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from pyflinkstate.backends.keys import check_parallelism, default_max_parallelism
from pyflinkstate.errors import ParallelismError
from pyflinkstate.runtime.plan.nodes import (
    ChainNode,
    Node,
    SinkNode,
    SourceNode,
    StatefulNode,
)
from pyflinkstate.runtime.plan.partitioning import Partitioning
from pyflinkstate.runtime.plan.walk import Edge, Edges


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
        self._made: list[Exchange] = []
        self._rebalanced: set[tuple[Node, Edge]] = set()

    def made(self) -> tuple[Exchange, ...]:
        """Return the exchanges of all nodes that were processed."""
        return tuple(self._made)

    def rebalanced(self) -> frozenset[tuple[Node, Edge]]:
        """Return which operators with state are sent records in turn, for having another parallelism."""
        return frozenset(self._rebalanced)

    def settle(self, node: Node) -> None:
        """Process a node; those before it must have been processed already.

        Raises:
            ParallelismError: its parallelism is out of bounds, or ``forward`` would change it.
        """
        for edge in self._forwarded(node):
            self._check_forward(node, edge)
        exchange = self._exchange(node) if isinstance(node, (ChainNode, SinkNode)) else None
        if exchange is not None:
            self._made.append(exchange)
        if isinstance(node, StatefulNode):
            self._rebalanced.update((node, edge) for edge in self._unequal(node))
        if node not in self._keyed:
            self._partitions[node] = self._before(node) if exchange is None else exchange.parallelism

    def _exchange(self, node: ChainNode | SinkNode) -> Exchange | None:
        edges = self._edges.of(node.parent)
        parallelism = node.parallelism
        if parallelism is None and all(_keeps_partitions(edge) for edge in edges):
            return None
        if parallelism is None:
            parallelism = self._parallelism
        upper = node.max_parallelism or self._max_parallelism
        check_parallelism(parallelism, upper or default_max_parallelism(parallelism))
        inputs = tuple(
            (edge, self._partitioning(edge, parallelism), copies) for edge, copies in edges.items()
        )
        if len(inputs) == 1 and inputs[0][1] is Partitioning.FORWARD:
            return None
        how = "/".join(dict.fromkeys(how.value for _, how, _ in inputs))
        number = len(self._made) + 1
        return Exchange(node, f"{how}-{number}", f"{how} -> {node.name}", inputs, parallelism)

    def _partitioning(self, edge: Edge, parallelism: int) -> Partitioning:
        if edge.partition is not None:
            return edge.partition.partitioning
        has_as_many = self._partitions[edge.node] == parallelism
        return Partitioning.FORWARD if has_as_many else Partitioning.REBALANCE

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
                before = self._partitions[edge.node]
                if edge.partition is None and before not in (None, self._keyed[node]):
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


def _keeps_partitions(edge: Edge) -> bool:
    return edge.partition is None or edge.partition.partitioning is Partitioning.FORWARD
