"""Batches of columns go the same ways, with the same times, as the records that they stand for."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as sql
from support_runtime import PICKLED

from pyflinkstate import TimestampAssigner, WatermarkStrategy, errors
from pyflinkstate.runtime.plan import WATERMARKS, ChainedOperator, Partitioning
from pyflinkstate.runtime.spark.row_batches import ColumnKey, ColumnTimestamps, RowBatch, RowType
from pyflinkstate.runtime.spark.row_columns import arrow_schema
from pyflinkstate.runtime.tasks.chain import Chain, TaskInfo
from pyflinkstate.runtime.tasks.records import BatchedRecords
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
