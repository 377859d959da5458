"""A job from one Iceberg table into another, stopped and restored."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from iceberg_support import TABLE, Lake
from operators import RunningSum, running_sums

from pyflinkstate import EpochStats, JobListener, StreamExecutionEnvironment
from pyflinkstate.connectors.iceberg_sink import IcebergSink
from pyflinkstate.connectors.iceberg_source import IcebergSource

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]

TOTALS = "sales.totals"
PATIENCE_S = 120


class Appends(JobListener):
    """Appends to the table that a job reads, after each of its first epochs, and then stops the job."""

    def __init__(self, lake: Lake, amounts: list[int]) -> None:
        self.lake = lake
        self.amounts = amounts
        self.client: Any = None
        self.stopped: Any = None

    def on_epoch(self, stats: EpochStats) -> None:
        if self.amounts:
            self.lake.append(self.amounts.pop(0))
        elif self.stopped is None:
            self.stopped = self.client.stop_with_savepoint()


def run(spark: Any, lake: Lake, restore: str | None, *amounts: int) -> str:
    """Run the job until it has read what is appended meanwhile, and return its savepoint."""
    env = StreamExecutionEnvironment(spark).set_parallelism(2)
    env.enable_checkpointing(0, str(lake.folder / "checkpoints"))
    env.set_default_savepoint_directory(str(lake.folder / "savepoints"))
    if restore is not None:
        env.restore_from(restore)
    listener = Appends(lake, list(amounts))
    env.add_listener(listener)
    orders = env.from_source(IcebergSource(lake.properties, TABLE, max_snapshots_per_epoch=1))
    totals = orders.map(lambda order: (order["day"], order["amount"]))
    summed = totals.key_by(lambda total: total[0]).process(RunningSum()).uid("sums")
    schema = pa.schema([("day", pa.string()), ("total", pa.int64())])
    summed.sink_to(IcebergSink(lake.properties, TOTALS, schema, partition_by=["day"]))
    listener.client = env.execute_async("totals")
    listener.client.get_job_execution_result().result(PATIENCE_S)
    return str(listener.stopped.result(PATIENCE_S))


def test_a_job_reads_one_table_and_writes_another(spark: Any, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    lake.append(1, 2)
    savepoint = run(spark, lake, None, 3, 4)
    lake.append(5)
    run(spark, lake, savepoint, 6)
    rows = lake.catalog.load_table(TOTALS).scan().to_arrow().to_pylist()
    expected = Counter(running_sums([("other", amount) for amount in range(1, 7)]))
    assert Counter((row["day"], row["total"]) for row in rows) == expected
