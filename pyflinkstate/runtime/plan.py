"""The plan of a job: what the user's calls on streams add up to. Values, a tree with sources at the root."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from pyflinkstate.api.functions import KeyedProcessFunction
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.backends.key_groups import (
    check_parallelism,
    default_max_parallelism,
)
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.chain import ChainedOperator, OutputCheck
from pyflinkstate.runtime.sinks import Sink
from pyflinkstate.runtime.sources import Source


@attrs.define(eq=False)
class SourceNode:
    """Where records come from."""

    source: Source
    name: str

    def operators(self) -> list[ChainedOperator]:
        """Return what a chain runs right behind this node: nothing."""
        return []


@attrs.define(eq=False)
class ChainNode:
    """An operator without state; it runs in the Spark task of what comes before it."""

    parent: Node
    kind: str
    function: Any
    name: str
    output_type: TypeInformation | None = None

    def operators(self) -> list[ChainedOperator]:
        """Return what a chain runs for this node."""
        return [ChainedOperator(self.kind, self.name, self.function), *_output_check(self)]


@attrs.define(eq=False)
class KeyedNode:
    """A keyed operator; its subtasks live in state slots."""

    parent: Node
    select_key: Callable[[Any], Any]
    key_type: TypeInformation
    function: KeyedProcessFunction
    name: str
    output_type: TypeInformation | None = None
    uid: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None

    def operators(self) -> list[ChainedOperator]:
        """Return what a chain runs right behind this node."""
        return _output_check(self)


@attrs.define(eq=False)
class SinkNode:
    """Where records go."""

    parent: Node
    sink: Sink
    name: str


Node = SourceNode | ChainNode | KeyedNode | SinkNode


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
class JobPlan:
    """One source and all that hangs on it."""

    source: SourceNode
    sinks: tuple[SinkNode, ...]
    operators: tuple[KeyedOperator, ...]

    @property
    def uses_timers(self) -> bool:
        """Whether a function has ``on_timer``."""
        functions = (type(operator.node.function) for operator in self.operators)
        return any(function.on_timer is not KeyedProcessFunction.on_timer for function in functions)

    def heads(self) -> list[KeyedNode | SinkNode]:
        """Return every node that reads a stage: keyed operators and sinks."""
        return [*(operator.node for operator in self.operators), *self.sinks]

    def operator_of(self, node: KeyedNode) -> KeyedOperator:
        """Return the settled operator of a node."""
        return next(operator for operator in self.operators if operator.node is node)


def _output_check(node: ChainNode | KeyedNode) -> list[ChainedOperator]:
    if node.output_type is None:
        return []
    return [ChainedOperator("map", f"{node.name} output", OutputCheck(node.name, node.output_type))]


def upstream(node: Node) -> tuple[SourceNode | KeyedNode, tuple[ChainedOperator, ...]]:
    """Return the stage that ``node`` hangs on or is, and what a chain runs from there to ``node``."""
    operators: list[ChainedOperator] = []
    while isinstance(node, ChainNode):
        operators[:0] = node.operators()
        node = node.parent
    assert not isinstance(node, SinkNode)
    operators[:0] = node.operators()
    return node, tuple(operators)


def functions_of(plan: JobPlan) -> Iterator[tuple[str, Any]]:
    """Yield name and function of everything of the user's that runs inside Spark tasks."""
    for head in plan.heads():
        for operator in upstream(head.parent)[1]:
            yield operator.name, operator.function
        if isinstance(head, KeyedNode):
            yield f"key_by before {head.name}", head.select_key


def make_plan(sinks: list[SinkNode], parallelism: int, max_parallelism: int | None) -> JobPlan:
    """Settle names, ids and parallelisms of all that leads to ``sinks``.

    Raises:
        ConfigurationError: no sink, several sources, or two operators with one uid.
        ParallelismError: a parallelism is out of bounds.
    """
    if not sinks:
        raise ConfigurationError("the job has no sink: call print(), sink_to() or execute_and_collect()")
    nodes = list(dict.fromkeys(node for sink in sinks for node in _from_the_source_on(sink)))
    sources = [node for node in nodes if isinstance(node, SourceNode)]
    if len(sources) != 1:
        names = ", ".join(repr(node.name) for node in sources)
        raise ConfigurationError(f"a job has one source, and this one has {len(sources)}: {names}")
    keyed = [node for node in nodes if isinstance(node, KeyedNode)]
    operators = tuple(
        _settle(node, number, parallelism, max_parallelism) for number, node in enumerate(keyed, start=1)
    )
    _check_unique([operator.operator_id for operator in operators])
    return JobPlan(sources[0], tuple(sinks), operators)


def _from_the_source_on(node: Node) -> Iterator[Node]:
    if not isinstance(node, SourceNode):
        yield from _from_the_source_on(node.parent)
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
