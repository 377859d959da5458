"""Counts words from topic to topic, and kills its driver with ``kill -9`` at one step of the sink.

    python kafka_program.py SERVERS FROM TO CHECKPOINTS STEP EPOCH

STEP is ``before`` or ``after``: the commit of the transaction of an epoch from EPOCH on. With ``never`` the
program runs to its end.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from pyflinkstate import KeyedProcessFunction, StreamExecutionEnvironment, Types, ValueStateDescriptor
from pyflinkstate.api import SimpleStringSchema
from pyflinkstate.connectors.kafka_sink import TransactionalKafkaSink
from pyflinkstate.datastream.connectors import DeliveryGuarantee
from pyflinkstate.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)


class Count(KeyedProcessFunction):
    """Yields each word with the number of times that it has come."""

    def open(self, runtime_context) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: object) -> Iterator[str]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{value} {count}"


def kill_at(step: str, wanted: int) -> None:
    write = TransactionalKafkaSink.write

    def killing(sink: TransactionalKafkaSink, epoch: int, batches: object) -> None:
        sender = sink._sender
        if epoch >= wanted and step == "before":
            sender.commit = lambda: os.kill(os.getpid(), signal.SIGKILL)
        write(sink, epoch, batches)
        if epoch >= wanted and step == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    TransactionalKafkaSink.write = killing


def main() -> None:
    _, servers, read, write, checkpoints, step, epoch = sys.argv
    kill_at(step, int(epoch))
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.enable_checkpointing(0, checkpoints)
    if any(Path(checkpoints).glob("*/chk-*/_metadata")):
        env.restore_from("latest")
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(read)
        .set_group_id(f"{read}-group")
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .set_max_records_per_epoch(20)
        .build()
    )
    schema = KafkaRecordSerializationSchema.builder().set_topic(write)
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("counts")
        .build()
    )
    words = env.from_source(source, source_name="words")
    words.key_by(lambda word: word).process(Count(), Types.STRING()).uid("counts").sink_to(sink)
    env.execute("counts")


if __name__ == "__main__":
    main()
