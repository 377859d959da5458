"""Exactly-once on a real local Spark: real processes, killed with real signals."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operators import Failing, RunningSum, await_output, rows_in, running_sums
from processes import slot_pids
from tiers import cases

from pyflinkstate import (
    CheckpointStats,
    EpochStats,
    FileSink,
    JobExecutionResult,
    JobListener,
    MapStateDescriptor,
    PyFlinkStateError,
    RestartStrategies,
    StreamExecutionEnvironment,
    Types,
    errors,
)
from pyflinkstate.runtime.storage import load_checkpoint

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]

RECORDS = [(f"key-{n * 7 % 23}", n) for n in range(1000)]
EPOCHS = 10
MIB = 1024**2


class Recorder(JobListener):
    """Writes down what happens, and does something after an epoch."""

    def __init__(self, after: dict[int, Callable[[], None]] | None = None) -> None:
        self.after = after or {}
        self.checkpoints: list[CheckpointStats] = []
        self.restarts: list[PyFlinkStateError] = []

    def on_epoch(self, stats: EpochStats) -> None:
        self.after.pop(stats.epoch, lambda: None)()

    def on_checkpoint(self, stats: CheckpointStats) -> None:
        self.checkpoints.append(stats)

    def on_restart(self, attempt: int, error: PyFlinkStateError) -> None:
        self.restarts.append(error)


class Runs:
    """Runs the running sums with a checkpoint after every epoch."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.checkpoints = folder / "checkpoints"
        self.output = folder / "output"

    def run(
        self,
        *,
        listener: JobListener | None = None,
        restore: str | None = None,
        function: Any = None,
        parallelism: int = 2,
        restarts: int = 3,
        slot_memory_bytes: int | None = None,
    ) -> JobExecutionResult:
        env = StreamExecutionEnvironment(self.spark).set_parallelism(parallelism)
        env.enable_checkpointing(0, str(self.checkpoints))
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 0))
        env.set_slot_memory_limit(slot_memory_bytes)
        if listener is not None:
            env.add_listener(listener)
        env.restore_from(restore)
        source = env.from_collection(RECORDS, records_per_epoch=len(RECORDS) // EPOCHS)
        stream = source.key_by(lambda record: record[0]).process(function or RunningSum()).uid("sums")
        stream.sink_to(FileSink(str(self.output)))
        return env.execute("sums")

    def rows(self) -> Counter[str]:
        return rows_in(self.output)

    def only_checkpoint(self) -> Path:
        (folder,) = self.checkpoints.glob("*/chk-*")
        return folder


EXPECTED = Counter(f'["{key}",{total}]' for key, total in running_sums(RECORDS))


@pytest.fixture
def runs(spark: Any, tmp_path: Path) -> Runs:
    return Runs(spark, tmp_path)


def kill_one(pids: Callable[[], set[int]]) -> Callable[[], None]:
    return lambda: os.kill(min(pids()), signal.SIGKILL)


@pytest.mark.parametrize("epoch", [1, 4, 9])
def test_a_slot_that_is_killed(runs: Runs, epoch: int) -> None:
    recorder = Recorder({epoch: kill_one(slot_pids)})
    result = runs.run(listener=recorder)
    assert runs.rows() == EXPECTED
    assert result.restarts == 1
    assert isinstance(recorder.restarts[0], errors.SlotLostError)
    assert result.get_accumulator_result("collection.records_out") == len(RECORDS)


def test_a_record_that_always_fails_ends_the_job_and_keeps_the_checkpoint(runs: Runs) -> None:
    # Two, and one more where a later attempt completed a checkpoint that the one before it had not.
    with pytest.raises(errors.JobFailedError, match=r"after [23] restarts") as caught:
        runs.run(function=Failing(555, runs.output), restarts=2)
    assert isinstance(caught.value.__cause__, errors.UserFunctionError)
    metadata, _ = load_checkpoint(str(runs.only_checkpoint()))
    assert metadata.epoch < 6, "the failed epoch is in no checkpoint"
    assert sum(runs.rows().values()) == metadata.epoch * 100, "committed is what the checkpoint covers"
    runs.run(restore="latest", parallelism=3)
    assert runs.rows() == EXPECTED


class Hoards(RunningSum):
    """Keeps a few bytes for most records, and many for some, when there is a checkpoint to go back to."""

    def __init__(self, sizes: dict[int, int], output: Path) -> None:
        self.sizes = sizes
        self.output = output

    def open(self, runtime_context: Any) -> None:
        super().open(runtime_context)
        self.kept = runtime_context.get_map_state(
            MapStateDescriptor("kept", Types.LONG(), Types.PRIMITIVE_ARRAY(Types.BYTE()))
        )

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value[1] in self.sizes:
            await_output(self.output)
        self.kept.put(value[1], bytes([1]) * self.sizes.get(value[1], 1))
        yield from super().process_element(value, ctx)


@pytest.mark.parametrize(
    "sizes",
    [dict.fromkeys(range(420, 1000, 6), 3 * MIB), {555: 300 * MIB}],
    ids=["state that grows", "a single record"],
)
def test_state_that_a_slot_cannot_hold_ends_the_job_and_a_run_without_the_limit_goes_on(
    runs: Runs, sizes: dict[int, int]
) -> None:
    recorder = Recorder()
    with pytest.raises(errors.SlotMemoryError, match=r"^slot sums\[[01]\] uses .*, and its limit is 200 MiB"):
        runs.run(function=Hoards(sizes, runs.output), slot_memory_bytes=200 * MIB, listener=recorder)
    assert recorder.restarts == [], "each attempt would end the same way"
    metadata, _ = load_checkpoint(str(runs.only_checkpoint()))
    assert metadata.epoch is not None
    assert 0 < metadata.epoch < EPOCHS
    assert sum(runs.rows().values()) == metadata.epoch * 100, "committed is what the checkpoint covers"
    runs.run(function=Hoards(sizes, runs.output), restore="latest", parallelism=3)
    assert runs.rows() == EXPECTED


@pytest.mark.quick
@pytest.mark.parametrize("parallelism", cases([1, 3, 5], quick=[3]))
def test_restore_at_another_parallelism(runs: Runs, parallelism: int) -> None:
    with pytest.raises(errors.JobFailedError):
        runs.run(function=Failing(720, runs.output), restarts=1)
    first = runs.only_checkpoint()
    result = runs.run(restore=str(first), parallelism=parallelism)
    assert runs.rows() == EXPECTED
    assert result.get_accumulator_result("collection.records_out") == len(RECORDS)
    assert result.job_id == first.parent.name, "a restored job goes on under its id"
    assert int(runs.only_checkpoint().name[4:]) > int(first.name[4:]), "and never reuses a checkpoint's"
