"""The source that reads tables of Delta Lake."""

from __future__ import annotations

import shutil
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from source_epochs import epochs, first_epoch, records
from table_sinks import SCHEMA, prepare

from pyflinkstate.connectors.delta_sink import DeltaSink
from pyflinkstate.connectors.delta_source import DeltaSource
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, SourceError

FEED = {"delta.enableChangeDataFeed": "true"}


class Lake:
    """A table in a folder, with a job that reads it."""

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder / "orders")

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.uri)

    def create(self, **options: Any) -> Lake:
        DeltaTable.create(self.uri, SCHEMA, **options)
        return self

    def append(self, *amounts: int) -> None:
        days = [f"day{amount % 2}" for amount in amounts]
        write_deltalake(self.uri, pa.table([days, amounts], schema=SCHEMA), mode="append")

    def source(self, **options: Any) -> DeltaSource:
        return DeltaSource(self.uri, **options)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def amounts(source: DeltaSource, start: Any = None) -> list[list[int]]:
    return [sorted(row["amount"] for row in rows) for _, rows in epochs(source, start)]


# --- rows --------------------------------------------------------------------------------------------------


def test_the_whole_table_comes_first_and_then_what_is_added(lake: Lake) -> None:
    lake.append(1, 2)
    lake.append(3)
    source = lake.source()
    ((end, rows),) = epochs(source)
    assert sorted(rows, key=str) == [
        {"day": "day0", "amount": 2},
        {"day": "day1", "amount": 1},
        {"day": "day1", "amount": 3},
    ]
    assert source.latest_offset(end, False).end == end
    lake.append(4)
    lake.append(5)
    assert amounts(source, end) == [[4, 5]]


def test_a_version_to_start_with_and_epochs_of_so_many_versions(lake: Lake) -> None:
    for number in range(6):
        lake.append(number)
    source = lake.source(starting_version=1, max_versions_per_epoch=2)
    assert amounts(source) == [[1, 2], [3, 4], [5]]
    start = source.initial_offset()
    assert source.latest_offset(start, False).is_full
    assert amounts(lake.source(starting_version=0)) == [[0, 1, 2, 3, 4, 5]]
    assert amounts(lake.source(starting_version=6)) == []


def test_an_epoch_is_the_same_whenever_it_is_read(lake: Lake) -> None:
    for number in range(4):
        lake.append(number, 10 + number)
    before = list(epochs(lake.source(max_versions_per_epoch=2)))
    lake.append(5)
    lake.table.optimize.compact()
    start = lake.source().initial_offset()
    for end, rows in before:
        assert records(lake.source(), start, end) == rows
        start = end


def test_a_compaction_is_not_read_again(lake: Lake) -> None:
    lake.append(1)
    ((end, _),) = epochs(lake.source())
    lake.append(2)
    lake.table.optimize.compact()
    lake.append(3)
    assert amounts(lake.source(), end) == [[2, 3]]
    assert amounts(lake.source()) == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), "a b/ü%41=x"),
        (pa.string(), None),
        (pa.int32(), -5),
        (pa.bool_(), False),
        (pa.date32(), date(2020, 1, 2)),
        (pa.timestamp("us", "UTC"), datetime(2020, 1, 2, 3, 4, 5, 678, tzinfo=timezone.utc)),
        (pa.timestamp("us"), datetime(2020, 1, 2, 3, 4, 5, 678)),
    ],
    ids=str,
)
@pytest.mark.parametrize("first", [None, 0])
def test_partition_columns(lake: Lake, kind: pa.DataType, value: Any, first: int | None) -> None:
    rows = [{"p": value, "n": 1}, {"p": value, "n": 2}]
    table = pa.Table.from_pylist(rows, schema=pa.schema([("p", kind), ("n", pa.int64())]))
    write_deltalake(lake.uri, table, partition_by=["p"])
    ((_, read),) = epochs(lake.source(starting_version=first))
    assert read == rows


