"""Operator state, time to live and both kinds of tables in real slots, over kills and rescaling."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from operators import Journal, RunningSum, running_sums
from processes import slot_pids

from pyflinkstate import (
    EpochStats,
    FileSink,
    HashMapStateBackend,
    JobListener,
    KeyedProcessFunction,
    MapStateDescriptor,
    RestartStrategies,
    StateTtlConfig,
    StreamExecutionEnvironment,
    Time,
    Types,
    errors,
)
from pyflinkstate.backends.operator_state.backend import (
    DefaultOperatorStateBackend,
    OperatorStateRestoreOperation,
)
from pyflinkstate.runtime.storage.checkpoints import load_checkpoint
from pyflinkstate.runtime.storage.streams import open_folder

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]

RECORDS = [(f"key-{n * 7 % 23}", n) for n in range(600)]
EXPECTED = Counter(f'["{key}",{total}]' for key, total in running_sums(RECORDS))


class KillsASlot(JobListener):
    """Kills one slot after an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch(self, stats: EpochStats) -> None:
        if stats.epoch == self.epoch:
            self.epoch = 0
            os.kill(min(slot_pids()), signal.SIGKILL)


def environment(spark: Any, folder: Path, parallelism: int) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment(spark).set_parallelism(parallelism)
    env.enable_checkpointing(0, str(folder / "checkpoints"))
    return env


def run(env: StreamExecutionEnvironment, folder: Path, function: KeyedProcessFunction) -> None:
    source = env.from_collection(RECORDS, records_per_epoch=100)
    stream = source.key_by(lambda record: record[0], key_type=Types.STRING()).process(function).uid("sums")
    stream.sink_to(FileSink(str(folder / "output")))
    env.execute("state on spark")


def rows(folder: Path) -> Counter[str]:
    files = (folder / "output").glob("epoch=*/*.jsonl")
    return Counter(row for file in files for row in file.read_text().splitlines())


def journals(folder: Path) -> list[list[int]]:
    """Return each subtask's operator state in the last checkpoint."""
    (checkpoint,) = (folder / "checkpoints").glob("*/chk-*")
    metadata, uri = load_checkpoint(str(checkpoint))
    found = []
    for subtask in metadata.operators[0].subtasks:
        backend = DefaultOperatorStateBackend()
        assert subtask.managed_operator is not None
        OperatorStateRestoreOperation(backend, open_folder(uri)).restore([subtask.managed_operator])
        found.append(list(backend.registered_states["journal"].columns()[0]))
    return found


def test_operator_state_is_exactly_once_over_a_failure_a_kill_and_rescaling(
    spark: Any, tmp_path: Path
) -> None:
    env = environment(spark, tmp_path, 2).set_restart_strategy(RestartStrategies.no_restart())
    with pytest.raises(errors.UserFunctionError):
        run(env, tmp_path, Journal(350, tmp_path / "output"))
    env = environment(spark, tmp_path, 3).restore_from("latest").add_listener(KillsASlot(5))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    run(env, tmp_path, Journal())
    assert rows(tmp_path) == EXPECTED
    parts = journals(tmp_path)
    assert len(parts) == 3
    assert sorted(number for part in parts for number in part) == [number for _, number in RECORDS]


@pytest.mark.parametrize(
    "backend",
    [HashMapStateBackend(async_snapshots=False), HashMapStateBackend(snapshot_compression="lz4")],
    ids=["synchronous", "lz4"],
)
def test_other_state_backends(spark: Any, tmp_path: Path, backend: HashMapStateBackend) -> None:
    env = environment(spark, tmp_path, 2).set_state_backend(backend).add_listener(KillsASlot(3))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    run(env, tmp_path, RunningSum())
    assert rows(tmp_path) == EXPECTED


class Expiring(KeyedProcessFunction):
    """Sums in a map whose entries live for a while."""

    def __init__(self, ttl: Time) -> None:
        self.ttl = ttl

    def open(self, runtime_context: Any) -> None:
        descriptor = MapStateDescriptor("sums", Types.STRING(), Types.LONG())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(self.ttl).cleanup_full_snapshot().build())
        self.sums = runtime_context.get_map_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        total = (self.sums.get("sum") or 0) + value[1]
        self.sums.put("sum", total)
        yield ctx.get_current_key(), total


def test_state_with_time_to_live_is_restored(spark: Any, tmp_path: Path) -> None:
    env = environment(spark, tmp_path, 2).add_listener(KillsASlot(3))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    run(env, tmp_path, Expiring(Time.days(1)))
    assert rows(tmp_path) == EXPECTED
