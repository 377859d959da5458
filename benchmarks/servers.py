"""The servers that benchmarks of connectors use: one at a given address, or one of their own on loopback.

A server of their own is that of the tests, with a JVM or settings for work in place of short tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

#: The broker of the tests has a small heap, and only the first of Java's compilers.
JAVA = ("java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC")


@contextmanager
def kafka(servers: str | None) -> Iterator[str]:
    """Return the address of brokers."""
    if servers is not None:
        yield servers
        return
    from kafka_server import KafkaServer, kafka_home

    with closing(KafkaServer(kafka_home(), JAVA)) as server:
        server.start()
        yield server.servers


@contextmanager
def postgresql(url: str | None) -> Iterator[str | None]:
    """Return the URL of a database; None if there is no PostgreSQL on this machine."""
    if url is not None:
        yield url
        return
    from postgres_server import PostgresServer, is_there

    if not is_there():
        yield None
        return
    with closing(PostgresServer({"shared_buffers": "256MB", "fsync": "on"})) as server:
        yield server.url


def make_topic(servers: str, name: str, partitions: int) -> str:
    """Create a topic; return its name."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    return name
