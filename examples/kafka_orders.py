"""Orders from Kafka: totals into a database, each change into Delta Lake, alerts into Kafka, exactly once.

    python examples/kafka_orders.py --servers HOST:PORT --database URL --checkpoint-dir DIR [--changes DIR]
        [--until-end] [--restore latest|PATH]

Orders are JSON, ``{"user": "ann", "cents": 30}``, in the topic ``orders``. The table ``totals (account,
cents)`` with the primary key ``account`` must exist in the database, whose URL is SQLAlchemy's. The topic
``alerts`` gets a message when an account passes 100 euros; ``dead-letters`` gets each record that is no
order, with the reason. Each output is committed with the checkpoint that covers it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyflinkstate import (
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    SimpleStringSchema,
    Sink,
    Types,
    ValueStateDescriptor,
)

if TYPE_CHECKING:
    from pyflinkstate.connectors import KafkaRecord

ALERTS = OutputTag("alerts", Types.STRING())
DEAD_LETTERS = OutputTag("dead letters", Types.STRING())
LIMIT_CENTS = 100_00
#: The columns of the table of changes.
CHANGES = pa.schema([("account", pa.string()), ("cents", pa.int64())])


class ReadOrder(ProcessFunction):
    """Yields the order of a record of Kafka, or a dead letter that says why there is none."""

    def process_element(self, value: KafkaRecord, ctx: ProcessFunction.Context) -> Iterator[Any]:
        try:
            order = json.loads(value.value or b"")
            yield {"user": str(order["user"]), "cents": int(order["cents"])}
        except (ValueError, KeyError, TypeError) as error:
            place = f"{value.topic}-{value.partition}, offset {value.offset}"
            yield DEAD_LETTERS, json.dumps({"at": place, "reason": repr(error), "value": repr(value.value)})


class Total(KeyedProcessFunction):
    """Yields what an account has spent so far, and an alert when that passes the limit."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: dict[str, Any], ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        before = self.total.value() or 0
        after = before + value["cents"]
        self.total.update(after)
        yield value["user"], after
        if before <= LIMIT_CENTS < after:
            yield ALERTS, json.dumps({"user": value["user"], "cents": after})


def topic_sink(servers: str, topic: str) -> Sink:
    from pyflinkstate.datastream.connectors import DeliveryGuarantee
    from pyflinkstate.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink

    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(topic)
        .build()
    )


def main() -> None:
    # Not in state slots, which need neither Spark nor Kafka.
    from pyflinkstate.connectors import DeltaSink, KafkaOffsetsInitializer, KafkaSource, SqlSink
    from pyflinkstate.datastream import StreamExecutionEnvironment

    parser = argparse.ArgumentParser(description="Totals, changes and alerts of orders from Kafka.")
    parser.add_argument("--servers", required=True, help="the Kafka brokers, HOST:PORT,...")
    parser.add_argument("--database", required=True, help="the URL of the database with the table totals")
    parser.add_argument("--checkpoint-dir", required=True, help="take checkpoints, below this directory")
    parser.add_argument("--changes", help="a table of Delta Lake, which gets each change of a total")
    parser.add_argument("--until-end", action="store_true", help="end with the orders that are there now")
    parser.add_argument("--restore", metavar="latest|PATH", help="a checkpoint or savepoint to start from")
    args = parser.parse_args()

    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.enable_checkpointing(1000, args.checkpoint_dir, incremental=True)
    if args.restore is not None:
        env.restore_from(args.restore)
    orders = KafkaSource.builder().set_bootstrap_servers(args.servers).set_topics("orders")
    orders.set_group_id("totals")
    if args.until_end:
        orders.set_bounded(KafkaOffsetsInitializer.latest())
    read = env.from_source(orders.build(), source_name="orders").process(ReadOrder())
    read.get_side_output(DEAD_LETTERS).sink_to(topic_sink(args.servers, "dead-letters"))
    keyed = read.key_by(lambda order: order["user"])
    totals = keyed.process(Total(), Types.TUPLE([Types.STRING(), Types.LONG()])).uid("totals")
    totals.sink_to(SqlSink(args.database, "totals", ["account", "cents"], key=["account"]))
    totals.get_side_output(ALERTS).sink_to(topic_sink(args.servers, "alerts"))
    if args.changes is not None:
        totals.sink_to(DeltaSink(args.changes, CHANGES))
    env.execute("totals of orders")


if __name__ == "__main__":
    main()
