"""What a process of the pipelined engine does in an epoch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from support_runtime import PATIENCE_S

from pyflinkstate.errors import SinkError, SlotLostError
from pyflinkstate.runtime.pipelined.programs import (
    CODES,
    CollectingLink,
    Flow,
    Outputs,
    SinkResults,
    SourceProgram,
    Step,
    ToSink,
    ToSubtasks,
    taken_reports,
)
from pyflinkstate.runtime.wire import Address, SlotId, TaskReport, dumps_by_value, loads

Sent = list[tuple[SlotId, bytes]]


class NotedOutputs(Outputs):
    """Notes what is sent."""

    def __init__(self) -> None:
        super().__init__("this one", b"")
        self.sent: Sent = []

    def send(self, target: SlotId, frame: bytes) -> None:
        self.sent.append((target, frame))


def times(factor: int) -> Callable[[int, Iterable[Any]], Iterator[int]]:
    """Return a task that multiplies."""
    return lambda _, items: (item * factor for item in items)


def numbered(partition: int, items: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield items with the number of their partition."""
    for item in items:
        yield partition, item


def routed(partition: int, items: Iterable[Any]) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Yield a frame of each item for the subtasks 0 and 1 in turn, as a router does."""
    for number, item in enumerate(items):
        yield (number % 2, 1, 0, partition, number), f"{partition}:{item}".encode()


def run(steps: list[Any], *partitions: list[Any]) -> tuple[list[SinkResults], Sent]:
    """Run steps over partitions; returns what sinks returned and what was sent."""
    outputs = NotedOutputs()
    program = SourceProgram(dumps_by_value([steps]), [(0, n, items) for n, items in enumerate(partitions)])
    assert loads(dumps_by_value(program)) == program
    flow = Flow(outputs)
    flow.run([flow.through(steps, number, items) for number, items in enumerate(partitions)])
    return sorted(flow.results, key=lambda found: (found.sink, found.partition)), outputs.sent


def test_what_a_writer_returns_goes_to_its_sink_with_its_partition() -> None:
    steps = [Step(times(10), 0, [Step(numbered, 5, [ToSink(1)])])]
    found, _ = run(steps, [1, 2], [3])
    assert found == [SinkResults(1, 5, [(5, 10), (5, 20)]), SinkResults(1, 6, [(6, 30)])]


def test_frames_go_to_their_subtasks_and_each_partition_begins_before_one_goes_on() -> None:
    _, sent = run([Step(routed, 0, [ToSubtasks("count")])], ["a", "b"], ["c", "d"])
    first, second = SlotId("count", 0), SlotId("count", 1)
    assert sent == [(first, b"0:a"), (first, b"1:c"), (second, b"0:b"), (second, b"1:d")]


def test_partitions_advance_round_by_round() -> None:
    frames = [
        [((0, round_, 0, partition, 0), b"%d%d" % (round_, partition)) for round_ in range(3)]
        for partition in range(2)
    ]
    _, sent = run([ToSubtasks("count")], *frames)
    assert [frame for _, frame in sent] == [b"00", b"01", b"10", b"11", b"20", b"21"]


def test_each_branch_of_a_fork_gets_all_items() -> None:
    branches: list[Any] = [Step(times(1), 0, [ToSink(0)]), Step(times(2), 0, [ToSink(1)])]
    found, _ = run([Step(times(10), 0, branches)], list(range(100)))
    assert [part.results for part in found] == [list(range(0, 1000, 10)), list(range(0, 2000, 20))]


def test_a_branch_that_is_behind_holds_back_what_comes_before_the_fork() -> None:
    go_on, taken = threading.Event(), []

    def noted(_: int, items: Iterable[int]) -> Iterator[int]:
        for item in items:
            taken.append(item)
            yield item

    def slow(_: int, items: Iterable[int]) -> Iterator[int]:
        for item in items:
            assert go_on.wait(PATIENCE_S)
            yield item

    flow = Flow(NotedOutputs())
    steps: list[Any] = [Step(noted, 0, [Step(slow, 0, [ToSink(0)]), Step(times(1), 0, [ToSink(1)])])]
    pulled = flow.through(steps, 0, range(1000))
    thread = threading.Thread(target=lambda: [*pulled], daemon=True)
    thread.start()
    while len(taken) < 5:
        assert thread.is_alive()
    assert len(taken) < 20
    go_on.set()
    thread.join(PATIENCE_S)
    assert [len(part.results) for part in flow.results] == [1000, 1000]


def test_what_a_branch_raises_is_raised_where_the_items_come_from() -> None:
    def refuse(_: int, items: Iterable[Any]) -> Iterator[Any]:
        yield from ()
        raise SinkError("full")

    branches: list[Any] = [Step(times(1), 0, [ToSink(0)]), Step(refuse, 0, [ToSink(1)])]
    with pytest.raises(SinkError, match="full"):
        run([Step(times(1), 0, branches)], list(range(100)))


def test_a_function_is_known_to_a_process_by_the_digest_of_its_pickle() -> None:
    assert loads(dumps_by_value(CODES)) is CODES


def test_reports_wait_for_the_end_of_the_part_and_an_error_does_not() -> None:
    taken_reports()
    link = CollectingLink(Address("127.0.0.1", 1), b"", 0)
    report = TaskReport(0, 1, "this one", {"records": 3})
    link.report(report)
    with pytest.raises(OSError, match="refused"):  # nobody is there
        link.report(TaskReport(0, 1, "this one", error=SlotLostError("lost")))
    assert taken_reports() == (report,)
    assert taken_reports() == ()
