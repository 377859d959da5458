"""A Kafka source continues where Flink's has stopped: a savepoint that Flink wrote, at a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flink_savepoints import FOLDERS
from kafka_server import KafkaServer
from local_environment import local_environment

from pyflinkstate import KeyedProcessFunction, Types, ValueStateDescriptor
from pyflinkstate.api import SimpleStringSchema
from pyflinkstate.common import WatermarkStrategy
from pyflinkstate.connectors.kafka_source import KafkaOffsetsInitializer, KafkaSource
from pyflinkstate.errors import CorruptCheckpointError, IncompatibleCheckpointError
from pyflinkstate.runtime.sinks import DriverSink
from pyflinkstate.state_access import edit_flink_savepoint

pytestmark = pytest.mark.timeout(120)

SAVEPOINT = FOLDERS["2.3.0-kafka"]
EARLIEST, LATEST = KafkaOffsetsInitializer.earliest(), KafkaOffsetsInitializer.latest()
NO_STOP = -(2**63)


def split(topic: str, partition: int, offset: int) -> bytes:
    """Return a partition as Flink writes it."""
    content = b"".join(
        [
            len(topic).to_bytes(2, "big"),
            topic.encode(),
            partition.to_bytes(4, "big"),
            *[number.to_bytes(8, "big", signed=True) for number in (offset, NO_STOP)],
        ]
    )
    return bytes(4) + len(content).to_bytes(4, "big") + content


@pytest.fixture(scope="module")
def topics(kafka: KafkaServer) -> KafkaServer:
    """Return a broker with the topics of the savepoint, and with records that came after it."""
    kafka.topic(3, "clicks")
    kafka.topic(1, "orders")
    kafka.send("clicks", "a", "b", "a", "c", "a", "a")
    kafka.send("clicks", "b", "b", partition=1)
    kafka.send("clicks", "d", partition=2)
    kafka.send("orders", "before", "after")
    return kafka


def source(kafka: KafkaServer, topic: str, begin: KafkaOffsetsInitializer = EARLIEST, **given: Any) -> Any:
    made = KafkaSource.builder().set_bootstrap_servers(kafka.servers).set_topics(topic)
    made = made.set_starting_offsets(begin).set_value_only_deserializer(SimpleStringSchema())
    return (made.set_bounded(LATEST) if given.get("is_bounded", True) else made).build()


class Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[str, int]]:
        self.count.update((self.count.value() or 0) + 1)
        yield value, self.count.value()


class Program:
    """Counts records by their values, as the program of the savepoint does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kafka: KafkaServer, *names: str) -> None:
        self.env = local_environment(monkeypatch)
        self.seen: list[Any] = []
        first, *others = [
            self.env.from_source(source(kafka, name), WatermarkStrategy.no_watermarks(), name).uid(name)
            for name in names
        ]
        read = first.union(*others) if others else first
        counts = read.key_by(lambda value: value, key_type=Types.STRING()).process(Count()).uid("counts")
        counts.sink_to(DriverSink(lambda _, values: self.seen.extend(values)))


@pytest.mark.usefixtures("forked_slots")
@pytest.mark.parametrize("names", [["clicks"], ["clicks", "orders"]])
def test_a_job_continues_where_flink_has_stopped(
    topics: KafkaServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: list[str]
) -> None:
    """Flink has begun with the topic "orders" behind the record that was there."""
    program = Program(monkeypatch, topics, *names)
    program.env.enable_checkpointing(0, str(tmp_path / "checkpoints"))
    program.env.restore_from(str(SAVEPOINT)).execute("counts")
    of_orders = [("after", 1)] if "orders" in names else []
    assert sorted(program.seen) == [("a", 4), *of_orders, ("d", 1)]


def test_the_position_is_that_of_the_source(topics: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    edited = edit_flink_savepoint(SAVEPOINT, program=Program(monkeypatch, topics, "clicks").env)
    position: Any = edited.metadata.source_position
    assert position["next"] == {"clicks": {"0": 5, "1": 2, "2": 0}}
    source(topics, "clicks").check_restored(position)
    other = Program(monkeypatch, topics, "orders").env
    assert edit_flink_savepoint(SAVEPOINT, program=other).metadata.source_position["next"] == {
        "orders": {"0": 1}
    }


@pytest.mark.parametrize(
    ("begin", "is_bounded", "splits", "expected"),
    [
        (EARLIEST, False, [("t", 0, 2), ("t", 1, -2)], {"0": 2, "1": 0}),
        (LATEST, False, [("t", 0, 0), ("t", 1, -1)], {"0": 0, "1": 1}),
        # a partition without a split is new, or it has ended
        (LATEST, False, [("t", 0, 2)], {"0": 2, "1": 0}),
        (EARLIEST, True, [("t", 0, 2)], {"0": 2, "1": 1}),
    ],
)
def test_where_partitions_begin(
    kafka: KafkaServer,
    begin: KafkaOffsetsInitializer,
    is_bounded: bool,
    splits: list[tuple[str, int, int]],
    expected: dict[str, int],
) -> None:
    topic = kafka.topic(2)
    kafka.send(topic, "a", "b", "c")
    kafka.send(topic, "x", partition=1)
    made = source(kafka, topic, begin, is_bounded=is_bounded)
    position = made.after_flink([split(topic, *rest) for _, *rest in splits])
    assert position["next"] == {topic: expected}
    made.check_restored(position)
    assert made.latest_offset(position, whole=True).end["next"] == {topic: {"0": 3, "1": 1}}


def damaged() -> Iterator[tuple[bytes, type[Exception], str]]:
    whole = split("t", 0, 1)
    yield whole[:-1], CorruptCheckpointError, "bytes are needed"
    yield whole[:7] + bytes([whole[7] + 1]) + whole[8:] + b"\0", CorruptCheckpointError, "1 bytes are left"
    yield b"\0\0\0\1" + whole[4:], IncompatibleCheckpointError, "split of the Kafka source has version 1"
    yield split("other", 0, 1), IncompatibleCheckpointError, "'other', partition 0, .*does not name the topic"


@pytest.mark.parametrize(("data", "kind", "message"), [*damaged()])
def test_splits_that_do_not_fit_are_refused(
    kafka: KafkaServer, data: bytes, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        source(kafka, kafka.topic()).after_flink([data])
