"""Count per key over a DataFrame: ``keyed_process`` against what Spark has for the same work.

    python benchmarks/dataframe.py [--json] [--records N] [--keys N] [--rounds N] [--tws-records N]
                                   [--only WAY ...]

Each gets a DataFrame of rows ``(customer, n)`` that Spark's SQL makes, and gives ``(customer, count)`` for
each row, which Spark's ``noop`` format takes. First the results of a small run of each are compared. Then
they run in turns, so that all meet the same noise; the figures are medians. Starting slots is part of ours.

* ``ratio_apply_in_pandas``: our rate over that of ``applyInPandas``, which is given each key's rows as a
  pandas DataFrame; the count of the batch before, kept by hand as a table, is joined to them.
* ``ratio_tws``: our rate over that of ``transformWithState`` (RocksDB, changelog checkpointing), which takes
  all its rows as one batch; it gets fewer rows for as many keys.
* ``ratio_rdd_path``: our rate over that of ``from_rdd()`` with the keys as plain texts, whose results are
  counted in the tasks: no DataFrame before, and none behind.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from local_session import local_session, tell
from pyspark.sql import DataFrame, Row, functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from pyflinkstate import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    keyed_process,
)

PARTITIONS = 2
SCHEMA = "customer string, count long"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHECKED_RECORDS = 5_000


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield ctx.get_current_key(), count


class CountProcessor(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "count long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        found = self.count.get()
        count = found[0] if found else 0
        for _ in rows:
            count += 1
            yield Row(customer=key[0], count=count)
        self.count.update((count,))


def count_in_pandas(rows: pd.DataFrame) -> pd.DataFrame:
    start = int(rows["before"].iloc[0])
    return pd.DataFrame({"customer": rows["customer"], "count": range(start + 1, start + len(rows) + 1)})


class CountingSink:
    """Counts what arrives, in the tasks, and keeps nothing."""

    total = 0

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """Nothing to open."""

    def writer(self, epoch: int) -> CountingSink:
        return self

    def write(self, partition: int, records: Iterator[Any]) -> Iterator[int]:
        yield sum(1 for _ in records)

    def prepare(self, epoch: int, results: list[int]) -> None:
        self.total += sum(results)

    def commit(self, epoch: int) -> None:
        """Nothing to commit."""

    def rewind(self, epoch: int) -> None:
        """Nothing to rewind."""


def with_keyed_process(rows: DataFrame) -> DataFrame:
    return keyed_process(
        rows,
        key="customer",
        function=Count(),
        schema=SCHEMA,
        key_type=Types.STRING(),
        parallelism=PARTITIONS,
    )


def with_pandas(rows: DataFrame) -> DataFrame:
    state = SESSION.createDataFrame([], "customer string, before long")
    known = rows.join(state, "customer", "left").fillna(0, ["before"])
    return known.groupBy("customer").applyInPandas(count_in_pandas, SCHEMA)


def drained(results: DataFrame) -> None:
    results.write.format("noop").mode("overwrite").save()


class Bench:
    """The ways to count, over so many keys."""

    def __init__(self, keys: int) -> None:
        self.keys = keys
        self.ways: dict[str, Callable[[int], float]] = {
            "keyed_process": lambda number: timed(lambda: drained(with_keyed_process(self.rows(number)))),
            "apply_in_pandas": lambda number: timed(lambda: drained(with_pandas(self.rows(number)))),
            "tws": self.tws_seconds,
            "rdd_path": self.rdd_seconds,
        }

    def rows(self, number: int) -> DataFrame:
        key = F.concat(F.lit("customer-"), (F.col("id") * 7919 % self.keys).cast("string"))
        numbers = SESSION.range(number, numPartitions=PARTITIONS)
        return numbers.select(key.alias("customer"), F.col("id").alias("n"))

    def rdd_seconds(self, number: int) -> float:
        keys = self.keys
        numbers = SESSION.sparkContext.range(number, numSlices=PARTITIONS)
        records = numbers.map(lambda i: f"customer-{i * 7919 % keys}")
        env = StreamExecutionEnvironment(SESSION).set_parallelism(PARTITIONS)
        sink = CountingSink()
        keyed = env.from_rdd(records).key_by(lambda key: key, key_type=Types.STRING())
        keyed.process(Count()).sink_to(sink)
        seconds = timed(lambda: env.execute("count of plain keys"))
        if sink.total != number:
            raise AssertionError(f"{sink.total} results of {number} records")
        return seconds

    def tws_seconds(self, number: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            query = self.tws(number, folder, "noop")
            return timed(lambda: query.start().awaitTermination())

    def tws(self, number: int, folder: str, output: str) -> Any:
        rows = self.rows(number)
        rows.write.parquet(f"{folder}/input")
        stream = SESSION.readStream.schema(rows.schema).parquet(f"{folder}/input").groupBy("customer")
        counts = stream.transformWithState(CountProcessor(), SCHEMA, "Append", "None")
        query = counts.writeStream.trigger(availableNow=True).outputMode("append").format(output)
        return query.option("checkpointLocation", f"{folder}/checkpoint")

    def check(self) -> None:
        """Compare the results of a small run of each way."""
        rows = self.rows(CHECKED_RECORDS)
        expected = sorted(map(tuple, with_pandas(rows).collect()))
        if sorted(map(tuple, with_keyed_process(rows).collect())) != expected:
            raise SystemExit("keyed_process and applyInPandas give different results")
        with tempfile.TemporaryDirectory() as folder:
            self.tws(CHECKED_RECORDS, folder, "parquet").start(f"{folder}/output").awaitTermination()
            found = SESSION.read.schema(SCHEMA).parquet(f"{folder}/output").collect()
        if sorted(map(tuple, found)) != expected:
            raise SystemExit("transformWithState and applyInPandas give different results")


def timed(job: Callable[[], object]) -> float:
    """Return the seconds that ``job`` takes."""
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--tws-records", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="WAY", default=[], help="ways to compare with ours")
    args = parser.parse_args()
    Bench(min(args.keys, 100)).check()
    bench = Bench(args.keys)
    if args.only:
        bench.ways = {name: bench.ways[name] for name in ("keyed_process", *args.only)}
    sizes = dict.fromkeys(bench.ways, args.records) | {"tws": min(args.tws_records, args.records)}
    rates: dict[str, list[float]] = {name: [] for name in bench.ways}
    for number in range(args.rounds):
        for name, seconds in bench.ways.items():
            rates[name].append(sizes[name] / seconds(sizes[name]))
        if not args.json:
            seen = ", ".join(f"{name} {rates[name][-1]:,.0f}" for name in rates)
            print(f"round {number + 1}: {seen} rows/s", flush=True)

    def ratio(name: str) -> float:
        pairs = zip(rates["keyed_process"], rates[name], strict=True)
        return round(statistics.median(ours / other for ours, other in pairs), 3)

    figures: dict[str, float] = {
        f"{name}_rows_per_s": round(statistics.median(seen)) for name, seen in rates.items()
    }
    figures |= {f"ratio_{name}": ratio(name) for name in rates if name != "keyed_process"}
    tell(figures, args.json)


if __name__ == "__main__":
    SESSION = local_session(
        PARTITIONS,
        {
            "spark.sql.shuffle.partitions": str(PARTITIONS),
            "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        },
    )
    main()
