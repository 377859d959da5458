"""Functions as users write them: parameters have names of their own, keys and rows are narrowed."""

# pyright: strict, reportMissingTypeStubs=false, reportUnknownMemberType=false, reportMissingSuperCall=false

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, Row as SparkRow
from pyspark.sql.types import LongType, StructType
from typing_extensions import assert_type

from pyflinkstate import (
    AggregateFunction,
    CoFlatMapFunction,
    CoProcessFunction,
    EpochStats,
    FilterFunction,
    FlatMapFunction,
    JobClient,
    JobExecutionResult,
    JobListener,
    JobStatus,
    KeyedProcessFunction,
    KeySelector,
    KeyState,
    MapFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    TimestampAssigner,
    TimeWindow,
    Types,
    ValueState,
    ValueStateDescriptor,
    WatermarkStrategy,
    Window,
    WindowFunction,
    keyed_map,
    keyed_process,
)
from pyflinkstate.state_access import open_checkpoint

Order = tuple[str, int]


class Total(KeyedProcessFunction[str, SparkRow, tuple[str, int]]):
    total: ValueState[int]

    def open(self, ctx: RuntimeContext) -> None:
        self.total = ctx.get_state(ValueStateDescriptor("total", Types.LONG()))

    def handle_initial_state(self, row: SparkRow, c: KeyedProcessFunction.Context[str]) -> None:
        self.total.update(len(row))

    def process_element(
        self, order: SparkRow, c: KeyedProcessFunction.Context[str]
    ) -> Iterable[tuple[str, int]]:
        self.total.update((self.total.value() or 0) + len(order))
        yield c.get_current_key(), self.total.value() or 0

    def on_timer(self, at: int, c: KeyedProcessFunction.OnTimerContext[str]) -> Iterable[tuple[str, int]]:
        yield c.get_current_key(), at


class Length(MapFunction[str, int]):
    def map(self, text: str) -> int:
        return len(text)


class Words(FlatMapFunction[str, str]):
    def flat_map(self, line: str) -> Iterable[str]:
        return line.split()


class Long(FilterFunction[str]):
    def filter(self, word: str) -> bool:
        return len(word) > 5


class Sizes(ProcessFunction[str, int]):
    def process_element(self, word: str, c: ProcessFunction.Context) -> Iterable[int]:
        yield len(word)


class ByName(KeySelector[Order, str]):
    def get_key(self, order: Order) -> str:
        return order[0]


class Most(ReduceFunction[int]):
    def reduce(self, one: int, other: int) -> int:
        return max(one, other)


class Mean(AggregateFunction[int, Order, float]):
    def create_accumulator(self) -> Order:
        return "", 0

    def add(self, number: int, so_far: Order) -> Order:
        return so_far[0], so_far[1] + number

    def get_result(self, so_far: Order) -> float:
        return so_far[1]

    def merge(self, one: Order, other: Order) -> Order:
        return one[0], one[1] + other[1]


class Both(CoProcessFunction[str, int, str]):
    def process_element1(self, text: str, c: CoProcessFunction.Context) -> Iterable[str]:
        yield text

    def process_element2(self, number: int, c: CoProcessFunction.Context) -> Iterable[str]:
        yield str(number)


class Flat(CoFlatMapFunction[str, int, str]):
    def flat_map1(self, text: str) -> Iterable[str]:
        yield text

    def flat_map2(self, number: int) -> Iterable[str]:
        yield str(number)


class Count(ProcessWindowFunction[Order, int, str, TimeWindow]):
    def process(
        self, user: str, c: ProcessWindowFunction.Context[TimeWindow], orders: Iterable[Order]
    ) -> Iterable[int]:
        yield len(list(orders))


class Ends(WindowFunction[object, int, str, Window]):
    def apply(self, user: str, w: Window, orders: Iterable[object]) -> Iterable[int]:
        yield w.max_timestamp()


class At(TimestampAssigner):
    def extract_timestamp(self, order: Order, before: int) -> int:
        return order[1]


class Told(JobListener):
    def on_epoch(self, of: EpochStats) -> None:
        print(of.epoch)


def total(user: str, rows: Sequence[SparkRow], state: KeyState) -> Iterable[tuple[str, int]]:
    yield user, len(rows)


def total_of_day(key: tuple[str, int], rows: list[SparkRow], state: KeyState) -> list[tuple[str, int]]:
    return [(key[0], len(rows))]


def second(order: Order, before: int) -> int:
    return order[1]


def run(df: DataFrame) -> None:
    made = keyed_map(df, "user", total, "user string, n long", sort_by=["day", "at"])
    assert_type(made, DataFrame)
    keyed_map(df, ["user", "day"], total_of_day, StructType().add("n", LongType()))
    keyed_map(df, "user", total, ["user", "n"])
    keyed_process(df, key="user", function=Total(), schema="user string, n long", listener=Told())
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    strategy.with_timestamp_assigner(At()).with_timestamp_assigner(second)
    keyed_map(open_checkpoint("chk-1").keyed("total"), "user", total, "user string, n long")


async def awaited(client: JobClient) -> None:
    assert_type(await client.get_job_status(), JobStatus)
    assert_type(await client, JobExecutionResult)
    await asyncio.wait_for(client.cancel(), 5)
