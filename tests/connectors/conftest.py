"""The servers of the tests of connectors: one of each for a session, but for who kills it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafka_server import KafkaServer


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
