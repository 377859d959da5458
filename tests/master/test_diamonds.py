"""Streams that part and meet again: a union has the partitions of its inputs, in any number of diamonds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import attrs
import pytest
import support_job
from event_time_functions import Contents, Third, key_of
from support_job import JobRun, LocalGraph, numbers
from support_programs import Program

from pyflinkstate.api.functions import ProcessFunction
from pyflinkstate.api.output_tag import OutputTag
from pyflinkstate.api.time import WatermarkStrategy
from pyflinkstate.api.window_assigners import TumblingEventTimeWindows
from pyflinkstate.runtime.plan.nodes import ChainNode, Node, SinkNode, UnionNode
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.wire import frames as frames_module

RARE = OutputTag("rare")


class CountingGraph(LocalGraph):
    """Notes how many partitions each task has had."""

    sizes: ClassVar[Counter[str]] = Counter()

    def transform(self, data: Any, task: Any, name: str) -> Any:
        self.sizes[type(task).__name__] += len(data)
        return super().transform(data, task, name)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    CountingGraph.sizes = Counter()
    monkeypatch.setattr(support_job, "LocalGraph", CountingGraph)
    return CountingGraph.sizes


def result_of(end: Node, **options: Any) -> list[Any]:
    out: list[Any] = []
    JobRun(end, DriverSink(lambda _, values: out.extend(values)), **options).run()
    return out


def diamonds(node: Node, times: int) -> Node:
    """Return a stream to which the few records that a filter lets through are added again and again."""
    for number in range(times):
        part = ChainNode(node, "map", lambda n: n, f"map {number}")
        few = ChainNode(part, "filter", lambda n, number=number: n == number, f"filter {number}")
        node = UnionNode((part, few))
    return node


def test_many_diamonds_have_as_many_partitions_as_their_source(sizes: Counter[str]) -> None:
    out = result_of(diamonds(numbers(100, 100), 20))
    assert Counter(out) == {n: 2 if n < 20 else 1 for n in range(100)}
    assert max(sizes.values()) <= 2, "the sink has two ways to write"


class Parts(ProcessFunction):
    """Sends numbers that five divides to a side output too."""

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value
        if value % 5 == 0:
            yield RARE, -value


def meshed(first: DataStream) -> DataStream:
    """Return streams that part in all ways, some of them with readers of their own."""
    shared = first.process(Parts())
    rare = shared.get_side_output(RARE)
    small = shared.filter(lambda n: n < 6)
    again = small.union(rare, shared, shared).map(lambda n: n)
    both = again.union(small.map(lambda n: n + 100), rare).flat_map(lambda n: [n, n])
    return both.union(again, small)


def expected_of_meshed(values: Iterable[int]) -> Counter[int]:
    shared = [*values]
    rare = [-n for n in shared if n % 5 == 0]
    small = [n for n in shared if n < 6]
    again = small + rare + shared + shared
    both = again + [n + 100 for n in small] + rare
    return Counter(both * 2 + again + small)


@pytest.mark.parametrize("records_per_frame", [2, 4096])
def test_streams_part_and_meet_in_all_ways(monkeypatch: pytest.MonkeyPatch, records_per_frame: int) -> None:
    monkeypatch.setattr(frames_module, "RECORDS_PER_FRAME", records_per_frame)
    program = Program()
    for first in (
        DataStream(program, numbers(20, 20)),  # type: ignore[arg-type]
        DataStream(program, numbers(20, 20)).rebalance().map(lambda n: n).set_parallelism(3),  # type: ignore[arg-type]
        DataStream(program, numbers(10, 20)).union(  # type: ignore[arg-type]
            DataStream(program, numbers(20, 20)).filter(lambda n: n >= 10)  # type: ignore[arg-type]
        ),
    ):
        assert Counter(result_of(meshed(first).node)) == expected_of_meshed(range(20))


def test_records_of_a_partition_keep_their_order_on_each_way_through_a_diamond() -> None:
    out = result_of(diamonds(numbers(9000, 9000), 3))
    assert [n for n in out if n > 3] == [*range(4, 9000)]


def test_an_epoch_that_runs_again_has_the_same_records_in_the_same_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames_module, "RECORDS_PER_FRAME", 3)
    first, second = (result_of(meshed(DataStream(Program(), numbers(50, 50))).node) for _ in range(2))  # type: ignore[arg-type]
    assert first == second


class Changes(ProcessFunction):
    def process_element(self, value: list[int], ctx: ProcessFunction.Context) -> Iterator[Any]:
        value.append(len(value))
        yield value


def test_what_changes_a_record_on_one_way_does_not_change_it_on_another() -> None:
    first = DataStream(Program(), numbers(3, 3)).map(lambda n: [n])  # type: ignore[arg-type]
    met = first.process(Changes()).union(first, first.process(Changes())).map(lambda record: record)
    twice = met.union(met.filter(lambda record: False)).map(tuple)
    out = Counter(result_of(twice.node))
    assert out == Counter({(n,): 1 for n in range(3)}) + Counter({(n, 1): 2 for n in range(3)})


def timed(records: list[Any], out_of_orderness: int = 0) -> DataStream:
    return Program().stream(records, "records", out_of_orderness, splits=2)


WAYS = {
    "a filter": lambda stream: stream.filter(lambda record: record[1] % 7 == 0),
    "an assigner of its own": lambda stream: stream.assign_timestamps_and_watermarks(
        WatermarkStrategy(40).with_timestamp_assigner(Third())
    ),
    "a way without records": lambda stream: stream.filter(lambda record: False),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_record_of_a_union_is_late_because_of_the_others(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watermark of a union is the least of its inputs, after each frame."""
    monkeypatch.setattr(frames_module, "RECORDS_PER_FRAME", 4)
    records = [("a", n, n) for n in range(100)]
    stream = timed(records).map(lambda record: record)
    for _ in range(3):
        stream = stream.union(WAYS[way](stream)).map(lambda record: record)
    stream = stream.union(stream.filter(lambda record: False)).map(lambda record: record)
    windows = stream.key_by(key_of).window(TumblingEventTimeWindows.of(10))
    out = result_of(windows.process(Contents()).node, parallelism=2)
    times = {"a filter": lambda n: 8 if n % 7 == 0 else 1, "an assigner of its own": lambda n: 8}
    expected: Counter[int] = Counter({n: times.get(way, lambda n: 1)(n) for _, n, _ in records})
    assert Counter(n for _, _, found in out for n in found) == expected


