"""One epoch ahead on a real local Spark: what fails while the next epoch is read and shuffled."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operators import PATIENCE_S, RunningSum, running_sums

from pyflinkstate import FileSink, JobListener, RestartStrategies, StreamExecutionEnvironment, errors

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180), pytest.mark.usefixtures("no_slot_left")]

RECORDS = [(f"key-{n * 7 % 23}", n) for n in range(600)]
PER_EPOCH = 100
EXPECTED = Counter(f'["{key}",{total}]' for key, total in running_sums(RECORDS))


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait, in a worker or a slot; nothing takes so long that it would end this."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < deadline_s:
        threading.Event().wait(0.01)


class Reader:
    """Stands still at one record until it is cancelled, and raises at another one; each only once."""

    def __init__(self, folder: Path, hangs_at: int, raises_at: int) -> None:
        self.folder = folder
        self.hangs_at = hangs_at
        self.raises_at = raises_at

    def __call__(self, record: tuple[str, int]) -> tuple[str, int]:
        if record[1] == self.hangs_at and self._is_first("hung"):
            wait_until(lambda: False)
        if record[1] == self.raises_at and self._is_first("raised"):
            raise LookupError(f"cannot read {record[1]} at the first try")
        return record

    def _is_first(self, what: str) -> bool:
        try:
            (self.folder / what).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class DiesWhileOthersRead(RunningSum):
    """Kills its slot at one record, when the reader stands still in the epoch after it."""

    def __init__(self, folder: Path, dies_at: int, waits_at: int) -> None:
        self.folder = folder
        self.dies_at = dies_at
        self.waits_at = waits_at

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value[1] == self.dies_at and self.get_runtime_context().get_attempt_number() == 0:
            wait_until((self.folder / "hung").exists)
            os.kill(os.getpid(), signal.SIGKILL)
        if value[1] == self.waits_at:
            wait_until((self.folder / "raised").exists)
        yield from super().process_element(value, ctx)


class Restarts(JobListener):
    def __init__(self) -> None:
        self.reasons: list[Exception] = []

    def on_restart(self, attempt: int, error: Exception) -> None:
        self.reasons.append(error)


def rows(output: Path) -> Counter[str]:
    files = sorted(output.glob("epoch=*/*.jsonl"))
    return Counter(row for file in files for row in file.read_text().splitlines())


def test_a_slot_dies_while_the_next_epoch_is_read_and_a_later_one_fails_ahead(
    spark: Any, tmp_path: Path
) -> None:
    env = StreamExecutionEnvironment(spark).set_parallelism(2)
    env.enable_checkpointing(0, str(tmp_path / "checkpoints"))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    told = Restarts()
    env.add_listener(told)
    # Epoch 3 has the records from 200 on; the reader stands still in epoch 4, and raises ahead of epoch 6. If
    # Spark has not told of that before epoch 6 begins, the epoch waits for the same stage and fails too.
    read = env.from_collection(RECORDS, records_per_epoch=PER_EPOCH).map(Reader(tmp_path, 350, 550))
    function = DiesWhileOthersRead(tmp_path, 250, 450)
    summed = read.key_by(lambda record: record[0]).process(function).uid("sums")
    summed.sink_to(FileSink(str(tmp_path / "output")))
    result = env.execute("sums")
    assert rows(tmp_path / "output") == EXPECTED
    assert isinstance(told.reasons[0], errors.SlotLostError)
    assert len(told.reasons) <= 2
    assert (tmp_path / "raised").exists()
    assert result.get_accumulator_result("collection.records_out") == len(RECORDS)
