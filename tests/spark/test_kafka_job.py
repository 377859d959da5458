"""A job on Spark from Kafka to Kafka, whose driver is killed around the commit of a transaction."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import kafka_program
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from kafka_server import KafkaServer, running_kafka
from processes import quick_start

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(600)]
WORDS = [f"w{number % 7}" for number in range(100)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaServer]:
    with running_kafka() as server:
        yield server


def test_words_are_counted_once_whenever_the_driver_is_killed(kafka: KafkaServer, tmp_path: Path) -> None:
    read, write = kafka.topic(2), kafka.topic(2)
    for partition in (0, 1):
        kafka.send(read, *WORDS[partition::2], partition=partition)
    expected = Counter(f"{word} {WORDS[: at + 1].count(word)}" for at, word in enumerate(WORDS))
    (settings := tmp_path / "conf").mkdir()
    arguments = [kafka.servers, read, write, str(tmp_path / "checkpoints")]
    seen: Counter[str] = Counter()
    for step, epoch in [("before", 2), ("after", 3), ("never", 0)]:
        done = subprocess.run(
            [sys.executable, kafka_program.__file__, *arguments, step, str(epoch)],
            env={**quick_start(settings), **os.environ},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == (0 if step == "never" else -signal.SIGKILL), (step, done.stderr)
        before, seen = seen, Counter(kafka.values(write))
        assert not seen - expected, f"{step}: a record is doubled"
        assert not before - seen, f"{step}: a record that was seen is gone"
    assert seen == expected
    asked = [
        ConsumerGroupTopicPartitions(f"{read}-group", [TopicPartition(read, 0), TopicPartition(read, 1)])
    ]
    (shown,) = kafka.admin().list_consumer_group_offsets(asked).values()
    assert [each.offset for each in shown.result(30).topic_partitions] == [50, 50]
