"""Spark's own ``transformWithState`` (rows), with RocksDB and changelog checkpointing, as Spark advises.

The input lies in Parquet files, all of which one trigger takes (``availableNow``): larger micro-batches are
better for Spark's throughput, as all records of a key share the reading and the writing of its state. With
``TWS_BATCH_RECORDS`` a micro-batch has so many records instead. Keys and times are computed by Spark's SQL,
outside Python.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

import pyspark
from pyspark.sql import DataFrame, Row, SparkSession, functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from workload import (
    KEYS,
    LARGE_KEYS,
    MINUTE_MS,
    PARALLELISM,
    count_in,
    large_value,
    main,
    minute_end,
    number_in,
)

#: How many records a micro-batch has, or 0 for one that has all.
BATCH_RECORDS = int(os.environ.get("TWS_BATCH_RECORDS", "0"))
#: How many files a micro-batch takes.
FILES = 2 * PARALLELISM
#: The key of one last record, whose time lets every timer fire.
CLOSING_KEY = -1
#: Added to all times: Spark's first watermark is 0, for which a record of time 0 is late.
SHIFT_MS = 60 * MINUTE_MS


class Count(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "count long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        found = self.count.get()
        count = found[0] if found else 0
        for _ in rows:
            count += 1
            yield Row(key=key[0], count=count)
        self.count.update((count,))


class CountInLargeValue(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.value = handle.getValueState("value", "value string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        found = self.value.get()
        count = count_in(found[0] if found else None)
        for _ in rows:
            count += 1
            yield Row(key=number_in(key[0]), count=count)
        self.value.update((large_value(count),))


class CountUntilTimer(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.counts = handle.getMapState("counts", "minute long", "count long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        if key[0] == CLOSING_KEY:
            return
        for row in rows:
            end = minute_end(row.id)
            found = self.counts.getValue((end,))
            self.counts.updateValue((end,), ((found[0] if found else 0) + 1,))
            self.handle.registerTimer(end + SHIFT_MS)
        yield from ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        end = expiredTimerInfo.getExpiryTimeInMs() - SHIFT_MS
        yield Row(key=key[0], count=self.counts.getValue((end,))[0])
        self.counts.removeKey((end,))


def session() -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(PARALLELISM),
        "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
        "RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.master(f"local[{PARALLELISM}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def results_of(records: DataFrame, workload: str) -> DataFrame:
    """Return the query; ``id`` is the record's number, and so its time."""
    schema = "key long, count long"
    if workload == "large_state":
        number = F.crc32(F.col("id").cast("string")) % LARGE_KEYS
        keyed = records.withColumn("key", F.format_string("user-%011d", number))
        return keyed.groupBy("key").transformWithState(CountInLargeValue(), schema, "Append", "None")
    alternate = F.floor(F.col("id") / MINUTE_MS) % 2
    key = F.when(F.col("is_last"), CLOSING_KEY).otherwise(F.col("id") * 7919 % (KEYS // 2) * 2 + alternate)
    keyed = records.withColumn("key", key.cast("long")).withColumn(
        "time", F.timestamp_millis(F.col("id") + SHIFT_MS)
    )
    processor, mode = Count(), "None"
    if workload == "timers":
        keyed, processor, mode = keyed.withWatermark("time", "0 seconds"), CountUntilTimer(), "EventTime"
    return keyed.groupBy("key").transformWithState(processor, schema, "Append", mode)


def run(workload: str, records: int, check: bool) -> tuple[float, list[tuple[int, int]] | None]:
    if workload not in ("keyed_count", "timers", "large_state"):
        raise SystemExit(f"{workload}: a window is no transformWithState")
    spark = session()
    with TemporaryDirectory() as folder:
        batches = max(1, records // BATCH_RECORDS) if BATCH_RECORDS else 1
        numbers = spark.range(0, records, 1, batches * FILES).withColumn("is_last", F.lit(False))
        if workload == "timers":
            last = spark.range(records + MINUTE_MS, records + MINUTE_MS + 1, 1, 1)
            numbers = numbers.union(last.withColumn("is_last", F.lit(True)))
        numbers.write.parquet(f"{folder}/input")
        reader = spark.readStream.schema(numbers.schema)
        if BATCH_RECORDS:
            reader = reader.option("maxFilesPerTrigger", FILES)
        stream = reader.parquet(f"{folder}/input")
        query = results_of(stream, workload).writeStream.trigger(availableNow=True)
        query = query.option("checkpointLocation", f"{folder}/checkpoint")
        query = query.format("parquet" if check else "noop").outputMode("append")
        started = time.perf_counter()
        (query.start(f"{folder}/output") if check else query.start()).awaitTermination()
        seconds = time.perf_counter() - started
        if not check:
            return seconds, None
        found = spark.read.schema("key long, count long").parquet(f"{folder}/output").collect()
        return seconds, [(row.key, row["count"]) for row in found]


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers are the system's python3
    main(f"Spark {pyspark.__version__} transformWithState", run)
