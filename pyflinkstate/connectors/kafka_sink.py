"""Kafka as a sink, exactly once: an epoch becomes visible in one transaction, from all subtasks at once.

A client cannot finish the transaction of a process that died: it can only abort it. So records are not sent
as they come. Tasks serialize them and stage them in files, and at the commit the driver sends an epoch's
records in one transaction, with a *marker*: a record in a compacted topic, whose key is the transactional id
and whose value has the number of the epoch and the run of the job. So epoch and marker become visible
together, or not at all.

A driver that opens the sink *takes the marker over*. It begins to use the transactional id, which ends the
open transaction of an older driver, fences that driver, and settles a commit that was in doubt. Then it reads
the marker, and writes it again with its own run. An older driver that fails and tries to take the marker over
again finds the newer run there, and ends.

Jobs with one prefix, or with one ``set_marker_topic``, share the topic of markers, so another job's open
transaction may hide a marker that is committed behind it. A read that must see everything therefore waits
until the reader has come to the end that the topic had when the transactional id was taken.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import attrs

from pyflinkstate.api import Record, Reported, SerializationSchema, check_text, safe_repr
from pyflinkstate.connectors.extras import needs
from pyflinkstate.connectors.kafka import Builder, Cluster, ClusterBuilder, Config, ConfigValue
from pyflinkstate.errors import (
    BadRecordError,
    ConfigurationError,
    PyFlinkStateError,
    SinkError,
    SinkStorageError,
)
from pyflinkstate.runtime.sinks import Convert, DeliveryGuarantee, Sink, SinkWriter, TransactionalSink
from pyflinkstate.runtime.storage import AnyPath
from pyflinkstate.runtime.wire import KEPT

with needs("kafka"):
    from confluent_kafka import (
        Consumer,
        KafkaError,
        KafkaException,
        Message,
        Producer,
        TopicPartition,
    )
    from confluent_kafka.cimpl import NewTopic

#: With the prefix behind it, the topic of markers, unless a sink is given another one.
MARKER_TOPIC = "pyflinkstate_markers_"
#: How the topic of markers is created: small segments, so that old markers are soon deleted.
_MARKER_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "10485760",
    "min.cleanable.dirty.ratio": "0.1",
}
_MARKER_READER: Config = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 10,  # as long it takes to see that the topic ends
}
_SENDER: Config = {"acks": "all", "enable.idempotence": True, "partitioner": "murmur2_random"}
#: The broker aborts a transaction that is open for longer.
_TRANSACTION_MS = 300_000
#: Seconds that aborting a transaction may take; the next one aborts it as well.
_ABORT_S = 5
#: What a client gets whose transaction was ended by somebody else.
_ENDED = {
    KafkaError._FENCED,
    KafkaError._STATE,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.INVALID_TXN_STATE,
}
#: What messages of a transaction get that fails for another reason, which its commit tells.
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
#: A task that sends records looks for errors after so many.
_MESSAGES_PER_BATCH = 1000
#: A message: topic, key, value.
_Message = tuple[str, bytes | None, bytes | None]
_Serialize = Callable[[Any], bytes | None]
_Select = Callable[[Any], str]


class KafkaTopicSelector(ABC):
    """Chooses the topic of each record."""

    @abstractmethod
    def apply(self, data: Record) -> str:
        """Return the topic of a record."""


@attrs.frozen
class KafkaRecordSerializationSchema:
    """Makes Kafka messages of records; :meth:`builder` makes one."""

    _topic: _Select | str
    _key: _Serialize | None
    _value: _Serialize

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Return a builder."""
        return KafkaRecordSerializationSchemaBuilder()

    def message(self, record: Record) -> _Message:
        """Return the topic, key and value of a record.

        Raises:
            BadRecordError: a schema or the topic selector failed, or returned something else.
        """
        try:
            topic = self._topic if isinstance(self._topic, str) else self._topic(record)
            key = None if self._key is None else self._key(record)
            value = self._value(record)
        except Exception as error:  # it is the user's code
            raise BadRecordError(
                f"Kafka sink: a record cannot be serialized: {type(error).__name__}: {error}; record "
                f"{safe_repr(record)}",
                record=safe_repr(record),
            ) from error
        if isinstance(topic, str) and all(part is None or isinstance(part, bytes) for part in (key, value)):
            return topic, key, value
        raise BadRecordError(
            f"Kafka sink: the topic must be a string, and key and value must be bytes or None, not "
            f"{safe_repr((topic, key, value))}; record {safe_repr(record)}",
            record=safe_repr(record),
        )


def _function(schema: SerializationSchema | _Serialize) -> _Serialize:
    return schema.serialize if isinstance(schema, SerializationSchema) else schema


