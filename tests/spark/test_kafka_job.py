"""Jobs on Spark from Kafka: to Kafka, with a driver that is killed as it commits; the example with orders."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import kafka_program
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from deltalake import DeltaTable
from example_programs import EXAMPLES
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


ORDERS = [{"user": f"u{number % 5}", "cents": number * 37 % 4000} for number in range(120)]


def test_orders_reach_a_database_a_table_and_a_topic(kafka: KafkaServer, tmp_path: Path) -> None:
    for name in ("orders", "alerts", "dead-letters"):
        kafka.topic(2, name)
    (settings := tmp_path / "conf").mkdir()
    database, changes = tmp_path / "totals.sqlite", tmp_path / "changes"
    with closing(sqlite3.connect(database)) as opened:
        opened.execute("CREATE TABLE totals (account TEXT PRIMARY KEY, cents BIGINT)")
    arguments = ["--servers", kafka.servers, "--database", f"sqlite:///{database}", "--until-end"]
    arguments += ["--checkpoint-dir", str(tmp_path / "checkpoints"), "--changes", str(changes)]
    totals: Counter[str] = Counter()
    every: Counter[tuple[str, int]] = Counter()
    alerts: Counter[str] = Counter()
    for order in ORDERS:
        user, before = order["user"], totals[order["user"]]
        totals[user] += order["cents"]
        every[user, totals[user]] += 1
        if before <= 100_00 < totals[user]:
            alerts[json.dumps({"user": user, "cents": totals[user]})] += 1
    kafka.send("orders", *map(json.dumps, ORDERS), partition=0)
    kafka.send("orders", "no JSON", '{"user": "u1"}', partition=1)
    for restore in ([], ["--restore", "latest"]):  # a bounded source has an end, which a checkpoint keeps
        subprocess.run(
            [sys.executable, str(EXAMPLES / "kafka_orders.py"), *arguments, *restore],
            env={**quick_start(settings), **os.environ},
            capture_output=True,
            timeout=300,
            check=True,
        )
        with closing(sqlite3.connect(database)) as opened:
            assert dict(opened.execute("SELECT * FROM totals")) == totals
        rows = DeltaTable(changes).to_pyarrow_table().to_pylist()
        assert Counter((row["account"], row["cents"]) for row in rows) == every
        assert Counter(kafka.values("alerts")) == alerts
        letters = [json.loads(letter) for letter in kafka.values("dead-letters")]
        assert sorted((each["at"], each["value"]) for each in letters) == [
            ("orders-1, offset 0", "b'no JSON'"),
            ("orders-1, offset 1", """b'{"user": "u1"}'"""),
        ]
        assert {each["reason"] for each in letters} >= {"KeyError('cents')"}
