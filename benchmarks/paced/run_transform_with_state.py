"""Spark's own ``transformWithState`` (rows) in micro-batches that follow each other without a pause.

The state is in RocksDB with changelog checkpointing, as Spark advises. The source is written with Spark's
Python data source API, because Spark's rate source hands out whole seconds only: it would add half a second.
The sink is ``foreach``, which calls a Python function for each record in the tasks.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
from pace import NUMBERS, PARALLELISM, Arrivals, Pace, all_have_arrived, main, wait_for
from pyspark.sql import Row, SparkSession, functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(PARALLELISM),
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class PacedReader(DataSourceStreamReader):
    """Reads what is due; in the first micro-batch one record, as it also starts what later ones reuse."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.has_begun = False

    def initialOffset(self) -> dict[str, int]:
        return {"number": 0}

    def latestOffset(self) -> dict[str, int]:
        if not self.has_begun:
            self.has_begun = True
            return {"number": 1}
        return {"number": self.pace.due_before(self.pace.start_ns(), time.time_ns())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        first, length = start["number"], end["number"] - start["number"]
        cuts = [first + length * part // PARALLELISM for part in range(PARALLELISM + 1)]
        return [InputPartition(cut) for cut in itertools.pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        start_ns = self.pace.start_ns()
        return ((number, self.pace.due_ns(start_ns, number)) for number in range(*partition.value))


class PacedSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "paced"

    def schema(self) -> str:
        return "number long, due_ns long"

    def streamReader(self, schema: Any) -> PacedReader:
        numbers = (int(self.options[name]) for name in NUMBERS)
        return PacedReader(Pace(Path(self.options["folder"]), *numbers))


class Count(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "count long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        found = self.count.get()
        count = found[0] if found else 0
        for row in rows:
            count += 1
            yield Row(number=row.number, due_ns=row.due_ns, count=count)
        self.count.update((count,))


class LoggingWriter:
    """Logs the arrivals; each micro-batch has a log of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, partition: int, epoch: int) -> bool:
        self.arrivals = Arrivals(self.folder)
        return True

    def process(self, row: Row) -> None:
        self.arrivals.note(*row)

    def close(self, error: Exception | None) -> None:
        self.arrivals.close()


def run(pace: Pace) -> None:
    builder = SparkSession.builder.master(f"local[{PARALLELISM}]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(PacedSource)
    reader = spark.readStream.format("paced").option("folder", str(pace.folder))
    for name in NUMBERS:
        reader = reader.option(name, getattr(pace, name))
    keyed = reader.load().withColumn("key", pace.key_of(F.col("number"))).groupBy("key")
    counted = keyed.transformWithState(Count(), "number long, due_ns long, count long", "Append", "None")
    writer = counted.writeStream.foreach(LoggingWriter(pace.folder)).outputMode("append")
    query = writer.option("checkpointLocation", str(pace.folder / "checkpoints")).start()
    wait_for(pace, all_have_arrived, lambda: query.isActive)
    query.stop()


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers are the system's python3
    main(f"Spark {pyspark.__version__} transformWithState", run)
