"""Change data capture: a table of a database is copied into another one, change by change, exactly once.

    python examples/change_data_capture.py --source FILE --target FILE --checkpoint-dir DIR
        [--restore latest|PATH]

Triggers write each change of the table ``customers`` to the table ``changes``, from which the job reads. It
ends when it has read all of them; with ``--restore latest`` it goes on with those that were added since.
"""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from pyflinkstate import KeyedProcessFunction, Row, RowKind, RuntimeContext, Types, ValueStateDescriptor

SCHEMA = """
CREATE TABLE IF NOT EXISTS customers (name TEXT PRIMARY KEY, city TEXT);
CREATE TABLE IF NOT EXISTS changes (id INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT, name TEXT, city TEXT);
CREATE TRIGGER IF NOT EXISTS inserted AFTER INSERT ON customers
    BEGIN INSERT INTO changes (op, name, city) VALUES ('insert', new.name, new.city); END;
CREATE TRIGGER IF NOT EXISTS updated AFTER UPDATE OF city ON customers
    BEGIN INSERT INTO changes (op, name, city) VALUES ('update', new.name, new.city); END;
CREATE TRIGGER IF NOT EXISTS deleted AFTER DELETE ON customers
    BEGIN INSERT INTO changes (op, name, city) VALUES ('delete', old.name, NULL); END;
"""
#: What somebody does to the customers before the job reads.
EDITS = """
INSERT INTO customers VALUES ('ann', 'Rome'), ('bob', 'Oslo'), ('eve', 'Bern')
    ON CONFLICT (name) DO UPDATE SET city = excluded.city;
UPDATE customers SET city = 'Paris' WHERE name = 'ann';
DELETE FROM customers WHERE name = 'bob';
"""
KINDS = {"insert": RowKind.INSERT, "update": RowKind.UPDATE_AFTER, "delete": RowKind.DELETE}


class Newest(KeyedProcessFunction):
    """Yields the row that a change has made, unless a newer change of the same row came before.

    That can happen on PostgreSQL, if two transactions overlap.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        self.newest = runtime_context.get_state(ValueStateDescriptor("newest change", Types.LONG()))

    def process_element(self, value: dict[str, Any], ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        if value["id"] > (self.newest.value() or 0):
            self.newest.update(value["id"])
            yield Row.of_kind(KINDS[value["op"]], value["name"], value["city"])


def main() -> None:
    from pyflinkstate.connectors import SqlSink, SqlSource  # not in state slots, which need no database
    from pyflinkstate.datastream import StreamExecutionEnvironment

    parser = argparse.ArgumentParser(description="Copy a table into another database, change by change.")
    parser.add_argument("--source", required=True, help="the SQLite file with the table and its changes")
    parser.add_argument("--target", required=True, help="the SQLite file that gets a copy of the table")
    parser.add_argument("--checkpoint-dir", required=True, help="take checkpoints, below this directory")
    parser.add_argument("--restore", metavar="latest|PATH", help="a checkpoint or savepoint to start from")
    args = parser.parse_args()
    with closing(sqlite3.connect(args.source)) as database:
        database.executescript(SCHEMA + EDITS)
    with closing(sqlite3.connect(args.target)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS customers (name TEXT PRIMARY KEY, city TEXT)")

    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.enable_checkpointing(1000, args.checkpoint_dir)
    if args.restore is not None:
        env.restore_from(args.restore)
    source = SqlSource(f"sqlite:///{args.source}", "changes", "id", bounded=True)
    changes = env.from_source(source, source_name="changes").key_by(lambda change: change["name"])
    sink = SqlSink(f"sqlite:///{args.target}", "customers", ["name", "city"], key=["name"])
    changes.process(Newest()).uid("newest").sink_to(sink)
    env.execute("change data capture")
    with closing(sqlite3.connect(args.target)) as database:
        for name, city in database.execute("SELECT * FROM customers ORDER BY name"):
            print(name, city)


if __name__ == "__main__":
    main()
