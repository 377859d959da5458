"""The graph of a job as processes that stay: who runs what, and who sends to whom."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from slot_functions import Echo
from support_runtime import PICKLED

from pyflinkstate.runtime.engine import CodeBook, EpochRequest
from pyflinkstate.runtime.pipelined.programs import ExchangeProgram, SlotProgram, SourceProgram
from pyflinkstate.runtime.pipelined.vertices import PipelinedGraph, can_read_ahead, why_in_stages
from pyflinkstate.runtime.plan import (
    ChainNode,
    JobPlan,
    Node,
    Partitioning,
    PartitionNode,
    SinkNode,
    SourceNode,
    StatefulNode,
    UnionNode,
    make_plan,
)
from pyflinkstate.runtime.sinks import DriverSink, RddSink
from pyflinkstate.runtime.sources import CollectionSource, RddSource, SplitEpoch
from pyflinkstate.runtime.tasks import DriverLink, TaskLink
from pyflinkstate.runtime.wire import Address, SlotId, loads

SPLITS = [[1], [2], [3]]


def source(name: str = "numbers") -> SourceNode:
    return SourceNode(CollectionSource([1, 2, 3]), name)


def keyed(parent: Node, uid: str, parallelism: int = 2) -> StatefulNode:
    return StatefulNode(parent, str, PICKLED, Echo(), uid, uid=uid, parallelism=parallelism)


def plan(*ends: Node) -> JobPlan:
    """Return the plan of a job that ends in a sink behind each of some nodes."""
    sinks = [SinkNode(end, DriverSink(print), f"sink {number}") for number, end in enumerate(ends)]
    return make_plan(sinks, 2, None)


def graph(made: JobPlan, tasks: int = 2, is_ahead: bool = False) -> PipelinedGraph:
    link = TaskLink(DriverLink(Address("nowhere", 0), b"", 0), 7)
    epoch = SplitEpoch(SPLITS, lambda split, _: split)
    return PipelinedGraph(
        EpochRequest(made, link, epoch, None, {}, "epoch 7", CodeBook(made)), tasks, is_ahead
    )


def program(part: Any) -> SourceProgram | ExchangeProgram | SlotProgram:
    loaded = loads(part.program)
    assert isinstance(loaded, (SourceProgram, ExchangeProgram, SlotProgram))
    return loaded


def subtasks(name: str, count: int = 2) -> list[SlotId]:
    return [SlotId(name, subtask) for subtask in range(count)]


def test_tasks_share_the_partitions_of_a_source() -> None:
    parts = graph(plan(keyed(source(), "count"))).reading()
    assert [part.vertex for part in parts] == subtasks("sources")
    assert [part.behind for part in parts] == [subtasks("count")] * 2
    programs = [program(part) for part in parts]
    assert [one.parts for one in programs if isinstance(one, SourceProgram)] == [
        [(0, 0, [[1]]), (0, 2, [[3]])],
        [(0, 1, [[2]])],
    ]


def test_an_operator_behind_another_gets_its_frames_from_the_slots_of_that() -> None:
    made = graph(plan(keyed(keyed(source(), "count"), "total", parallelism=3)))
    fed = {part.vertex: (part, program(part)) for part in made.fed()}
    assert list(fed) == [*subtasks("count"), *subtasks("total", 3)]
    count, total = fed[SlotId("count", 0)], fed[SlotId("total", 2)]
    assert isinstance(count[1], SlotProgram)
    assert isinstance(total[1], SlotProgram)
    assert (count[1].senders, count[0].behind) == ({"sources[0]", "sources[1]"}, subtasks("total", 3))
    assert (total[1].senders, total[0].behind) == ({"count[0]", "count[1]"}, [])


def test_what_is_rebalanced_goes_to_the_subtasks_of_an_exchange() -> None:
    spread = PartitionNode(source(), Partitioning.REBALANCE, "rebalance")
    made = graph(plan(keyed(ChainNode(spread, "map", str, "map"), "count")))
    parts = {part.vertex.operator_id: program(part) for part in made.fed()}
    (exchange,) = [name for name, found in parts.items() if isinstance(found, ExchangeProgram)]
    count = parts["count"]
    assert isinstance(count, SlotProgram)
    assert count.senders == {f"{exchange}[0]", f"{exchange}[1]"}
    assert {target.operator_id for target in made.reading()[0].behind} == {exchange}


def test_an_operator_may_be_fed_by_sources_and_by_slots() -> None:
    first = source()
    both = UnionNode((first, keyed(first, "count")))
    parts = {part.vertex.operator_id: program(part) for part in graph(plan(keyed(both, "all"))).fed()}
    fed = parts["all"]
    assert isinstance(fed, SlotProgram)
    assert fed.senders == {"sources[0]", "sources[1]", "count[0]", "count[1]"}


AHEAD = {
    "a keyed operator behind a source": (lambda: plan(keyed(source(), "count")), True),
    "two operators that read one source": (lambda: _two(), True),
    "a sink that reads the source as well": (lambda: _with_sink(), False),
    "an operator that reads a slot as well": (lambda: plan(keyed(_union(), "all")), False),
}


def _two() -> JobPlan:
    first = source()
    return plan(keyed(first, "count"), keyed(first, "total"))


def _with_sink() -> JobPlan:
    first = source()
    return plan(keyed(first, "count"), ChainNode(first, "map", str, "map"))


def _union() -> Node:
    first = source()
    return UnionNode((first, keyed(first, "count")))


@pytest.mark.parametrize(("make", "is_possible"), AHEAD.values(), ids=AHEAD)
def test_sources_are_read_ahead_if_all_goes_to_operators_that_read_nothing_else(
    make: Any, is_possible: bool
) -> None:
    made = make()
    assert can_read_ahead(made) == is_possible
    if is_possible:
        ahead, whole = graph(made, is_ahead=True).reading(), graph(made).reading()
        assert [attrs.evolve(part, program=b"") for part in ahead] == [
            attrs.evolve(part, program=b"") for part in whole
        ]


def test_what_spark_computes_or_keeps_runs_in_stages() -> None:
    of_spark = plan(keyed(SourceNode(RddSource(None, 1, 1), "rdd"), "count"))
    assert why_in_stages(of_spark) == "source 'rdd' reads what Spark computes"
    kept = make_plan([SinkNode(source(), RddSink(), "kept")], 2, None)
    assert why_in_stages(kept) == "sink 'kept' keeps its results in Spark"
    assert why_in_stages(plan(source())) is None
