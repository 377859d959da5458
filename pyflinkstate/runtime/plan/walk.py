"""Walks over a plan, each linear in its size: a node that is reached on many paths is visited once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import repeat
from typing import TypeVar

import attrs

from pyflinkstate.api.functions import FlatMapFunction
from pyflinkstate.api.values import Record
from pyflinkstate.runtime.plan.chained import ChainedOperator
from pyflinkstate.runtime.plan.nodes import Assigner, Node, PartitionNode, SourceNode, UnionNode, parents_of

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
        for edge in in_order([Edge(parent)], self._unknown_within):
            if edge not in self._known:
                self._known[edge] = self._merged(edge)
        return self._known[Edge(parent)]

    def _unknown_within(self, edge: Edge) -> list[Edge]:
        return [] if edge in self._known else _within(edge)

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
    if isinstance(node, UnionNode):
        return [Edge(parent, edge.partition) for parent in node.parents]
    return []


@attrs.frozen
class Copies(FlatMapFunction):
    """Repeats each record, as a union of a stream with itself does."""

    number: int

    def flat_map(self, value: Record) -> Iterable[Record]:
        return repeat(value, self.number)


def copying(copies: int) -> tuple[ChainedOperator, ...]:
    """Return the operators that repeat each record ``copies`` times; for 1 there are none."""
    return () if copies == 1 else (ChainedOperator("flat_map", "union", Copies(copies)),)
