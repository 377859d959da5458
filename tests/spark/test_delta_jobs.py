"""Jobs on Spark that write a table of Delta Lake, and read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pyflinkstate import (
    FileSystemCheckpointStorage,
    KeyedProcessFunction,
    RestartStrategies,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.connectors.delta_sink import DeltaSink
from pyflinkstate.connectors.delta_source import DeltaSource
from pyflinkstate.runtime.sources import Available

SCHEMA = pa.schema([("day", pa.string()), ("amount", pa.int64())])


class Drained(DeltaSource):
    """Ends when it has read the table."""

    is_bounded = True

    def latest_offset(self, start: Any, whole: bool) -> Available:
        return attrs.evolve(super().latest_offset(start, whole), is_last=True)


class Totals(KeyedProcessFunction):
    """The total of each day so far; the first run fails after some records."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.records = 0

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.records += 1
        if self.records == 60 and not self.flag.exists():
            self.flag.touch()
            raise ValueError("once")
        total = (self.total.value() or 0) + value["amount"]
        self.total.update(total)
        yield {"day": value["day"], "amount": total}


@pytest.mark.spark
@pytest.mark.full
def test_a_job_that_fails_writes_tables_that_another_job_reads(spark: Any, tmp_path: Path) -> None:
    rows = [{"day": f"day{number % 7}", "amount": number} for number in range(400)]
    tables = {name: str(tmp_path / name) for name in ("totals", "last")}

    def execute(source: Any, name: str, **options: Any) -> Any:
        env = StreamExecutionEnvironment(spark).set_parallelism(2)
        env.enable_checkpointing(0, FileSystemCheckpointStorage(str(tmp_path / f"chk-{name}")))
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 0))
        stream = source(env).key_by(lambda row: row["day"]).process(Totals(tmp_path / f"flag-{name}"))
        stream.sink_to(DeltaSink(tables[name], SCHEMA, **options))
        return env.execute(name)

    first = execute(lambda env: env.from_collection(rows, records_per_epoch=100), "totals", compact_every=2)
    second = execute(
        lambda env: env.from_source(Drained(tables["totals"], starting_version=0)),
        "last",
        key=["day"],
    )
    assert (first.restarts, second.restarts) == (1, 1)
    totals: dict[str, int] = {}
    wanted = []
    for row in rows:
        totals[row["day"]] = totals.get(row["day"], 0) + row["amount"]
        wanted.append((row["day"], totals[row["day"]]))
    found = DeltaTable(tables["totals"]).to_pyarrow_dataset().to_table().to_pylist()
    assert sorted((row["day"], row["amount"]) for row in found) == sorted(wanted)
    sums = {day: sum(total for key, total in wanted if key == day) for day in totals}
    found = DeltaTable(tables["last"]).to_pyarrow_dataset().to_table().to_pylist()
    assert {row["day"]: row["amount"] for row in found} == sums
    assert len(found) == len(sums)
