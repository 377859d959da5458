"""The source that reads tables of databases, on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import postgres_server
import pytest
from databases import Database, sqlite_database
from source_epochs import epochs, first_epoch, records

from pyflinkstate.connectors.sql_source import SqlSource
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, SourceError

XID = "xid xid8 NOT NULL DEFAULT pg_current_xact_id()"


class Changes:
    """A table of changes, with a job that reads it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.has_xids = database.url.startswith("postgresql")
        self.cursor = "xid" if self.has_xids else "id"

    def create(self) -> Changes:
        key = f"bigserial PRIMARY KEY, {XID}" if self.has_xids else "INTEGER PRIMARY KEY AUTOINCREMENT"
        self.database.run(f"CREATE TABLE changes (id {key}, number BIGINT)")
        return self

    def append(self, *numbers: int) -> None:
        """Add rows in one transaction."""
        values = ", ".join(f"({number})" for number in numbers)
        self.database.run(f"INSERT INTO changes (number) VALUES {values}")

    def source(self, **options: Any) -> SqlSource:
        return SqlSource(self.database.url, "changes", self.cursor, **options)


@pytest.fixture
def changes(database: Database) -> Changes:
    return Changes(database).create()


@pytest.fixture
def on_postgresql(postgresql: Database) -> Changes:
    return Changes(postgresql).create()


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Changes:
    return Changes(sqlite_database(tmp_path))


def numbers(source: SqlSource, start: Any = None) -> list[list[int]]:
    return [[row["number"] for row in rows] for _, rows in epochs(source, start)]


# --- rows --------------------------------------------------------------------------------------------------


def test_the_whole_table_comes_first_and_then_what_is_added(changes: Changes) -> None:
    source = changes.source(columns=["number", "id"])
    start = source.initial_offset()
    assert source.latest_offset(start, False).end == start
    assert records(source, start, start) == []
    changes.append(1, 2)
    changes.append(3)
    ((end, rows),) = epochs(source)
    assert rows == [{"number": 1, "id": 1}, {"number": 2, "id": 2}, {"number": 3, "id": 3}]
    assert source.latest_offset(end, False).end == end
    changes.append(4)
    changes.append(5)
    source.check_restored(end)
    assert numbers(source, end) == [[4, 5]]
    changes.database.run("DELETE FROM changes")
    assert source.latest_offset(end, False).end == end, "old rows may be deleted"


def test_epochs_of_so_many_rows_are_read_again_as_they_were(changes: Changes) -> None:
    for number in range(7):
        changes.append(number)
    source = changes.source(max_rows_per_epoch=3)
    read = list(epochs(source))
    assert [[row["number"] for row in rows] for _, rows in read] == [[0, 1, 2], [3, 4, 5], [6]]
    start = source.initial_offset()
    assert source.latest_offset(start, False).is_full
    assert not source.latest_offset(read[1][0], False).is_full
    changes.append(7)
    for end, rows in read:
        assert records(changes.source(), start, end) == rows
        start = end


def test_a_cursor_to_start_with(changes: Changes) -> None:
    for number in range(4):
        changes.append(number)
    ((_, rows),) = epochs(changes.source())
    assert numbers(changes.source(starting_cursor=rows[2][changes.cursor])) == [[2, 3]]


def test_a_bounded_source_ends_with_the_newest_row(changes: Changes) -> None:
    changes.append(1)
    changes.append(2)
    source = changes.source(bounded=True, max_rows_per_epoch=1)
    assert source.is_bounded
    first = source.latest_offset(source.initial_offset(), True)
    assert (first.is_last, first.is_full) == (False, True)
    second = source.latest_offset(first.end, True)
    assert (second.is_last, second.is_full) == (True, False)
    assert source.latest_offset(second.end, True).is_last
    changes.append(3)
    assert numbers(changes.source(bounded=True), second.end) == [[3]]


