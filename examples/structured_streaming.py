"""Structured Streaming: a streaming DataFrame goes in, keyed state and timers come after it.

    python examples/structured_streaming.py [--input DIR] [--parallelism N] [--checkpoint-dir DIR]

Spark's reader finds new files and cuts them into batches; each batch is an epoch. Run again with the same
--checkpoint-dir the job goes on where both Spark and the state were, and reads what is new.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import command_line
from made_up_retail import make_days
from pyspark.sql import DataFrame, SparkSession

from pyflinkstate.common import Types
from pyflinkstate.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from pyflinkstate.datastream.state import ValueStateDescriptor

SCHEMA = """
    InvoiceNo string, StockCode string, Description string, Quantity int, InvoiceDate timestamp,
    UnitPrice double, CustomerID string, Country string
"""
STEP_CENTS = 1_000_00


class Milestone(NamedTuple):
    customer: str
    cents: int


class Milestones(KeyedProcessFunction):
    """Tells when a customer has spent another thousand."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.spent = runtime_context.get_state(ValueStateDescriptor("spent_cents", Types.LONG()))

    def process_element(
        self, value: tuple[str, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[Milestone]:
        customer, cents = value
        before = self.spent.value() or 0
        self.spent.update(before + cents)
        for step in range(before // STEP_CENTS + 1, (before + cents) // STEP_CENTS + 1):
            yield Milestone(customer, step * STEP_CENTS)


def read(spark: SparkSession, directory: str) -> DataFrame:
    """Return the sold lines of a directory as a streaming DataFrame: one file a batch, no returns."""
    reader = spark.readStream.schema(SCHEMA).options(header=True, escape='"', maxFilesPerTrigger=1)
    return reader.csv(directory).where("CustomerID is not null and Quantity > 0")


def customer_and_cents(row: Any) -> tuple[str, int]:
    return row.CustomerID, round(row.UnitPrice * 100) * row.Quantity


def build(lines: DataStream) -> DataStream:
    """Return the milestones; records are Spark's rows."""
    spent = lines.map(customer_and_cents).key_by(lambda pair: pair[0], key_type=Types.STRING())
    return spent.process(Milestones()).uid("milestones")


def main() -> None:
    args = command_line.parse("Read a streaming DataFrame.")
    with tempfile.TemporaryDirectory() as folder:
        args.checkpoint_dir = args.checkpoint_dir or f"{folder}/checkpoints"
        if args.input is None:
            args.input = f"{folder}/days"
            make_days(Path(args.input), days=4, lines_a_day=200)
        env = command_line.environment(args)
        stream = read(SparkSession.active(), args.input)
        build(env.from_streaming(stream, trigger={"availableNow": True})).print()
        env.execute("milestones")


if __name__ == "__main__":
    main()
