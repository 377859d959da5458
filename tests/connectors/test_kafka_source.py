"""The Kafka source at a real broker: which records an epoch has, and what is refused."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import attrs
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from kafka_server import KafkaServer
from support_runtime import PATIENCE_S

from pyflinkstate.api import SimpleStringSchema
from pyflinkstate.connectors.kafka_source import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecord,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)
from pyflinkstate.errors import (
    ConfigurationError,
    IncompatibleCheckpointError,
    MalformedRecordError,
    SourceError,
)
from pyflinkstate.runtime.sources import ReadTime, RejectedRecord, SplitEpoch
from pyflinkstate.runtime.wire import KEPT, SystemClock, dumps, loads


def builder(kafka: KafkaServer, *topics: str) -> KafkaSourceBuilder:
    made = KafkaSource.builder().set_bootstrap_servers(kafka.servers).set_topics(*topics)
    return made.set_value_only_deserializer(SimpleStringSchema())


CLOCK = SystemClock()


def _with_end(parts: Generator[Any, None, Any], ends: list[Any]) -> Iterator[Any]:
    """Yield parts, and note what their reader returns."""
    ends.append((yield from parts))


@attrs.define
class Reading:
    """A job that reads a source, epoch by epoch."""

    source: KafkaSource
    position: Any = None
    rejected: list[RejectedRecord] = attrs.Factory(list)
    is_last: bool = False

    def __attrs_post_init__(self) -> None:
        if self.position is None:
            self.position = self.source.initial_offset()
        else:
            self.source.check_restored(self.position)

    def epoch(self) -> list[Any]:
        """Read the next epoch, which may be empty."""
        available = self.source.latest_offset(self.position, whole=False)
        start, self.position = self.position, json.loads(json.dumps(available.end))
        self.is_last = available.is_last
        return self.between(start, self.position)

    def live(self, number: int) -> list[list[Any]]:
        """Read live epochs of a moment until there are some records; returns those of each epoch."""
        found: list[list[Any]] = []
        deadline_ms = CLOCK.monotonic_ms() + PATIENCE_S * 1000
        while sum(map(len, found)) < number and CLOCK.monotonic_ms() < deadline_ms:
            epoch = self.source.live(self.position)
            assert epoch is not None
            read: Any = loads(dumps(epoch.read))
            ends: list[Any] = []
            found.append([])
            for split in epoch.splits:
                until = ReadTime(CLOCK, CLOCK.monotonic_ms() + 20, 5)
                for part in _with_end(read(split, self.rejected.append, until), ends):
                    found[-1] += part
            self.position = json.loads(json.dumps(self.source.reached(self.position, ends)))
        return found

    def between(self, start: Any, end: Any) -> list[Any]:
        epoch = self.source.plan(start, end)
        assert isinstance(epoch, SplitEpoch)
        read: Callable[..., Iterator[Any]] = loads(dumps(epoch.read))
        return [record for split in epoch.splits for record in read(split, self.rejected.append)]


def test_an_epoch_is_a_range_of_offsets(kafka: KafkaServer) -> None:
    """What is read again is the same, in the same order, also if records came meanwhile."""
    topic = kafka.topic(2)
    kafka.send(topic, "a", "b", "c")
    kafka.send(topic, "x", partition=1)
    job = Reading(builder(kafka, topic).set_max_records_per_epoch(2).build())
    start = job.position
    assert sorted(job.epoch()) == ["a", "x"]
    middle = job.position
    kafka.send(topic, "d", "e")
    assert job.epoch() == ["b", "c"]
    assert job.epoch() == ["d", "e"]
    assert job.epoch() == []
    assert not job.is_last
    again = Reading(builder(kafka, topic).build(), middle)
    assert again.between(start, middle) == ["a", "x"]
    assert again.epoch() == ["b", "c", "d", "e"]


@pytest.mark.full
def test_read_live_records_come_once_and_the_client_stays(kafka: KafkaServer) -> None:
    topic = kafka.topic(2)
    KEPT.stay()
    reading = Reading(builder(kafka, topic).build())
    start, clients = reading.position, set[int]()
    for letter in "ab":
        kafka.send(topic, *(f"{letter}{n}" for n in range(5)), partition=0)
        kafka.send(topic, *(f"{letter}{n}" for n in range(5, 9)), partition=1)
        found = sorted(itertools.chain.from_iterable(reading.live(9)))
        assert found == [f"{letter}{n}" for n in range(9)]
        clients.update(id(client) for client, _ in KEPT._kept.values())
    assert len(clients) == 2
    assert Reading(reading.source, reading.position).epoch() == []
    assert len([*itertools.chain.from_iterable(Reading(reading.source, start).live(18))]) == 18
    for close in KEPT.take_all():
        close()
    assert KEPT._kept == {}


@pytest.mark.full
def test_transactions_leave_gaps(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a", "b", **{"transactional.id": topic})
    aborted = Producer({"bootstrap.servers": kafka.servers, "transactional.id": f"{topic}-aborted"})
    aborted.init_transactions(30)
    aborted.begin_transaction()
    aborted.produce(topic, "never")
    aborted.flush(30)
    kafka.send(topic, "c")
    job = Reading(builder(kafka, topic).build())
    assert job.epoch() == ["a", "b"]  # "c" is behind the open transaction
    assert job.epoch() == []
    aborted.abort_transaction(30)
    assert _until(job, 1) == ["c"]
    kafka.send(topic, "d", **{"transactional.id": topic})
    assert _until(job, 1) == ["d"]
    once = Reading(builder(kafka, topic).set_max_records_per_epoch(1).build())
    assert _until(once, 4) == ["a", "b", "c", "d"]
    live = Reading(builder(kafka, topic).build())
    assert [*itertools.chain.from_iterable(live.live(4))] == ["a", "b", "c", "d"]
    assert Reading(live.source, live.position).epoch() == []


def _until(job: Reading, count: int) -> list[Any]:
    """Read epochs until so many records are there: the end of a transaction is shown a moment later."""
    found: list[Any] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += job.epoch()
    return found + job.epoch()


@pytest.mark.full
def test_where_a_job_begins(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    for number in range(3):
        producer = Producer({"bootstrap.servers": kafka.servers})
        producer.produce(topic, f"{number}", partition=0, timestamp=1000 + number)
        assert producer.flush(30) == 0
    first = KafkaTopicPartition(topic, 0)
    earliest, latest = KafkaOffsetResetStrategy.EARLIEST, KafkaOffsetResetStrategy.LATEST
    begins = [
        (KafkaOffsetsInitializer.earliest(), ["0", "1", "2"]),
        (KafkaOffsetsInitializer.latest(), []),
        (KafkaOffsetsInitializer.timestamp(1001), ["1", "2"]),
        (KafkaOffsetsInitializer.timestamp(2000), []),
        (KafkaOffsetsInitializer.offsets({first: 2}), ["2"]),
        (KafkaOffsetsInitializer.offsets({first: 7}), ["0", "1", "2"]),
        (KafkaOffsetsInitializer.offsets({}, latest), []),
        (KafkaOffsetsInitializer.committed_offsets(earliest), ["0", "1", "2"]),
    ]
    for starting, expected in begins:
        job = Reading(builder(kafka, topic).set_group_id("new").set_starting_offsets(starting).build())
        assert job.epoch() == expected
    for wrong, group in [
        (KafkaOffsetsInitializer.committed_offsets(), "new"),
        (KafkaOffsetsInitializer.offsets({first: 7}, KafkaOffsetResetStrategy.NONE), "new"),
    ]:
        with pytest.raises(ConfigurationError, match="has offsets 0 to 3"):
            Reading(builder(kafka, topic).set_group_id(group).set_starting_offsets(wrong).build())
    with pytest.raises(ConfigurationError, match="set_group_id"):
        Reading(builder(kafka, topic).set_starting_offsets(begins[-1][0]).build())
    with pytest.raises(ConfigurationError, match="no topic 'missing'"):
        Reading(builder(kafka, topic, "missing").build())


@pytest.mark.full
def test_where_a_bounded_job_ends(kafka: KafkaServer) -> None:
    topic = kafka.topic(2)
    kafka.send(topic, "a", "b", **{"transactional.id": topic})
    source = builder(kafka, topic).set_bounded(KafkaOffsetsInitializer.latest()).build()
    assert source.is_bounded
    job = Reading(source)
    kafka.send(topic, "c")
    available = source.latest_offset(job.position, whole=True)
    restored = Reading(
        builder(kafka, topic).set_bounded(KafkaOffsetsInitializer.latest()).build(), job.position
    )
    assert (job.epoch(), job.is_last, available.is_last) == (["a", "b"], True, True)
    assert (restored.epoch(), restored.is_last) == (["a", "b"], True)
    with pytest.raises(IncompatibleCheckpointError, match="with offsets at which it stops"):
        Reading(builder(kafka, topic).build(), job.position)
    later = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, part): 4 - part for part in (0, 1)})
    job = Reading(builder(kafka, topic).set_unbounded(later).build())
    assert (job.epoch(), job.is_last) == (["a", "b", "c"], False)
    kafka.send(topic, "x", "y", "z", "w", partition=1)
    assert (job.epoch(), job.is_last) == (["x", "y", "z"], True)


@pytest.mark.full
def test_partitions_and_topics_are_added(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a")
    pattern = KafkaSource.builder().set_bootstrap_servers(kafka.servers).set_topic_pattern(f"{topic}.*")
    pattern.set_value_only_deserializer(SimpleStringSchema())
    job = Reading(pattern.build())
    later = Reading(pattern.set_topic_pattern(f"{topic}-mor.").build())
    assert (job.epoch(), later.epoch()) == (["a"], [])
    kafka.admin().create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    kafka.topic(name=f"{topic}-more")
    kafka.send(topic, "b", partition=1)
    kafka.send(f"{topic}-more", "c")
    assert sorted(_until(job, 2)) == ["b", "c"]
    assert _until(later, 1) == ["c"]
    assert sorted(job.position["next"][topic].items()) == [("0", 1), ("1", 1)]


@pytest.mark.full
def test_a_topic_is_deleted_or_made_anew(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a")
    job = Reading(builder(kafka, topic).build())
    assert job.epoch() == ["a"]
    kafka.admin().delete_topics([topic])[topic].result(30)
    deadline = time.monotonic() + PATIENCE_S  # the broker shows it for a moment
    while topic in kafka.admin().list_topics(timeout=30).topics and time.monotonic() < deadline:
        pass
    with pytest.raises(IncompatibleCheckpointError, match="is gone"):
        job.epoch()
    kafka.topic(name=topic)
    kafka.send(topic, "b", "c", "d")
    with pytest.raises(IncompatibleCheckpointError, match="made anew"):
        job.epoch()
    with pytest.raises(IncompatibleCheckpointError, match="made anew"):
        Reading(builder(kafka, topic).build(), job.position)


@pytest.mark.full
def test_records_expire(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a", "b", "c")
    job = Reading(builder(kafka, topic).set_max_records_per_epoch(1).build())
    start = job.position
    assert job.epoch() == ["a"]
    until = TopicPartition(topic, 0, 2)
    kafka.admin().delete_records([until])[until].result(30)
    with pytest.raises(IncompatibleCheckpointError, match="was read up to offset 1, and now begins at 2"):
        job.epoch()
    with pytest.raises(IncompatibleCheckpointError, match="begins at 2"):
        Reading(builder(kafka, topic).build(), job.position)
    with pytest.raises(SourceError, match="records have expired"):
        job.between(start, job.position)
    with pytest.raises(IncompatibleCheckpointError, match="is the position of another source"):
        Reading(builder(kafka, topic).build(), {"index": 1})


@pytest.mark.full
def test_what_a_record_is(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": kafka.servers})
    producer.produce(topic, b"v", b"k", timestamp=1234, headers=[("h", b"1")])
    producer.produce(topic, None, b"k", timestamp=1235)
    assert producer.flush(30) == 0
    source = KafkaSource.builder().set_bootstrap_servers(kafka.servers).set_topics(topic).build()
    assert Reading(source).epoch() == [
        KafkaRecord(topic, 0, 0, 1234, b"k", b"v", (("h", b"1"),)),
        KafkaRecord(topic, 0, 1, 1235, b"k", None, ()),
    ]


@pytest.mark.full
def test_a_value_that_cannot_be_read(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    kafka.send(topic, '{"n": 1}', "{", "2")
    made = builder(kafka, topic).set_value_only_deserializer(json.loads)
    with pytest.raises(MalformedRecordError, match=f"topic '{topic}', partition 0, offset 1.*set_on_error"):
        Reading(made.build()).epoch()
    job = Reading(made.set_on_error("collect").build())
    assert job.epoch() == [{"n": 1}, 2]
    (rejected,) = job.rejected
    assert (rejected.file, rejected.line, rejected.text, rejected.keep) == (f"{topic}-0", 1, "b'{'", True)
    job = Reading(made.set_on_error("drop").build())
    assert job.epoch() == [{"n": 1}, 2]
    assert [each.keep for each in job.rejected] == [False]


@pytest.mark.full
def test_the_group_shows_how_far_the_job_is(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    kafka.send(topic, "a", "b")
    made = builder(kafka, topic).set_group_id(f"{topic}-group").set_client_id_prefix("us")
    job = Reading(made.build())
    job.epoch()
    job.source.commit(job.position)
    asked = [ConsumerGroupTopicPartitions(f"{topic}-group", [TopicPartition(topic, 0)])]
    (shown,) = kafka.admin().list_consumer_group_offsets(asked).values()
    assert [each.offset for each in shown.result(30).topic_partitions] == [2]
    kafka.send(topic, "c")
    made.set_starting_offsets(KafkaOffsetsInitializer.committed_offsets())
    assert Reading(made.build()).epoch() == ["c"]


@pytest.mark.full
def test_a_broker_is_away_for_a_while(own_kafka: KafkaServer) -> None:
    topic = own_kafka.topic()
    own_kafka.send(topic, "a", "b")
    job = Reading(builder(own_kafka, topic).set_property("default.api.timeout.ms", "2000").build())
    start = job.position
    assert job.epoch() == ["a", "b"]
    own_kafka.kill()
    for call in (job.epoch, lambda: job.between(start, job.position)):
        with pytest.raises(SourceError, match=own_kafka.servers) as raised:
            call()
        assert raised.value.recoverable
    job.source.commit(job.position)  # it only shows how far the job is
    own_kafka.start()
    assert job.between(start, job.position) == ["a", "b"]
    own_kafka.send(topic, "c")
    assert _until(job, 1) == ["c"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda made: made, "set_bootstrap_servers"),
        (lambda made: made.set_bootstrap_servers("a:1"), "set_topics"),
        (lambda made: made.set_topic_pattern("("), "is no pattern"),
        (lambda made: made.set_on_error("ignore"), "'fail', 'drop' or 'collect'"),
        (lambda made: made.set_max_records_per_epoch(0), "at least 1"),
        (
            lambda made: made.set_property("default.api.timeout.ms", "soon").set_bootstrap_servers("a:1"),
            "soon",
        ),
        (lambda made: made.set_bootstrap_servers("a:1").set_topics("t").set_bounded("latest"), "latest()"),
        (
            lambda made: made.set_bootstrap_servers("a:1").set_topics("t").set_value_only_deserializer(1),
            "a DeserializationSchema or a function, not 1",
        ),
    ],
)
def test_what_a_builder_refuses(make: Callable[[KafkaSourceBuilder], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make(KafkaSource.builder()).build()


def test_a_property_that_does_not_exist() -> None:
    made = KafkaSource.builder().set_bootstrap_servers("127.0.0.1:1").set_topics("t")
    with pytest.raises(ConfigurationError, match=r"no\.such\.thing.*set_property"):
        made.set_property("no.such.thing", "x").build().initial_offset()
