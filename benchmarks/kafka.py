"""From Kafka to Kafka: how soon a record is visible, and how many there are a second.

    python benchmarks/kafka.py [--json] [--servers HOST:PORT] [--rate N] [--seconds N] [--interval-ms N ...]
        [--records N] [--rounds N] [--engine stages|pipelined]

Without ``--servers`` a broker of its own runs on this machine, and takes its share of the processor. The job
counts records by key, and its results are checked. Its sink is ``EXACTLY_ONCE``, except for ``latency``.

* ``visible_p50_ms``, ``visible_p99_ms``: from the time in a record, which a process of its own sends, to a
  consumer with ``isolation.level=read_committed``, at ``--rate`` records a second, over ``--seconds`` after a
  warm-up.
* ``latency_p50_ms``, ``latency_p99_ms``: the same with an ``AT_LEAST_ONCE`` sink, which sends records as they
  come, and a checkpoint every second.
* ``interval_ms``: the checkpoint interval, the first of ``--interval-ms`` that *holds*: the job takes its
  checkpoints at about this interval, and records wait no longer at the end than at the beginning.
  ``checkpoint_ms`` is the mean time from one checkpoint to the next.
* ``records_per_s``: a bounded job over ``--records`` records in two partitions, with a checkpoint every
  second; the start of the slots is part of it.
* ``broker_records_per_s``: a plain loop of the client in one process, which reads the same records and sends
  them in transactions of 100,000, with the offsets. ``ratio_broker`` is the job's rate against it.

Rounds of both rates are interleaved; the figures are medians.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import servers
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from keyed_count import Count
from local_session import local_session, tell

from pyflinkstate import (
    CheckpointStats,
    Configuration,
    DeliveryGuarantee,
    JobClient,
    JobListener,
    SimpleStringSchema,
    StreamExecutionEnvironment,
    Types,
)
from pyflinkstate.connectors import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)

PARTITIONS = 2
KEYS = 1_000
WARM_UP_S = 10
#: A few records are sent at once, as one call for each would take much of a processor.
TICK_S = 0.005
#: An interval holds if checkpoints are so much further apart at most, and records wait so much longer.
TOLERANCE = 1.25
RECORDS_PER_TRANSACTION = 100_000
RECORDS_PER_CALL = 10_000
CHECKPOINT_MS = 1_000
#: All that is waited for must have come by then.
PATIENCE_S = 300


# --- processes beside the job --------------------------------------------------------------------------


def send_paced(address: str, topic: str, first: int, records: int, rate: int) -> None:
    """Send records at a rate, each with its key and the time at which it is sent, in nanoseconds.

    Args:
        first: the number of the first record, of which its key is made.
    """
    producer = Producer({"bootstrap.servers": address})
    began = time.perf_counter()
    for number in range(records):
        if time.perf_counter() < began + number / rate:
            producer.poll(TICK_S)
        key = f"customer-{(first + number) * 7919 % KEYS}"
        producer.produce(topic, f"{key} {time.time_ns()}", key)
    producer.flush()


def send_all(address: str, topic: str, records: int) -> None:
    """Send records, which are keys, as fast as it goes."""
    producer = Producer(
        {"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.messages": 10**6}
    )
    for number in range(records):
        if number % RECORDS_PER_CALL == 0:
            while len(producer) > 9 * 10**5:
                producer.poll(0.1)
            producer.poll(0)
        producer.produce(topic, f"customer-{number * 7919 % KEYS}", partition=number % PARTITIONS)
    producer.flush()


def committed(address: str, topic: str, records: int) -> Iterator[list[Message]]:
    """Yield the records of a topic that readers of transactions see, as they come."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "benchmark",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    left, deadline = records, time.monotonic() + PATIENCE_S
    while left > 0:
        found = consumer.consume(min(left, RECORDS_PER_CALL), 0.005)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{left} of {records} records of {topic} are missing")
        left -= len(found)
        yield found
    consumer.close()


def note_arrivals(address: str, topic: str, records: int, into: Any) -> None:
    """Send, for each record, when it was sent and when it was seen."""
    seen: list[tuple[int, int]] = []
    counts: dict[str, set[int]] = {}
    for messages in committed(address, topic, records):
        now = time.time_ns()
        for message in messages:
            key, sent, count = message.value().decode().split()
            counts.setdefault(key, set()).add(int(count))
            seen.append((int(sent), now))
    assert all(found == set(range(1, len(found) + 1)) for found in counts.values()), "a count is wrong"
    assert sum(map(len, counts.values())) == records, "a record came twice"
    into.send(seen)


