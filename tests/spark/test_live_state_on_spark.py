"""Questions to the live state of a job on Spark, from its program and over HTTP."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from pyflinkstate import (
    Duration,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    TimestampAssigner,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from pyflinkstate.errors import JobCancelledError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left"), pytest.mark.timeout(300)]

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
