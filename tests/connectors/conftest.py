"""The servers of the tests of connectors: one of each for a session, but for who kills it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from databases import Database
    from kafka_server import KafkaServer
    from postgres_server import PostgresServer


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """Start a broker, which runs until the session ends."""
    from kafka_server import running_kafka

    with running_kafka() as server:
        yield server


@pytest.fixture
def own_kafka() -> Iterator[KafkaServer]:
    """Start a broker for one test that kills it: with few topics it soon goes on."""
    from kafka_server import running_kafka

    with running_kafka() as server:
        yield server


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """Start a PostgreSQL, which runs until the session ends."""
    import postgres_server

    if not postgres_server.is_there():
        pytest.skip("there is no PostgreSQL on this machine: Debian's package postgresql has it")
    made = postgres_server.PostgresServer()
    yield made
    made.close()


@pytest.fixture
def postgresql(server: PostgresServer) -> Database:
    """Return the server's database, which is empty."""
    import psycopg
    from databases import Database

    made = Database(server.url, lambda: psycopg.connect(server.conninfo))
    made.run("DROP SCHEMA public CASCADE")
    made.run("CREATE SCHEMA public")
    return made


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Return an empty database of each kind."""
    from databases import sqlite_database

    if request.param == "sqlite":
        return sqlite_database(tmp_path)
    made: Database = request.getfixturevalue("postgresql")
    return made
