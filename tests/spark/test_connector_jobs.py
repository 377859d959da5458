"""Jobs on Spark between tables of Iceberg, Delta Lake, SQL and Parquet that fail, are killed and restored."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from example_programs import EXAMPLES
from iceberg_support import TABLE, Lake
from operators import Failing, FailsOnce, RunningSum, running_sums
from processes import quick_start, slot_pids
from table_sinks import SCHEMA
from test_recovery import Recorder, kill_one

from pyflinkstate import (
    EpochStats,
    FileSystemCheckpointStorage,
    JobListener,
    ParquetSink,
    RestartStrategies,
    StreamExecutionEnvironment,
    errors,
)
from pyflinkstate.connectors import SqlSink, SqlSource
from pyflinkstate.connectors.delta_sink import DeltaSink
from pyflinkstate.connectors.delta_source import DeltaSource
from pyflinkstate.connectors.iceberg_sink import IcebergSink
from pyflinkstate.connectors.iceberg_source import IcebergSource
from pyflinkstate.runtime.sources import Available

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]

# --- Iceberg -----------------------------------------------------------------------------------------------

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


# --- Delta Lake --------------------------------------------------------------------------------------------


class Drained(DeltaSource):
    """Ends when it has read the table."""

    is_bounded = True

    def latest_offset(self, start: Any, whole: bool) -> Available:
        return attrs.evolve(super().latest_offset(start, whole), is_last=True)


def test_a_job_that_fails_writes_tables_that_another_job_reads(spark: Any, tmp_path: Path) -> None:
    rows = [(f"day{number % 7}", number) for number in range(400)]
    tables = {name: str(tmp_path / name) for name in ("totals", "last")}

    def execute(source: Any, name: str, **options: Any) -> Any:
        env = StreamExecutionEnvironment(spark).set_parallelism(2)
        env.enable_checkpointing(0, FileSystemCheckpointStorage(str(tmp_path / f"chk-{name}")))
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 0))
        sums = source(env).key_by(lambda row: row[0]).process(FailsOnce(tmp_path / f"flag-{name}"))
        stream = sums.map(lambda row: {"day": row[0], "amount": row[1]})
        stream.sink_to(DeltaSink(tables[name], SCHEMA, **options))
        return env.execute(name)

    def written(name: str) -> list[tuple[str, int]]:
        found = DeltaTable(tables[name]).to_pyarrow_dataset().to_table().to_pylist()
        return sorted((row["day"], row["amount"]) for row in found)

    first = execute(lambda env: env.from_collection(rows, records_per_epoch=100), "totals", compact_every=2)
    again = Drained(tables["totals"], starting_version=0)
    second = execute(
        lambda env: env.from_source(again).map(lambda row: (row["day"], row["amount"])), "last", key=["day"]
    )
    assert (first.restarts, second.restarts) == (1, 1)
    totals = running_sums(rows)
    assert written("totals") == sorted(totals)
    sums = Counter[str]()
    for day, total in totals:
        sums[day] += total
    assert written("last") == sorted(sums.items())


# --- folders of Parquet files, which Spark reads -----------------------------------------------------------


SUMS = pa.schema([("total", pa.int64()), ("key", pa.string())])
PARTITIONED = [(None if n % 7 == 0 else f"a/b:{n % 7} %", n) for n in range(400)]


def named(record: tuple[Any, int]) -> tuple[str, int]:
    return record[0] or "", record[1]


EXPECTED = Counter((key or None, total) for key, total in running_sums(list(map(named, PARTITIONED))))


@pytest.mark.parametrize("join_files", [False, True])
def test_a_job_that_is_killed_and_restored_is_read_by_spark(
    spark: Any, tmp_path: Path, join_files: bool
) -> None:
    out = str(tmp_path / "out")

    def execute(function: Any, parallelism: int, restore: str | None, *listeners: Recorder) -> Any:
        env = StreamExecutionEnvironment(spark).set_parallelism(parallelism)
        env.enable_checkpointing(0, FileSystemCheckpointStorage(str(tmp_path / "checkpoints")))
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1 if listeners else 0, 0))
        for listener in listeners:
            env.add_listener(listener)
        if restore is not None:
            env.restore_from(restore)
        source = env.from_collection(PARTITIONED, records_per_epoch=50).map(named)
        sums = source.key_by(lambda record: record[0]).process(function).uid("sums")
        sums.map(lambda pair: {"key": pair[0], "total": pair[1]}).sink_to(
            ParquetSink(out, SUMS, partition_by=["key"], join_files=join_files)
        )
        return env.execute("sums")

    with pytest.raises(errors.UserFunctionError):
        execute(Failing(180, tmp_path / "flag"), 2, None)
    result = execute(RunningSum(), 3, "latest", Recorder({5: kill_one(slot_pids)}))
    assert result.restarts == 1
    seen = spark.read.parquet(out)
    assert dict(seen.dtypes) == {"total": "bigint", "key": "string"}
    assert Counter((row["key"], row["total"]) for row in seen.collect()) == EXPECTED
    partitioning = ds.partitioning(flavor="hive", schema=SUMS)
    rows = ds.dataset(out, SUMS, format="parquet", partitioning=partitioning).to_table().to_pylist()
    assert Counter((row["key"], row["total"]) for row in rows) == EXPECTED
    assert seen.where("key = 'a/b:3 %'").count() == len([key for key, _ in PARTITIONED if key == "a/b:3 %"])


# --- SQL ---------------------------------------------------------------------------------------------------


def run_sql(path: Path, statements: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        *before, last = statements.split(";")
        database.executescript(";".join(before))
        return database.execute(last).fetchall()


def test_a_job_that_fails_and_is_restored_reads_each_row_once(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "data.sqlite"
    run_sql(path, "CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, day TEXT, amount BIGINT);")
    run_sql(path, "CREATE TABLE totals (day TEXT PRIMARY KEY, total BIGINT);")
    for restarts, restore in ((1, None), (0, "latest")):
        with closing(sqlite3.connect(path)) as database, database:
            orders = [(f"day{number % 7}", number) for number in range(400)]
            database.executemany("INSERT INTO orders (day, amount) VALUES (?, ?)", orders)
        env = StreamExecutionEnvironment(spark).set_parallelism(2)
        env.enable_checkpointing(0, FileSystemCheckpointStorage(str(tmp_path / "checkpoints")))
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 0))
        if restore is not None:
            env.restore_from(restore)
        source = SqlSource(f"sqlite:///{path}", "orders", "id", bounded=True, max_rows_per_epoch=70)
        rows = env.from_source(source).map(lambda row: (row["day"], row["amount"]))
        totals = rows.key_by(lambda row: row[0]).process(FailsOnce(tmp_path / "flag")).uid("totals")
        totals.sink_to(SqlSink(f"sqlite:///{path}", "totals", ["day", "total"], key=["day"]))
        assert env.execute("totals").restarts == restarts
        wanted = run_sql(path, "SELECT day, sum(amount) FROM orders GROUP BY day ORDER BY day")
        assert run_sql(path, "SELECT * FROM totals ORDER BY day") == wanted


def test_the_example_copies_a_table_change_by_change(tmp_path: Path) -> None:
    (settings := tmp_path / "conf").mkdir()
    source, target = tmp_path / "source.sqlite", tmp_path / "target.sqlite"
    arguments = ["--source", str(source), "--target", str(target)]
    arguments += ["--checkpoint-dir", str(tmp_path / "checkpoints")]
    edit = "INSERT INTO customers VALUES ('joe', 'Kyiv'); DELETE FROM customers WHERE name = 'eve';"
    for restore, before in (([], ""), (["--restore", "latest"], edit)):
        run_sql(source, before)
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / "change_data_capture.py"), *arguments, *restore],
            env={**quick_start(settings), **os.environ},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        customers = run_sql(source, "SELECT * FROM customers ORDER BY name")
        assert run_sql(target, "SELECT * FROM customers ORDER BY name") == customers
        assert done.stdout.splitlines() == [" ".join(customer) for customer in customers]
    assert ("joe", "Kyiv") in customers
