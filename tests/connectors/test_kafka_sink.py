"""The Kafka sink at a real broker: exactly once, whatever is killed when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka_server import KafkaServer

from pyflinkstate.api import SimpleStringSchema
from pyflinkstate.connectors.kafka_sink import (
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSinkBuilder,
    TransactionalKafkaSink,
)
from pyflinkstate.connectors.kafka_source import KafkaSource
from pyflinkstate.errors import (
    BadRecordError,
    ConfigurationError,
    JobSupersededError,
    SinkError,
    SinkStorageError,
)
from pyflinkstate.runtime.sinks import DeliveryGuarantee, check_sinks
from pyflinkstate.runtime.sinks.staging import StagingArea
from pyflinkstate.runtime.sources import SplitEpoch
from pyflinkstate.runtime.storage import RunHistory
from pyflinkstate.runtime.wire import dumps, loads
from pyflinkstate.testing import check_sink

JOB = "f" * 32


def builder(servers: str, topic: str) -> KafkaSinkBuilder:
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
        .set_property("topic.metadata.propagation.max.ms", "500")
    )


def exact(servers: str, topic: str, **properties: str) -> KafkaSink:
    """Return a sink with markers in a topic of its own: what one test leaves open is not in another's way."""
    made = builder(servers, topic).set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    for name, value in properties.items():
        made.set_property(name.replace("_", "."), value)
    made.set_marker_topic(f"markers-{topic}")
    return made.set_transactional_id_prefix(topic).build()


@pytest.mark.full
def test_each_record_is_seen_once(kafka: KafkaServer) -> None:
    made: set[str] = set()

    def make(name: str) -> KafkaSink:
        if name not in made:
            made.add(name)
            kafka.topic(2, name)
        return exact(kafka.servers, name)

    check_sink(make, lambda name: kafka.values(name))


def opened(sink: KafkaSink, staging: object, run: int, restored: int | None = None) -> TransactionalKafkaSink:
    assert isinstance(sink, TransactionalKafkaSink)
    history = RunHistory()
    for number in range(1, run + 1):
        history = history.continued(restored or 0, f"{number:06d}-{number:08x}")
    sink.stage_below(str(staging))
    sink.open_run(JOB, history, restored)
    return sink


def prepare(sink: TransactionalKafkaSink, epoch: int, *values: str) -> None:
    sink.prepare(epoch, list(sink.writer(epoch).write(0, iter(values))))


@pytest.mark.full
def test_an_older_driver_is_fenced(kafka: KafkaServer, tmp_path: Path) -> None:
    """Also with folders of its own, where it does not see that a newer run has begun."""
    topic = kafka.topic()
    old = opened(exact(kafka.servers, topic), tmp_path / "old", 1)
    prepare(old, 1, "a")
    new = opened(exact(kafka.servers, topic), tmp_path / "new", 2)
    with pytest.raises(JobSupersededError, match="run 000002"):
        old.commit(1)
    with pytest.raises(JobSupersededError, match="run 000002"):
        old.commit(1)
    prepare(new, 1, "b")
    new.commit(1)
    assert kafka.values(topic) == ["b"]


