"""Records of half a megabyte through the real path: a gigabyte passes a slot of a few hundred megabytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyflinkstate import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]

RECORDS = 2_000
SIZE = 500_000
#: What a slot and a worker may have at most, while the records of the epoch have 1,000 MB.
#: A worker sorts frames in memory up to ``spark.python.worker.memory`` (512 MB), and then on the disk.
MAX_SLOT_MB = 300
MAX_WORKER_MB = 1_000


def peak_mb() -> int:
    """Return what this process has had of memory at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return peak // 1024


class PassOn(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: tuple[int, bytes], ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield value[0], value[1], peak_mb()


def test_many_large_records_take_little_memory(spark: Any) -> None:
    env = StreamExecutionEnvironment(spark).set_parallelism(1)
    numbers = env.from_collection(range(RECORDS), records_per_epoch=RECORDS)
    large = numbers.map(lambda number: (number, bytes([number % 256]) * SIZE))
    passed = large.key_by(lambda record: record[0] % 7).process(PassOn())
    seen = passed.map(lambda row: (row[0], len(row[1]), row[2], peak_mb()))
    rows = list(seen.execute_and_collect())
    assert sorted((number, size) for number, size, _, _ in rows) == [(n, SIZE) for n in range(RECORDS)]
    slot, worker = max(row[2] for row in rows), max(row[3] for row in rows)
    assert slot < MAX_SLOT_MB, f"slot {slot} MB, worker {worker} MB"
    assert worker < MAX_WORKER_MB, f"slot {slot} MB, worker {worker} MB"
    print(f"slot {slot} MB, worker {worker} MB")