class KafkaRecordSerializationSchemaBuilder(Builder):
    """Makes a :class:`KafkaRecordSerializationSchema`. A schema may also be a function that returns bytes."""

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Send all records to one topic, which must exist."""
        check_text("topic", topic)
        return self._with(topic=topic)

    def set_topic_selector(
        self, topic_selector: KafkaTopicSelector | _Select
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Choose the topic of each record, by a ``KafkaTopicSelector`` or a function."""
        selector = topic_selector.apply if isinstance(topic_selector, KafkaTopicSelector) else topic_selector
        return self._with(topic=selector)

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema | _Serialize
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Make keys of records. Default: no key. Equal keys go to one partition, as with Java's clients."""
        return self._with(key=_function(key_serialization_schema))

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema | _Serialize
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Make values of records; None deletes the key in a compacted topic."""
        return self._with(value=_function(value_serialization_schema))

    def build(self) -> KafkaRecordSerializationSchema:
        """Return the schema.

        Raises:
            ConfigurationError: no topic, or no schema for values, is set; or it is neither schema nor
                function.
        """
        topic, key, value = (self._given.get(name) for name in ("topic", "key", "value"))
        if not callable(value) or not (isinstance(topic, str) or callable(topic)) or not callable(key or str):
            raise ConfigurationError(
                f"KafkaRecordSerializationSchema: call set_topic() or set_topic_selector(), and "
                f"set_value_serialization_schema(); a schema is a SerializationSchema or a function that "
                f"returns bytes. It has topic {topic!r}, key {key!r} and value {value!r}"
            )
        return KafkaRecordSerializationSchema(topic, key, value)


class KafkaSink(Sink):
    """A sink into Kafka topics. :meth:`builder` makes one, of the kind that its guarantee needs."""

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Return a builder.

        Example::

            schema = (
                KafkaRecordSerializationSchema.builder()
                .set_topic("results")
                .set_value_serialization_schema(SimpleStringSchema())
                .build()
            )
            sink = (
                KafkaSink.builder()
                .set_bootstrap_servers("localhost:9092")
                .set_record_serializer(schema)
                .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .set_transactional_id_prefix("results")
                .build()
            )
        """
        return KafkaSinkBuilder()


class KafkaSinkBuilder(ClusterBuilder):
    """Makes a :class:`KafkaSink`."""

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        """Set what makes messages of records."""
        return self._with(serializer=record_serializer)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Set how often readers see a record after failures.

        ``EXACTLY_ONCE``: once, if they read with ``isolation.level=read_committed``, after the checkpoint
        that covers it. ``AT_LEAST_ONCE``: at once, and again if its epoch is run again. ``NONE``, the
        default as in Flink, is like ``AT_LEAST_ONCE``.
        """
        return self._with(guarantee=delivery_guarantee)

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set the name of the sink, with which its transactional id begins; ``EXACTLY_ONCE`` needs one.

        It must be unique among the sinks of a job, and stay the same when the job is restored.
        """
        check_text("transactional_id_prefix", transactional_id_prefix)
        return self._with(prefix=transactional_id_prefix)

    def set_marker_topic(self, marker_topic: str) -> KafkaSinkBuilder:
        """Set the topic of markers, which jobs may share. Default: ``pyflinkstate_markers_`` and the prefix.

        It is created if it is missing: compacted, with one partition.
        """
        check_text("marker_topic", marker_topic)
        return self._with(marker_topic=marker_topic)

    def set_staging(self, staging: AnyPath) -> KafkaSinkBuilder:
        """Set where ``EXACTLY_ONCE`` stages records; see ``StagedSink``. Default: with the checkpoints."""
        return self._with(staging=staging)

    def build(self) -> KafkaSink:
        """Return the sink.

        Raises:
            ConfigurationError: something that it needs is not set, or is not what it takes.
        """
        cluster = self._cluster("Kafka sink", SinkStorageError, SinkError)
        serializer, prefix = self._given.get("serializer"), self._given.get("prefix")
        guarantee = self._given.get("guarantee", DeliveryGuarantee.NONE)
        if not isinstance(serializer, KafkaRecordSerializationSchema):
            raise ConfigurationError(
                f"Kafka sink: set_record_serializer() takes a KafkaRecordSerializationSchema, not "
                f"{serializer!r}"
            )
        if guarantee in (DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.NONE):
            return DirectKafkaSink(cluster, serializer)
        if guarantee is not DeliveryGuarantee.EXACTLY_ONCE or prefix is None:
            raise ConfigurationError(
                f"Kafka sink: set_delivery_guarantee() takes a DeliveryGuarantee, not {guarantee!r}; "
                f"EXACTLY_ONCE also needs set_transactional_id_prefix()"
            )
        marker_topic = self._given.get("marker_topic", MARKER_TOPIC + prefix)
        return TransactionalKafkaSink(prefix, cluster, serializer, marker_topic, self._given.get("staging"))


