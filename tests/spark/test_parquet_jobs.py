"""A job on Spark that writes a folder of Parquet files with partitions, and Spark reads it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from operators import Failing, RunningSum, running_sums
from processes import slot_pids
from test_recovery import Recorder, kill_one

from pyflinkstate import (
    FileSystemCheckpointStorage,
    ParquetSink,
    RestartStrategies,
    StreamExecutionEnvironment,
    errors,
)

SCHEMA = pa.schema([("total", pa.int64()), ("key", pa.string())])
RECORDS = [(None if n % 7 == 0 else f"a/b:{n % 7} %", n) for n in range(400)]


def named(record: tuple[Any, int]) -> tuple[str, int]:
    return record[0] or "", record[1]


EXPECTED = Counter((key or None, total) for key, total in running_sums(list(map(named, RECORDS))))


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.usefixtures("no_slot_left")
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
        source = env.from_collection(RECORDS, records_per_epoch=50).map(named)
        sums = source.key_by(lambda record: record[0]).process(function).uid("sums")
        sums.map(lambda pair: {"key": pair[0], "total": pair[1]}).sink_to(
            ParquetSink(out, SCHEMA, partition_by=["key"], join_files=join_files)
        )
        return env.execute("sums")

    with pytest.raises(errors.UserFunctionError):
        execute(Failing(180, tmp_path / "flag"), 2, None)
    result = execute(RunningSum(), 3, "latest", Recorder({5: kill_one(slot_pids)}))
    assert result.restarts == 1
    seen = spark.read.parquet(out)
    assert dict(seen.dtypes) == {"total": "bigint", "key": "string"}
    assert Counter((row["key"], row["total"]) for row in seen.collect()) == EXPECTED
    partitioning = ds.partitioning(flavor="hive", schema=SCHEMA)
    rows = ds.dataset(out, SCHEMA, format="parquet", partitioning=partitioning).to_table().to_pylist()
    assert Counter((row["key"], row["total"]) for row in rows) == EXPECTED
    assert seen.where("key = 'a/b:3 %'").count() == len([key for key, _ in RECORDS if key == "a/b:3 %"])
