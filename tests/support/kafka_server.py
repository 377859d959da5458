"""A real Kafka broker on loopback: one JVM with a small heap, in KRaft mode, for the tests of a session.

The broker ends with the process that has started it, also if that is killed.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

SCRIPT = Path(__file__).parents[2] / "scripts/ensure_kafka.sh"
JAVA = ("java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
START_S = 120
SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=200
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=400
group.initial.rebalance.delay.ms=0
num.network.threads=1
num.io.threads=2
log.cleaner.dedupe.buffer.size=4194304
controlled.shutdown.enable=false
"""


def kafka_home() -> Path:
    """Return the folder of Kafka's jars; the test is skipped, with the reason, where it cannot be had."""
    done = subprocess.run(["sh", str(SCRIPT)], check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.skip(f"no Kafka: {done.stderr.strip()}")
    return Path(done.stdout.strip())


@contextmanager
def running_kafka() -> Iterator[KafkaServer]:
    """Start a broker, and end it."""
    server = KafkaServer(kafka_home())
    server.start()
    try:
        yield server
    finally:
        server.close()


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class KafkaServer:
    """A broker with storage of its own.

    Args:
        home: has a folder ``libs`` with Kafka's jars.
        java: the command that runs it, with options.
    """

    def __init__(self, home: Path, java: Sequence[str] = JAVA) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="kafka-"))
        self._java = [*java, "-cp", f"{home}/libs/*"]
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: AdminClient | None = None
        port, controller_port = free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        self._settings = self._folder / "server.properties"
        self._settings.write_text(
            SETTINGS.format(port=port, controller_port=controller_port, folder=self._folder)
        )
        self._run("kafka.tools.StorageTool", "format", "-t", "pyflinkstate", "-c", str(self._settings))

    def _run(self, *command: str) -> None:
        subprocess.run([*self._java, *command], check=True, capture_output=True, timeout=START_S)

    def start(self) -> None:
        """Start the broker, and wait until it answers."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._java, "kafka.Kafka", str(self._settings)],
                stdout=log,
                stderr=log,
            )
        for _ in range(START_S):
            try:
                self.admin().list_topics(timeout=1)
            except KafkaException:
                if self._process.poll() is not None:
                    break
            else:
                return
        raise AssertionError((self._folder / "log").read_text()[-3000:])

    def kill(self) -> None:
        """End the broker as a power failure of its process would; ``start`` goes on with its data."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    def close(self) -> None:
        """End the broker, and delete its data."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- what tests do with it -------------------------------------------------------------------------

    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        return self._admin

    def topic(self, partitions: int = 1, name: str = "", **config: str) -> str:
        """Create a topic; return its name."""
        name = name or f"topic-{uuid.uuid4().hex[:8]}"
        self.admin().create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)
        return name

    def send(self, topic: str, *values: str, partition: int = 0, **config: object) -> None:
        """Append records to a partition; in a transaction if ``config`` has an id for it."""
        producer = Producer({"bootstrap.servers": self.servers, **config})
        if "transactional.id" in config:
            producer.init_transactions(30)
            producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        if "transactional.id" in config:
            producer.commit_transaction(30)
        assert producer.flush(30) == 0

    def values(self, topic: str) -> list[str]:
        """See :func:`values_of`."""
        return values_of(self.servers, topic)


def values_of(servers: str, topic: str) -> list[str]:
    """Return the values that readers see, partition by partition, when transactions have ended.

    A transaction that is committed is shown a moment later, so this reads as far as the topic goes.
    """
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    found: list[str] = []
    for partition in admin.list_topics(topic, 30).topics[topic].partitions:
        place = TopicPartition(topic, partition, 0)
        _, end = _read(servers, place, "read_uncommitted", 0)
        values, _ = _read(servers, place, "read_committed", end)
        found += values
    return found


def _read(servers: str, place: TopicPartition, isolation: str, end: int) -> tuple[list[str], int]:
    config = {
        "bootstrap.servers": servers,
        "group.id": "tests",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer(config)
    consumer.assign([place])
    found: list[str] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"{place.topic}-{place.partition} ends before {end}"
        if not message.error():
            found.append(message.value().decode())
        elif message.offset() >= end:
            consumer.close()
            return found, message.offset()
