"""Jobs on Spark that read a table of changes, and write to another table."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from example_programs import EXAMPLES
from processes import quick_start

from pyflinkstate import (
    FileSystemCheckpointStorage,
    KeyedProcessFunction,
    RestartStrategies,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.connectors import SqlSink, SqlSource

pytestmark = [pytest.mark.spark, pytest.mark.full]


def run(path: Path, statements: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        *before, last = statements.split(";")
        database.executescript(";".join(before))
        return database.execute(last).fetchall()


class Totals(KeyedProcessFunction):
    """The number of rows and the total of each day so far; the first run fails after some records."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def open(self, runtime_context: RuntimeContext) -> None:
        self.rows = runtime_context.get_state(ValueStateDescriptor("rows", Types.LONG()))
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.records = 0

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.records += 1
        if self.records == 60 and not self.flag.exists():
            self.flag.touch()
            raise ValueError("once")
        self.rows.update((self.rows.value() or 0) + 1)
        self.total.update((self.total.value() or 0) + value["amount"])
        yield value["day"], self.rows.value(), self.total.value()


def test_a_job_that_fails_and_is_restored_reads_each_row_once(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "data.sqlite"
    run(path, "CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, day TEXT, amount BIGINT);")
    run(path, "CREATE TABLE totals (day TEXT PRIMARY KEY, count BIGINT, total BIGINT);")
    for restarts, restore in ((1, None), (0, "latest")):
        with closing(sqlite3.connect(path)) as database, database:
            rows = [(f"day{number % 7}", number) for number in range(400)]
            database.executemany("INSERT INTO orders (day, amount) VALUES (?, ?)", rows)
        env = StreamExecutionEnvironment(spark).set_parallelism(2)
        env.enable_checkpointing(0, FileSystemCheckpointStorage(str(tmp_path / "checkpoints")))
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 0))
        if restore is not None:
            env.restore_from(restore)
        source = SqlSource(f"sqlite:///{path}", "orders", "id", bounded=True, max_rows_per_epoch=70)
        totals = env.from_source(source).key_by(lambda row: row["day"]).process(Totals(tmp_path / "flag"))
        sink = SqlSink(f"sqlite:///{path}", "totals", ["day", "count", "total"], key=["day"])
        totals.uid("totals").sink_to(sink)
        assert env.execute("totals").restarts == restarts
        wanted = run(path, "SELECT day, count(*), sum(amount) FROM orders GROUP BY day ORDER BY day")
        assert run(path, "SELECT * FROM totals ORDER BY day") == wanted


def test_the_example_copies_a_table_change_by_change(tmp_path: Path) -> None:
    (settings := tmp_path / "conf").mkdir()
    source, target = tmp_path / "source.sqlite", tmp_path / "target.sqlite"
    arguments = ["--source", str(source), "--target", str(target)]
    arguments += ["--checkpoint-dir", str(tmp_path / "checkpoints")]
    edit = "INSERT INTO customers VALUES ('joe', 'Kyiv'); DELETE FROM customers WHERE name = 'eve';"
    for restore, before in (([], ""), (["--restore", "latest"], edit)):
        run(source, before)
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / "change_data_capture.py"), *arguments, *restore],
            env={**quick_start(settings), **os.environ},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        customers = run(source, "SELECT * FROM customers ORDER BY name")
        assert run(target, "SELECT * FROM customers ORDER BY name") == customers
        assert done.stdout.splitlines() == [" ".join(customer) for customer in customers]
    assert ("joe", "Kyiv") in customers
