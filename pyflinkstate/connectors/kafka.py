"""What the Kafka source and the Kafka sink share: how a cluster is reached, and what its errors mean.

Properties are those of librdkafka, most of which have the names that Kafka's Java clients use. One that only
those clients have is used here too: ``default.api.timeout.ms`` bounds each call to the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import attrs

from pyflinkstate.api import check_text, positive
from pyflinkstate.connectors import needs
from pyflinkstate.errors import ConfigurationError, PyFlinkStateError

with needs("kafka"):
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

TIMEOUT: Final = "default.api.timeout.ms"
#: How often a source looks for new topics, as in Flink.
DISCOVERY: Final = "partition.discovery.interval.ms"
#: Properties that are used here, and that librdkafka does not have.
OWN: Final = {TIMEOUT, DISCOVERY}
_TIMEOUT_MS = 60_000

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

    def config(
        self, defaults: Mapping[str, object] | None = None, fixed: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """Return the configuration of a client, by name of property.

        Args:
            defaults: what the properties of the user replace.
            fixed: what they do not replace.
        """
        given = {name: value for name, value in self.properties.items() if name not in OWN}
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


class ClusterBuilder:
    """The part of a builder that says how the cluster is reached."""

    def __init__(self) -> None:
        self._servers = ""
        self._properties: dict[str, str] = {}

    def _cluster(self, user: str, lost: type[PyFlinkStateError], wrong: type[PyFlinkStateError]) -> Cluster:
        if not self._servers:
            raise ConfigurationError(f"{user}: call set_bootstrap_servers('host:port')")
        cluster = Cluster(user, self._servers, self._properties, lost, wrong)
        cluster.milliseconds(TIMEOUT, _TIMEOUT_MS)
        return cluster

    def _add_server(self, servers: str) -> None:
        check_text("bootstrap_servers", servers)
        self._servers = servers

    def _add_property(self, key: str, value: str) -> None:
        check_text("the name of a property", key)
        check_text(f"the property {key!r}", value, may_be_empty=True)
        self._properties = {**self._properties, key: value}
