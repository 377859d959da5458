"""A sink of your own: running totals in a SQLite database, each row exactly once whatever is killed when.

    python examples/sqlite_sink.py --database spend.sqlite --checkpoint-dir DIR [--restore latest|PATH]

``prepare`` stores the rows of an epoch where no reader sees them, ``commit`` moves the mark up to which
readers see rows, and ``rewind`` deletes what comes again. Each is one transaction, and may be repeated.
"""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing

from pyflinkstate import Sink, SinkWriter
from pyflinkstate.common import Types
from pyflinkstate.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from pyflinkstate.datastream.state import ValueStateDescriptor

Order = tuple[str, int]
Row = tuple[str, int, int]

SAMPLE: list[Order] = [(f"customer {number * 7 % 5}", number) for number in range(1, 41)]

SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (epoch INTEGER, customer TEXT, amount INTEGER, total INTEGER);
CREATE TABLE IF NOT EXISTS mark (epoch INTEGER);
INSERT INTO mark SELECT 0 WHERE NOT EXISTS (SELECT * FROM mark);
CREATE VIEW IF NOT EXISTS spend AS
    SELECT customer, amount, total FROM rows WHERE epoch <= (SELECT epoch FROM mark);
"""


class SqliteSink(Sink):
    """Writes rows into a database, where readers query the view ``spend``.

    The database belongs to one job. A job that starts from the beginning starts with an empty view.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """Go to the restored checkpoint: its epochs are final, and all later ones come again."""
        self.database = sqlite3.connect(self.path)  # SQLite flushes each transaction to the disk
        self.database.executescript(SCHEMA)
        self.rewind(restored_epoch or 0)
        self.commit(restored_epoch or 0)  # the last run may have been killed before it could

    def writer(self, epoch: int) -> SinkWriter:
        return Rows()

    def prepare(self, epoch: int, results: Iterable[Row]) -> None:
        """Store the rows of an epoch; they replace those that a killed run has stored."""
        with self.database:
            self.database.execute("DELETE FROM rows WHERE epoch = ?", (epoch,))
            self.database.executemany(f"INSERT INTO rows VALUES ({epoch}, ?, ?, ?)", results)

    def commit(self, epoch: int) -> None:
        """Show all epochs up to this one."""
        with self.database:
            self.database.execute("UPDATE mark SET epoch = max(epoch, ?)", (epoch,))

    def rewind(self, epoch: int) -> None:
        """Delete all later epochs, also those that readers have seen."""
        with self.database:
            self.database.execute("DELETE FROM rows WHERE epoch > ?", (epoch,))
            self.database.execute("UPDATE mark SET epoch = min(epoch, ?)", (epoch,))


class Rows:
    """Runs in Spark's tasks. A task may run twice; ``prepare`` gets the results of one run of each."""

    def write(self, partition: int, records: Iterator[Row]) -> Iterator[Row]:
        return records


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
