"""The sink into databases, on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import postgres_server
import pytest
from databases import Database, sqlite_database

from pyflinkstate import Row
from pyflinkstate.api import RowKind
from pyflinkstate.connectors.sql_sink import MARKERS, SqlSink
from pyflinkstate.errors import (
    BadRecordError,
    ConfigurationError,
    JobSupersededError,
    SinkError,
    SinkStorageError,
)
from pyflinkstate.testing import check_sink

JOB = "a" * 32
DDL = "CREATE TABLE IF NOT EXISTS {} (name TEXT {}, number BIGINT)"


def sink(database: Database, tmp_path: Path, *, key: list[str] | None = None, **more: Any) -> SqlSink:
    database.run(DDL.format("numbers", "PRIMARY KEY" if key else ""))
    columns = ["name", "number"]
    return SqlSink(database.url, "numbers", columns, key=key or [], staging=tmp_path / "staging", **more)


def committed(made: SqlSink, epoch: int, *records: Any) -> None:
    results = list(made.writer(epoch).write(0, iter(records)))
    made.prepare(epoch, results)
    made.commit(epoch)


def rows(database: Database) -> Counter[Any]:
    return Counter(tuple(row) for row in database.run("SELECT name, number FROM numbers"))


@pytest.mark.parametrize("key", [[], ["name"]], ids=["append", "upsert"])
def test_contract(database: Database, key: list[str]) -> None:
    def make(table: str) -> SqlSink:
        database.run(DDL.format(table, "PRIMARY KEY" if key else ""))
        return SqlSink(database.url, table, ["name", "number"], key=key)

    def read(table: str) -> list[str]:
        return [name for (name,) in database.run(f"SELECT name FROM {table}")]

    check_sink(make, read, lambda text: (text, 1))


def test_rows_are_replaced_and_deleted_by_key(database: Database, tmp_path: Path) -> None:
    made = sink(database, tmp_path, key=["name"])
    made.open(JOB, None)
    committed(made, 1, ("ann", 1), {"name": "bob", "number": 1}, ("ann", 2), ("eve", 1))
    assert rows(database) == Counter([("ann", 2), ("bob", 1), ("eve", 1)])
    committed(
        made,
        2,
        Row.of_kind(RowKind.UPDATE_BEFORE, "bob", 1),
        Row.of_kind(RowKind.UPDATE_AFTER, "bob", 2),
        Row.of_kind(RowKind.DELETE, "ann", 2),
        Row.of_kind(RowKind.DELETE, "eve", 1),
        ("eve", 3),
    )
    assert rows(database) == Counter([("bob", 2), ("eve", 3)])


def test_rows_that_are_only_a_key(database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE names (name TEXT PRIMARY KEY)")
    made = SqlSink(database.url, "names", ["name"], key=["name"], staging=tmp_path / "staging")
    made.open(JOB, None)
    committed(made, 1, ("ann",), ("bob",))
    committed(made, 2, ("ann",), Row.of_kind(RowKind.DELETE, "bob"))
    assert database.run("SELECT name FROM names") == [("ann",)]


def test_a_key_must_not_be_null(tmp_path: Path) -> None:
    """A database takes two of them for different keys, so the row would be there twice."""
    path = tmp_path / "data.sqlite"
    made = sink(Database(f"sqlite:///{path}", lambda: sqlite3.connect(path)), tmp_path, key=["name"])
    made.open(JOB, None)
    with pytest.raises(BadRecordError, match="its key 'name' is None"):
        list(made.writer(1).write(0, iter([(None, 1)])))


def test_other_columns_of_a_replaced_row_stay(database: Database, tmp_path: Path) -> None:
    made = sink(database, tmp_path, key=["name"])
    database.run("ALTER TABLE numbers ADD note TEXT")
    database.run("INSERT INTO numbers VALUES ('ann', 1, 'hers')")
    made.open(JOB, None)
    committed(made, 1, ("ann", 2))
    assert database.run("SELECT * FROM numbers") == [("ann", 2, "hers")]


def test_two_jobs_write_to_one_table(database: Database, tmp_path: Path) -> None:
    for number, job in enumerate([JOB, "b" * 32]):
        made = sink(database, tmp_path)
        made.open(job, None)
        committed(made, 1, ("ann", number))
    assert rows(database) == Counter([("ann", 0), ("ann", 1)])


BAD_RECORDS = {
    "fields": ({"name": "ann"}, "its fields are"),
    "number": (("ann", 1, 2), "it has 3 fields"),
    "type": ("ann", "records must be dicts, tuples, lists or Rows"),
    "more fields": (Row(name="ann", number=1, more=2), "it has 3 fields"),
    "kind": (Row.of_kind(RowKind.DELETE, "ann", 1), "needs a sink with a key"),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_a_bad_record_is_refused_before_it_is_staged(tmp_path: Path, name: str) -> None:
    record, message = BAD_RECORDS[name]
    made = sink(sqlite_database(tmp_path), tmp_path)
    made.open(JOB, None)
    with pytest.raises(BadRecordError, match=message):
        list(made.writer(1).write(0, iter([record])))


def test_what_a_table_refuses_stays_staged(database: Database, tmp_path: Path) -> None:
    made = sink(database, tmp_path)
    database.run("CREATE UNIQUE INDEX one ON numbers (name)")
    made.open(JOB, None)
    with pytest.raises(SinkError, match=r"(?is)cannot write epoch 1: .*unique.*mend the table") as caught:
        committed(made, 1, ("ann", 1), ("ann", 2))
    assert not isinstance(caught.value, SinkStorageError)
    database.run("DROP INDEX one")
    sink(database, tmp_path).open(JOB, 1)
    assert rows(database) == Counter([("ann", 1), ("ann", 2)])


def test_a_table_that_is_not_there_or_has_other_columns(database: Database, tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="there is no table nobody"):
        SqlSink(database.url, "nobody", ["name"], staging=tmp_path).open(JOB, None)
    database.run(DDL.format("numbers", ""))
    with pytest.raises(SinkError, match="table numbers has no column age, size; it has name, number"):
        SqlSink(database.url, "numbers", ["age", "name", "size"], staging=tmp_path).open(JOB, None)


def test_a_marker_that_was_removed(database: Database, tmp_path: Path) -> None:
    made = sink(database, tmp_path)
    made.open(JOB, None)
    committed(made, 1, ("ann", 1))
    database.run(f"DELETE FROM {MARKERS}")
    with pytest.raises(SinkError, match="marker in the target was at epoch 1, and is gone"):
        committed(made, 2, ("ann", 2))
    with pytest.raises(SinkError, match="was removed from the target"):
        sink(database, tmp_path).open(JOB, 2)
    assert rows(database) == Counter([("ann", 1)])
    sink(database, tmp_path, name="again").open(JOB, 2)


@pytest.mark.full
def test_a_server_that_is_away(
    server: postgres_server.PostgresServer, postgresql: Database, tmp_path: Path
) -> None:
    made = sink(postgresql, tmp_path)
    made.open(JOB, None)
    server.kill()
    again = SqlSink(server.url, "numbers", ["name", "number"], staging=tmp_path / "staging")
    try:
        with pytest.raises(SinkStorageError, match="cannot read its marker"):
            committed(made, 1, ("ann", 1))
        with pytest.raises(SinkStorageError):
            again.open(JOB, 1)
    finally:
        server.start()
    again.open(JOB, 1)
    assert rows(postgresql) == Counter([("ann", 1)])


@pytest.mark.full
def test_a_server_that_dies_in_a_transaction(
    server: postgres_server.PostgresServer,
    postgresql: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = sink(postgresql, tmp_path)
    made.open(JOB, None)
    write_rows = made._write_rows

    def dying(*arguments: Any) -> None:
        write_rows(*arguments)
        server.kill()

    with monkeypatch.context() as patched:
        patched.setattr(made, "_write_rows", dying)
        with pytest.raises(SinkStorageError, match="cannot write epoch 1"):
            committed(made, 1, ("ann", 1))
    server.start()
    made.commit(1)
    assert rows(postgresql) == Counter([("ann", 1)])


BAD_ARGUMENTS = {
    "no columns": (["table", []], "columns must be different names"),
    "twice": (["table", ["a", "a"]], "columns must be different names"),
    "a string": (["table", "a"], "columns is a list"),
}


@pytest.mark.full
def test_a_driver_that_is_frozen_in_a_transaction_does_not_hold_up_a_newer_one(
    postgresql: Database, tmp_path: Path
) -> None:
    older, newer = sink(postgresql, tmp_path), sink(postgresql, tmp_path)
    older.open(JOB, None)
    is_frozen, goes_on = threading.Event(), threading.Event()

    def batches() -> Iterator[list[Any]]:
        yield [("ann", 1)]
        is_frozen.set()
        goes_on.wait()

    with ThreadPoolExecutor() as pool:
        try:
            writing = pool.submit(older.write, 1, batches())
            assert is_frozen.wait(60)
            pool.submit(newer.open, JOB, None).result(60)
            committed(newer, 1, ("bob", 2))
        finally:
            goes_on.set()
        with pytest.raises(SinkStorageError):
            writing.result()
    assert rows(postgresql) == Counter([("bob", 2)])
    with pytest.raises(JobSupersededError):
        older.write(1, iter([[("ann", 1)]]))
    newer.write(2, iter([[("eve", 3)]]))  # and the older one has not ended its session
    assert rows(postgresql) == Counter([("bob", 2), ("eve", 3)])


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_bad_arguments(name: str) -> None:
    arguments, message = BAD_ARGUMENTS[name]
    with pytest.raises(ConfigurationError, match=message):
        SqlSink("sqlite://", *arguments)


def test_a_bad_url_is_not_shown() -> None:
    for url in ("no url with secret", "nosuch://user:secret@host/x"):
        with pytest.raises(ConfigurationError, match="SQLAlchemy takes no such URL") as caught:
            SqlSink(url, "table", ["a"])
        assert "user:secret" not in str(caught.value)
