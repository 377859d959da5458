"""Where a slot says that its time went, by a clock that only moves when the test says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from slot_functions import Echo
from support_slots import SLOT, deployment, frames_for

from pyflinkstate import KeyedProcessFunction, OutputTag
from pyflinkstate.runtime.slots.slot_service import SlotHost, SlotService
from pyflinkstate.runtime.slots.time_shares import TimeShares
from pyflinkstate.runtime.wire.frames import CHUNK, ValuesFrame
from pyflinkstate.runtime.wire.messages import BeginEpoch, EpochAccepted, EpochDone, SubtaskStatus


class Clock:
    def __init__(self) -> None:
        self.now = 1_000

    def pass_ns(self, ns: int) -> None:
        self.now += ns


CLOCK = Clock()
LATE = OutputTag("late")


class Slow(KeyedProcessFunction):
    """Needs 5 ns for each record, and registers a timer for it."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        CLOCK.pass_ns(5)
        ctx.timer_service().register_event_time_timer(value[1] + 1_000)
        yield value
        if value[1] % 2:
            yield LATE, value


def served(function: KeyedProcessFunction) -> SlotService:
    host = SlotHost(lambda message: None, lambda run: run(), lambda: 0, perf_ns=lambda: CLOCK.now)
    service = SlotService(SLOT, 0, host)
    assert service.deploy(deployment(function)) is None
    return service


def feed(service: SlotService, epoch: int, waits_ns: int, takes_ns: int) -> EpochDone:
    """Feed two frames of three records, as a slot's process does, to a reader that needs its time."""
    assert isinstance(service.begin(BeginEpoch(0, epoch, None)), EpochAccepted)

    def hand_over(results: Iterator[bytes]) -> None:
        for _ in results:
            CLOCK.pass_ns(takes_ns)

    for frame in range(2):
        CLOCK.pass_ns(waits_ns)
        (data,) = frames_for([(n, frame * 3 + n) for n in range(3)])[0]
        hand_over(service.process(data))
    CLOCK.pass_ns(waits_ns)
    hand_over(service.finish_input())
    done = service.end()
    assert isinstance(done, EpochDone)
    return done


def status(done: EpochDone) -> SubtaskStatus:
    assert done.status is not None
    return done.status


def test_work_waiting_and_handing_over_are_told_apart() -> None:
    service = served(Slow())
    first = status(feed(service, 1, waits_ns=100, takes_ns=7_000))
    assert (first.busy_ns, first.idle_ns, first.back_pressured_ns) == (30, 300, 14_000)


def test_the_time_between_epochs_is_waiting_and_nothing_is_told_twice() -> None:
    service = served(Slow())
    feed(service, 1, waits_ns=100, takes_ns=7_000)
    CLOCK.pass_ns(1_000_000)
    second = status(feed(service, 2, waits_ns=1, takes_ns=2))
    assert (second.busy_ns, second.idle_ns, second.back_pressured_ns) == (30, 1_000_003, 4)


def test_memory_and_timers_are_told() -> None:
    done = status(feed(served(Slow()), 1, 0, 0))
    assert done.timers == 6
    assert done.memory_bytes > 1 << 20
    assert done.memory_limit_bytes is None


def test_side_outputs_are_counted() -> None:
    service = served(Slow())
    assert feed(service, 1, 0, 0).side_out == {"late": 3}
    assert feed(service, 2, 0, 0).side_out == {"late": 3}
    assert feed(served(Echo()), 1, 0, 0).side_out == {}


class LargeAside(KeyedProcessFunction):
    """Gives nothing but a large result on a side output for each record."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        CLOCK.pass_ns(1)
        yield LATE, bytes(20_000)


def test_results_for_side_outputs_do_not_wait_for_the_end_of_their_frame() -> None:
    service = served(LargeAside())
    service.begin(BeginEpoch(0, 1, None))
    (data,) = frames_for([(n, n) for n in range(2_000)])[0]
    began, found = CLOCK.now, 0
    for results in service.process(data):
        found += len(ValuesFrame.decode(results).output("late")[0])
        assert CLOCK.now - began - found <= 2 * CHUNK
    assert found == 2_000


@pytest.mark.parametrize("records", [1, 10_000])
def test_the_clock_is_read_for_frames_and_not_for_records(records: int) -> None:
    reads = 0

    def now_ns() -> int:
        nonlocal reads
        reads += 1
        return reads

    host = SlotHost(lambda message: None, lambda run: run(), lambda: 0, perf_ns=now_ns)
    service = SlotService(SLOT, 0, host)
    assert service.deploy(deployment(Echo())) is None
    service.begin(BeginEpoch(0, 1, None))
    for data in frames_for([(1, n) for n in range(records)])[0]:
        list(service.process(data))
    list(service.finish_input())
    service.end()
    assert reads <= 40


def test_nothing_is_lost_if_there_are_no_results() -> None:
    times = iter([0, 10, 15, 18])
    shares = TimeShares(lambda: next(times))
    assert list(shares.of(iter(()))) == []
    shares.waited()
    assert shares.take() == (5, 13, 0)
    assert shares.take() == (0, 0, 0)
