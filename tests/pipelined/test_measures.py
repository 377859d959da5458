"""Where the time of vertices goes, and how long records are on their way."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support_job import JobRun
from support_pipelined import LocalPipelinedRunner

from pyflinkstate.api import KeyedProcessFunction, Types
from pyflinkstate.runtime.master import EpochReport, JobObserver
from pyflinkstate.runtime.pipelined.measures import MOST_LATENCIES, Markers, Marking, idling
from pyflinkstate.runtime.pipelined.programs import Flow, Outputs, ToSubtasks
from pyflinkstate.runtime.plan import SourceNode, StatefulNode
from pyflinkstate.runtime.slots import MARKER, TimeShares, Waits
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.wire import Channel, InputFrame, SlotId, ValuesFrame


class Hand:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Hand:
    return Hand()


def test_waits_that_overlap_count_once(clock: Hand) -> None:
    waits = Waits(clock)
    with waits:
        clock.now = 5
        with waits:
            clock.now = 7
            assert waits.take() == 7
        clock.now = 10
    clock.now = 100
    assert (waits.take(), waits.take()) == (3, 0)


def test_of_output_that_is_taken_in_the_process_only_waits_are_back_pressure(clock: Hand) -> None:
    shares = TimeShares(clock)
    shares.sends = Waits(clock)

    def received() -> Iterator[int]:
        for item in range(3):
            clock.now += 100
            yield item

    for _ in shares.received(received()):
        clock.now += 10
        with shares.sends:
            clock.now += 1
    clock.now += 1000
    shares.sent(idle_ns=600)
    assert shares.take() == (430, 900, 3)


def test_a_live_source_is_idle_while_it_waits_for_a_part_and_does_not_compute(clock: Hand) -> None:
    cpu, idle_ns = Hand(), list[int]()

    def parts() -> Iterator[list[str]]:
        for _ in range(3):
            clock.now += 50  # it waits
            clock.now, cpu.now = clock.now + 7, cpu.now + 7  # it parses
            yield ["record"]

    for _ in idling(parts(), idle_ns, clock, cpu):
        clock.now += 1000
    assert idle_ns == [150]


def test_markers_leave_at_their_interval_and_latencies_begin_when_they_left(clock: Hand) -> None:
    markers, marking = Markers(clock), Marking("in", 2_000)
    assert all(not kind.encode().startswith(MARKER) for kind in (InputFrame(b"", (), ()), ValuesFrame(())))
    sent = []
    for clock.now in (10, 11, 12, 13, 5):  # the clock is set back at the end
        sent += [marker for operator in ("a", "b") if (marker := markers.due(marking, operator))]
    assert len(sent) == 6
    clock.now = 12
    for marker in sent:
        markers.note(marker)
    assert markers.take() == {"in": [2_000.0, 2_000.0, 0.0, 0.0, 7_000.0, 7_000.0]}
    for _ in range(MOST_LATENCIES + 1):
        markers.note(sent[0])
    assert len(markers.take()["in"]) == MOST_LATENCIES
    assert markers.take() == {}


def outputs_to(*targets: SlotId) -> tuple[Outputs, dict[SlotId, Channel]]:
    """Return outputs with channels to some subtasks, and the other ends of those."""
    outputs, ends = Outputs("this one", b""), {}
    for target in targets:
        ours, theirs = socket.socketpair()
        outputs._channels[target], ends[target] = Channel(ours), Channel(theirs)
    return outputs, ends


def test_a_marker_goes_before_the_frame_and_on_to_one_subtask_of_each_operator() -> None:
    count = SlotId("count", 0)
    outputs, ends = outputs_to(count)
    frames = [((0, 1, 0, 0, number), b"frame") for number in range(2)]
    flow = Flow(outputs, Marking("in", 3_600_000))
    flow.run([flow.through([ToSubtasks("count")], 0, frames)])
    marker, *rest = [ends[count].recv_bytes() for _ in range(3)]
    assert (marker[:1], rest) == (MARKER, [b"frame", b"frame"])

    behind = [SlotId(operator, subtask) for operator in ("a", "b") for subtask in range(3)]
    passing, others = outputs_to(*behind)
    passing.pass_on(marker)
    got = {target.operator_id: end.recv_bytes() for target, end in others.items() if end.poll()}
    assert sum(end.poll() for end in others.values()) == 0
    assert got == {"a": marker, "b": marker}
    assert list(passing.markers.take()) == ["in"]
    for made in (outputs, passing):
        made.close()
    for end in [*ends.values(), *others.values()]:
        end.close()


class Reports(JobObserver):
    """Keeps the reports of epochs."""

    def __init__(self) -> None:
        self.found: list[EpochReport] = []

    def on_epoch_report(self, report: EpochReport) -> None:
        self.found.append(report)


#: How long a record takes.
TAKES_S = 0.02


class Slow(KeyedProcessFunction):
    """Works for a while on each record."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        time.sleep(TAKES_S)
        yield len(value)


@pytest.mark.timeout(120)
def test_a_slow_slot_is_busy_and_its_source_is_back_pressured(tmp_path: Path) -> None:
    """From epoch to epoch: before the first one, both wait for the start of the other."""
    records = [bytes(400_000)] * 40
    source = SourceNode(CollectionSource(records, records_per_epoch=10), "in")
    node = StatefulNode(source, len, Types.LONG(), Slow(), "slow", uid="slow", parallelism=1)
    reports = Reports()
    run = JobRun(
        node,
        storage=CheckpointFolders(str(tmp_path)),
        listeners=(reports,),
        latency_interval_ms=1,
        runner=LocalPipelinedRunner(1),  # type: ignore[arg-type]
    )
    run.run()
    assert run.out == [400_000] * 40
    later = reports.found[1:]
    slots, sources = ([report.statuses[name] for report in later] for name in ("slow[0]", "in-0[0]"))
    assert sum(slot.busy_ns for slot in slots) >= 30 * TAKES_S * 1e9
    assert all(slot.busy_ns > slot.back_pressured_ns for slot in slots)
    assert sum(one.back_pressured_ns for one in sources) > sum(one.busy_ns for one in sources)
    latencies = [report.latencies_ms["slow[0]"]["in-0"] for report in reports.found]
    assert all(latency_ms >= 0 for of_epoch in latencies for latency_ms in of_epoch)
    assert [report.in_flight for report in reports.found] == [2, 2, 2, 1]
