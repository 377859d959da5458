"""A job of many parts that takes seconds: state of all kinds, windows, timers, restore, DataFrames, reading.

    python small_job.py DIRECTORY

It prints the same with every version of whatever the package needs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import pyflinkstate as ps
from pyflinkstate.state_access import open_checkpoint

RECORDS = [(f"user {number % 5}", number, number * 1000) for number in range(40)]


class Order(ps.TimestampAssigner):
    def extract_timestamp(self, value: tuple[str, int, int], record_timestamp: int) -> int:
        return value[2]


class Everything(ps.KeyedProcessFunction):
    """Uses each kind of state; emits a row for each record, and one when the event time has passed."""

    def open(self, runtime_context: ps.RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ps.ValueStateDescriptor("sum", ps.Types.LONG()))
        self.last = runtime_context.get_list_state(ps.ListStateDescriptor("last", ps.Types.DOUBLE()))
        self.seen = runtime_context.get_map_state(
            ps.MapStateDescriptor("seen", ps.Types.STRING(), ps.Types.PICKLED_BYTE_ARRAY())
        )
        self.most = runtime_context.get_reducing_state(
            ps.ReducingStateDescriptor("most", max, ps.Types.BIG_DEC())
        )

    def process_element(self, value: tuple[str, int, int], ctx: Any) -> Iterator[tuple[str, int, int]]:
        from decimal import Decimal

        self.sum.update((self.sum.value() or 0) + value[1])
        self.last.update([*self.last.get(), value[1] / 2][-3:])
        self.seen.put(str(value[1] % 2), {"number": value[1]})
        self.most.add(Decimal(value[1]))
        ctx.timer_service().register_event_time_timer(39_000)
        yield value[0], self.sum.value(), len(list(self.last.get()))

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[str, int, int]]:
        yield f"{ctx.get_current_key()} at the end", int(self.most.get()), len(list(self.seen.keys()))


def environment(session: SparkSession, folder: Path, parallelism: int) -> ps.StreamExecutionEnvironment:
    env = ps.StreamExecutionEnvironment(session).set_parallelism(parallelism).set_max_parallelism(8)
    return env.enable_checkpointing(0, str(folder / "checkpoints"), incremental=True, num_retained=9)


def orders(env: ps.StreamExecutionEnvironment) -> ps.DataStream:
    strategy = ps.WatermarkStrategy.for_bounded_out_of_orderness(ps.Duration.of_millis(1))
    records = env.from_collection(RECORDS, records_per_epoch=10)
    return records.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Order()))


def rows(env: ps.StreamExecutionEnvironment) -> list[Any]:
    keyed = orders(env).key_by(lambda record: record[0], ps.Types.STRING())
    with keyed.process(Everything()).uid("everything").execute_and_collect("small job") as results:
        return sorted(results)


def last_of(rows: list[Any]) -> list[Any]:
    """Return the last row of each user: those are the same from whichever checkpoint the job went on."""
    return sorted({row[0]: row for row in rows}.values())


def windows(env: ps.StreamExecutionEnvironment) -> list[Any]:
    keyed = orders(env).key_by(lambda record: record[1] % 2, ps.Types.LONG())
    summed = keyed.window(ps.TumblingEventTimeWindows.of(ps.Time.seconds(20)))
    return sorted(summed.reduce(lambda one, other: ("", one[1] + other[1], 0)).execute_and_collect())


class Counted(ps.KeyedProcessFunction):
    def open(self, runtime_context: ps.RuntimeContext) -> None:
        self.count = runtime_context.get_state(ps.ValueStateDescriptor("count", ps.Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[str, int]]:
        self.count.update((self.count.value() or 0) + 1 + len(value.lists))
        yield value.user, self.count.value()


def main() -> None:
    folder = Path(sys.argv[1])
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    print(last_of(rows(environment(session, folder, 1))))
    (job,) = (folder / "checkpoints").iterdir()
    first = min(job.glob("chk-*"), key=lambda path: int(path.name.partition("-")[2]))
    print(last_of(rows(environment(session, folder, 2).restore_from(str(first)))))
    print(windows(environment(session, folder / "windows", 2)))
    # Where the lists of a batch are all empty, there is an array without values.
    frame = session.createDataFrame(
        [(user, number, []) for user, number, _ in RECORDS],
        "user string, number long, lists array<array<string>>",
    )
    counted = ps.keyed_process(frame, key="user", function=Counted(), schema="user string, n long")
    print(sorted((row.user, row["max(n)"]) for row in counted.groupBy("user").max("n").collect()))
    table = open_checkpoint(str(job)).keyed("everything", states=["sum", "last"])
    print(sorted(table.to_arrow().to_pylist(), key=str)[:2])
    session.stop()


if __name__ == "__main__":
    main()