# --- the job -------------------------------------------------------------------------------------------


class Checkpoints(JobListener):
    """When each checkpoint was complete."""

    def __init__(self) -> None:
        self.at_ns: list[int] = []
        self.has_any = threading.Event()

    def on_checkpoint(self, stats: CheckpointStats) -> None:
        self.at_ns.append(time.time_ns())
        self.has_any.set()


def key_of(record: str) -> str:
    return record.partition(" ")[0]


class CountTimed(Count):
    """Counts by the key before the time, and keeps the time."""

    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        for _, count in super().process_element(value, ctx):
            yield f"{value} {count}"


def started(
    address: str,
    read: str,
    write: str,
    directory: str,
    interval_ms: int,
    bounded: bool,
    guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE,
) -> tuple[JobClient, Checkpoints]:
    """Start the job from one topic to another one."""
    env = StreamExecutionEnvironment(SESSION).set_parallelism(PARTITIONS)
    env.configure(Configuration().set_string("pyflinkstate.engine", ENGINE.upper()))
    env.enable_checkpointing(interval_ms, directory, incremental=True)
    env.add_listener(checkpoints := Checkpoints())
    source = KafkaSource.builder().set_bootstrap_servers(address).set_topics(read)
    source.set_value_only_deserializer(SimpleStringSchema())
    if bounded:
        source.set_bounded(KafkaOffsetsInitializer.latest())
    schema = KafkaRecordSerializationSchema.builder().set_topic(write)
    sink = KafkaSink.builder().set_bootstrap_servers(address).set_transactional_id_prefix("counts")
    sink.set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
    sink.set_delivery_guarantee(guarantee)
    keyed = env.from_source(source.build()).key_by(key_of, key_type=Types.STRING())
    keyed.process(CountTimed(), Types.STRING()).uid("counts").sink_to(sink.build())
    return env.execute_async("kafka to kafka"), checkpoints


# --- latency -------------------------------------------------------------------------------------------


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


#: When each measured record was sent, in ns since 1970, and how long it waited until it was seen, in ms.
Waited = list[tuple[int, float]]


def waited(
    address: str, interval_ms: int, guarantee: DeliveryGuarantee, args: argparse.Namespace
) -> tuple[Waited, list[int]]:
    """Return the measured records in the order in which they were sent, and when checkpoints completed."""
    read, write = (new_topic(address) for _ in range(2))
    records = args.rate * (WARM_UP_S + args.seconds)
    spawn = multiprocessing.get_context("spawn")
    receiving, sending = spawn.Pipe(duplex=False)
    beside = [
        spawn.Process(target=send_paced, args=(address, read, 1, records, args.rate)),
        spawn.Process(target=note_arrivals, args=(address, write, 1 + records, sending)),
    ]
    with tempfile.TemporaryDirectory() as directory:
        client, checkpoints = started(address, read, write, directory, interval_ms, False, guarantee)
        send_paced(address, read, 0, 1, args.rate)
        if not checkpoints.has_any.wait(PATIENCE_S):
            raise TimeoutError("the job does not begin")
        for process in beside:
            process.start()
        if not receiving.poll(WARM_UP_S + args.seconds + PATIENCE_S):
            raise TimeoutError("not all records were seen")
        seen = receiving.recv()
        client.cancel().result()
        for process in beside:
            process.join()
    _, began, *_ = sorted(sent for sent, _ in seen)  # the first record started the job
    begin = began + WARM_UP_S * 10**9
    return sorted((sent, (at - sent) / 1e6) for sent, at in seen if sent >= begin), checkpoints.at_ns


def quantiles(name: str, waited_ms: list[float]) -> dict[str, float]:
    """Return the median, and the latency that one record in a hundred exceeds."""
    return {
        f"{name}_p50_ms": round(statistics.median(waited_ms), 1),
        f"{name}_p99_ms": round(percentile(waited_ms, 0.99), 1),
    }


