"""The sink into Iceberg, with the library's SQL catalog on SQLite."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_support import TABLE, Lake
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.table import Transaction
from pyiceberg.types import StringType
from support_sinks import JOB, history
from table_sinks import SCHEMA, prepare, run

from pyflinkstate import Row, RowKind
from pyflinkstate.connectors import iceberg_sink
from pyflinkstate.connectors.iceberg_sink import IcebergSink
from pyflinkstate.errors import (
    BadRecordError,
    ConfigurationError,
    JobSupersededError,
    SinkError,
    SinkStorageError,
)
from pyflinkstate.testing import check_sink


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("key", [None, ["text"]], ids=["append", "upsert"])
def test_contract(lake: Lake, key: list[str] | None) -> None:
    schema = pa.schema([("text", pa.string())])
    check_sink(
        lambda name: IcebergSink(lake.properties, f"ns.{name}", schema, key=key),
        lambda name: lake.catalog.load_table(f"ns.{name}").scan().to_arrow()["text"].to_pylist(),
        lambda text: {"text": text},
    )


# --- what readers see ----------------------------------------------------------------------------------


def test_pyarrow_and_duckdb_read_what_is_committed(lake: Lake) -> None:
    sink = lake.opened()
    run(sink, 1, 1, 2)
    prepare(sink, 2, [("day5", 5)])
    assert lake.rows == [{"day": "day0", "amount": 2}, {"day": "day1", "amount": 1}]
    orders = lake.table.scan().to_arrow()
    assert duckdb.sql("SELECT day, sum(amount) FROM orders GROUP BY day ORDER BY day").fetchall() == [
        ("day0", 2),
        ("day1", 1),
    ]
    files = [task.file.file_path for task in lake.table.scan().plan_files()]
    assert pq.read_table(files).num_rows == orders.num_rows == 2


def test_columns_of_all_kinds_come_back(lake: Lake) -> None:
    row = {
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=timezone.utc),
        "price": Decimal("-1.50"),
        "ok": True,
        "raw": b"\xff\x00",
        "tags": ["a", None],
        "where": {"x": 1},
    }
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(10, 2)),
            ("ok", pa.bool_()),
            ("raw", pa.binary()),
            ("tags", pa.list_(pa.string())),
            ("where", pa.struct([("x", pa.int32())])),
        ]
    )
    sink = lake.opened(schema=schema)
    prepare(sink, 1, [row, dict.fromkeys(row)])
    sink.commit(1)
    assert lake.table.scan().to_arrow().to_pylist() == [row, dict.fromkeys(row)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["", "a/b=c", "é", None, "x" * 4096]),
        (pa.date32(), [date(1960, 1, 1), date(2024, 1, 1), None]),
        (pa.timestamp("us", "UTC"), [datetime(1960, 1, 1, 0, 0, 0, 123456, tzinfo=timezone.utc), None]),
        (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("1.50")]),
        (pa.bool_(), [True, False, None]),
        (pa.int32(), [-3, 0, None]),
    ],
    ids=str,
)
def test_readers_find_the_rows_of_a_partition(lake: Lake, kind: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([("part", kind), ("amount", pa.int64())])
    sink = lake.opened(schema=schema, partition_by=["part"])
    prepare(sink, 1, [(value, number) for _ in range(2) for number, value in enumerate(values)])
    sink.commit(1)
    assert len(list(lake.table.scan().plan_files())) == len(values)
    for number, value in enumerate(values):
        scan = lake.table.scan(IsNull("part") if value is None else EqualTo("part", value))
        assert scan.to_arrow().to_pylist() == [{"part": value, "amount": number}] * 2
        assert len(list(scan.plan_files())) == 1


def test_a_value_without_statistics_is_no_partition(lake: Lake) -> None:
    """The library would take it for null, and readers that look for it would find nothing."""
    sink = lake.opened(partition_by=["day"])
    with pytest.raises(BadRecordError, match="partition column 'day' has more than 4096 bytes"):
        prepare(sink, 1, [("y" * 4096, 1), (None, 1), ("x" * 4097, 1)])


# --- the table -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ([("day", pa.string()), ("price", pa.int64())], "column 'amount' is not in the table"),
        ([("day", pa.string()), ("amount", pa.int32())], "column 'amount' has int32, not int64"),
        ([pa.field("day", pa.string(), False), ("amount", pa.int64())], "'day' must not be null"),
        (
            [("day", pa.string()), ("amount", pa.int64()), pa.field("id", pa.int64(), False)],
            "'id' is not in the sink, and must not be null",
        ),
    ],
)
def test_a_table_of_other_columns_is_refused(lake: Lake, columns: list[Any], problem: str) -> None:
    lake.create(pa.schema(columns))
    with pytest.raises(SinkError, match=rf"the table sales.orders does not fit: .*{problem}") as caught:
        lake.opened()
    assert not isinstance(caught.value, SinkStorageError)


@pytest.mark.parametrize("given", [[], ["day"], ["amount"]], ids=str)
@pytest.mark.parametrize("there", [[], ["day"]], ids=str)
def test_a_table_of_other_partitions_is_refused(lake: Lake, there: list[str], given: list[str]) -> None:
    table = lake.create()
    with table.update_spec() as spec:
        for column in there:
            spec.add_identity(column)
    if there == given:
        run(lake.opened(partition_by=given), 1, 1)
        assert lake.amounts == [1]
    else:
        with pytest.raises(SinkError, match=r"it is partitioned by .*, not by"):
            lake.opened(partition_by=given)


def test_further_columns_are_null_and_may_come_while_the_job_runs(lake: Lake) -> None:
    sink = lake.opened()
    run(sink, 1, 1)
    with lake.table.update_schema() as columns:
        columns.add_column("note", StringType())
    run(sink, 2, 2)
    run(lake.opened(2, 2), 3, 3)
    assert [row["note"] for row in lake.rows] == [None] * 3


def test_a_type_that_iceberg_does_not_have_is_refused(lake: Lake) -> None:
    with pytest.raises(SinkError, match=r"cannot open the table .*Check the table"):
        lake.opened(schema=pa.schema([("a", pa.duration("s"))]))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"catalog": "prod"}, "catalog is a dict"),
        ({"table": "orders"}, 'must be "namespace.table"'),
        ({"table": ".orders"}, 'must be "namespace.table"'),
        ({"partition_by": ["price"]}, "must not have a column of double, such as 'price'"),
        ({"key": ["price"]}, "must not have a column of double, such as 'price'"),
        ({"key": ["tags"]}, "must not have a column of list"),
        ({"partition_by": ["raw"]}, "must not have a column of binary, such as 'raw'"),
        ({"key": ["nothing"]}, "key must be some of the columns"),
        ({"key": []}, "key must be some of the columns"),
        ({"key": "day"}, "key is a list"),
        ({"expire_after_ms": 0}, "expire_after_ms"),
        ({"name": "a b"}, "a name has letters"),
        ({"schema": ["day"]}, "schema must be a pyarrow.Schema"),
    ],
    ids=str,
)
def test_wrong_arguments(options: dict[str, Any], problem: str) -> None:
    schema = pa.schema(
        [
            ("day", pa.string()),
            ("price", pa.float64()),
            ("tags", pa.list_(pa.string())),
            ("raw", pa.binary()),
        ]
    )
    arguments = {"catalog": {"name": "prod"}, "table": TABLE, "schema": schema, **options}
    with pytest.raises(ConfigurationError, match=problem):
        IcebergSink(**arguments)


def test_a_catalog_that_is_away_may_come_back(lake: Lake) -> None:
    sink = lake.opened()
    prepare(sink, 1, [("a", 1)])
    database = lake.folder / "catalog.db"
    database.rename(lake.folder / "away.db")
    database.mkdir()
    with pytest.raises(SinkStorageError, match=r"cannot change the table sales\.orders: OperationalError"):
        sink.commit(1)
    with pytest.raises(SinkStorageError, match="cannot open the table"):
        lake.opened(2, 1)
    database.rmdir()
    (lake.folder / "away.db").rename(database)
    sink.commit(1)
    assert lake.amounts == [1]


def test_a_rest_catalog_that_is_away(lake: Lake) -> None:
    sink = IcebergSink({"type": "rest", "uri": "http://127.0.0.1:9"}, TABLE, SCHEMA, staging=lake.folder)
    with pytest.raises(SinkStorageError, match="Try again when the catalog"):
        sink.open_run(JOB, history((1, 0)), None)


def test_a_table_that_was_dropped(lake: Lake) -> None:
    sink = lake.opened()
    run(sink, 1, 1)
    prepare(sink, 2, [("a", 2)])
    lake.catalog.drop_table(TABLE)
    with pytest.raises(SinkError, match="NoSuchTableError"):
        sink.commit(2)
    with pytest.raises(SinkError, match=r"its marker for job .* was removed"):
        lake.opened(2, 1)


def test_a_marker_that_was_changed(lake: Lake) -> None:
    sink = lake.opened()
    run(sink, 1, 1)
    prepare(sink, 2, [("a", 2)])
    (name,) = [name for name in lake.table.properties if name.startswith("pyflinkstate.")]
    with lake.table.transaction() as transaction:
        transaction.set_properties({name: "{"})
    with pytest.raises(SinkError, match=f"the property '{name}' of the table sales.orders is damaged"):
        sink.commit(2)
    with lake.table.transaction() as transaction:
        transaction.remove_properties(name)
    with pytest.raises(SinkError, match="another program has changed the property"):
        sink.publish(2, [])
    with pytest.raises(SinkError, match="its marker in the target was at epoch 1, and is gone"):
        sink.commit(2)


# --- several drivers, jobs and writers -------------------------------------------------------------------


class Between:
    """Calls a function in each of some commits, after the transaction has been made from a table."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *calls: Callable[[], object]) -> None:
        commit = Transaction.commit_transaction
        waiting = list(calls)

        def commit_transaction(transaction: Transaction) -> Any:
            if waiting:
                waiting.pop(0)()
            return commit(transaction)

        monkeypatch.setattr(Transaction, "commit_transaction", commit_transaction)


