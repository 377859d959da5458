"""What a job says that it consists of: every vertex once, and every edge between vertices that are there."""

from __future__ import annotations

from typing import Any

from slot_functions import Echo
from support_job import numbers
from support_runtime import PICKLED

from pyflinkstate.runtime.master.reports.description import MOST_NAMES, JobDescription, describe, outline
from pyflinkstate.runtime.plan.job_plan import JobPlan, make_plan
from pyflinkstate.runtime.plan.nodes import ChainNode, Node, SideOutputNode, SinkNode, StatefulNode, UnionNode
from pyflinkstate.runtime.sinks.sinks import DriverSink


def described(*ends: Node, parallelism: int = 2) -> JobDescription:
    sinks = [SinkNode(end, DriverSink(lambda _, values: None), "sink") for end in ends]
    return describe(make_plan(sinks, parallelism, None), "a" * 32, "orders", "/chk-1")


def edges_by_name(job: JobDescription) -> set[tuple[str, str, tuple[str, ...], str | None]]:
    names = {vertex.id: vertex.name for vertex in job.vertices}
    assert len(names) == len(job.vertices), "ids are unique"
    return {(names[edge.source], names[edge.target], edge.chain, edge.side_output) for edge in job.edges}


def same(value: Any) -> Any:
    return value


def test_several_sources_go_to_one_operator() -> None:
    both = UnionNode((ChainNode(numbers(), "map", same, "left"), numbers()))
    job = described(StatefulNode(both, same, PICKLED, Echo(), "echo"))
    assert [vertex.kind for vertex in job.vertices].count("source") == 2
    assert edges_by_name(job) == {
        ("numbers", "echo", ("left",), None),
        ("numbers", "echo", (), None),
        ("echo", "sink", (), None),
    }
    assert job.restored_from == "/chk-1"


def test_an_operator_with_several_readers_is_a_vertex_of_its_own() -> None:
    shared = ChainNode(numbers(), "map", same, "shared")
    job = described(shared, ChainNode(shared, "map", same, "more"))
    assert ("shared", "chain") in {(vertex.name, vertex.kind) for vertex in job.vertices}
    assert edges_by_name(job) == {
        ("numbers", "shared", ("shared",), None),
        ("shared", "sink", (), None),
        ("shared", "sink", ("more",), None),
    }


def test_a_side_output_is_named() -> None:
    split = ChainNode(numbers(), "process", same, "split")
    job = described(split, SideOutputNode(split, "late", "late"))
    assert ("split", "sink", (), "late") in edges_by_name(job)


def test_an_operator_of_its_own_parallelism_has_an_exchange_before_it() -> None:
    wide = ChainNode(numbers(), "map", same, "wide", parallelism=3)
    job = described(wide)
    (exchange,) = [vertex for vertex in job.vertices if vertex.kind == "exchange"]
    assert exchange.parallelism == 3
    assert {(edge.source, edge.target) for edge in job.edges} >= {(exchange.id, job.vertices[-1].id)}


def test_an_outline_is_one_line_however_many_operators_there_are() -> None:
    def plan(count: int) -> JobPlan:
        sinks = [SinkNode(source, DriverSink(lambda _, values: None), f"sink {n}") for n in range(count)]
        return make_plan(sinks, 1, None)

    source = numbers()
    line = outline(plan(20), "http://127.0.0.1:8081/")
    assert line.startswith("numbers → sink 0 → sink 1")
    assert line.endswith(f" and {21 - MOST_NAMES} more; http://127.0.0.1:8081/")
    assert outline(plan(1), None) == "numbers → sink 0"
