"""State of which most is on disk, in real slots: kills, restores, rescaling, and changes of the backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operators import PaddedSum, rows_in, running_sums
from processes import slot_pids, slots_left
from test_recovery import Recorder, kill_one

from pyflinkstate import (
    EmbeddedRocksDBStateBackend,
    FileSink,
    HashMapStateBackend,
    RestartStrategies,
    StateBackend,
    StreamExecutionEnvironment,
    Types,
    errors,
)
from pyflinkstate.common import Configuration

pytest.importorskip("rocksdict")
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]

EPOCHS = 10
RECORDS = [(f"key-{n * 7 % 2003}", n) for n in range(20_000)]
EXPECTED = Counter(f'["{key}",{total}]' for key, total in running_sums(RECORDS))
#: Of about 2 MB of state.
MEMORY = "200 kb"


def run(
    spark: Any,
    folder: Path,
    state_backend: StateBackend,
    function: PaddedSum,
    parallelism: int,
    after: dict[int, Callable[[], None]],
) -> Recorder:
    """Run the job from the latest checkpoint on; it may restart once."""
    settings = Configuration()
    settings.set_string("state.backend.rocksdb.localdir", str(folder / "scratch"))
    settings.set_string("state.backend.rocksdb.memory.fixed-per-slot", MEMORY)
    env = StreamExecutionEnvironment(spark).set_parallelism(parallelism).configure(settings)
    env.enable_checkpointing(0, str(folder / "checkpoints")).set_state_backend(state_backend)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    if (folder / "checkpoints").exists():
        env.restore_from("latest")
    env.add_listener(recorder := Recorder(after))
    source = env.from_collection(RECORDS, records_per_epoch=len(RECORDS) // EPOCHS)
    stream = source.key_by(lambda record: record[0], key_type=Types.STRING()).process(function).uid("sums")
    stream.sink_to(FileSink(str(folder / "output")))
    env.execute("state on disk")
    return recorder


def test_kills_restores_and_changes_of_the_backend(spark: Any, tmp_path: Path) -> None:
    scratch, files = tmp_path / "scratch", []
    on_disk = EmbeddedRocksDBStateBackend(True)
    after = {2: lambda: files.extend(scratch.glob("*/db/*.sst")), 3: kill_one(slot_pids)}
    with pytest.raises(errors.JobFailedError):
        run(spark, tmp_path, on_disk, PaddedSum(fails_at=11_111), 2, after)
    assert files, "not all state is in memory"
    assert slots_left() == []
    assert list(scratch.iterdir()) == [], "a slot deletes its folder, however the job ends"
    with pytest.raises(errors.JobFailedError):
        run(spark, tmp_path, HashMapStateBackend(), PaddedSum(fails_at=15_555), 3, {})
    recorder = run(spark, tmp_path, on_disk, PaddedSum(), 2, {9: kill_one(slot_pids)})
    assert [type(error) for error in recorder.restarts] == [errors.SlotLostError]
    assert rows_in(tmp_path / "output") == EXPECTED
    assert list(scratch.iterdir()) == [], "a killed slot's folder is deleted as well"
