"""What the Kafka source and the Kafka sink share: how a cluster is reached, and what its errors mean.

Properties are those of librdkafka, most of which have the names that Kafka's Java clients use. One that only
those clients have is used here too: ``default.api.timeout.ms`` bounds each call to the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import attrs

from pyflinkstate.api import check_text, positive
from pyflinkstate.connectors.extras import needs
from pyflinkstate.errors import ConfigurationError, PyFlinkStateError

with needs("kafka"):
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

TIMEOUT: Final = "default.api.timeout.ms"
_TIMEOUT_MS = 60_000
ConfigValue = str | int | float | bool
Config = Mapping[str, ConfigValue]
B = TypeVar("B", bound="Builder")
C = TypeVar("C", bound="ClusterBuilder")

#: What to do about errors that do not go away by themselves.
_REMEDIES: Final[dict[int, str]] = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic, or correct its name",
    KafkaError._UNKNOWN_TOPIC: "create the topic, or correct its name",
    KafkaError._UNKNOWN_PARTITION: "create the topic with enough partitions",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "let the user of this job use the topic, by an ACL",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "let the user of this job use the consumer group, by an ACL",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "let the user of this job do that on the cluster, by an ACL",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "let the user of this job write and describe "
    "transactional ids with the prefix of the sink, by an ACL",
    KafkaError.SASL_AUTHENTICATION_FAILED: "correct the sasl.* properties",
    KafkaError._AUTHENTICATION: "correct the sasl.* and ssl.* properties",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "set the property transaction.timeout.ms to at most the "
    "transaction.max.timeout.ms of the brokers",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise message.max.bytes, a property of the sink, and max.message.bytes "
    "of the topic",
}


@attrs.frozen
class Cluster:
    """How a source or a sink reaches its Kafka cluster.

    Attributes:
        user: "Kafka source" or "Kafka sink", for errors.
        servers: ``host:port``, separated by commas.
        properties: librdkafka's, by name.
        lost: the error if the cluster does not answer, after which a job may restart.
        wrong: the error if somebody must change something first.
    """

    user: str
    servers: str
    properties: Mapping[str, str]
    lost: type[PyFlinkStateError]
    wrong: type[PyFlinkStateError]

    @property
    def timeout_s(self) -> float:
        """The bound of a call, in seconds."""
        return self.milliseconds(TIMEOUT, _TIMEOUT_MS) / 1000

    def milliseconds(self, name: str, default: int) -> int:
        """Return a property that is a number of milliseconds, at least 1."""
        text = self.properties.get(name, str(default))
        return positive(f"the property {name!r}", int(text) if text.isdecimal() else text)

    def config(self, defaults: Config | None = None, fixed: Config | None = None) -> dict[str, ConfigValue]:
        """Return the configuration of a client, by name of property.

        Args:
            defaults: what the properties of the user replace.
            fixed: what they do not replace.
        """
        given = {name: value for name, value in self.properties.items() if name != TIMEOUT}
        config = {"log_level": 2, **(defaults or {}), **given, **(fixed or {})}
        return {**config, "bootstrap.servers": self.servers}

    def admin(self) -> AdminClient:
        """Return a client that asks the cluster for its topics and offsets."""
        with self.errors("use its properties"):
            return AdminClient(self.config())

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Convert the client's errors.

        Args:
            what: what cannot be done then.
        """
        try:
            yield
        except (KafkaException, SystemError) as error:
            # The client raises a fatal error in the middle of another callback, which becomes a SystemError.
            cause = error.__cause__ if isinstance(error, SystemError) else error
            if not isinstance(cause, KafkaException):
                raise
            raise self.error_of(cause.args[0], what) from cause

    def error_of(self, error: KafkaError, what: str) -> PyFlinkStateError:
        """Return the error for one of the client."""
        if error.code() == KafkaError._INVALID_ARG:
            return ConfigurationError(f"{self.user}: cannot {what}: {error.str()}: correct set_property()")
        remedy = _REMEDIES.get(error.code())
        kind = self.wrong if remedy else self.lost
        todo = remedy or f"see that the brokers run, and that this host reaches {self.servers}"
        return kind(
            f"{self.user}: cannot {what}: {error.str()} ({error.name()}): {todo}", servers=self.servers
        )


class Builder:
    """Keeps what is set, by name; a subclass has the setters, and ``build`` checks what belongs together."""

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}

    def _with(self: B, **given: object) -> B:
        self._given.update(given)
        return self


class ClusterBuilder(Builder):
    """Makes a source or a sink of a cluster."""

    def set_bootstrap_servers(self: C, bootstrap_servers: str) -> C:
        """Set the brokers to ask first: ``host:port``, separated by commas."""
        check_text("bootstrap_servers", bootstrap_servers)
        return self._with(servers=bootstrap_servers)

    def set_property(self: C, key: str, value: str) -> C:
        """Set a property of librdkafka's client; what does not exist is refused when the job starts.

        ``default.api.timeout.ms`` bounds each call, and how long a message may wait for a broker; default:
        60,000 ms. A sink also has ``transaction.timeout.ms``, 300,000 ms by default, and ``partitioner``,
        ``murmur2_random`` by default, as in Java's clients. A source has ``isolation.level``,
        ``read_committed`` by default.
        """
        check_text("the name of a property", key)
        check_text(f"the property {key!r}", value, may_be_empty=True)
        return self._with(properties={**self._given.get("properties", {}), key: value})

    def _cluster(self, user: str, lost: type[PyFlinkStateError], wrong: type[PyFlinkStateError]) -> Cluster:
        servers, properties = self._given.get("servers"), self._given.get("properties", {})
        if servers is None:
            raise ConfigurationError(f"{user}: call set_bootstrap_servers('host:port')")
        cluster = Cluster(user, servers, properties, lost, wrong)
        cluster.milliseconds(TIMEOUT, _TIMEOUT_MS)
        return cluster
