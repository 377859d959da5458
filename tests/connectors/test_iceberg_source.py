"""The source that reads Iceberg tables, with the library's SQL catalog on SQLite."""

from __future__ import annotations

import pickle
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from iceberg_support import TABLE, Lake
from pyiceberg.expressions import EqualTo
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.types import StringType
from source_epochs import epochs, first_epoch, records
from support_sinks import JOB
from table_sinks import SCHEMA, run

from pyflinkstate.connectors import iceberg_sink
from pyflinkstate.connectors.iceberg_source import IcebergSource
from pyflinkstate.errors import (
    ConfigurationError,
    IncompatibleCheckpointError,
    SourceError,
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.create()
    return lake


def source_of(lake: Lake, **options: Any) -> IcebergSource:
    return IcebergSource(lake.properties, TABLE, **options)


def all_epochs(source: IcebergSource, start: Any = None) -> tuple[list[list[int]], Any]:
    """Return the sorted amounts of each epoch up to the newest snapshot, and the offset there."""
    found = list(epochs(source, start))
    amounts = [sorted(row["amount"] for row in rows) for _, rows in found]
    return amounts, found[-1][0] if found else start


def expire(lake: Lake) -> None:
    """Expire all snapshots but the newest."""
    soon = datetime.fromtimestamp(time.time() + 9, timezone.utc)
    lake.table.maintenance.expire_snapshots().older_than(soon).commit()


def test_all_rows_and_then_what_is_appended(lake: Lake) -> None:
    source = source_of(lake)
    start = source.initial_offset()
    assert all_epochs(source, start) == ([], start)
    lake.append(1)
    lake.append(2, 3)
    amounts, end = all_epochs(source, start)
    assert amounts == [[1, 2, 3]]
    lake.append(4)
    lake.append(5)
    amounts, newest = all_epochs(source, end)
    assert amounts == [[4, 5]]
    assert records(source, start, end) == records(source, start, end)
    assert len(source.plan(end, newest).splits) == 2, "a split for each file"


def test_records_are_dicts(lake: Lake) -> None:
    lake.append(1)
    ((_, rows),) = epochs(source_of(lake))
    assert rows == [{"day": "other", "amount": 1}]


def test_an_epoch_has_so_many_snapshots(lake: Lake) -> None:
    lake.append(0)
    first = lake.table.current_snapshot().snapshot_id
    for amount in range(1, 6):
        lake.append(amount)
    source = source_of(lake, starting_snapshot=first, max_snapshots_per_epoch=2)
    assert source.latest_offset(source.initial_offset(), False).is_full
    amounts, end = all_epochs(source)
    assert amounts == [[1, 2], [3, 4], [5]]
    assert not source.latest_offset(end, False).is_full


def test_a_job_resumes_where_its_checkpoint_is(lake: Lake) -> None:
    lake.append(1)
    source = source_of(lake)
    _, end = all_epochs(source)
    source.close(None)
    lake.append(2)
    again = source_of(lake)
    again.check_restored(end)
    assert all_epochs(again, end)[0] == [[2]]


def test_what_the_sink_writes(lake: Lake) -> None:
    source = source_of(lake)
    start = source.initial_offset()
    sink = lake.opened()
    run(sink, 1, 1, 2)
    amounts, start = all_epochs(source, start)
    run(sink, 2, 3)
    run(lake.opened(2, 2), 3, 4)
    more, start = all_epochs(source, start)
    assert amounts + more == [[1, 2], [3, 4]]
    lake.opened(3, 3)
    assert all_epochs(source, start)[0] == [[]], "a driver that takes over makes a snapshot"


def test_the_first_epoch_has_what_is_left_of_the_rows(lake: Lake) -> None:
    lake.append(1)
    lake.append(2)
    lake.table.delete(EqualTo("amount", 1))
    expire(lake)
    lake.append(3)
    source = source_of(lake)
    assert all_epochs(source)[0] == [[2, 3]]


@pytest.mark.parametrize("how", ["deleted", "overwritten", "upserted"])
def test_rows_that_are_deleted_or_overwritten_end_the_job(lake: Lake, how: str) -> None:
    lake.append(1, 2)
    source = source_of(lake)
    _, end = all_epochs(source)
    if how == "deleted":
        lake.table.delete(EqualTo("amount", 1))
    elif how == "overwritten":
        lake.table.overwrite(pa.table({"day": ["a"], "amount": [5]}, schema=SCHEMA))
    else:
        run(lake.opened(key=["amount"]), 1, 1)
    with pytest.raises(ConfigurationError, match=r"does not append .*starting_snapshot=") as caught:
        source.latest_offset(end, False)
    lake.append(7)
    named = int(str(caught.value).partition("starting_snapshot=")[2].partition(",")[0])
    source = source_of(lake, starting_snapshot=named)
    assert 7 in all_epochs(source)[0][-1]


def test_snapshots_that_expired_before_they_were_read(lake: Lake) -> None:
    lake.append(1)
    source = source_of(lake)
    start = source.initial_offset()
    _, end = all_epochs(source, start)
    lake.append(2)
    lake.append(3)
    expire(lake)
    for call in (source.check_restored, lambda position: source.latest_offset(position, False)):
        with pytest.raises(IncompatibleCheckpointError, match="snapshots have expired before they were read"):
            call(end)
    with pytest.raises(IncompatibleCheckpointError, match="snapshots have expired"):
        source.plan(start, end)


def test_a_snapshot_that_is_read_may_expire_if_the_next_one_names_it(lake: Lake) -> None:
    """Spark does that; the library removes the name of the parent as well."""
    lake.append(1)
    source = source_of(lake)
    _, end = all_epochs(source)
    lake.append(2)
    table = lake.table
    table.metadata.snapshots[:] = table.metadata.snapshots[1:]
    assert [snapshot.snapshot_id for snapshot in source._check(table, end)] == [
        table.current_snapshot().snapshot_id
    ]


def test_a_sink_keeps_what_was_the_newest_until_lately(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """However old the snapshot is that a source has read, nothing was missing behind it."""
    monkeypatch.setattr(iceberg_sink, "COMMITS_PER_EXPIRY", 1)

    def now_ms() -> int:
        return lake.table.metadata.snapshots[-1].timestamp_ms + 1_000

    sink = lake.opened(expire_after_ms=1_000, now_ms=now_ms)
    source = source_of(lake)
    start = source.initial_offset()
    for epoch in range(1, 6, 2):
        run(sink, epoch, epoch)
        run(sink, epoch + 1, epoch + 1)
        amounts, start = all_epochs(source, start)
        assert amounts == [[epoch, epoch + 1]]
        assert len(lake.table.snapshots()) == 3


def test_a_table_that_was_rolled_back(lake: Lake) -> None:
    lake.append(1)
    first = lake.table.current_snapshot().snapshot_id
    lake.append(2)
    source = source_of(lake)
    _, end = all_epochs(source)
    with lake.table.transaction() as transaction:
        ManageSnapshots(transaction).rollback_to_snapshot(first).commit()
    with pytest.raises(IncompatibleCheckpointError, match="or the table was rolled back"):
        source.latest_offset(end, False)
    with pytest.raises(IncompatibleCheckpointError, match="no history from snapshot 5 to the newest"):
        source_of(lake, starting_snapshot=5).latest_offset({**end, "snapshot": 5}, False)


def test_a_table_that_was_made_anew(lake: Lake) -> None:
    lake.append(1)
    source = source_of(lake)
    _, end = all_epochs(source)
    lake.catalog.drop_table(TABLE)
    with pytest.raises(SourceError, match=r"cannot load the table sales\.orders: NoSuchTableError"):
        source.latest_offset(end, False)
    lake.create()
    lake.append(2)
    for call in (source.check_restored, lambda position: source.latest_offset(position, False)):
        with pytest.raises(IncompatibleCheckpointError, match=r"does not fit the table sales\.orders"):
            call(end)


def test_records_have_the_columns_of_the_end_of_their_epoch(lake: Lake) -> None:
    lake.append(1)
    source = source_of(lake)
    ((end, before),) = epochs(source)
    with lake.table.update_schema() as columns:
        columns.add_column("note", StringType())
    lake.table.append(pa.table({"day": ["a"], "amount": [2], "note": ["x"]}))
    ((_, after),) = epochs(source, end)
    assert before == [{"day": "other", "amount": 1}]
    assert records(source, source.initial_offset(), end) == before
    assert after == [{"day": "a", "amount": 2, "note": "x"}]


def test_a_file_that_is_gone(lake: Lake) -> None:
    lake.append(1)
    epoch = first_epoch(source_of(lake))
    (split,) = epoch.splits
    Path(split.file.file_path.removeprefix("file://")).unlink()
    with pytest.raises(SourceError, match=r"cannot read .*parquet of the table sales.orders"):
        list(epoch.read(split, None))


def test_what_tasks_get_does_not_grow_with_the_table(lake: Lake) -> None:
    lake.append(1)
    source = source_of(lake)
    start = source.initial_offset()
    end = source.latest_offset(start, False).end
    size = len(pickle.dumps(source.plan(start, end)))
    for amount in range(5):
        lake.append(amount)
    assert len(pickle.dumps(source.plan(start, end))) == size


@pytest.mark.parametrize(
    "options",
    [{"starting_snapshot": "x"}, {"starting_snapshot": -1}, {"max_snapshots_per_epoch": 0}],
    ids=str,
)
def test_wrong_arguments(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        IcebergSource({"name": JOB}, TABLE, **options)
