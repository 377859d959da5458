"""Batches of columns, and timestamps by the frame, against the records that they stand for."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyspark.sql import types as sql
from support_runtime import PICKLED

from pyflinkstate import MapFunction, TimestampAssigner, WatermarkStrategy, errors
from pyflinkstate.api import MAX_WATERMARK, NO_TIMESTAMP, NO_WATERMARK
from pyflinkstate.errors import BadRecordError, PyFlinkStateError, UserFunctionError
from pyflinkstate.runtime.plan import WATERMARKS, ChainedOperator, Partitioning
from pyflinkstate.runtime.spark.row_batches import ColumnKey, ColumnTimestamps, RowBatch, RowType
from pyflinkstate.runtime.spark.row_columns import arrow_schema
from pyflinkstate.runtime.tasks.chain import Chain, TaskInfo
from pyflinkstate.runtime.tasks.records import BatchedRecords, FollowedRecords, assigned
from pyflinkstate.runtime.tasks.router import EventTimeSettings, Router
from pyflinkstate.runtime.tasks.tasks import MOST_RECORDS, of_batch, sampled
from pyflinkstate.runtime.wire import InputFrame, frames as frames_module
from pyflinkstate.runtime.wire.frames import FrameCutter

SCHEMA = sql.StructType().add("key", "string").add("at", "timestamp").add("n", "long")
KIND = RowType(SCHEMA.json())
RANDOM = random.Random(5)
#: Microseconds: before 1970, and with parts of a millisecond.
ROWS = [(f"key-{RANDOM.randrange(9)}", RANDOM.randrange(-(10**12), 10**15), n) for n in range(101)]


def batches(*sizes: int) -> list[RowBatch]:
    made, begin = [], 0
    for size in sizes:
        columns = list(zip(*ROWS[begin : begin + size], strict=True)) or [(), (), ()]
        keys, moments, numbers = columns
        arrays = [
            pa.array(keys, pa.string()),
            pa.array(moments, pa.int64()).view(pa.timestamp("us", "UTC")),
            pa.array(numbers, pa.int64()),
        ]
        made.append(RowBatch(KIND, pa.record_batch(arrays, schema=arrow_schema(SCHEMA))))
        begin += size
    return made


def records(*sizes: int) -> list[Any]:
    return [row for batch in batches(*sizes) for row in batch.rows()]


def fed(parts: Any) -> Counter[Any]:
    """What subtasks get, whatever the frames are that it comes in: number, key, record, timestamp."""
    found: Counter[Any] = Counter()
    for key, data in parts:
        frame = InputFrame.decode(data)
        times = frame.timestamps or [None] * len(frame.values)
        keys = frame.keys or [None] * len(frame.values)
        found.update((key[0], *each) for each in zip(keys, frame.values, times, strict=True))
    return found


@pytest.fixture(autouse=True)
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "RECORDS_PER_FRAME", 7)


KEYS = [ColumnKey(("key",)), ColumnKey(("key", "n")), lambda row: row.key]


@pytest.mark.parametrize("select", KEYS, ids=["column", "columns", "function"])
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(
    "partitioning", [Partitioning.KEY, Partitioning.REBALANCE, Partitioning.BROADCAST, Partitioning.GLOBAL]
)
def test_they_go_where_records_go(
    select: Callable[[Any], Any], parallelism: int, partitioning: Partitioning
) -> None:
    router = Router("sum", select, PICKLED, parallelism, 128, partitioning)
    by_batch = fed(router.route(0, BatchedRecords(batches(40, 0, 1, 60))))
    assert by_batch.total() == (101 * parallelism if partitioning is Partitioning.BROADCAST else 101)
    if partitioning is Partitioning.REBALANCE:  # where a turn begins depends on nothing but the number
        assert Counter(each[2] for each in by_batch) == Counter(records(40, 0, 1, 60))
    else:
        assert by_batch == fed(router.route(0, iter(records(40, 0, 1, 60))))


def test_a_frame_has_no_more_bytes_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "RECORDS_PER_FRAME", 1000)
    monkeypatch.setattr(frames_module, "FRAME_BYTES", 400)
    taken, cutter = BatchedRecords(batches(101)), FrameCutter(1000)
    parts = [batch for batch, _ in iter(lambda: taken.take(cutter), ((), []))]
    assert len(parts) > 5
    assert max(part.size_bytes for part in parts) <= 400
    assert [row for part in parts for row in part] == records(101)


def test_a_batch_is_a_sequence_of_its_records() -> None:
    (batch,) = batches(50)
    rows = records(50)
    assert (len(batch), list(batch), batch[3], batch[-1]) == (50, rows, rows[3], rows[-1])
    assert list(batch[10:20]) == rows[10:20]
    assert list(batch[::7]) == rows[::7]
    assert list(batch[30:10]) == []


def test_somebody_who_looks_sees_the_first_records() -> None:
    samples: dict[str, list[str]] = {}
    passed = list(sampled(batches(5, 0, 40), of_batch, "orders", samples))
    assert [len(batch) for batch in passed] == [5, 0, 40]
    assert samples == {"orders": [repr(row) for row in records(45)[:MOST_RECORDS]]}


class Milliseconds(TimestampAssigner):
    """As a user would write it; rows have naive moments."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        moment: datetime.datetime = value.at
        whole = int(moment.replace(microsecond=0).timestamp())
        return whole * 1000 + moment.microsecond // 1000