def visible(address: str, interval_ms: int, args: argparse.Namespace) -> tuple[dict[str, float], bool]:
    """Return the figures of an interval, and whether it holds."""
    timed, checkpoints = waited(address, interval_ms, DeliveryGuarantee.EXACTLY_ONCE, args)
    waited_ms = [ms for _, ms in timed]
    third = len(waited_ms) // 3
    early, late = statistics.median(waited_ms[:third]), statistics.median(waited_ms[-third:])
    ends = [at for at in checkpoints if timed[0][0] <= at <= timed[-1][0]]
    checkpoint_ms = statistics.mean((b - a) / 1e6 for a, b in itertools.pairwise(ends))
    figures = quantiles("visible", waited_ms) | {
        "interval_ms": interval_ms,
        "checkpoint_ms": round(checkpoint_ms, 1),
    }
    return figures, checkpoint_ms <= interval_ms * TOLERANCE and late <= early * TOLERANCE


def latency(address: str, args: argparse.Namespace) -> dict[str, float]:
    """Return the figures of a sink that sends records as they come."""
    timed, _ = waited(address, CHECKPOINT_MS, DeliveryGuarantee.AT_LEAST_ONCE, args)
    return quantiles("latency", [ms for _, ms in timed])


def shortest(address: str, args: argparse.Namespace) -> dict[str, float]:
    """Return the figures of the first interval that holds, or of the last one."""
    figures: dict[str, float] = {}
    for interval_ms in args.interval_ms:
        figures, holds = visible(address, interval_ms, args)
        if not args.json:
            print(f"{figures}: {'holds' if holds else 'does not hold'}", flush=True)
        if holds:
            break
    return figures


# --- throughput ----------------------------------------------------------------------------------------


def job_rate(address: str, topic: str, records: int) -> float:
    """Return the records a second of a bounded job."""
    write = new_topic(address)
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        client, _ = started(address, topic, write, directory, CHECKPOINT_MS, bounded=True)
        client.get_job_execution_result().result()
        seconds = time.perf_counter() - began
    found = sum(map(len, committed(address, write, records)))
    assert found == records, f"{found} of {records} records"
    return records / seconds


def plain_rate(address: str, topic: str, records: int) -> float:
    """Return the records a second of a loop that only reads and sends."""
    write = new_topic(address)
    began = time.perf_counter()
    reader = Consumer({"bootstrap.servers": address, "group.id": write, "enable.auto.commit": False})
    starts = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
    reader.assign(starts)
    producer = Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": write,
            "queue.buffering.max.messages": 2 * RECORDS_PER_TRANSACTION,
        }
    )
    producer.init_transactions(60)
    left = records
    while left:
        producer.begin_transaction()
        room = min(left, RECORDS_PER_TRANSACTION)
        left -= room
        while room:
            for message in reader.consume(min(room, RECORDS_PER_CALL), 60):
                producer.produce(write, message.value())
                room -= 1
            producer.poll(0)
        producer.send_offsets_to_transaction(reader.position(starts), reader.consumer_group_metadata(), 60)
        producer.commit_transaction(60)
    seconds = time.perf_counter() - began
    reader.close()
    return records / seconds


def throughput(address: str, args: argparse.Namespace) -> dict[str, float]:
    rates: dict[str, list[float]] = {"job": [], "plain": []}
    topic, small = new_topic(address), new_topic(address)
    send_all(address, topic, args.records)
    send_all(address, small, RECORDS_PER_CALL)
    job_rate(address, small, RECORDS_PER_CALL)  # warms Spark up
    plain_rate(address, small, RECORDS_PER_CALL)
    for _ in range(args.rounds):
        rates["job"].append(job_rate(address, topic, args.records))
        rates["plain"].append(plain_rate(address, topic, args.records))
    return {
        "records_per_s": round(statistics.median(rates["job"])),
        "broker_records_per_s": round(statistics.median(rates["plain"])),
        "ratio_broker": round(
            statistics.median(job / plain for job, plain in zip(rates["job"], rates["plain"], strict=True)), 3
        ),
    }


_numbers = itertools.count()


def new_topic(address: str) -> str:
    return servers.make_topic(address, f"benchmark-{time.time_ns()}-{next(_numbers)}", PARTITIONS)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--servers", help="of Kafka; without it, a broker of its own")
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--interval-ms", type=int, nargs="+", default=[100, 200, 500, 1_000])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", choices=["stages", "pipelined"], default="stages")
    return parser.parse_args()


def main(args: argparse.Namespace) -> None:
    with servers.kafka(args.servers) as address:
        figures = shortest(address, args) | latency(address, args) | throughput(address, args)
    tell(figures, args.json)


if __name__ == "__main__":
    # Workers import the functions from beside this file.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH")]))
    ARGS = parsed()
    ENGINE = ARGS.engine
    SESSION = local_session(PARTITIONS)
    main(ARGS)
