"""What runs inside Spark tasks: counts and errors reach the driver before Spark makes text of them."""

from __future__ import annotations

import pickle
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import pytest
from support_runtime import PICKLED
from support_slots import Driver

from pyflinkstate import (
    AsyncFunction,
    AsyncFunctionDescriptor,
    OutputTag,
    Time,
    TimestampAssigner,
    Types,
    WatermarkStrategy,
)
from pyflinkstate.api import NO_RETRY_STRATEGY
from pyflinkstate.errors import BadRecordError, SourceError, UserFunctionError
from pyflinkstate.runtime.master.job_reporter import Accumulators
from pyflinkstate.runtime.plan.nodes import ASYNC, CHECK, WATERMARKS, ChainedOperator, OutputCheck
from pyflinkstate.runtime.sinks.sinks import FrameWriter
from pyflinkstate.runtime.tasks import (
    ChainTask,
    EventTimeSettings,
    Router,
    RouteTask,
    SinkTask,
    SourceTask,
    StageTask,
    TaskLink,
)
from pyflinkstate.runtime.wire import side_output_count
from pyflinkstate.runtime.wire.frames import (
    MAX_FRAME_BYTES,
    RECORDS_PER_FRAME,
    InputFrame,
    ValuesFrame,
    decode_values,
)


def chain(link: TaskLink, *operators: ChainedOperator, decodes: bool = False) -> ChainTask:
    return ChainTask(link, "numbers", operators, 2, decodes)


EVEN = ChainedOperator("filter", "even", lambda n: n % 2 == 0)


def is_small(n: int) -> bool:
    return n < 3


def test_a_source_task_counts_what_it_gives(driver: Driver, link: TaskLink) -> None:
    assert list(SourceTask(link, "rdd")(4, [1, 2, 3])) == [1, 2, 3]
    (report,) = driver.reports()
    assert (report.attempt, report.epoch, report.task, report.error) == (0, 3, "rdd[4]", None)
    assert report.counts["rdd.records_out"] == 3


def test_a_source_task_reads_its_splits(driver: Driver, link: TaskLink) -> None:
    task = SourceTask(link, "files", lambda split, reject: range(split))
    assert list(task(0, [2, 3])) == [0, 1, 0, 1, 2]


def refilled(split: range, _: Any) -> Iterator[dict[str, int]]:
    record: dict[str, int] = {}
    for number in split:
        record["n"] = number
        yield record


def test_records_of_a_source_share_nothing_that_can_change(driver: Driver, link: TaskLink) -> None:
    assert list(SourceTask(link, "own", refilled)(0, [range(2)])) == [{"n": 0}, {"n": 1}]
    payload = [1]
    (_, first), (_, second) = SourceTask(link, "rdd")(0, [("a", payload), ("b", payload)])
    first.append(2)
    assert second == payload == [1]


def test_records_that_are_fresh_are_not_copied(driver: Driver, link: TaskLink) -> None:
    records = [{"n": 1}, {"n": 2}]
    given = list(SourceTask(link, "files", lambda split, reject: split, is_fresh=True)(0, [records]))
    assert [mine is record for mine, record in zip(given, records, strict=True)] == [True, True]


@pytest.mark.parametrize("error", [OSError("disk gone"), EOFError("truncated")], ids=repr)
def test_a_source_that_cannot_be_read_is_a_source_error(
    driver: Driver, link: TaskLink, error: Exception
) -> None:
    def read(split: Any, reject: Any) -> Iterator[int]:
        yield 1
        raise error

    with pytest.raises(SourceError, match=f"source 'files' cannot be read: {error}"):
        list(SourceTask(link, "files", read)(0, ["a"]))
    (report,) = driver.reports()
    assert isinstance(report.error, SourceError)
    assert report.counts == {}


