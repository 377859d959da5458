"""A sink of your own: running totals in a SQLite database, each row exactly once whatever is killed when.

    python examples/sqlite_sink.py --database spend.sqlite --checkpoint-dir DIR [--restore latest|PATH]

A ``TransactionalSink`` needs two methods: one writes the rows of an epoch and its number in one transaction,
the other says which number is there. Everything else is done for it: rows wait in the checkpoint directory
until their checkpoint is complete, and what a killed driver has not written its successor writes.
"""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing

from pyflinkstate import TransactionalSink
from pyflinkstate.common import Types
from pyflinkstate.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from pyflinkstate.datastream.state import ValueStateDescriptor

Order = tuple[str, int]
Row = tuple[str, int, int]

SAMPLE: list[Order] = [(f"customer {number * 7 % 5}", number) for number in range(1, 41)]

SCHEMA = """
CREATE TABLE IF NOT EXISTS spend (customer TEXT, amount INTEGER, total INTEGER);
CREATE TABLE IF NOT EXISTS marker (job TEXT PRIMARY KEY, run TEXT, epoch INTEGER);
"""


class SqliteSink(TransactionalSink):
    """Appends rows to the table ``spend`` of a database."""

    def __init__(self, path: str) -> None:
        super().__init__("spend")
        self.path = path

    def committed_epoch(self) -> int | None:
        """Return the epoch of the marker, which belongs to this run of the job from now on."""
        self.database = sqlite3.connect(self.path)  # SQLite flushes each transaction to the disk
        self.database.executescript(SCHEMA)
        with self.database:
            return self.claim()

    def claim(self) -> int | None:
        # A write comes first: it locks the database, so nobody changes the marker after it was read.
        self.database.execute("UPDATE marker SET epoch = epoch WHERE job = ?", (self.job_id,))
        query = "SELECT run, epoch FROM marker WHERE job = ?"
        for run, epoch in self.database.execute(query, (self.job_id,)):
            self.check_run(run)
            self.database.execute("UPDATE marker SET run = ? WHERE job = ?", (self.run, self.job_id))
            return epoch
        return None

    def write(self, epoch: int, batches: Iterable[list[Row]]) -> None:
        """Write the rows of an epoch and the marker, in one transaction."""
        with self.database:
            self.claim()
            for rows in batches:
                self.database.executemany("INSERT INTO spend VALUES (?, ?, ?)", rows)
            marker = (self.job_id, self.run, epoch)
            self.database.execute("INSERT OR REPLACE INTO marker VALUES (?, ?, ?)", marker)


class Spend(KeyedProcessFunction):
    """Adds up what each customer spends."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Order, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        customer, amount = value
        total = (self.total.value() or 0) + amount
        self.total.update(total)
        yield customer, amount, total


def build(orders: DataStream) -> DataStream:
    """Return each order with what its customer has spent so far."""
    return orders.key_by(lambda order: order[0], key_type=Types.STRING()).process(Spend()).uid("spend")


def main() -> None:
    from pyflinkstate.datastream import StreamExecutionEnvironment  # not in state slots, which need no Spark

    parser = argparse.ArgumentParser(description="Write what customers spend into a SQLite database.")
    parser.add_argument("--database", required=True, help="the file of the database")
    parser.add_argument("--checkpoint-dir", required=True, help="take checkpoints, below this directory")
    parser.add_argument("--restore", metavar="latest|PATH", help="a checkpoint or savepoint to start from")
    args = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.enable_checkpointing(0, args.checkpoint_dir)
    if args.restore is not None:
        env.restore_from(args.restore)
    build(env.from_collection(SAMPLE, records_per_epoch=2)).sink_to(SqliteSink(args.database))
    env.execute("sqlite sink")
    with closing(sqlite3.connect(args.database)) as database:
        query = "SELECT customer, max(total) FROM spend GROUP BY customer ORDER BY customer"
        for customer, total in database.execute(query):
            print(customer, total)


if __name__ == "__main__":
    main()