def test_many_rows_and_the_values_of_columns(changes: Changes) -> None:
    changes.database.run("CREATE SCHEMA sales" if changes.has_xids else "ATTACH ':memory:' AS sales")
    name = "sales.odd" if changes.has_xids else "odd"
    key = f'"Key" int PRIMARY KEY, {XID}' if changes.has_xids else '"Key" INTEGER PRIMARY KEY'
    changes.database.run(f"CREATE TABLE {name} ({key}, day DATE, amount NUMERIC(10, 2), data JSON)")
    for first in range(0, 10_000, 1000):
        rows = ", ".join(f"({number}, '2020-01-02', 1.25, '[1]')" for number in range(first, first + 1000))
        changes.database.run(f'INSERT INTO {name} ("Key", day, amount, data) VALUES {rows}')
    cursor = "xid" if changes.has_xids else "Key"
    ((_, found),) = epochs(SqlSource(changes.database.url, name, cursor))
    assert [row["Key"] for row in found] == list(range(10_000))
    wanted = {"day": date(2020, 1, 2), "amount": Decimal("1.25"), "data": [1]}
    assert {name: found[-1][name] for name in wanted} == wanted


def test_a_relative_path_is_that_of_the_driver(
    on_sqlite: Changes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_sqlite.create().append(1)
    monkeypatch.chdir(tmp_path)
    epoch = first_epoch(SqlSource("sqlite:///data.sqlite", "changes", "id"))
    monkeypatch.chdir("/")
    assert len(list(epoch.read(epoch.splits[0], None))) == 1


# --- the order of commits ----------------------------------------------------------------------------------


@pytest.mark.full
def test_rows_that_commit_out_of_order_are_neither_lost_nor_read_twice(on_postgresql: Changes) -> None:
    source = on_postgresql.source()
    plain = SqlSource(source._url.render_as_string(False), "changes", "id", commits_in_order=True)
    connect = on_postgresql.database.connect
    with closing(connect()) as early, closing(connect()) as late:
        early.execute("INSERT INTO changes (number) VALUES (1)")
        late.execute("INSERT INTO changes (number) VALUES (2)")
        late.commit()
        start, plain_start = source.initial_offset(), plain.initial_offset()
        assert numbers(source, start) == [], "the first transaction is open"
        ((plain_end, rows),) = epochs(plain, plain_start)
        assert [row["number"] for row in rows] == [2]
        early.commit()
    assert numbers(plain, plain_end) == [], "a plain serial column loses the row"
    ((end, rows),) = epochs(source, start)
    assert [row["number"] for row in rows] == [1, 2]
    again = on_postgresql.source()
    again.check_restored(end)
    assert numbers(again, end) == []
    assert records(again, start, end) == rows


@pytest.mark.full
def test_a_transaction_stays_in_one_epoch(on_postgresql: Changes) -> None:
    with closing(on_postgresql.database.connect()) as one:
        one.execute("INSERT INTO changes (number) VALUES (1)")
        with one.transaction():  # a savepoint, with an id of its own
            one.execute("INSERT INTO changes (number) SELECT generate_series(2, 5)")
        one.commit()
    on_postgresql.append(6)
    assert numbers(on_postgresql.source(max_rows_per_epoch=2)) == [[1, 2, 3, 4, 5], [6]]


@pytest.mark.full
def test_rows_of_a_transaction_are_read_in_the_order_of_the_key(on_postgresql: Changes) -> None:
    on_postgresql.database.run(
        "INSERT INTO changes (id, number) SELECT id, id FROM generate_series(9, 1, -1) id"
    )
    assert numbers(on_postgresql.source()) == [list(range(1, 10))]


class Writers:
    """Connections with open transactions."""

    def __init__(self, stack: ExitStack, database: Database) -> None:
        self.connections = [stack.enter_context(closing(database.connect())) for _ in range(4)]
        self.open: list[list[int]] = [[] for _ in self.connections]
        self.committed: list[int] = []
        self.written = 0

    def write(self, at: int) -> None:
        self.written += 1
        self.connections[at].execute(f"INSERT INTO changes (number) VALUES ({self.written})")
        self.open[at].append(self.written)

    def commit(self, at: int) -> None:
        self.connections[at].commit()
        self.committed += self.open[at]
        self.open[at] = []

    def rollback(self, at: int) -> None:
        self.connections[at].rollback()
        self.open[at] = []


class Job:
    """Reads epochs, and keeps them."""

    def __init__(self, changes: Changes, drawn: random.Random) -> None:
        self.changes, self.drawn = changes, drawn
        self.epochs: list[tuple[Any, Any, list[dict[str, Any]]]] = []
        self.offset = self.make().initial_offset()

    def make(self) -> SqlSource:
        self.source = self.changes.source(max_rows_per_epoch=self.drawn.choice([1, 5, 1000]))
        return self.source

    def read(self) -> bool:
        """Read an epoch; return whether there was one."""
        start, self.offset = self.offset, self.source.latest_offset(self.offset, False).end
        self.epochs.append((start, self.offset, records(self.source, start, self.offset)))
        return start != self.offset

    def restart(self) -> None:
        """Go on from one of the epochs."""
        self.make()
        kept = self.drawn.randrange(len(self.epochs) + 1)
        self.offset = self.epochs[kept][0] if kept < len(self.epochs) else self.offset
        del self.epochs[kept:]

    def numbers(self) -> list[int]:
        return sorted(row["number"] for _, _, rows in self.epochs for row in rows)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
def test_transactions_that_interleave_at_random(on_postgresql: Changes, seed: int) -> None:
    """Each step writes, commits, rolls back, reads an epoch, or starts the job again from a checkpoint."""
    drawn = random.Random(seed)
    job = Job(on_postgresql, drawn)
    with ExitStack() as stack:
        writers = Writers(stack, on_postgresql.database)
        for _ in range(300):
            action = drawn.choice([writers.write] * 3 + [writers.commit, writers.rollback, None])
            if action is not None:
                action(drawn.randrange(4))
            elif drawn.random() < 0.8:
                job.read()
            else:
                job.restart()
            assert set(job.numbers()) <= set(writers.committed)
    while job.read():
        pass
    assert job.numbers() == sorted(writers.committed)
    assert all(records(job.source, start, end) == rows for start, end, rows in job.epochs)
    assert len(writers.committed) > 20


# --- what is not right -------------------------------------------------------------------------------------


@pytest.mark.full
def test_columns_that_cannot_be_a_cursor_on_postgresql(postgresql: Database) -> None:
    postgresql.run("CREATE TABLE changes (id bigserial PRIMARY KEY, seq BIGINT, at TIMESTAMP)")

    def refused(cursor: str, message: str, **options: Any) -> None:
        with pytest.raises(ConfigurationError, match=message):
            SqlSource(postgresql.url, "changes", cursor, **options).initial_offset()

    refused("xid", "table changes has no column xid; it has id, seq, at")
    refused(
        "id", r"id is of type BIGINT, and .* are lost: ALTER TABLE changes ADD xid xid8 .*commits_in_order"
    )
    refused("seq", "seq must be the primary key or have a unique index", commits_in_order=True)
    refused("at", "at is of type TIMESTAMP, and must be of integers", commits_in_order=True)
    postgresql.run("CREATE UNIQUE INDEX ON changes (seq)")
    SqlSource(postgresql.url, "changes", "seq", commits_in_order=True).initial_offset()
    postgresql.run("ALTER TABLE changes ADD xid xid8 NOT NULL DEFAULT pg_current_xact_id()")
    SqlSource(postgresql.url, "changes", "xid").initial_offset()
    refused("xid", "xid is of type xid8, and must be of integers", commits_in_order=True)
    postgresql.run("ALTER TABLE changes DROP id")
    refused("xid", "it needs a primary key")


@pytest.mark.full
def test_ids_of_transactions_of_another_server(on_postgresql: Changes) -> None:
    on_postgresql.append(1)
    source = on_postgresql.source()
    ((end, _),) = epochs(source)
    on_postgresql.database.run("INSERT INTO changes (xid, number) VALUES ('99999999', 2)")
    with pytest.raises(ConfigurationError, match="a row with xid = 99999999, a transaction that this server"):
        source.latest_offset(end, False)
    on_postgresql.database.run("UPDATE changes SET xid = pg_current_xact_id() WHERE number = 2")
    assert numbers(source, end) == [[2]]
    with pytest.raises(IncompatibleCheckpointError, match=r"is read from xid = 99999999 on, and ends before"):
        source.check_restored({**end, "next": 99999999})


def test_columns_that_cannot_be_a_cursor_on_sqlite(on_sqlite: Changes) -> None:
    on_sqlite.database.run("CREATE TABLE changes (id BIGINT PRIMARY KEY, number BIGINT, name TEXT)")
    for cursor, message in [
        ("rowid", "has no column rowid; it has id, number, name"),
        ("number", "number must be the primary key or have a unique index"),
        ("name", "name is of type TEXT, and must be of integers"),
    ]:
        with pytest.raises(ConfigurationError, match=message):
            SqlSource(on_sqlite.database.url, "changes", cursor).initial_offset()
    on_sqlite.append(1)  # SQLite numbers rows in columns of type INTEGER only
    with pytest.raises(ConfigurationError, match="has rows without id, which would never be read"):
        on_sqlite.source().initial_offset()


def test_a_table_that_is_made_anew(changes: Changes) -> None:
    changes.append(1)
    changes.append(2)
    source = changes.source()
    ((end, _),) = epochs(source)
    changes.database.run("DROP TABLE changes")
    again = changes.create().source()
    again.initial_offset()
    changes.append(3)
    with pytest.raises(IncompatibleCheckpointError, match=r"the table changes|ends before 2"):
        again.check_restored(end)
    with pytest.raises(IncompatibleCheckpointError):
        source.latest_offset(end, False)
    with pytest.raises(IncompatibleCheckpointError, match="does not fit the table changes"):
        source.check_restored({"offset": 1})


def test_a_table_that_is_not_there(changes: Changes) -> None:
    changes.append(1)
    source = changes.source()
    start = source.initial_offset()
    epoch: Any = source.plan(start, source.latest_offset(start, False).end)
    changes.database.run("DROP TABLE changes")
    with pytest.raises(ConfigurationError, match="there is no table changes"):
        changes.source().initial_offset()
    error = ConfigurationError if changes.has_xids else SourceError
    with pytest.raises(error, match="cannot read rows of the table changes: "):
        list(epoch.read(epoch.splits[0], None))
    with pytest.raises(error, match="cannot look for new rows of the table changes: "):
        source.latest_offset(start, False)


@pytest.mark.full
def test_a_server_that_is_away(server: postgres_server.PostgresServer, on_postgresql: Changes) -> None:
    on_postgresql.append(1)
    source = on_postgresql.source()
    start = source.initial_offset()
    end = source.latest_offset(start, False).end
    epoch: Any = source.plan(start, end)
    actions: list[Callable[[], Any]] = [
        on_postgresql.source().initial_offset,
        lambda: source.latest_offset(end, False),
        lambda: list(epoch.read(epoch.splits[0], None)),
    ]
    server.kill()
    try:
        for action in actions:
            with pytest.raises(
                SourceError, match=r"(?s)cannot .* the table changes: .*See that the server runs"
            ):
                action()
    finally:
        server.start()
    for action in actions:
        action()
    assert [row["number"] for row in records(source, start, end)] == [1]


@pytest.mark.full
def test_a_user_who_may_not_read(on_postgresql: Changes) -> None:
    on_postgresql.database.run("DROP ROLE IF EXISTS nobody")
    on_postgresql.database.run("CREATE ROLE nobody LOGIN")
    on_postgresql.database.run("GRANT USAGE ON SCHEMA public TO PUBLIC")
    url = on_postgresql.database.url.replace("tester@", "nobody@")
    with pytest.raises(ConfigurationError, match=r"permission denied for table changes.*user may read it"):
        SqlSource(url, "changes", "xid").initial_offset()


BAD_ARGUMENTS = {
    "order": ("mysql+pymysql://user:secret@host/x", {}, "in which order mysql commits, .*commits_in_order"),
    "url": ("nosuch://user:secret@host/x", {"commits_in_order": True}, "SQLAlchemy takes no such URL"),
    "no url": ("secret", {"commits_in_order": True}, "SQLAlchemy takes no such URL"),
    "memory": ("sqlite://", {}, "tasks cannot read a database in memory"),
    "columns": ("sqlite:///x", {"columns": "id"}, "columns is a list"),
    "start": ("sqlite:///x", {"starting_cursor": "1"}, "starting_cursor is a whole number"),
    "rows": ("sqlite:///x", {"max_rows_per_epoch": 0}, "max_rows_per_epoch must be"),
    "cursor": ("sqlite:///x", {"cursor": ""}, "cursor must be a non-empty string"),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_bad_arguments(name: str) -> None:
    url, options, message = BAD_ARGUMENTS[name]
    with pytest.raises(ConfigurationError, match=message) as caught:
        SqlSource(url, "changes", **{"cursor": "id", **options})
    assert "user:secret" not in str(caught.value)