@pytest.mark.parametrize(
    ("operators", "record", "error"),
    [
        ([ChainedOperator("map", "inverse", lambda n: 1 / n)], 0, UserFunctionError),
        ([], threading.Lock(), BadRecordError),
    ],
)
def test_an_error_is_reported_as_what_it_is(
    driver: Driver, link: TaskLink, operators: list[ChainedOperator], record: Any, error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        list(SinkTask(chain(link, *operators), "sink", FrameWriter())(5, iter([1, record])))
    (report,) = driver.reports()
    assert (report.task, type(report.error)) == ("sink[5]", error)
    assert (str(report.error), report.error.context) == (str(caught.value), caught.value.context)


def test_a_task_without_counts_or_that_nobody_reads_to_the_end_reports_nothing(
    driver: Driver, link: TaskLink
) -> None:
    list(SinkTask(chain(link), "sink", FrameWriter())(0, iter([1])))
    running = SinkTask(chain(link, EVEN), "sink", FrameWriter())(0, iter(range(10_000)))
    next(running)
    running.close()
    assert driver.reports() == []


def test_a_route_task_counts_what_its_chain_drops(driver: Driver, link: TaskLink) -> None:
    router = Router("count", is_small, PICKLED, 1, 128)
    ((key, data),) = RouteTask(chain(link, EVEN), "count-1", router)(7, [1, 2, 3, 4])
    assert key == (0, 1, 0, 7, 0)
    assert InputFrame.decode(data).values == [2, 4]
    (report,) = driver.reports()
    assert report.counts == {"even.records_dropped": 2}


class Echo(AsyncFunction):
    async def async_invoke(self, value: int) -> list[int]:
        return [value]


def test_a_task_that_asks_others_says_that_it_has_ended(driver: Driver, link: TaskLink) -> None:
    """What it gives may be other in another run, and who reads it must have read the same run."""
    mode, forever = AsyncFunctionDescriptor.OutputMode.UNORDERED, Time.seconds(0)
    ask = ChainedOperator(ASYNC, "ask", AsyncFunctionDescriptor(Echo(), forever, 9, NO_RETRY_STRATEGY, mode))
    router = Router("count", is_small, PICKLED, 1, 128)
    list(RouteTask(chain(link, ask), "count-1", router)(7, [1, 2]))
    list(StageTask(chain(link, ask), "ask-3.0")(7, [1, 2]))
    list(RouteTask(chain(link, EVEN), "count-1", router)(7, [1]))
    found = [(report.task, report.is_only_run) for report in driver.reports()]
    assert found == [("numbers to count-1[7]", True), ("ask-3.0[7]", True), ("numbers to count-1[7]", False)]


def test_a_chain_behind_a_slot_gets_records_out_of_frames(driver: Driver, link: TaskLink) -> None:
    task = SinkTask(chain(link, EVEN, decodes=True), "sink", FrameWriter())
    ((partition, frame),) = task(1, iter([ValuesFrame([1, 2]).encode(), ValuesFrame([4]).encode()]))
    assert (partition, list(decode_values(frame))) == (1, [2, 4])


class Given(TimestampAssigner):
    """The record is its timestamp."""

    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


ASSIGNER = ChainedOperator(
    WATERMARKS, "time", WatermarkStrategy(0).with_timestamp_assigner(Given()), assigner_id="a"
)


@pytest.mark.parametrize(
    ("is_idle", "records", "expected"),
    [
        (True, [], [([], 7, True)]),
        (False, [], [([], 7, False)]),
        (True, [9], [([9], 8, False), ([], 8, False)]),
    ],
)
def test_a_stage_that_several_read_says_that_it_is_idle_until_its_first_record(
    link: TaskLink, is_idle: bool, records: list[int], expected: list[Any]
) -> None:
    settings = EventTimeSettings(is_idle=is_idle, watermarks={"a": 7})
    task = StageTask(ChainTask(link, "numbers", (ASSIGNER,), 2, False, None, settings), "stage")
    found = [ValuesFrame.decode(data) for data in task(0, iter(records))]
    assert [(frame.values, frame.watermark, frame.is_idle) for frame in found] == expected
    assert [frame.opening for frame in found] == [7] + [None] * (len(found) - 1)


@pytest.mark.parametrize(("records", "watermarks"), [([1, 5], [{"a": 4}] * 3), ([], [])])
def test_where_assigners_stand_is_reported_with_and_without_timestamps(
    driver: Driver, link: TaskLink, records: list[int], watermarks: list[dict[str, int]]
) -> None:
    timed = ChainTask(link, "numbers", (ASSIGNER,), 2, False, None, EventTimeSettings())
    for task in (
        SinkTask(chain(link, ASSIGNER), "sink", FrameWriter()),
        StageTask(timed, "stage"),
        StageTask(attrs.evolve(timed, operators=(ASSIGNER, EVEN)), "stage"),
    ):
        list(task(3, iter(records)))
    assert [report.watermarks for report in driver.reports() if report.watermarks] == watermarks


def test_what_comes_before_may_wake_up_in_the_middle(link: TaskLink) -> None:
    quiet = ValuesFrame([], [], 3, is_idle=True, opening=3).encode()
    awake = ValuesFrame([5], [5], 4, is_idle=False).encode()
    task = StageTask(ChainTask(link, "sums", (), 2, True, None, EventTimeSettings()), "stage")
    assert [ValuesFrame.decode(data).is_idle for data in task(0, iter([quiet]))] == [True]
    assert [ValuesFrame.decode(data).is_idle for data in task(0, iter([quiet, awake]))] == [False, False]


ASIDE = OutputTag("aside")


def aside(function: Callable[[int], Iterable[Any]]) -> tuple[ChainedOperator, ...]:
    """Return an operator with side outputs that are read, and the check of its main output."""
    check = OutputCheck("split", Types.LONG())
    return (
        ChainedOperator("flat_map", "split", function, has_side_outputs=True),
        ChainedOperator(CHECK, "split output", check),
    )


TIMES = pytest.mark.parametrize("event_time", [None, EventTimeSettings()], ids=["untimed", "timed"])


@TIMES
def test_a_frame_has_records_of_side_outputs_too(
    link: TaskLink, event_time: EventTimeSettings | None
) -> None:
    number, taken = 3 * RECORDS_PER_FRAME + 5, []

    def records() -> Iterator[int]:
        for n in range(number):
            taken.append(n)
            yield n

    operators = aside(lambda n: [(ASIDE, n)])
    task = StageTask(ChainTask(link, "numbers", operators, 2, False, None, event_time), "stage")
    found: list[int] = []
    for data in task(0, records()):
        frame = ValuesFrame.decode(data)
        assert not frame.values
        found += frame.output("aside")[0]
        assert len(found) == len(taken), "no record waits for those after it"
        assert len(frame) <= RECORDS_PER_FRAME
    assert found == [*range(number)]


@TIMES
def test_a_task_holds_some_frames_of_side_outputs_at_most(
    link: TaskLink, event_time: EventTimeSettings | None
) -> None:
    operators = aside(lambda n: [(ASIDE, bytes(100_000))])
    task = StageTask(ChainTask(link, "numbers", operators, 2, False, None, event_time), "stage")
    tracemalloc.start()
    try:
        for data in task(0, iter(range(400))):
            assert len(data) <= MAX_FRAME_BYTES
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MAX_FRAME_BYTES, "all records have 40 MB"


@TIMES
def test_each_output_keeps_its_order_and_its_timestamps(
    link: TaskLink, event_time: EventTimeSettings | None
) -> None:
    number = 2 * RECORDS_PER_FRAME

    def split(n: int) -> Iterator[Any]:
        yield from ((ASIDE, n), n, (OutputTag("odd"), -n)) if n % 2 else (n,)

    stamps = [n + 7 for n in range(number)]
    frame = ValuesFrame(range(number), None if event_time is None else stamps).encode()
    task = StageTask(ChainTask(link, "numbers", aside(split), 2, True, None, event_time), "stage")
    frames = [ValuesFrame.decode(data) for data in task(0, iter([frame]))]
    assert len(frames) > 2
    odd = [n for n in range(number) if n % 2]
    for tag_id, expected in ((None, [*range(number)]), ("aside", odd), ("odd", [-n for n in odd])):
        outputs = [one.output(tag_id) for one in frames]
        assert [value for values, _ in outputs for value in values] == expected
        if event_time is not None:
            assert [time for _, times in outputs for time in times or ()] == [abs(n) + 7 for n in expected]


def test_what_goes_to_side_outputs_is_counted(driver: Driver, link: TaskLink) -> None:
    operators = aside(lambda n: [n, (ASIDE, n)])
    list(StageTask(chain(link, *operators), "stage")(0, iter(range(10))))
    (report,) = driver.reports()
    assert report.counts == {side_output_count("split", "aside"): 10}


def test_tasks_travel_to_their_workers(driver: Driver, link: TaskLink) -> None:
    task = SinkTask(chain(link, ChainedOperator("filter", "small", is_small)), "sink", FrameWriter())
    copy = pickle.loads(pickle.dumps(task))
    assert [list(decode_values(frame)) for _, frame in copy(0, iter(range(9)))] == [[0, 1, 2]]


def totals(driver: Driver, tasks: Iterable[Any]) -> dict[str, int]:
    """Run tasks of one epoch over 0..9, and count as the job master does."""
    for task in tasks:
        list(task(0, iter(range(10))))
    accumulators = Accumulators()
    for report in driver.reports():
        accumulators.add(report)
    return accumulators.total(3)


def test_two_branches_both_count(driver: Driver, link: TaskLink) -> None:
    left, right = (chain(link, ChainedOperator("filter", name, is_small)) for name in ("left", "right"))
    dropped = {"left.records_dropped": 7, "right.records_dropped": 7}
    sinks = [SinkTask(left, "sink-0", FrameWriter()), SinkTask(right, "sink-1", FrameWriter())]
    assert totals(driver, sinks) == dropped
    router = Router("process", str, PICKLED, 1, 128)
    assert (
        totals(driver, [RouteTask(left, "process-1", router), RouteTask(right, "process-2", router)])
        == dropped
    )
