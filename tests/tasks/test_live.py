"""Sources that are read live: what has come leaves before more is awaited, and where the epoch has ended."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import pytest
from support_runtime import PICKLED
from support_slots import Driver

from pyflinkstate import Time, TimestampAssigner, WatermarkStrategy
from pyflinkstate.runtime.plan.nodes import WATERMARKS, ChainedOperator
from pyflinkstate.runtime.sources import ReadTime
from pyflinkstate.runtime.tasks import (
    ChainTask,
    EventTimeSettings,
    LiveLimits,
    LiveTask,
    RegionInput,
    RegionStage,
    RegionTask,
    Router,
    RouteTask,
    SinkTask,
    StageTask,
    TaskLink,
)
from pyflinkstate.runtime.wire import InputFrame, ValuesFrame

PARTS = [[1, 2, 3], [], [4], [], []]
DOUBLED = ChainedOperator("map", "doubled", lambda n: 2 * n)


class Itself(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


ASSIGNED = ChainedOperator(
    WATERMARKS,
    "assigned",
    WatermarkStrategy.for_bounded_out_of_orderness(Time.milliseconds(0)).with_timestamp_assigner(Itself()),
    assigner_id="a",
)


class Parts:
    """Notes how many parts were asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def read(self, split: str, _: object, time: ReadTime) -> Generator[list[int], None, str]:
        for part in PARTS:
            self.asked += 1
            yield part
        return f"{split} at {time.buffer_timeout_ms}"

    def task(self, link: TaskLink) -> LiveTask:
        return LiveTask(link, "numbers", self.read, source="numbers-0", limits=LiveLimits(10, 7))  # type: ignore[arg-type]


def chain(link: TaskLink, *operators: ChainedOperator, is_timed: bool = False) -> ChainTask:
    time = EventTimeSettings() if is_timed else None
    return ChainTask(link, "numbers", operators, 1, False, event_time=time, is_live=True)


def routed(link: TaskLink, *operators: ChainedOperator, is_timed: bool = False) -> RouteTask:
    made = chain(link, *operators, is_timed=is_timed)
    return RouteTask(made, "sum", Router("sum", abs, PICKLED, 1, 128, event_time=made.event_time))


def region(link: TaskLink, operator: ChainedOperator) -> RegionTask:
    inside = ChainTask(link, "numbers", (operator,), 1, True)
    return RegionTask(link, (RegionStage("s", "s", (RegionInput(inside),)),), False, is_live=True)


def of_router(item: tuple[Any, bytes]) -> Sequence[int]:
    return InputFrame.decode(item[1]).values


def of_stage(data: bytes) -> Sequence[int]:
    return ValuesFrame.decode(data).values


def of_region(item: tuple[int, bytes]) -> Sequence[int]:
    return of_stage(item[1])


@pytest.mark.parametrize(
    ("make", "values_of", "factor"),
    [
        (routed, of_router, 1),
        (lambda link: routed(link, DOUBLED), of_router, 2),
        (lambda link: routed(link, DOUBLED, is_timed=True), of_router, 2),
        (lambda link: routed(link, ASSIGNED, is_timed=True), of_router, 1),
        (lambda link: routed(link, ASSIGNED, DOUBLED, is_timed=True), of_router, 2),
        (lambda link: StageTask(chain(link, DOUBLED), "s"), of_stage, 2),
        (lambda link: StageTask(chain(link, ASSIGNED, is_timed=True), "s"), of_stage, 1),
        (lambda link: region(link, DOUBLED), of_region, 2),
    ],
)
def test_what_has_come_leaves_before_more_is_waited_for(
    driver: Driver, link: TaskLink, make: Callable[[TaskLink], Any], values_of: Any, factor: int
) -> None:
    parts = Parts()
    left: list[tuple[int, int]] = []
    for item in make(link)(0, parts.task(link)(0, ["here"])):
        left += [(value // factor, parts.asked) for value in values_of(item)]
    assert left == [(1, 1), (2, 1), (3, 1), (4, 3)]


def test_the_watermark_of_a_part_does_not_wait_for_the_next_one(driver: Driver, link: TaskLink) -> None:
    parts = Parts()
    told: dict[int, int] = {}
    for _, data in routed(link, ASSIGNED, is_timed=True)(0, parts.task(link)(0, ["here"])):
        time = InputFrame.decode(data).time
        assert time is not None
        told[parts.asked] = time.watermark
    assert (told[1], told[3]) == (2, 3)


def test_a_sink_gets_the_records_one_by_one(driver: Driver, link: TaskLink) -> None:
    class Writer:
        def write(self, partition: int, records: Iterator[int]) -> Iterator[int]:
            yield from records

    assert [*SinkTask(chain(link), "files", Writer())(0, Parts().task(link)(0, ["here"]))] == [1, 2, 3, 4]  # type: ignore[arg-type]


def test_the_driver_is_told_what_was_reached(driver: Driver, link: TaskLink) -> None:
    assert [*Parts().task(link)(2, ["here"])] == PARTS
    (report,) = driver.reports()
    assert report.reached == {"numbers-0": {2: "here at 7"}}
    assert report.counts["numbers.records_out"] == 4
