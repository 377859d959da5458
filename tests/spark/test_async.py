"""Functions that await, on Spark: exactly once, and keys in their slots."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pyflinkstate import (
    AsyncDataStream,
    AsyncFunction,
    Duration,
    KeyedProcessFunction,
    RestartStrategies,
    StreamExecutionEnvironment,
    Time,
    TimestampAssigner,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]


class Asks(AsyncFunction):
    """Gives the record; every third call ends after the next one. One record makes the first attempt fail."""

    def __init__(self, flag: str | None = None) -> None:
        self.flag = flag

    def open(self, runtime_context: Any) -> None:
        self.ended: Counter[int] = Counter()

    async def async_invoke(self, value: tuple[str, int]) -> list[tuple[str, int]]:
        number = value[1]
        if number % 3 == 0:
            await asyncio.sleep(0.001)
        if number == 70 and self.flag is not None and not Path(self.flag).exists():
            Path(self.flag).touch()
            raise ConnectionError("the service is gone")
        return [value]


class Totals(KeyedProcessFunction):
    """Adds up; waits between the read and the write."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    async def process_element(self, value: tuple[str, int], ctx: Any) -> AsyncIterator[tuple[str, int]]:
        before = self.total.value() or 0
        await asyncio.sleep(0.001 * (value[1] % 3))
        self.total.update(before + value[1])
        yield ctx.get_current_key(), before + value[1]


class ByNumber(TimestampAssigner):
    def extract_timestamp(self, value: tuple[str, int], record_timestamp: int) -> int:
        return value[1]


RECORDS = [("abcdefg"[number % 7], number) for number in range(140)]


def expected() -> Counter[tuple[str, int]]:
    sums: Counter[str] = Counter()
    found: Counter[tuple[str, int]] = Counter()
    for key, number in RECORDS:
        sums[key] += number
        found[key, sums[key]] += 1
    return found


@pytest.mark.parametrize("is_timed", [False, True])
@pytest.mark.parametrize("wait", [AsyncDataStream.ordered_wait, AsyncDataStream.unordered_wait])
def test_after_a_failure_each_record_counts_once(
    spark: Any, tmp_path: Path, wait: Any, is_timed: bool
) -> None:
    env = StreamExecutionEnvironment(spark).set_parallelism(2)
    env.enable_checkpointing(0, str(tmp_path / "checkpoints"))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    stream = env.from_collection(RECORDS, records_per_epoch=20)
    if is_timed:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5))
        stream = stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(ByNumber()))
    asked = wait(stream, Asks(str(tmp_path / "flag")), Time.seconds(60), 7)
    totals = asked.key_by(lambda record: record[0], Types.STRING()).process(Totals())
    found = list(totals.execute_and_collect())
    assert len(found) == len(RECORDS)
    assert dict(sorted(found)) == dict(sorted(expected())), "the last of each key is its sum"
    if wait is AsyncDataStream.ordered_wait:
        assert Counter(found) == expected()
    assert (tmp_path / "flag").exists()


def test_an_async_stream_that_several_read_is_asked_once(spark: Any, tmp_path: Path) -> None:
    class Notes(AsyncFunction):
        def __init__(self, folder: str) -> None:
            self.folder = folder

        async def async_invoke(self, value: int) -> list[int]:
            with open(f"{self.folder}/{value}", "a") as file:
                file.write("asked\n")
            return [value]

    env = StreamExecutionEnvironment(spark).set_parallelism(2)
    asked = AsyncDataStream.unordered_wait(env.from_collection(range(20)), Notes(str(tmp_path)), Time.days(1))
    both = asked.map(lambda value: -value).union(asked.key_by(lambda value: value % 3).sum())
    found = Counter(both.rebalance().map(lambda value: value).set_parallelism(3).execute_and_collect())
    assert sum(found.values()) == 40
    assert {path.read_text() for path in tmp_path.iterdir()} == {"asked\n"}