# --- sending ---------------------------------------------------------------------------------------


class _Sender:
    """A producer that keeps the first error of a message."""

    def __init__(self, cluster: Cluster, transactional_id: str | None = None) -> None:
        self._timeout_s = cluster.timeout_s
        errors = self._errors = list[KafkaError]()

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error)

        message_ms = int(self._timeout_s * 1000)
        fixed: dict[str, ConfigValue] = {"delivery.report.only.error": True}
        if transactional_id is not None:
            transaction_ms = cluster.milliseconds("transaction.timeout.ms", _TRANSACTION_MS)
            message_ms = min(message_ms, transaction_ms)
            fixed |= {"transactional.id": transactional_id, "transaction.timeout.ms": transaction_ms}
        config = cluster.config({**_SENDER, "message.timeout.ms": message_ms}, fixed)
        self.producer = Producer({**config, "on_delivery": delivered})

    def send(self, messages: Iterable[_Message]) -> None:
        """Send messages, as fast as the producer takes them."""
        for number, (topic, key, value) in enumerate(messages, 1):
            while True:
                try:
                    self.producer.produce(topic, value, key)
                    break
                except BufferError:  # the queue is full
                    self.producer.poll(self._timeout_s)
            if number % _MESSAGES_PER_BATCH == 0:
                self.producer.poll(0)
                self._raise_first()
        self.producer.poll(0)
        self._raise_first()

    def flush(self) -> None:
        """Wait until all messages have arrived."""
        left = self.producer.flush(self._timeout_s)
        self._raise_first()
        if left:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{left} messages are not acknowledged"))

    def commit(self) -> None:
        """Commit the transaction; readers see it a moment later."""
        self.flush()
        self.producer.commit_transaction(self._timeout_s)

    def _raise_first(self) -> None:
        for error in self._errors:
            if error.code() not in _PURGED:
                raise KafkaException(error)


@attrs.frozen
class DirectKafkaSink(KafkaSink):
    """Sends records as they come. Those of an epoch that is run again are there again."""

    _cluster: Cluster
    _serializer: KafkaRecordSerializationSchema

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """See :class:`Sink`."""

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        return self

    def write(self, partition: int, records: Iterator[Record]) -> Iterator[Reported]:
        """See :class:`SinkWriter`; all messages have arrived when this ends."""
        place = self._cluster.servers, *self._cluster.properties.items(), "sender", partition
        with self._cluster.errors("send records"):
            kept = KEPT.take(place)
            sender = kept if isinstance(kept, _Sender) else _Sender(self._cluster)
            sender.send(map(self._serializer.message, records))
            sender.flush()
        KEPT.keep(place, sender, lambda: None)  # nothing is left to send
        yield from ()

    def prepare(self, epoch: int, results: list[Reported]) -> None:
        """See :class:`Sink`."""

    def commit(self, epoch: int) -> None:
        """See :class:`Sink`."""

    def rewind(self, epoch: int) -> None:
        """See :class:`Sink`."""


# --- exactly once ----------------------------------------------------------------------------------


@attrs.frozen
class _Marker:
    """What a marker says: the last epoch that is published, None for none; and the run that owns it."""

    epoch: int | None
    run: str


@attrs.frozen
class _Markers:
    """The topic of markers."""

    _cluster: Cluster
    topic: str
    _key: bytes

    def message(self, marker: _Marker) -> _Message:
        """Return the message that sets the marker."""
        return self.topic, self._key, json.dumps(attrs.asdict(marker)).encode()

    def create(self) -> None:
        """Create the topic unless it is there."""
        admin = self._cluster.admin()
        new = NewTopic(self.topic, 1, config=_MARKER_CONFIG)
        with self._cluster.errors(f"create the topic {self.topic!r} for markers"):
            try:
                admin.create_topics([new], request_timeout=self._cluster.timeout_s)[self.topic].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def read(self, is_settled: bool) -> _Marker | None:
        """Return the marker, or None if there is none.

        Args:
            is_settled: wait for the open transactions of other jobs, which may hide it.
        """
        end = self._read("read_uncommitted", 0)[1] if is_settled else 0
        value, _ = self._read("read_committed", end)
        return None if value is None else _Marker(**json.loads(value))

    def _read(self, isolation: str, end: int) -> tuple[bytes | None, int]:
        """Return the last value of this key, and where the topic ends for a reader.

        Args:
            isolation: what the reader sees.
            end: wait until the topic ends there, or later.
        """
        config = self._cluster.config(
            {"group.id": "pyflinkstate"}, {**_MARKER_READER, "isolation.level": isolation}
        )
        value = None
        with self._cluster.errors(f"read the topic {self.topic!r}"), ExitStack() as closed:
            consumer = Consumer(config)
            closed.callback(consumer.close)
            consumer.assign([TopicPartition(self.topic, 0, 0)])
            while True:
                message = consumer.poll(self._cluster.timeout_s)
                if message is None:
                    raise SinkStorageError(
                        f"Kafka sink: the topic {self.topic!r} cannot be read up to offset {end}: no broker "
                        f"of {self._cluster.servers} answers, or a transaction of another job is open. The "
                        f"job tries again. If it stays so, kafka-transactions.sh find-hanging shows whose "
                        f"transaction it is; or give the sink a topic of its own by set_marker_topic()",
                        servers=self._cluster.servers,
                    )
                error = message.error()
                if error is None:
                    value = message.value() if message.key() == self._key else value
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                elif (message.offset() or 0) >= end:
                    return value, message.offset() or 0