@pytest.mark.full
def test_an_epoch_is_seen_as_a_whole_or_not_at_all(kafka: KafkaServer, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    sink = opened(exact(kafka.servers, topic), tmp_path, 1)

    def failing() -> Iterator[list[object]]:
        yield [(topic, b"k", b"a")]
        sink._sender.flush()
        raise SinkError("the staged file is gone")

    with pytest.raises(SinkError, match="is gone"):
        sink.write(1, failing())
    assert kafka.values(topic) == []
    for _ in range(2):
        sink.write(1, [[(topic, b"k", b"a"), (topic, None, b"b")]])
    assert sorted(kafka.values(topic)) == ["a", "b"]


@pytest.mark.full
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_broker_is_killed_in_the_middle_of_a_commit(
    own_kafka: KafkaServer, tmp_path: Path, is_committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the commit arrived is in doubt; the sink finds out, and readers see the epoch once."""
    topic = own_kafka.topic(2)
    sink = opened(exact(own_kafka.servers, topic, default_api_timeout_ms="15000"), tmp_path, 1)
    prepare(sink, 1, "a", "b")
    producer = sink._sender.producer
    ended = _Ended(producer, own_kafka, is_committed)
    monkeypatch.setattr(sink._sender, "producer", ended)
    with pytest.raises(SinkStorageError, match=own_kafka.servers):
        sink.commit(1)
    own_kafka.start()
    sink.rewind(1)
    sink.commit(1)
    assert sorted(own_kafka.values(topic)) == ["a", "b"]
    prepare(sink, 2, "c")
    sink.commit(2)
    assert sorted(own_kafka.values(topic)) == ["a", "b", "c"]


class _Ended:
    """A producer whose broker is killed before its commit, or after it but before the answer."""

    def __init__(self, producer: Producer, kafka: KafkaServer, is_committed: bool) -> None:
        self._producer = producer
        self._kafka = kafka
        self._is_committed = is_committed

    def __getattr__(self, name: str) -> object:
        return getattr(self._producer, name)

    def commit_transaction(self, timeout_s: float) -> None:
        if self._is_committed:
            self._producer.commit_transaction(timeout_s)
            self._kafka.kill()
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self._kafka.kill()
        self._producer.commit_transaction(timeout_s)


@pytest.mark.full
def test_a_transaction_that_takes_too_long(kafka: KafkaServer, tmp_path: Path) -> None:
    topic = kafka.topic()
    sink = opened(exact(kafka.servers, topic, transaction_timeout_ms="1000"), tmp_path, 1)

    def slow() -> Iterator[list[object]]:
        yield [(topic, None, b"a")]
        sink._sender.flush()
        threading.Event().wait(4)
        yield [(topic, None, b"b")]

    with pytest.raises(SinkStorageError, match=r"transaction\.timeout\.ms"):
        sink.write(1, slow())
    sink.write(1, [[(topic, None, b"c")]])
    assert kafka.values(topic) == ["c"]


@pytest.mark.full
def test_another_job_has_an_open_transaction(kafka: KafkaServer, tmp_path: Path) -> None:
    """It hides the marker; what is behind it is not taken for missing."""
    topic = kafka.topic()
    sink = opened(exact(kafka.servers, topic, default_api_timeout_ms="3000"), tmp_path, 1)
    other = Producer({"bootstrap.servers": kafka.servers, "transactional.id": "other"})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(f"markers-{topic}", b"{}", b"other")
    assert other.flush(30) == 0
    prepare(sink, 1, "a")
    sink.commit(1)
    with pytest.raises(SinkStorageError, match="a transaction of another job is open"):
        opened(exact(kafka.servers, topic, default_api_timeout_ms="3000"), tmp_path, 2, 1)
    other.commit_transaction(30)
    opened(exact(kafka.servers, topic), tmp_path, 3, 1)
    assert kafka.values(topic) == ["a"]


@pytest.mark.full
def test_each_prefix_has_a_topic_of_markers(kafka: KafkaServer, tmp_path: Path) -> None:
    topic, prefix = kafka.topic(), f"results-of.{tmp_path.name}"
    exactly = builder(kafka.servers, topic).set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    sink = opened(exactly.set_transactional_id_prefix(prefix).build(), tmp_path, 1)
    prepare(sink, 1, "a")
    sink.commit(1)
    assert kafka.values(topic) == ["a"]
    assert f"pyflinkstate_markers_{prefix}" in kafka.admin().list_topics(timeout=30).topics


@pytest.mark.full
def test_a_topic_that_is_not_there(kafka: KafkaServer, tmp_path: Path) -> None:
    sink = opened(exact(kafka.servers, "missing"), tmp_path, 1)
    prepare(sink, 1, "a")
    with pytest.raises(SinkError, match="create the topic") as raised:
        sink.commit(1)
    assert not raised.value.recoverable
    with pytest.raises(SinkError, match="create the topic"):
        list(builder(kafka.servers, "missing").build().writer(1).write(0, iter("a")))


def test_no_broker_answers(tmp_path: Path) -> None:
    sink = exact("127.0.0.1:1", "topic", default_api_timeout_ms="500")
    with pytest.raises(SinkStorageError, match=r"127\.0\.0\.1:1") as raised:
        opened(sink, tmp_path, 1)
    assert raised.value.recoverable


# --- at least once, and what both kinds have in common -----------------------------------------------


@pytest.mark.full
def test_records_are_sent_as_they_come(kafka: KafkaServer) -> None:
    """They are there when the task ends, before any commit; equal keys go where Java's clients send them."""
    topic, other = kafka.topic(5), kafka.topic()
    schema = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(lambda record: other if record == "other" else topic)
        .set_key_serialization_schema(str.encode)
        .set_value_serialization_schema(lambda record: None if record == "21" else record.encode())
    )
    made = KafkaSink.builder().set_bootstrap_servers(kafka.servers).set_record_serializer(schema.build())
    sink = made.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE).build()
    text = "a-little-bit-long-string"
    assert list(loads(dumps(sink.writer(1))).write(0, iter(["foobar", "21", text, "other", text]))) == []
    assert kafka.values(other) == ["other"]
    source = KafkaSource.builder().set_bootstrap_servers(kafka.servers).set_topics(topic).build()
    start = source.initial_offset()
    epoch = source.plan(start, source.latest_offset(start, True).end)
    assert isinstance(epoch, SplitEpoch)
    found = [record for split in epoch.splits for record in epoch.read(split, lambda _: None)]
    # Kafka's own tests have these hashes: -973932308, -790332482 and -985981536; the sign bit is dropped.
    assert [(record.key, record.partition, record.value) for record in found] == [
        (b"21", 0, None),
        (b"foobar", 1, b"foobar"),
        (text.encode(), 2, text.encode()),
        (text.encode(), 2, text.encode()),
    ]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (None, lambda record: record.no_such, "cannot be serialized: AttributeError"),
        (None, lambda record: record, "must be bytes or None"),
        (lambda record: 1, str.encode, "must be bytes or None"),
    ],
)
@pytest.mark.parametrize("guarantee", DeliveryGuarantee)
def test_a_record_that_cannot_be_serialized(
    tmp_path: Path, key: object, value: object, message: str, guarantee: DeliveryGuarantee
) -> None:
    schema = KafkaRecordSerializationSchema.builder().set_topic("t").set_value_serialization_schema(value)
    if key is not None:
        schema.set_key_serialization_schema(key)
    made = KafkaSink.builder().set_bootstrap_servers("127.0.0.1:1").set_record_serializer(schema.build())
    sink = made.set_delivery_guarantee(guarantee).set_transactional_id_prefix("p").build()
    if isinstance(sink, TransactionalKafkaSink):
        sink.stage_below(str(tmp_path))
        sink.job_id, sink.area = JOB, StagingArea(str(tmp_path))
    with pytest.raises(BadRecordError, match=f"{message}.*'bad'"):
        list(sink.writer(1).write(0, iter(["bad"])))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KafkaSink.builder(), "set_bootstrap_servers"),
        (lambda: KafkaSink.builder().set_bootstrap_servers("a:1"), "set_record_serializer"),
        (lambda: builder("a:1", "t").set_delivery_guarantee("once"), "a DeliveryGuarantee, not 'once'"),
        (
            lambda: builder("a:1", "t").set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE),
            "set_transactional_id_prefix",
        ),
        (lambda: builder("a:1", "t").set_property("default.api.timeout.ms", "0"), "at least 1"),
        (lambda: builder("a:1", ""), "topic must be a non-empty string"),
        (lambda: KafkaRecordSerializationSchema.builder().set_topic("t"), "set_value_serialization_schema"),
        (
            lambda: KafkaRecordSerializationSchema.builder().set_value_serialization_schema(1),
            "a function that returns bytes.*value 1",
        ),
    ],
)
def test_what_a_builder_refuses(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make().build()


def test_two_sinks_of_a_job_need_two_prefixes() -> None:
    with pytest.raises(ConfigurationError, match="another sink of the job has the name 't'"):
        check_sinks([("one", exact("a:1", "t")), ("two", exact("a:1", "t"))])
