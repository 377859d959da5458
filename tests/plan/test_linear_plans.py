"""Planning looks at each node once, however many ways lead to it."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest
from pass_through import Map, same
from support_job import JobRun

from pyflinkstate.runtime import engine
from pyflinkstate.runtime.engine import CodeBook
from pyflinkstate.runtime.plan import (
    ChainNode,
    JobPlan,
    Node,
    Partitioning,
    PartitionNode,
    SinkNode,
    SourceNode,
    UnionNode,
    functions_of,
    make_plan,
)
from pyflinkstate.runtime.plan.nodes import Edge, Edges, in_order
from pyflinkstate.runtime.sinks import DriverSink
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.runtime.wire import ShippedFunction


def source() -> SourceNode:
    return SourceNode(CollectionSource([1, 2, 3], 10), "numbers")


def doubled(node: Node, times: int) -> Node:
    """Return the union of a stream with itself, of that with itself, and so on."""
    for _ in range(times):
        node = UnionNode((node, node))
    return node


def mapped(node: Node, times: int) -> Node:
    for number in range(times):
        node = ChainNode(node, "map", same, f"map {number}")
    return node


def diamonds(node: Node, times: int) -> Node:
    for number in range(times):
        left, right = (ChainNode(node, "map", same, f"{side} {number}") for side in ("left", "right"))
        node = UnionNode((left, right))
    return node


def few_diamonds(node: Node, times: int) -> Node:
    """Return diamonds of which one side has no records."""
    for number in range(times):
        all_ = ChainNode(node, "map", same, f"map {number}")
        none = ChainNode(all_, "filter", never, f"filter {number}")
        node = UnionNode((all_, none))
    return node


def never(_: Any) -> bool:
    return False


def planned(node: Node) -> JobPlan:
    plan = make_plan([SinkNode(node, DriverSink(lambda *_: None), "sink")], 2, None)
    assert plan.stages[0] is plan.sources[0]
    return plan


def calls_to_plan(node: Node) -> int:
    """Return how many Python functions are called to plan it: time that no machine changes."""
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        planned(node)
    finally:
        sys.setprofile(None)
    return calls


def test_a_union_of_unions_of_a_stream_with_itself_takes_no_more_than_its_nodes() -> None:
    assert calls_to_plan(doubled(source(), 18)) < 3_000


@pytest.mark.parametrize("shape", [mapped, diamonds, doubled])
def test_twice_the_operators_take_twice_the_time(shape: Any) -> None:
    small, large = calls_to_plan(shape(source(), 250)), calls_to_plan(shape(source(), 500))
    assert large < 2.5 * small


def test_each_node_comes_once_and_after_what_lies_before_it() -> None:
    before = {"d": ["b", "c"], "c": ["a"], "b": ["a"], "a": []}
    assert in_order(["d"], before.__getitem__) == ["a", "b", "c", "d"]


def test_the_last_partitioner_counts_and_copies_are_counted() -> None:
    numbers = source()
    first = PartitionNode(numbers, Partitioning.SHUFFLE, "shuffle")
    last = PartitionNode(UnionNode((first, first, numbers)), Partitioning.REBALANCE, "rebalance")
    assert Edges().of(last) == {Edge(numbers, last): 3}
    assert Edges().of(UnionNode((first, numbers, first))) == {Edge(numbers, first): 2, Edge(numbers): 1}


@pytest.mark.parametrize("times", [1, 3])
def test_a_union_of_a_stream_with_itself_has_each_record_so_many_times(times: int) -> None:
    out: list[Any] = []
    sink = DriverSink(lambda _, values: out.extend(values))
    JobRun(mapped(doubled(mapped(source(), 1), times), 1), sink).run()
    assert Counter(out) == dict.fromkeys([1, 2, 3], 2**times)


@pytest.mark.parametrize("node", [mapped(source(), 2_000), few_diamonds(source(), 600)], ids=["map", "union"])
def test_a_plan_of_any_length_runs(node: Node) -> None:
    out: list[Any] = []
    JobRun(node, DriverSink(lambda _, values: out.extend(values))).run()
    assert sorted(out) == [1, 2, 3]


def alternating(node: Node, times: int) -> Node:
    """Return maps of unions, each of which has the first stream too: a map is reached on many ways."""
    first = node
    for number in range(times):
        node = ChainNode(UnionNode((node, first)), "map", Map(), f"map {number}")
    return node


def test_each_function_is_shipped_once_however_many_ways_lead_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled: list[str] = []

    def counting(name: str, function: Any) -> bytes:
        pickled.append(name)
        return name.encode()

    monkeypatch.setattr(engine, "pickled", counting)
    plan = planned(alternating(source(), 60))
    book = CodeBook(plan)
    assert sorted(name for name in pickled if name.startswith("map")) == sorted(f"map {n}" for n in range(60))
    assert len(pickled) == len(set(pickled))
    functions = [function for _, function in functions_of(plan)]
    assert {type(book.shipped(function, None)) for function in functions} == {ShippedFunction}
    assert book.shipped(same, None) is same


def test_a_function_is_looked_up_without_a_look_at_the_others() -> None:
    plan = planned(mapped_by_own(source(), 500))
    book, calls = CodeBook(plan), 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "line" and frame.f_code is CodeBook.shipped.__code__

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        count(frame, event, argument)
        return trace

    functions = [function for _, function in functions_of(plan)]
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for function in functions:
            book.shipped(function, None)
    finally:
        sys.settrace(before)
    assert calls < 5 * len(functions)


def mapped_by_own(node: Node, times: int) -> Node:
    for number in range(times):
        node = ChainNode(node, "map", Map(), f"map {number}")
    return node
