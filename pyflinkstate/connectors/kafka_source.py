"""Kafka as a source: an epoch is a range of offsets of each partition, so a restart reads the same records.

The driver asks the cluster how far partitions go, and keeps the offset of the next record of each of them in
the checkpoint. A task reads one partition between two offsets. It does not join a consumer group: the group
only shows others how far the job has come.

With ``isolation.level=read_committed``, the default here, a partition goes up to its last stable offset: to
the first record of a transaction that is open. Transactions leave gaps in the offsets, so a task reads up to
an offset, and not a number of records. Topics have ids, and the checkpoint keeps those too: a topic that was
deleted and made anew is not taken for the old one.
"""

from __future__ import annotations

import enum
import logging
import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, closing
from functools import cached_property
from typing import Any, Final

import attrs

from pyflinkstate.api import (
    DeserializationSchema,
    K,
    Position,
    Record,
    SimpleStringSchema,
    TypeInformation,
    Types,
    V,
    at_least,
    check_text,
    positive,
    safe_repr,
)
from pyflinkstate.backends.flink_format import kafka_offsets
from pyflinkstate.connectors.extras import needs
from pyflinkstate.connectors.kafka import Cluster, ClusterBuilder, Config
from pyflinkstate.errors import (
    ConfigurationError,
    IncompatibleCheckpointError,
    MalformedRecordError,
    PyFlinkStateError,
    SourceError,
)
from pyflinkstate.runtime.sources import (
    Available,
    Epoch,
    OnMalformed,
    ReadTime,
    Reject,
    RejectedRecord,
    Source,
    SplitEpoch,
)
from pyflinkstate.runtime.wire import KEPT, Clock, SystemClock

with needs("kafka"):
    from confluent_kafka import (
        Consumer,
        ConsumerGroupTopicPartitions,
        IsolationLevel,
        KafkaError,
        KafkaException,
        Message,
        TopicCollection,
        TopicPartition,
    )
    from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

_log = logging.getLogger("pyflinkstate.sources")

