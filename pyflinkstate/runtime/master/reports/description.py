"""What a job consists of, in names and numbers: its vertices and the edges between them."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from pyflinkstate.runtime.plan import (
    CHECK,
    Branch,
    ChainNode,
    Exchange,
    JobPlan,
    SinkNode,
    SourceNode,
    StatefulNode,
)


@attrs.frozen
class JobEdge:
    """Records of one vertex go to another one.

    Attributes:
        source: the id of the vertex that they come from.
        target: the id of the vertex that they go to.
        chain: the names of the operators without state that they pass on the way, in order.
        side_output: the id of the side output; None for the main output.
    """

    source: str
    target: str
    chain: tuple[str, ...] = ()
    side_output: str | None = None


@attrs.frozen
class JobVertex:
    """A stage of a job (Flink: ``JobVertex``).

    Attributes:
        id: unique in the job. For an operator with state it is the id in checkpoints.
        name: the name that the program chose, under which records are counted.
        kind: ``source``, ``exchange``, ``chain``, ``keyed`` or ``sink``. ``keyed`` are all operators that
            live in state slots.
        parallelism: the number of its subtasks; None for the number of partitions of its input.
        max_parallelism: the number of its key groups; None if it has none.
    """

    id: str
    name: str
    kind: str
    parallelism: int | None = None
    max_parallelism: int | None = None


@attrs.frozen
class JobDescription:
    """What a job consists of.

    Attributes:
        job_id: the id of the job.
        name: its name.
        vertices: its stages; each comes after those that it reads.
        edges: which stage reads which.
        restored_from: the URI of the checkpoint that it starts from; None if it starts from the beginning.
    """

    job_id: str
    name: str
    vertices: tuple[JobVertex, ...]
    edges: tuple[JobEdge, ...]
    restored_from: str | None = None


_Vertex = SourceNode | StatefulNode | ChainNode | Exchange | SinkNode


def describe(plan: JobPlan, job_id: str, name: str, restored_from: str | None = None) -> JobDescription:
    """Return what a plan consists of."""
    nodes: list[_Vertex] = [*plan.stages, *plan.sinks]
    vertices = {node: _vertex(plan, node) for node in nodes}
    edges = [
        JobEdge(vertices[branch.stage].id, vertices[head].id, _names(branch), branch.tag_id)
        for head in plan.heads()
        for branch in plan.branches(head)
        if branch.stage in vertices
    ]
    return JobDescription(job_id, name, tuple(vertices.values()), tuple(edges), restored_from)


def _vertex(plan: JobPlan, node: _Vertex) -> JobVertex:
    if isinstance(node, StatefulNode):
        settled = plan.operator_of(node)
        return JobVertex(
            settled.operator_id, settled.name, "keyed", settled.parallelism, settled.max_parallelism
        )
    vertex_id = plan.vertex_id(node)
    if isinstance(node, Exchange):
        return JobVertex(vertex_id, node.name, "exchange", node.parallelism)
    kind = {SourceNode: "source", SinkNode: "sink"}.get(type(node), "chain")
    return JobVertex(vertex_id, node.name, kind, getattr(node, "parallelism", None))


def _names(branch: Branch) -> tuple[str, ...]:
    return tuple(_chained(branch))


def _chained(branch: Branch) -> Iterator[str]:
    for operator in branch.operators:
        if operator.kind != CHECK:
            yield operator.name


#: So many operators are named in one line.
MOST_NAMES = 12


def outline(plan: JobPlan, page: str | None) -> str:
    """Return the names of all that a plan consists of in one line, and where the page of the job is."""
    names = [one.name for of_kind in (plan.sources, plan.operators, plan.sinks) for one in of_kind]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return " → ".join(names[:MOST_NAMES]) + more + (f"; {page}" if page else "")