@pytest.mark.parametrize("key", [None, ["amount"]], ids=["append", "upsert"])
def test_an_older_driver_does_not_commit_with_what_it_has_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, key: list[str] | None
) -> None:
    """It has checked the marker, and made its transaction, when a newer driver takes over."""
    old = lake.opened(key=key)
    run(old, 1, 1)
    prepare(old, 2, [("old", 2)])
    newer: list[IcebergSink] = []
    Between(monkeypatch, lambda: newer.append(lake.opened(2, 1, key=key)))
    with pytest.raises(JobSupersededError, match="has taken over"):
        old.commit(2)
    assert lake.amounts == [1]
    run(newer[0], 2, 3)
    assert lake.amounts == [1, 3]


def test_an_older_driver_does_not_commit_where_a_newer_one_has_gone_back_to(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest snapshot must not be again the one that the older driver has read."""
    old = lake.opened()
    run(old, 1, 1)
    prepare(old, 2, [("old", 2)])

    def take_over() -> None:
        newer = lake.opened(2, 1)
        run(newer, 2, 3)
        lake.opened(3, 1)

    Between(monkeypatch, take_over)
    with pytest.raises(JobSupersededError):
        old.commit(2)
    assert lake.amounts == [1]


def test_the_takeover_waits_for_a_commit_that_comes_before_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that has read the marker of epoch 1 must not write it again when it takes over."""
    old = lake.opened()
    run(old, 1, 1)
    staged = prepare(old, 2, [("old", 2)])
    Between(monkeypatch, lambda: old.publish(2, staged))
    lake.opened(2, 2)
    assert lake.amounts == [1, 2]
    assert '"epoch": 2' in next(text for name, text in lake.table.properties.items() if JOB in name)


def test_two_jobs_and_another_writer_share_a_table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "b" * 32
    sinks = {job: lake.opened(job=job, staging=lake.folder / job) for job in (JOB, other)}
    prepare(sinks[other], 1, [("other", 2)])
    Between(monkeypatch, lambda: sinks[other].commit(1), lambda: None, lambda: lake.append(3))
    run(sinks[JOB], 1, 1)
    assert lake.amounts == [1, 2, 3]
    for job in sinks:
        run(lake.opened(2, 1, job, staging=lake.folder / job), 2, 4)
    assert lake.amounts == [1, 2, 3, 4, 4]
    assert "commit.retry.num-retries" not in lake.table.properties


def test_a_table_that_changes_all_the_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = lake.opened()
    prepare(sink, 1, [("a", 1)])

    def refuse(transaction: Transaction) -> None:
        raise CommitFailedException("changed")

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "commit_transaction", refuse)
        with pytest.raises(SinkStorageError, match="changed by others during each of 20 attempts"):
            sink.commit(1)
    sink.commit(1)
    assert lake.amounts == [1]