def timed(assigner: TimestampAssigner, source: Any, watermarks: dict[str, int]) -> list[Any]:
    strategy = WatermarkStrategy(1000).with_timestamp_assigner(assigner)
    operator = ChainedOperator(WATERMARKS, "times", strategy, assigner_id="watermarks-1")
    info = TaskInfo(0, 1, 0, report=lambda **content: watermarks.update(content["watermarks"]))
    chain = Chain([operator], info, Counter())
    taken = chain.run_timed(source, False)
    router = Router(
        "sum", ColumnKey(("key",)), PICKLED, 3, 128, Partitioning.KEY, 0, 0, EventTimeSettings(is_final=True)
    )
    return list(router.route(0, taken, chain.time))


@pytest.mark.parametrize("sizes", [(), (0,), (1,), (7,), (40, 0, 1, 60)], ids=str)
@pytest.mark.parametrize("assigner", [ColumnTimestamps("at"), ColumnTimestamps("n"), Milliseconds()])
def test_they_have_the_times_that_records_have(sizes: tuple[int, ...], assigner: TimestampAssigner) -> None:
    ours: dict[str, int] = {}
    theirs: dict[str, int] = {}
    by_batch = timed(assigner, BatchedRecords(batches(*sizes)), ours)
    one_by_one = timed(assigner, iter(records(*sizes)), theirs)
    assert fed(by_batch) == fed(one_by_one)
    assert ours == theirs
    assert last_time(by_batch) == last_time(one_by_one)


def last_time(parts: list[Any]) -> Any:
    time = InputFrame.decode(parts[-1][1]).time
    assert time is not None
    return time.watermark, time.event, time.is_idle


def test_a_moment_that_is_null_is_told_with_its_row() -> None:
    (batch,) = batches(3)
    columns = [batch._batch.column(0), pa.nulls(3, pa.timestamp("us", "UTC")), batch._batch.column(2)]
    empty = RowBatch(KIND, pa.record_batch(columns, schema=arrow_schema(SCHEMA)))
    with pytest.raises(errors.BadRecordError, match=r"(?s)returned None.*key-"):
        timed(ColumnTimestamps("at"), BatchedRecords([empty]), {})


# --- timestamps that are assigned a frame at a time --------------------------------------------------------


FRAME = 4


