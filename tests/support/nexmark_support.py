"""The Nexmark suite as tests run it: whole queries in the test's process, operator after operator.

Every operator is the real one, in a harness. What one has emitted, with its watermarks, is what the next one
reads; several inputs are read in the order of their watermarks. An assigner's watermark advances with each
event, which is more often than in a job.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

from nexmark_suite.events import Event
from nexmark_suite.queries import Query
from nexmark_suite.sinks import ResultTable
from support_programs import Program

from pyflinkstate import DataStream
from pyflinkstate.runtime.plan import ChainNode, Node, SourceNode, StatefulNode, UnionNode
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.testing import MAX_WATERMARK, ManualClock, OneInputOperatorHarness
from pyflinkstate.testing.harness import OperatorHarness, StreamRecord, Watermark

Item = StreamRecord | Watermark
END_OF_INPUT = Watermark(MAX_WATERMARK)


def table_of(query: Query, events: Iterable[Event], clock: ManualClock | None = None) -> list[Any]:
    """Return the result table of a query over ``events``."""
    program: Any = Program()
    source = SourceNode(CollectionSource([]), "nexmark")
    stream = query.build(DataStream(program, source))
    ran = Run([*map(StreamRecord, events), END_OF_INPUT], clock or ManualClock())
    records = [item.value for item in ran.output_of(stream._node) if isinstance(item, StreamRecord)]
    sink = ResultTable(query.key)
    sink.prepare(1, list(sink.writer(1).write(0, iter(records))))
    return sink.rows()


class Run:
    """The output of each operator, which is computed once."""

    def __init__(self, source: list[Item], clock: ManualClock) -> None:
        self._source = source
        self._clock = clock
        self._outputs: dict[Node, list[Item]] = {}

    def output_of(self, node: Node) -> list[Item]:
        if node not in self._outputs:
            self._outputs[node] = self._computed(node)
        return self._outputs[node]

    def _computed(self, node: Node) -> list[Item]:
        if isinstance(node, SourceNode):
            return self._source
        if isinstance(node, ChainNode):
            return self._of_chain(node)
        if isinstance(node, UnionNode):
            return list(self._of_union(node))
        if isinstance(node, StatefulNode):
            return self._of_stateful(node)
        return self.output_of(node.parent)  # partitioners; there is one subtask

    def _of_chain(self, node: ChainNode) -> list[Item]:
        with OneInputOperatorHarness(*node.operators(), clock=self._clock) as harness:
            for item in self.output_of(node.parent):
                if isinstance(item, StreamRecord):
                    harness.process_element(item.value, item.timestamp)
                else:
                    harness.process_watermark(item.timestamp)
            return harness.get_output()

    def _of_union(self, node: UnionNode) -> Iterator[Item]:
        watermarks: dict[int, int] = {}
        reached = None
        for number, item in in_order([self.output_of(parent) for parent in node.parents]):
            if isinstance(item, StreamRecord):
                yield item
                continue
            watermarks[number] = item.timestamp
            if len(watermarks) == len(node.parents) and min(watermarks.values()) != reached:
                reached = min(watermarks.values())
                yield Watermark(reached)

    def _of_stateful(self, node: StatefulNode) -> list[Item]:
        inputs = node.inputs()
        harness = OperatorHarness(node.function, inputs, name=node.name, clock=self._clock)
        for number, item in in_order([self.output_of(one.parent) for one in inputs]):
            if isinstance(item, StreamRecord):
                harness._process(number, item.value, item.timestamp)
            else:
                harness._advance(number, item.timestamp)
        return list(harness.get_output())


def in_order(inputs: list[list[Item]]) -> Iterator[tuple[int, Item]]:
    """Yield the items of all inputs with the input's number, in the order of the watermarks after them."""
    for _, number, items in heapq.merge(*(_segments(number, items) for number, items in enumerate(inputs))):
        yield from ((number, item) for item in items)


def _segments(number: int, items: list[Item]) -> Iterator[tuple[int, int, list[Item]]]:
    segment: list[Item] = []
    for item in items:
        segment.append(item)
        if isinstance(item, Watermark):
            yield item.timestamp, number, segment
            segment = []