def test_what_the_sink_writes_is_read(lake: Lake, tmp_path: Path) -> None:
    """Its times in partition columns have a zone, those of the library do not."""
    row = {"p": datetime(2020, 1, 2, 3, 4, 5, 678, tzinfo=timezone.utc), "n": 1}
    schema = pa.schema([("p", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    sink = DeltaSink(lake.uri, schema, partition_by=["p"], staging=tmp_path / "staging")
    sink.open("a" * 32, None)
    prepare(sink, 1, [row])
    sink.commit(1)
    ((_, rows),) = epochs(lake.source(starting_version=0))
    assert rows == [row]


def test_columns_that_were_added_are_null_in_older_rows(lake: Lake) -> None:
    lake.append(1)
    wide = SCHEMA.append(pa.field("note", pa.string()))
    write_deltalake(
        lake.uri, pa.table([["x"], [2], ["new"]], schema=wide), mode="append", schema_mode="merge"
    )
    ((_, rows),) = epochs(lake.source(starting_version=0))
    assert [row["note"] for row in rows] == [None, "new"]


def test_a_file_is_a_split(lake: Lake) -> None:
    for number in range(3):
        lake.append(number)
    assert len(first_epoch(lake.source()).splits) == 3


# --- change feeds ------------------------------------------------------------------------------------------


def test_updates_and_deletes_are_refused_without_a_change_feed(lake: Lake) -> None:
    lake.append(1, 2)
    ((end, _),) = epochs(lake.source())
    lake.table.delete("amount = 1")
    with pytest.raises(SourceError, match=r"version 1 .* updates or deletes rows.*starting_version=2"):
        list(epochs(lake.source(), end))
    lake.append(3)
    assert amounts(lake.source(starting_version=2)) == [[3]]
    assert amounts(lake.source()) == [[2, 3]], "the table as it is"


def test_the_change_feed_is_that_of_the_library(lake: Lake) -> None:
    lake.create(configuration=FEED, partition_by=["day"])
    lake.append(1, 2, 3)
    lake.table.update({"amount": "amount + 10"}, predicate="amount = 1")
    lake.table.delete("amount = 3")
    lake.table.optimize.compact()
    lake.append(4)
    lake.table.delete("day = 'day0'")
    ((_, rows),) = epochs(lake.source(starting_version=0, change_data_feed=True))
    oracle = pa.table(lake.table.load_cdf(starting_version=0)).to_pylist()
    for row in oracle:
        row["_commit_timestamp"] = row["_commit_timestamp"].replace(tzinfo=timezone.utc)
    assert sorted(rows, key=str) == sorted([{name: row[name] for name in rows[0]} for row in oracle], key=str)
    assert {row["_change_type"] for row in rows} == {
        "insert",
        "delete",
        "update_preimage",
        "update_postimage",
    }


def test_the_change_feed_begins_with_the_whole_table(lake: Lake) -> None:
    lake.create(configuration=FEED)
    lake.append(1, 2)
    lake.table.delete("amount = 1")
    ((end, rows),) = epochs(lake.source(change_data_feed=True))
    assert [(row["amount"], row["_change_type"], row["_commit_version"]) for row in rows] == [
        (2, "insert", 2)
    ]
    lake.table.delete("amount = 2")
    ((_, rows),) = epochs(lake.source(change_data_feed=True), end)
    assert [(row["amount"], row["_change_type"]) for row in rows] == [(2, "delete")]


def test_a_table_without_a_change_feed(lake: Lake) -> None:
    lake.append(1)
    with pytest.raises(SourceError, match=r"delta.enableChangeDataFeed must be true"):
        lake.source(change_data_feed=True).initial_offset()


# --- what is not there any more ----------------------------------------------------------------------------


def test_a_table_that_is_made_anew(lake: Lake) -> None:
    lake.append(1)
    ((end, _),) = epochs(lake.source())
    shutil.rmtree(lake.uri)
    lake.append(2)
    source = lake.source()
    with pytest.raises(IncompatibleCheckpointError, match="does not fit the Delta table"):
        source.check_restored(end)
    with pytest.raises(IncompatibleCheckpointError):
        source.latest_offset(end, False)
    with pytest.raises(IncompatibleCheckpointError):
        source.plan(end, end)


def test_files_that_a_vacuum_has_deleted(lake: Lake) -> None:
    lake.append(1)
    lake.append(2)
    source = lake.source(starting_version=0)
    start = source.initial_offset()
    end = source.latest_offset(start, False).end
    lake.table.optimize.compact()
    lake.table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(SourceError, match=r"file part-.* was deleted before it was read.*FileRetention"):
        records(source, start, end)


def test_versions_that_are_gone_from_the_log(lake: Lake) -> None:
    for number in range(3):
        lake.append(number)
    source = lake.source(starting_version=0)
    lake.table.create_checkpoint()
    Path(lake.uri, "_delta_log", f"{1:020d}.json").unlink()
    with pytest.raises(SourceError, match=r"version 1 .* was deleted before it was read.*logRetention"):
        list(epochs(source))


def test_there_is_no_table(lake: Lake) -> None:
    with pytest.raises(
        SourceError, match=r"cannot open the Delta table .*orders: .*Check that the table is there"
    ):
        lake.source().initial_offset()


def test_a_file_that_is_no_parquet(lake: Lake) -> None:
    lake.append(1)
    (path,) = Path(lake.uri).glob("*.parquet")
    path.write_bytes(b"no parquet")
    with pytest.raises(SourceError, match=f"cannot read file {path.name} of the Delta table"):
        list(epochs(lake.source()))


@pytest.mark.parametrize("options", [{"starting_version": -1}, {"max_versions_per_epoch": 0}], ids=str)
def test_arguments(lake: Lake, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        lake.source(**options)