_FIRST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LAST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
#: The default number of offsets in one epoch.
RECORDS_PER_EPOCH = 1_000_000
#: Seconds between two tries of a call, while a partition gets another leader.
_RETRY_S = 0.1
#: What the brokers answer while a partition is new, or gets another leader.
_TRANSIENT = {
    KafkaError._NOENT,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
_READER: Config = {"enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "error"}
#: Records that a task takes from the client at once.
_BATCH = 1000
#: How many partitions are read live at most, as each has a client; with more, epochs are planned.
_LIVE_PARTITIONS = 64
#: How often a job that reads live looks whether topics are new or gone.
_LOOK_MS = 1_000
_REMEDY = "restore another checkpoint, or start without one"


@attrs.frozen
class KafkaTopicPartition:
    """A partition of a topic."""

    topic: str
    partition: int


#: Offsets by partition.
_Offsets = dict[KafkaTopicPartition, int]


class KafkaOffsetResetStrategy(enum.Enum):
    """Where to begin in a partition for which there is no offset, or one that does not exist any more."""

    EARLIEST = 0
    LATEST = 1
    NONE = 2


@attrs.frozen
class KafkaOffsetsInitializer:
    """Where to begin, or to stop, in each partition."""

    _is_committed: bool = False
    _reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE
    _timestamp_ms: int | None = None
    _given: _Offsets = attrs.Factory(dict)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Begin at the first record that there is."""
        return KafkaOffsetsInitializer(reset=KafkaOffsetResetStrategy.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Begin, or stop, behind the last record that there is when the job starts."""
        return KafkaOffsetsInitializer(reset=KafkaOffsetResetStrategy.LATEST)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Begin, or stop, at the first record whose timestamp, in milliseconds, is at least this one."""
        return KafkaOffsetsInitializer(
            reset=KafkaOffsetResetStrategy.LATEST, timestamp_ms=at_least("timestamp", timestamp, 0)
        )

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Begin, or stop, at these offsets; the strategy is for partitions without one."""
        given = {each: at_least(f"the offset of {each}", offset, 0) for each, offset in offsets.items()}
        return KafkaOffsetsInitializer(reset=offset_reset_strategy, given=given)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Begin, or stop, at those of the consumer group; the strategy is for partitions without one."""
        return KafkaOffsetsInitializer(is_committed=True, reset=offset_reset_strategy)

    def resolve(self, topics: _Topics, partitions: Iterable[KafkaTopicPartition], is_stop: bool) -> _Offsets:
        """Return the offsets of partitions.

        Args:
            topics: the cluster.
            partitions: the partitions.
            is_stop: whether the source stops there; then there need not be a record yet.

        Raises:
            ConfigurationError: there is no offset of a partition, and no strategy for it.
        """
        first = topics.offsets(partitions, _FIRST)
        last = topics.offsets(partitions, _LAST)
        given = self._given
        if self._is_committed:
            given = topics.committed(partitions)
        elif self._timestamp_ms is not None:
            given = topics.offsets(partitions, OffsetSpec.for_timestamp(self._timestamp_ms))
        found = {}
        for each in partitions:
            offset = given.get(each, -1)
            if offset < 0 or not (is_stop or first[each] <= offset <= last[each]):
                if self._reset is KafkaOffsetResetStrategy.NONE:
                    raise ConfigurationError(
                        f"Kafka source: {_name(each)} has offsets {first[each]} to {last[each]}, and "
                        f"{'none is' if offset < 0 else f'{offset} is'} given or committed: give one that is "
                        f"there, or a KafkaOffsetResetStrategy"
                    )
                offset = (first if self._reset is KafkaOffsetResetStrategy.EARLIEST else last)[each]
            found[each] = offset
        return found


@attrs.frozen
class KafkaRecord:
    """A record as it is in Kafka.

    Attributes:
        topic: its topic.
        partition: the partition.
        offset: its offset there.
        timestamp_ms: milliseconds since 1970; None if it has none.
        key: the key, or None.
        value: the value; None for a record that deletes its key.
        headers: pairs of name and value.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def _name(partition: KafkaTopicPartition) -> str:
    return f"topic {partition.topic!r}, partition {partition.partition},"


# --- the driver ------------------------------------------------------------------------------------


class _Topics:
    """What the driver asks the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._group = cluster.properties.get("group.id")
        self._admin: AdminClient = cluster.admin()
        #: When it was last looked, in monotonic time, whether all topics are there and which are new.
        self.looked_ms = -_LOOK_MS

    def _ask(
        self, what: str, ask: Callable[..., Mapping[K, Future[V]]], asked: object, **options: object
    ) -> dict[K, V]:
        """Return the answers, by what is asked; a partition may be about to get a leader."""
        tries = int(self._cluster.timeout_s / _RETRY_S)
        while True:
            try:
                answers = ask(asked, request_timeout=self._cluster.timeout_s, **options)
                return {key: future.result() for key, future in answers.items()}
            except KafkaException as error:
                tries -= 1
                if error.args[0].code() not in _TRANSIENT or tries <= 0:
                    raise self._cluster.error_of(error.args[0], what) from error
            threading.Event().wait(_RETRY_S)

    def names(self, pattern: re.Pattern[str]) -> list[str]:
        """Return the topics whose name matches a pattern as a whole, without those of Kafka itself."""
        with self._cluster.errors("list topics"):
            topics = self._admin.list_topics(timeout=self._cluster.timeout_s).topics
        return sorted(name for name in topics if pattern.fullmatch(name) and not name.startswith("__"))

    def described(self, names: Iterable[str]) -> dict[str, tuple[str, list[KafkaTopicPartition]]]:
        """Return the id and the partitions of topics; those that do not exist are left out."""
        found = {}
        timeout_s = self._cluster.timeout_s
        asked = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
        for name, future in asked.items():
            with self._cluster.errors(f"find topic {name!r}"):
                try:
                    topic = future.result()
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
                    continue
            partitions = [KafkaTopicPartition(name, part.id) for part in topic.partitions]
            found[name] = str(topic.topic_id), partitions
        return found

    def offsets(self, partitions: Iterable[KafkaTopicPartition], spec: OffsetSpec) -> _Offsets:
        """Return an offset of each partition; -1 if no record is as late as a timestamp."""
        specs = {TopicPartition(each.topic, each.partition): spec for each in partitions}
        committed_only = self._cluster.properties.get("isolation.level") != "read_uncommitted"
        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        what, ask = "find the offsets of partitions", self._admin.list_offsets
        found = self._ask(what, ask, specs, isolation_level=level) if specs else {}
        return {KafkaTopicPartition(each.topic, each.partition): at.offset for each, at in found.items()}

    def committed(self, partitions: Iterable[KafkaTopicPartition]) -> _Offsets:
        """Return the offsets of the group; negative where there is none."""
        if self._group is None:
            raise ConfigurationError("Kafka source: committed_offsets() needs set_group_id()")
        asked = [TopicPartition(each.topic, each.partition) for each in partitions]
        request = [ConsumerGroupTopicPartitions(self._group, asked)]
        ask = self._admin.list_consumer_group_offsets
        (found,) = self._ask(f"find the offsets of group {self._group!r}", ask, request).values()
        return {KafkaTopicPartition(at.topic, at.partition): at.offset for at in found.topic_partitions}

    def commit(self, offsets: _Offsets) -> None:
        """Set the offsets of the group, for those who watch it; an error is only logged."""
        if self._group is None:
            return
        at = [TopicPartition(each.topic, each.partition, offset) for each, offset in offsets.items()]
        request = [ConsumerGroupTopicPartitions(self._group, at)]
        try:
            ask = self._admin.alter_consumer_group_offsets
            self._ask(f"commit offsets to group {self._group!r}", ask, request)
        except PyFlinkStateError as error:
            _log.warning("%s", error)


@attrs.frozen
class _At:
    """A position: the next offset of each partition, where to stop, and the ids of the topics."""

    next: _Offsets
    ids: dict[str, str]
    stop: _Offsets | None = None

    def encode(self) -> Position:
        """Return a JSON value."""
        stop = None if self.stop is None else _nested(self.stop)
        return {"next": _nested(self.next), "ids": self.ids, "stop": stop}

    @classmethod
    def decode(cls, position: Any) -> _At:
        """Return the position of a JSON value.

        Raises:
            IncompatibleCheckpointError: it is of another source.
        """
        try:
            stop = position["stop"]
            flat_stop = None if stop is None else _flat(stop)
            return cls(_flat(position["next"]), dict(position["ids"]), flat_stop)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise IncompatibleCheckpointError(
                f"Kafka source: {safe_repr(position)} is the position of another source: {_REMEDY}"
            ) from error


def _nested(offsets: _Offsets) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for each, offset in sorted(offsets.items(), key=lambda item: (item[0].topic, item[0].partition)):
        found.setdefault(each.topic, {})[str(each.partition)] = offset
    return found


def _flat(nested: Mapping[str, Mapping[str, int]]) -> _Offsets:
    return {
        KafkaTopicPartition(topic, int(partition)): offset
        for topic, offsets in nested.items()
        for partition, offset in offsets.items()
    }


def _shared(lags: _Offsets, most: int) -> _Offsets:
    """Divide ``most`` offsets among partitions; what one does not need is left to the others."""
    shares: _Offsets = {}
    for at, each in enumerate(sorted(lags, key=lambda each: lags[each])):
        shares[each] = min(lags[each], most // (len(lags) - at))
        most -= shares[each]
    return shares


@attrs.frozen(slots=False)
class KafkaSource(Source):
    """Reads Kafka topics; :meth:`builder` makes one.

    An epoch ends at a number of offsets, those of markers of transactions included. In a compacted topic,
    records that Kafka deletes before a restart are not there again.
    """

    _cluster: Cluster
    _topics: tuple[str, ...] | re.Pattern[str]
    _starting: KafkaOffsetsInitializer
    _stopping: KafkaOffsetsInitializer | None
    is_bounded: bool
    _most: int
    _read: KafkaReader
    type_info: TypeInformation | None
    _clock: Clock = attrs.field(factory=SystemClock, eq=False)

    @property
    def poll_s(self) -> float:  # type: ignore[override]  # an attribute of the class elsewhere
        """The interval at which an idle job asks; for a pattern it asks for all topics of the cluster."""
        return 1.0 if isinstance(self._topics, re.Pattern) else 0.1

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Return a builder.

        Example::

            source = (
                KafkaSource.builder()
                .set_bootstrap_servers("localhost:9092")
                .set_topics("clicks")
                .set_starting_offsets(KafkaOffsetsInitializer.earliest())
                .set_value_only_deserializer(SimpleStringSchema())
                .build()
            )
        """
        return KafkaSourceBuilder()

    @cached_property
    def _client(self) -> _Topics:
        return _Topics(self._cluster)

    def initial_offset(self) -> Position:
        """See :class:`Source`."""
        found = self._client.described(self._names())
        missing = [name for name in self._names() if name not in found]
        if missing:
            raise ConfigurationError(
                f"Kafka source: there is no topic {missing[0]!r} at {self._cluster.servers}: create it, or "
                f"correct its name"
            )
        partitions = [each for _, parts in found.values() for each in parts]
        begin = self._starting.resolve(self._client, partitions, is_stop=False)
        stopping = self._stopping
        stop = None if stopping is None else stopping.resolve(self._client, partitions, is_stop=True)
        return _At(begin, {name: topic_id for name, (topic_id, _) in found.items()}, stop).encode()

    def check_restored(self, position: Position) -> None:
        """See :class:`Source`."""
        at = _At.decode(position)
        if (at.stop is None) != (self._stopping is None):
            raise IncompatibleCheckpointError(
                f"Kafka source: the checkpoint is of a source {'without' if at.stop is None else 'with'} "
                f"offsets at which it stops: restore with the same source"
            )
        self._found(at)
        self._check_kept(at.next)

    def after_flink(self, splits: list[bytes]) -> Position:
        """See :class:`Source`. It stops where it would stop if it began now.

        A partition without a split is new; that of a source that stops has come to its end.
        """
        at = _At.decode(self.initial_offset())
        absent = self._client.offsets(at.next, _FIRST) if at.stop is None else at.stop
        read = {KafkaTopicPartition(*each): offset for each, offset in kafka_offsets(splits).items()}
        for each, offset in read.items():
            if each not in at.next:
                raise _incompatible(each, offset, "is not there, or the program does not name the topic")
        known = {each: read.get(each, absent[each]) for each in at.next}
        found = {each: offset for each, offset in known.items() if offset >= 0}
        return attrs.evolve(at, next={**at.next, **found}).encode()

    def latest_offset(self, start: Position, whole: bool) -> Available:
        """See :class:`Source`."""
        at = _At.decode(start)
        found = self._found(at)
        last = self._client.offsets(at.next, _LAST)
        for each, offset in at.next.items():
            if last[each] < offset:
                raise _incompatible(each, offset, f"ends at {last[each]}: records were lost")
        ends = last if at.stop is None else {each: min(last[each], at.stop[each]) for each in last}
        lags = {each: max(0, end - at.next[each]) for each, end in ends.items()}
        most = sum(lags.values()) if whole and self.is_bounded else self._most
        shares = _shared(lags, most)
        new = {} if at.stop is not None else self._new(at, found)
        if not new and not any(shares.values()):
            return Available(start, is_last=_is_at_end(at))
        self._check_kept(at.next)
        ids = {**at.ids, **{each.topic: found[each.topic][0] for each in new}}
        end = _At({**{each: at.next[each] + share for each, share in shares.items()}, **new}, ids, at.stop)
        return Available(end.encode(), _is_at_end(end), is_full=sum(shares.values()) == self._most)

    def plan(self, start: Position, end: Position) -> Epoch:
        """See :class:`Source`. A partition that ``start`` does not have begins where ``end`` is."""
        begin = _At.decode(start).next
        splits = [
            (each.topic, each.partition, begin[each], stop)
            for each, stop in _At.decode(end).next.items()
            if begin.get(each, stop) < stop
        ]
        return SplitEpoch(splits, self._read, is_fresh=self._read.is_fresh)

    def live(self, start: Position) -> SplitEpoch | None:
        """See :class:`Source`. An epoch in which partitions are added is planned."""
        at, client = _At.decode(start), self._client
        if self._stopping is not None or len(at.next) > _LIVE_PARTITIONS:
            return None
        now_ms = self._clock.monotonic_ms()
        if now_ms - client.looked_ms >= _LOOK_MS:
            if self._new(at, self._found(at)):
                return None
            client.looked_ms = now_ms
        splits = [(each.topic, each.partition, offset) for each, offset in at.next.items()]
        return SplitEpoch(splits, self._read.live, is_fresh=self._read.is_fresh, is_live=True)

    def reached(self, start: Position, positions: list[Any]) -> Position:
        """See :class:`Source`."""
        at = _At.decode(start)
        return attrs.evolve(at, next=dict(zip(at.next, positions, strict=True))).encode()

    def commit(self, end: Position) -> None:
        """See :class:`Source`. Sets the offsets of the group, if there is one, for those who watch it."""
        self._client.commit(_At.decode(end).next)

    def _names(self) -> Iterable[str]:
        return self._client.names(self._topics) if isinstance(self._topics, re.Pattern) else self._topics

    def _found(self, at: _At) -> dict[str, tuple[str, list[KafkaTopicPartition]]]:
        """Return the topics; those of a position are the same as when it was written."""
        found = self._client.described({*self._names(), *at.ids})
        for name, topic_id in at.ids.items():
            now = found.get(name)
            if now is None or now[0] != topic_id:
                raise IncompatibleCheckpointError(
                    f"Kafka source: topic {name!r}, which the job has read, "
                    f"{'is gone' if now is None else 'was deleted and made anew'}: {_REMEDY}",
                    topic=name,
                )
        return found

    def _new(self, at: _At, found: Mapping[str, tuple[str, list[KafkaTopicPartition]]]) -> _Offsets:
        """Return where partitions begin that were not there before."""
        new = [each for _, parts in found.values() for each in parts if each not in at.next]
        return self._client.offsets(new, _FIRST)

    def _check_kept(self, offsets: _Offsets) -> None:
        """Check that no record from these offsets on was deleted."""
        first = self._client.offsets(offsets, _FIRST)
        for each, offset in offsets.items():
            if offset < first[each]:
                raise _incompatible(each, offset, f"begins at {first[each]}: records have expired")


def _is_at_end(at: _At) -> bool:
    return at.stop is not None and all(at.next[each] >= stop for each, stop in at.stop.items())


def _incompatible(partition: KafkaTopicPartition, offset: int, why: str) -> IncompatibleCheckpointError:
    return IncompatibleCheckpointError(
        f"Kafka source: {_name(partition)} was read up to offset {offset}, and now {why}. {_REMEDY}",
        topic=partition.topic,
    )


# --- tasks -----------------------------------------------------------------------------------------


@attrs.frozen
class KafkaReader:
    """Reads a split, which is a topic, a partition, the first offset and the one behind the last."""

    cluster: Cluster
    #: Is called with None for a record without value.
    deserialize: Callable[[Any], Record] | None
    on_error: OnMalformed
    #: Whether records share no mutable part with others.
    is_fresh: bool

    def __call__(self, split: tuple[str, int, int, int], reject: Reject) -> Iterator[Record]:
        """Yield the records of a split; see :class:`SplitEpoch`."""
        with closing(self._messages(*split)) as messages:
            yield from self._records(messages, reject)

    def live(
        self, split: tuple[str, int, int], reject: Reject, time: ReadTime
    ) -> Generator[list[Record], None, int]:
        """Yield the records of a partition as they come; see :class:`SplitEpoch`."""
        topic, partition, at = split
        where = f"read topic {topic!r}, partition {partition}, from offset {at} on"
        with self.cluster.errors(where), ExitStack() as opened:
            kept = KEPT.take(self._key(*split))
            consumer = kept if isinstance(kept, Consumer) else self._consumer(*split, 100)
            opened.callback(consumer.close)
            while True:
                first = consumer.poll(min(time.left_ms(), _LOOK_MS) / 1000)
                more = consumer.consume(_BATCH, time.buffer_timeout_ms / 1000) if first else []
                messages = [*filter(None, [first]), *more]
                yield [*self._records((each for each in messages if _has_record(each, where)), reject)]
                at = max([at, *(_behind(each) for each in messages)])
                if not time.left_ms():
                    break
            opened.pop_all()
        KEPT.keep(self._key(topic, partition, at), consumer, consumer.close)
        return at

    def _key(self, topic: str, partition: int, at: int) -> tuple[object, ...]:
        return self.cluster.servers, *self.cluster.properties.items(), topic, partition, at

    def _records(self, messages: Iterable[Message], reject: Reject) -> Iterator[Record]:
        for message in messages:
            if self.deserialize is None:
                yield _record(message)
                continue
            try:
                record = self.deserialize(message.value())
            except Exception as error:  # noqa: BLE001 - it is the user's code
                self._refuse(_record(message), error, reject)
            else:
                yield record

    def _refuse(self, record: KafkaRecord, error: Exception, reject: Reject) -> None:
        value, reason = safe_repr(record.value), f"{type(error).__name__}: {error}"
        if self.on_error is OnMalformed.FAIL:
            raise MalformedRecordError(
                f"Kafka source: topic {record.topic!r}, partition {record.partition}, offset "
                f"{record.offset}: the value {value} cannot be deserialized ({reason}); "
                f"set_on_error('drop') or set_on_error('collect') goes on without it",
                topic=record.topic,
                offset=record.offset,
            ) from error
        place, keep = f"{record.topic}-{record.partition}", self.on_error is OnMalformed.COLLECT
        reject(RejectedRecord(place, record.offset, value, reason, keep))

    def _messages(self, topic: str, partition: int, begin: int, end: int) -> Generator[Message, None, None]:
        where = f"read topic {topic!r}, partition {partition}, from offset {begin} to {end}"
        # As long as a fetch waits it takes to see that a partition ends.
        with self.cluster.errors(where), closing(self._consumer(topic, partition, begin, 10)) as consumer:
            while True:
                first = consumer.poll(self.cluster.timeout_s)
                if first is None:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no broker answers"))
                for message in (first, *consumer.consume(_BATCH, 0)):
                    if _has_record(message, where) and _behind(message) <= end:
                        yield message
                    if _behind(message) >= end:
                        return

    def _consumer(self, topic: str, partition: int, begin: int, wait_ms: int) -> Consumer:
        defaults: Config = {
            "group.id": "pyflinkstate",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": wait_ms,
            "fetch.queue.backoff.ms": 2,  # the client's default lets a full queue run empty: 1 s
        }
        consumer = Consumer(self.cluster.config(defaults, _READER))
        consumer.assign([TopicPartition(topic, partition, begin)])
        return consumer


def _has_record(message: Message, where: str) -> bool:
    """Return whether it is a record, and not the end of the partition; raise the error that it is."""
    error = message.error()
    if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise SourceError(f"Kafka source: cannot {where}: records have expired. {_REMEDY}")
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    return error is None


def _behind(message: Message) -> int:
    """Return the offset behind a record, or that of the end of a partition."""
    return (message.offset() or 0) + (message.error() is None)


def _record(message: Message) -> KafkaRecord:
    kind, timestamp_ms = message.timestamp()
    return KafkaRecord(
        str(message.topic()),
        message.partition() or 0,
        message.offset() or 0,
        timestamp_ms if kind else None,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),  # type: ignore[arg-type]  # it returns a list, never a dict
    )


class KafkaSourceBuilder(ClusterBuilder):
    """Makes a :class:`KafkaSource`."""

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read these topics; partitions that are added later are read from their first record on."""
        return self._with(topics=topics)

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read all topics whose name matches a regular expression as a whole, also those created later."""
        check_text("topic_pattern", topic_pattern)
        try:
            return self._with(topics=re.compile(topic_pattern))
        except re.error as error:
            raise ConfigurationError(f"topic_pattern {topic_pattern!r} is no pattern: {error}") from error

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Set the consumer group whose offsets show how far the job has come. Default: none is shown."""
        return self.set_property("group.id", group_id)

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """Set the name by which brokers know the clients."""
        return self.set_property("client.id", prefix)

    def set_properties(self, props: Mapping[str, str]) -> KafkaSourceBuilder:
        """Set several properties; see :meth:`set_property`."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def set_starting_offsets(
        self, starting_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Set where a job begins that is not restored. Default: ``earliest()``."""
        return self._with(starting=starting_offsets_initializer)

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """End the source at these offsets, such as ``latest()``: what there is when the job starts."""
        return self._with(stopping=stopping_offsets_initializer, is_bounded=True)

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """End the source at these offsets as well, but do not call it bounded."""
        return self._with(stopping=stopping_offsets_initializer, is_bounded=False)

    def set_value_only_deserializer(
        self, deserialization_schema: DeserializationSchema | Callable[[bytes], Record]
    ) -> KafkaSourceBuilder:
        """Make records of values, by a schema or a function such as ``json.loads``.

        Without it, records are :class:`KafkaRecord`. A schema gets None for a record without value.
        """
        return self._with(schema=deserialization_schema)

    def set_on_error(self, policy: str) -> KafkaSourceBuilder:
        """Set what happens to a record that cannot be deserialized.

        Args:
            policy: ``fail`` (the default), ``drop``, or ``collect``, which keeps it with the rejected ones.
        """
        if policy not in [each.value for each in OnMalformed]:
            raise ConfigurationError(f"on_error is 'fail', 'drop' or 'collect', not {policy!r}")
        return self._with(on_error=OnMalformed(policy))

    def set_max_records_per_epoch(self, number: int) -> KafkaSourceBuilder:
        """Set how many records of all partitions an epoch has at most. Default: 1,000,000."""
        return self._with(most=positive("the number of records per epoch", number))

    def build(self) -> KafkaSource:
        """Return the source.

        Raises:
            ConfigurationError: something that it needs is not set, or is not what it takes.
        """
        cluster, given = self._cluster("Kafka source", SourceError, ConfigurationError), self._given
        topics, schema = given.get("topics"), given.get("schema")
        starting = given.get("starting", KafkaOffsetsInitializer.earliest())
        stopping = given.get("stopping")
        if not topics:
            raise ConfigurationError("Kafka source: call set_topics() or set_topic_pattern()")
        if not all(isinstance(each, KafkaOffsetsInitializer) for each in (starting, stopping or starting)):
            raise ConfigurationError(
                "Kafka source: offsets take a KafkaOffsetsInitializer, such as its earliest() or latest()"
            )
        deserialize = schema.deserialize if isinstance(schema, DeserializationSchema) else schema
        if not (schema is None or callable(deserialize)):
            raise ConfigurationError(
                f"set_value_only_deserializer() takes a DeserializationSchema or a function, not {schema!r}"
            )
        is_text = isinstance(schema, SimpleStringSchema)
        on_error = given.get("on_error", OnMalformed.FAIL)
        return KafkaSource(
            cluster=cluster,
            topics=topics,
            starting=starting,
            stopping=stopping,
            is_bounded=given.get("is_bounded", False),
            most=given.get("most", RECORDS_PER_EPOCH),
            read=KafkaReader(cluster, deserialize, on_error, is_text or schema is None),
            type_info=Types.STRING() if is_text else None,
        )