@pytest.mark.parametrize("error", [CommitStateUnknownException("504"), CommitFailedException("412")])
def test_a_commit_that_arrives_and_is_reported_as_failed_is_not_repeated(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    sink = lake.opened()
    prepare(sink, 1, [("a", 1)])
    commit = Transaction.commit_transaction

    def commit_transaction(transaction: Transaction) -> None:
        commit(transaction)
        raise error

    monkeypatch.setattr(Transaction, "commit_transaction", commit_transaction)
    sink.commit(1)
    assert lake.amounts == [1]
    assert len(lake.table.snapshots()) == 3


# --- going back ------------------------------------------------------------------------------------------


def test_a_job_that_goes_back_rolls_the_table_back(lake: Lake) -> None:
    sink = lake.opened()
    for epoch in (1, 2, 3):
        run(sink, epoch, epoch)
    sink.rewind(1)
    assert lake.amounts == [1]
    run(sink, 2, 20)
    newer = lake.opened(2, 1)
    assert lake.amounts == [1]
    newer.commit(1)
    lake.opened(3)
    assert lake.rows == []


@pytest.mark.parametrize("what", ["another writer", "expired"])
def test_a_table_that_cannot_be_rolled_back_stays(lake: Lake, what: str) -> None:
    sink = lake.opened()
    for epoch in (1, 2):
        run(sink, epoch, epoch)
    if what == "another writer":
        lake.append(5)
    run(sink, 3, 3)
    if what == "expired":
        lake.table.maintenance.expire_snapshots().older_than(
            datetime.fromtimestamp(time.time() + 9, timezone.utc)
        ).commit()
    seen = lake.rows
    with pytest.raises(SinkError, match=r"goes back to epoch 1, .* cannot be taken back"):
        sink.rewind(1)
    assert lake.rows == seen


# --- expiry ----------------------------------------------------------------------------------------------


def test_old_snapshots_expire_and_the_job_goes_on(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_sink, "COMMITS_PER_EXPIRY", 4)
    now_ms = time.time_ns() // 1_000_000
    sink = lake.opened(expire_after_ms=1_000, now_ms=lambda: now_ms + 100_000)
    counts = []
    for epoch in range(1, 9):
        run(sink, epoch, epoch)
        counts.append(len(lake.table.snapshots()))
    assert counts == [2, 3, 4, 5, 2, 3, 4, 5]
    newer = lake.opened(2, 8)
    run(newer, 9, 9)
    assert lake.amounts == [*range(1, 10)]


def test_what_is_not_old_stays(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_sink, "COMMITS_PER_EXPIRY", 1)
    sink = lake.opened(expire_after_ms=1_000_000)
    for epoch in (1, 2, 3):
        run(sink, epoch, epoch)
    assert len(lake.table.snapshots()) == 5


def test_other_programs_may_expire_all_snapshots(lake: Lake) -> None:
    for epoch in range(1, 4):
        run(lake.opened(epoch, epoch - 1 or None), epoch, epoch)
        lake.table.maintenance.expire_snapshots().older_than(
            datetime.fromtimestamp(time.time() + 9, timezone.utc)
        ).commit()
        assert len(lake.table.snapshots()) == 1
    assert lake.amounts == [1, 2, 3]


# --- upserts ---------------------------------------------------------------------------------------------


def change(kind: RowKind, day: str, amount: int) -> Row:
    return Row.of_kind(kind, day=day, amount=amount)


@pytest.mark.parametrize("partition_by", [[], ["day"]], ids=["one partition", "partitions"])
def test_the_last_record_of_a_key_wins(lake: Lake, partition_by: list[str]) -> None:
    sink = lake.opened(key=["day"], partition_by=partition_by)
    prepare(sink, 1, [("a", 1), {"day": "b", "amount": 2}, ("a", 3), Row("c", 4)])
    sink.commit(1)
    assert lake.rows == [{"day": "a", "amount": 3}, {"day": "b", "amount": 2}, {"day": "c", "amount": 4}]
    prepare(
        sink,
        2,
        [
            change(RowKind.UPDATE_BEFORE, "a", 3),
            change(RowKind.UPDATE_AFTER, "a", 7),
            change(RowKind.DELETE, "b", 2),
            change(RowKind.DELETE, "nothing", 2),
            change(RowKind.DELETE, "c", 4),
            change(RowKind.INSERT, "c", 9),
        ],
    )
    sink.commit(2)
    assert lake.rows == [{"day": "a", "amount": 7}, {"day": "c", "amount": 9}]
    prepare(sink, 3, [change(RowKind.DELETE, "nothing", 2)], [change(RowKind.DELETE, "a", 2)])
    sink.commit(3)
    assert lake.rows == [{"day": "c", "amount": 9}]
    sink.rewind(1)
    assert lake.amounts == [2, 3, 4]


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.string(), ["", "a"]),
        (pa.date32(), [date(1960, 1, 1), date(2024, 1, 1)]),
        (pa.timestamp("us"), [datetime(1960, 1, 1, 0, 0, 0, 123456), datetime(2024, 1, 1)]),
        (pa.timestamp("us", "UTC"), [datetime(1960, 1, 1, tzinfo=timezone.utc)]),
        (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("1.50")]),
        (pa.bool_(), [True, False]),
        (pa.int32(), [-3, 0]),
        (pa.binary(), [b"", b"\xff"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("more", [[], ["two"]], ids=["one column", "two columns"])
def test_keys_of_all_kinds(lake: Lake, kind: pa.DataType, keys: list[Any], more: list[str]) -> None:
    schema = pa.schema([("one", kind), ("two", pa.string()), ("amount", pa.int64())])
    sink = lake.opened(schema=schema, key=["one", *more])
    for epoch in (1, 2):
        prepare(sink, epoch, [(key, "x", epoch) for key in keys])
        sink.commit(epoch)
    assert lake.table.scan().to_arrow().to_pylist() == [{"one": key, "two": "x", "amount": 2} for key in keys]


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ((None, 1), "its key 'day' is None"),
        (("a", "b"), "do not fit a column of int64"),
        (("a",), "it has 1 fields"),
        (Row(day="a"), "it has 1 fields"),
        (Row(day="a", amount=1, more=2), "it has 3 fields"),
        (Row(day="a", price=1), "has no field 'amount'"),
        (7, "records must be dicts, tuples, lists or Rows"),
    ],
    ids=str,
)
def test_bad_changes_fail_in_the_task(lake: Lake, record: Any, problem: str) -> None:
    sink = lake.opened(key=["day"])
    with pytest.raises(BadRecordError, match=problem):
        prepare(sink, 1, [record])


def test_a_sink_that_is_not_open_has_made_nothing(lake: Lake) -> None:
    lake.sink()
    with pytest.raises(NoSuchTableError):
        assert lake.table
    assert not os.path.exists(lake.folder / "staging")