class ByValue(TimestampAssigner):
    """The record is its timestamp; adds what it had before, if it had one."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> Any:
        return value if record_timestamp == NO_TIMESTAMP else value + record_timestamp


def assigner(strategy: WatermarkStrategy, name: str = "a") -> ChainedOperator:
    return ChainedOperator(WATERMARKS, f"time {name}", strategy, assigner_id=name)


def chain(*operators: ChainedOperator, reports: list[Any] | None = None, **watermarks: int) -> Chain:
    told = [] if reports is None else reports
    return Chain(operators, TaskInfo(0, 1, 0, report=lambda **it: told.append(it)), Counter(), watermarks)


@attrs.frozen
class Source:
    """Records with the timestamps that the source gives them, and the watermark behind the last one."""

    records: list[int]
    own: list[int | None]
    end: int = NO_WATERMARK

    def read(self, made: Chain) -> Iterator[int]:
        for record, made.source_time.timestamp in zip(self.records, self.own, strict=True):
            yield record
        made.source_time.watermark = self.end


def frames(made: Chain, records: Any) -> list[Any]:
    """What a task takes until there is no more, with the watermark behind each frame."""
    cutter = FrameCutter(FRAME)
    taken = []
    while True:
        batch, timestamps = records.take(cutter)
        taken.append((batch, list(timestamps), made.time.watermark))
        if not batch:
            return taken


strategies = st.builds(
    WatermarkStrategy, st.sampled_from([None, 0, 3]), st.none(), st.sampled_from([None, ByValue()])
)
small = st.integers(-5, 20)


@st.composite
def sources(draw: st.DrawFn) -> Source:
    records = draw(st.lists(small, max_size=3 * FRAME))
    own = [draw(st.one_of(st.none(), small)) for _ in records]
    return Source(records, own, draw(st.sampled_from([NO_WATERMARK, MAX_WATERMARK])))


@given(sources(), st.lists(strategies, min_size=1, max_size=2), st.booleans(), st.integers(-3, 12))
def test_frames_and_records_meet_the_same_time(
    source: Source, given_strategies: list[WatermarkStrategy], filters: bool, began: int
) -> None:
    operators = [assigner(strategy, f"a{number}") for number, strategy in enumerate(given_strategies)]
    if filters:
        operators.insert(len(operators) - 1, ChainedOperator("filter", "odd", lambda record: record % 2))
    reports: list[Any] = []
    expected, made = chain(*operators, a0=began), chain(*operators, a0=began, reports=reports)
    one_by_one = FollowedRecords([expected.run(source.read(expected))], expected.time)
    at_once = made.run_timed(source.read(made), True)
    assert frames(made, at_once) == frames(expected, one_by_one)
    assert made.watermarks == expected.watermarks
    assert reports == ([{"watermarks": made.watermarks}] if made.watermarks else [])


@given(st.lists(small, max_size=3 * FRAME), strategies)
def test_a_source_without_timestamps_need_not_be_followed(
    records: list[int], strategy: WatermarkStrategy
) -> None:
    expected, made = (chain(assigner(strategy)) for _ in range(2))
    one_by_one = FollowedRecords([expected.run(records)], expected.time)
    assert frames(made, made.run_timed(records, False)) == frames(expected, one_by_one)
    assert made.watermarks == expected.watermarks


def test_a_chain_that_does_not_end_with_an_assigner_is_followed() -> None:
    reports: list[Any] = []
    negative = ChainedOperator("map", "neg", lambda record: -record)
    made = chain(assigner(WatermarkStrategy(0, None, ByValue())), negative, reports=reports)
    taken = frames(made, made.run_timed([1, 2, 3, 4, 5], False))
    assert taken == [([-1, -2, -3, -4], [1, 2, 3, 4], 2), ([-5], [5], 4), ([], [], 4)]
    assert reports == [{"watermarks": {"a": 4}}]


class Faulty(TimestampAssigner):
    """Raises what a record is, or returns it."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> Any:
        if isinstance(value, Exception):
            raise value
        return value


@pytest.mark.parametrize(
    ("records", "kind", "text"),
    [
        (
            [1, 2, "x", ValueError("later")],
            BadRecordError,
            "returned 'x'\n  in operator 'time a', record 'x'",
        ),
        (
            [1, ValueError("no"), "x"],
            UserFunctionError,
            "ValueError: no\n  in operator 'time a', record ValueErr",
        ),
        ([1, StopIteration(), 2], UserFunctionError, "StopIteration"),
        ([1, True], BadRecordError, "returned True"),
        ([2**63], BadRecordError, "returned 9223372036854775808"),
        ([-(2**63) - 1], BadRecordError, "returned -9223372036854775809"),
        ([1.0], BadRecordError, "returned 1.0"),
    ],
    ids=str,
)
def test_the_first_record_without_a_timestamp_is_named(
    records: Iterable[Any], kind: type[PyFlinkStateError], text: str
) -> None:
    made = chain(assigner(WatermarkStrategy(0, None, Faulty())))
    with pytest.raises(kind) as caught:
        frames(made, made.run_timed(records, False))
    assert text in str(caught.value)


class Closing(MapFunction):
    is_closed = False

    def map(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        self.is_closed = True


def test_the_functions_before_the_assigner_are_closed_when_it_fails() -> None:
    function = Closing()
    made = chain(ChainedOperator("map", "map", function), assigner(WatermarkStrategy(0, None, Faulty())))
    timed = made.run_timed([1, "x", 2], False)
    with pytest.raises(BadRecordError):
        frames(made, timed)
    assert function.is_closed


def test_a_close_that_raises_does_not_hide_the_record_without_a_timestamp(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class FailsToClose(Closing):
        def close(self) -> None:
            super().close()
            raise TimeoutError("flush took too long")

    function = FailsToClose()
    made = chain(ChainedOperator("map", "map", function), assigner(WatermarkStrategy(0, None, Faulty())))
    with pytest.raises(BadRecordError, match="returned 'x'"):
        frames(made, made.run_timed([1, "x", *range(FRAME)], False))
    assert function.is_closed
    assert "TimeoutError: flush took too long" in caplog.text


class Exits(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        raise SystemExit(3) if value == 7 else KeyboardInterrupt


@pytest.mark.parametrize(("record", "expected"), [(7, UserFunctionError), (8, KeyboardInterrupt)])
def test_sys_exit_is_an_error_of_the_assigner_and_an_interrupt_is_none(
    record: int, expected: type[BaseException]
) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Exits())
    with pytest.raises(expected):
        assigned("mine", strategy.timestamp_assigner, [record], [None])