@attrs.define
class Noted(ProcessFunction):
    """Gives the watermark that a record meets."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield ctx.timer_service().current_watermark()


def test_the_watermark_of_a_union_moves_within_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "RECORDS_PER_FRAME", 4)
    stream = Program().stream([("a", n, n) for n in range(16)], "records", splits=1)
    mapped = stream.map(lambda record: record)
    met = mapped.union(mapped.filter(lambda record: record[1] == 9)).map(lambda record: record)
    out = result_of(met.union(met.filter(lambda record: False)).process(Noted()).node)
    regular = sorted({watermark for watermark in out if watermark > 0})
    assert regular[:3] == [2, 6, 10]


def test_two_sinks_read_the_same_results_of_a_region() -> None:
    out: list[Any] = []
    shared = DataStream(Program(), numbers(10, 10)).map(lambda n: n)  # type: ignore[arg-type]
    met = shared.union(shared.filter(lambda n: n < 2)).map(lambda n: n)
    sinks = [
        SinkNode(stream.node, DriverSink(lambda _, values: out.extend(values)), "other")
        for stream in (met, shared)
    ]
    own = result_of(met.filter(lambda n: n < 2).node, others=sinks)
    assert sorted(own) == [0, 0, 1, 1]
    assert Counter(out) == Counter([*range(10)] * 2 + [0, 1])