class TransactionalKafkaSink(TransactionalSink, KafkaSink):
    """Publishes each epoch in one transaction; see the top of the file."""

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        serializer: KafkaRecordSerializationSchema,
        marker_topic: str,
        staging: AnyPath | None,
    ) -> None:
        super().__init__(name, staging)
        self._cluster = cluster
        self._serializer = serializer
        self._marker_topic = marker_topic
        self._sender: _Sender | None = None
        self._marker = _Marker(None, "")

    @property
    def transactional_id(self) -> str:
        """The transactional id, and the key of the marker."""
        return f"{self.name}/{self.job_id}"

    @property
    def _markers(self) -> _Markers:
        return _Markers(self._cluster, self._marker_topic, self.transactional_id.encode())

    def converter(self) -> Convert:
        """See :class:`TransactionalSink`; what is staged are messages."""
        return partial(map, self._serializer.message)

    def committed_epoch(self) -> int | None:
        """See :class:`StagedSink`. A sink that has taken it over, and has not failed, need not ask again."""
        if self._sender is None or self._marker.run != self.run:
            self._take_over()
        return self._marker.epoch

    def _take_over(self) -> None:
        self._markers.create()
        self._read_marker(is_settled=False)  # an older driver must not fence a newer one
        with self._cluster.errors(f"take the transactional id {self.transactional_id!r}"):
            sender = _Sender(self._cluster, self.transactional_id)
            sender.producer.init_transactions(self._cluster.timeout_s)
        found = self._read_marker(is_settled=True)
        self._sender = sender
        self._transact("take the marker over", None if found is None else found.epoch, ())

    def _read_marker(self, is_settled: bool) -> _Marker | None:
        found = self._markers.read(is_settled)
        if found is not None:
            self.check_run(found.run)
        return found

    def write(self, epoch: int, batches: Iterable[list[_Message]]) -> None:
        """See :class:`TransactionalSink`."""
        found = self.committed_epoch()
        if found is None or found < epoch:
            self._transact(f"publish epoch {epoch}", epoch, batches)

    def _transact(self, what: str, epoch: int | None, batches: Iterable[list[_Message]]) -> None:
        """Send messages, and the marker after them, in a transaction."""
        sender, marker = self._sender, _Marker(epoch, self.run)
        assert sender is not None, "the marker was taken over"
        with self._errors(what), ExitStack() as failed:
            failed.callback(self._give_up, sender.producer)
            sender.producer.begin_transaction()
            for batch in batches:
                sender.send(batch)
            sender.send([self._markers.message(marker)])  # last: it hides those of other jobs until the end
            sender.commit()
            failed.pop_all()
        self._marker = marker

    def _give_up(self, producer: Producer) -> None:
        """Leave a transaction: the next use of the transactional id settles it, and the marker tells how."""
        self._sender = None
        with suppress(KafkaException, SystemError):
            producer.abort_transaction(_ABORT_S)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            with self._cluster.errors(what):
                yield
        except PyFlinkStateError as error:
            cause = error.__cause__
            if not (isinstance(error, SinkStorageError) and isinstance(cause, KafkaException)):
                raise
            if not (cause.args[0].code() in _ENDED or cause.args[0].fatal()):
                raise
            self._read_marker(is_settled=False)  # raises JobSupersededError if a newer run has it
            raise SinkStorageError(
                f"Kafka sink: cannot {what}: the transaction of {self.transactional_id!r} was ended before "
                f"its commit ({cause.args[0].str()}). If it took longer than the property "
                f"transaction.timeout.ms allows, raise that, up to transaction.max.timeout.ms of the "
                f"brokers; if another job uses the same transactional id, set another prefix",
                sink=self.name,
            ) from cause
