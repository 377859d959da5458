"""State in real slots, over kills and rescaling, and questions to it from a program and over HTTP."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from operators import Journal, rows_in, running_sums
from processes import slot_pids
from test_recovery import Recorder, kill_one

from pyflinkstate import (
    Duration,
    FileSink,
    KeyedProcessFunction,
    RestartStrategies,
    StreamExecutionEnvironment,
    TimestampAssigner,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
    errors,
)
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend, OperatorStateRestoreOperation
from pyflinkstate.errors import JobCancelledError
from pyflinkstate.runtime.storage import load_checkpoint, open_folder

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]

RECORDS = [(f"key-{n * 7 % 23}", n) for n in range(600)]
EXPECTED = Counter(f'["{key}",{total}]' for key, total in running_sums(RECORDS))


def environment(spark: Any, folder: Path, parallelism: int) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment(spark).set_parallelism(parallelism)
    env.enable_checkpointing(0, str(folder / "checkpoints"))
    return env


def run(env: StreamExecutionEnvironment, folder: Path, function: KeyedProcessFunction) -> None:
    source = env.from_collection(RECORDS, records_per_epoch=100)
    stream = source.key_by(lambda record: record[0], key_type=Types.STRING()).process(function).uid("sums")
    stream.sink_to(FileSink(str(folder / "output")))
    env.execute("state on spark")


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
    env = (
        environment(spark, tmp_path, 3)
        .restore_from("latest")
        .add_listener(Recorder({5: kill_one(slot_pids)}))
    )
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    run(env, tmp_path, Journal())
    assert rows_in(tmp_path / "output") == EXPECTED
    parts = journals(tmp_path)
    assert len(parts) == 3
    assert sorted(number for part in parts for number in part) == [number for _, number in RECORDS]


# --- live state ------------------------------------------------------------------------------------

KEYS = 8
PATIENCE_S = 120.0


class Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        return ()


class ByNumber(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def each_key(record: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """Give a record to every key, so that after each epoch all of them have the same count."""
    for key in range(KEYS):
        yield key, record["value"]


def posted(address: str, job_id: object, question: dict[str, Any]) -> bytes:
    base, _, token = address.partition("/?token=")
    request = urllib.request.Request(
        f"{base}/api/jobs/{job_id}/query",
        json.dumps(question).encode(),
        {"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        read: bytes = answer.read()
        return read


@pytest.mark.timeout(300)
@pytest.mark.quick
def test_a_running_job_answers_consistently(spark: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(spark=spark).set_parallelism(2)
    env.enable_web_page()
    pairs = env.from_rate(500).flat_map(each_key)
    pairs.key_by(lambda pair: pair[0], key_type=Types.LONG()).process(Count()).uid("counts").print()
    lasting = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_hours(1))
    timed = pairs.assign_timestamps_and_watermarks(lasting.with_timestamp_assigner(ByNumber()))
    windows = timed.key_by(lambda pair: pair[0], key_type=Types.LONG()).window(
        TumblingEventTimeWindows.of(3_600_000)
    )
    windows.reduce(lambda one, other: max(one, other)).uid("windows").print()
    client = env.execute_async("live")
    address, job_id = env.get_web_page_address(), client.get_job_id()
    assert address is not None
    epochs = []
    for _ in range(4):
        answer = client.query("counts", "count", timeout_s=PATIENCE_S)
        counts = {row["key"]: row["value"] for row in answer}
        assert sorted(counts) == list(range(KEYS))
        assert len(set(counts.values())) == 1, "each key has met every record of the same epochs"
        epochs.append(answer.epoch)
    assert epochs == sorted(epochs)
    assert client.query_value("counts", "count", 3, timeout_s=PATIENCE_S) >= counts[3]

    by_window = client.query("windows", "window-contents", keys=[1], timeout_s=PATIENCE_S)
    assert by_window.to_arrow().column_names == ["key", "window", "value"]
    (row,) = by_window
    assert row["key"] == 1
    again = client.query("windows", "window-contents", namespace=row["window"], timeout_s=PATIENCE_S)
    assert again.to_arrow().num_rows == KEYS

    question = {"operator": "counts", "state": "count"}
    found = json.loads(posted(address, job_id, {**question, "keys": [3, 1_000]}))
    assert [one["key"] for one in found["rows"]] == [3]
    table = pa.ipc.open_stream(posted(address, job_id, {**question, "format": "arrow"})).read_all()
    assert len(set(table.column("value").to_pylist())) == 1
    client.cancel().result()
    with pytest.raises(JobCancelledError):
        client.get_job_execution_result().result()
    env.close()
