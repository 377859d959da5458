"""The sink into Delta Lake, on local folders and on a real S3 server."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from s3_server import CREDENTIALS, Bucket, Server
from support_sinks import JOB, Flushed, history, run_id
from table_sinks import SCHEMA, prepare, run

from pyflinkstate import Row, RowKind, RunHistory
from pyflinkstate.connectors.delta import DeltaPlace
from pyflinkstate.connectors.delta_sink import DeltaSink
from pyflinkstate.errors import (
    BadRecordError,
    ConfigurationError,
    JobSupersededError,
    SinkError,
    SinkStorageError,
)
from pyflinkstate.testing import check_sink


class Lake:
    """A table in a folder, and the sinks of drivers that write to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uri = str(folder / "orders")

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.uri)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows that readers see, sorted."""
        rows = self.table.to_pyarrow_dataset().to_table().to_pylist()
        return sorted((tuple(row.values()) for row in rows), key=str)

    @property
    def amounts(self) -> list[int]:
        return sorted(self.table.to_pyarrow_dataset().to_table()["amount"].to_pylist())

    def append(self, *amounts: int) -> None:
        """Append rows, as another program."""
        write_deltalake(self.uri, pa.table([["other"] * len(amounts), amounts], schema=SCHEMA), mode="append")

    def sink(self, schema: pa.Schema = SCHEMA, **options: Any) -> DeltaSink:
        return DeltaSink(
            self.uri, schema, **{"staging": self.folder / "staging", "now_ms": lambda: 1, **options}
        )

    def opened(
        self,
        run: int = 1,
        restored: int | None = None,
        *,
        runs: RunHistory | None = None,
        job: str = JOB,
        **options: Any,
    ) -> DeltaSink:
        """Return the sink of a driver whose run has a number."""
        sink = self.sink(**options)
        sink.open_run(job, history((run, restored or 0)) if runs is None else runs, restored)
        return sink


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [{}, {"key": ["text"]}, {"partition_by": ["text"]}, {"compact_every": 2}],
    ids=["append", "upsert", "partitions", "compaction"],
)
def test_contract(tmp_path: Path, options: dict[str, Any]) -> None:
    schema = pa.schema([("text", pa.string()), ("n", pa.int64())])
    check_sink(
        lambda name: DeltaSink(tmp_path / name, schema, **options),
        lambda name: DeltaTable(tmp_path / name).to_pyarrow_dataset().to_table()["text"].to_pylist(),
        lambda text: {"text": text, "n": 1},
    )


# --- what readers see ----------------------------------------------------------------------------------


def test_pyarrow_and_duckdb_read_what_is_committed(lake: Lake) -> None:
    sink = lake.opened()
    run(sink, 1, 1, 2)
    prepare(sink, 2, [("day5", 5)])
    assert lake.rows == [("day0", 2), ("day1", 1)]
    orders = lake.table.to_pyarrow_dataset()
    assert duckdb.sql("SELECT day, sum(amount) FROM orders GROUP BY day ORDER BY day").fetchall() == [
        ("day0", 2),
        ("day1", 1),
    ]
    assert orders.count_rows() == 2


def test_a_commit_has_the_number_of_rows(lake: Lake) -> None:
    run(lake.opened(), 1, 1)
    assert pa.table(lake.table.get_add_actions())["num_records"].to_pylist() == [1]


KINDS = {
    "day": (pa.date32(), date(2024, 2, 29)),
    "at": (pa.timestamp("us", "UTC"), datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=timezone.utc)),
    "local": (pa.timestamp("us"), datetime(2024, 2, 29, 12, 30)),
    "price": (pa.decimal128(10, 2), Decimal("-1.50")),
    "ok": (pa.bool_(), True),
    "raw": (pa.binary(), b"\xff\x00"),
    "ratio": (pa.float64(), 0.5),
    "tags": (pa.list_(pa.string()), ["a", None]),
    "where": (pa.struct([("x", pa.int64())]), {"x": 1}),
}


def test_columns_of_all_kinds_come_back_also_behind_a_filter(lake: Lake) -> None:
    schema = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])
    row = {name: value for name, (_, value) in KINDS.items()}
    sink = lake.opened(schema=schema)
    prepare(sink, 1, [row])
    sink.commit(1)
    dataset = lake.table.to_pyarrow_dataset()
    assert dataset.to_table().to_pylist() == [row]
    for name in ("day", "at", "local", "price", "ok", "ratio"):
        assert dataset.count_rows(filter=pc.field(name) == row[name]) == 1, name
        literal = f"timestamp '{row[name]}'" if isinstance(row[name], datetime) else None
        assert literal is None or lake.table.scan(predicate=f"{name} = {literal}").read_all().num_rows == 1


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["a b/ü%41=x", None, "b"]),
        (pa.int32(), [-5, None, 7]),
        (pa.bool_(), [True, False, None]),
        (pa.date32(), [date(2020, 1, 2), None]),
        (pa.timestamp("us", "UTC"), [datetime(2020, 1, 2, 3, 4, 5, 678, tzinfo=timezone.utc)]),
    ],
    ids=str,
)
def test_partition_columns_come_back_also_after_a_compaction(
    lake: Lake, kind: Any, values: list[Any]
) -> None:
    schema = pa.schema([("p", kind), ("n", pa.int64())])
    sink = lake.opened(schema=schema, partition_by=["p"], compact_every=2)
    rows = [(value, number) for number, value in enumerate(values)]
    for epoch in (1, 2):
        prepare(sink, epoch, rows, rows)
        sink.commit(epoch)
    assert lake.rows == sorted(rows * 4, key=str)
    assert len(lake.table.file_uris()) == len(values)
    sink.rewind(1)  # behind the compaction, whose files have the partition in their names
    assert lake.rows == sorted(rows * 2, key=str)


def test_an_empty_string_in_a_partition_column_is_null(lake: Lake) -> None:
    sink = lake.opened(partition_by=["day"])
    prepare(sink, 1, [("", 1)])
    sink.commit(1)
    assert lake.rows == [(None, 1)]
    assert lake.table.scan().read_all().to_struct_array().to_pylist() == [{"day": None, "amount": 1}]


# --- markers, runs, and other writers --------------------------------------------------------------------


def test_the_marker_of_a_job_and_its_run_are_in_each_commit(lake: Lake) -> None:
    run(lake.opened(), 1, 1)
    txns: list[tuple[str, int]] = []
    metadata = None
    for line in Path(lake.uri, "_delta_log", f"{lake.table.version():020d}.json").read_text().splitlines():
        action = json.loads(line)
        if "txn" in action:
            txns.append((action["txn"]["appId"].rpartition("/")[2], action["txn"]["version"]))
        metadata = action.get("commitInfo", {}).get("pyflinkstate", metadata)
    name = lake.sink().name
    number = 1 << 32 | 1
    assert sorted(txns) == [(name, 1), (f"{name}.maker", number), (f"{name}.run", number)]
    assert metadata == {"sink": f"pyflinkstate/{JOB}/{name}", "epoch": 1, "maker": run_id(1)}


@pytest.mark.parametrize("key", [None, ["day", "amount"]], ids=["append", "upsert"])
@pytest.mark.parametrize("call", ["publish", "take_back", "commit"])
def test_a_zombie_that_has_loaded_the_table_before_the_newer_run_began(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, key: list[str] | None, call: str
) -> None:
    """The older driver stops between the load of the table and its commit."""
    old = lake.opened(key=key)
    run(old, 1, 1)
    staged = prepare(old, 2, [("zombie", 99)])
    old.area.clear(0)
    load, newer = DeltaPlace.load, []

    def stopped(place: DeltaPlace, version: int | None = None) -> DeltaTable:
        table = load(place, version)
        if place is old.place and not newer:
            newer.append(lake.opened(2, 1, key=key))
        return table

    monkeypatch.setattr(DeltaPlace, "load", stopped)
    calls = {
        "publish": lambda: old.publish(2, staged),
        "take_back": lambda: old.take_back(0),
        "commit": lambda: old.commit(2),
    }
    with pytest.raises(JobSupersededError):
        calls[call]()
    assert lake.amounts == [1]
    run(newer[0], 2, 2)
    assert lake.amounts == [1, 2]


def test_two_runs_that_began_at_the_same_time_are_told_apart(lake: Lake) -> None:
    lake.opened(runs=RunHistory((("000001-00000002", 0),)))
    with pytest.raises(JobSupersededError):
        lake.opened(runs=RunHistory((("000001-00000001", 0),)), staging=lake.folder / "own")


def test_two_jobs_write_into_one_table(lake: Lake) -> None:
    one, other = lake.opened(job="a" * 32), lake.opened(job="b" * 32)
    for epoch in (1, 2):
        run(one, epoch, epoch)
        run(other, epoch, 10 * epoch)
    lake.opened(2, 2, job="a" * 32)
    assert lake.amounts == [1, 2, 10, 20]


@pytest.mark.parametrize("key", [None, ["amount"]], ids=["append", "upsert"])
def test_another_writer_that_is_faster_costs_another_attempt(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, key: list[str] | None
) -> None:
    sink = lake.opened(key=key)
    load, loads = DeltaPlace.load, []

    def raced(place: DeltaPlace, version: int | None = None) -> DeltaTable:
        table = load(place, version)
        loads.append(version)
        lake.append(100 + len(loads))
        return table

    staged = prepare(sink, 1, [("day1", 1)])
    monkeypatch.setattr(DeltaPlace, "load", raced)
    if key is None:
        sink.publish(1, staged)
        assert len([amount for amount in lake.amounts if amount == 1]) == 1
    else:
        with pytest.raises(SinkStorageError, match="other writers were faster, 20 times"):
            sink.publish(1, staged)
    monkeypatch.setattr(DeltaPlace, "load", load)
    sink.commit(1)
    assert [amount for amount in lake.amounts if amount < 100] == [1]


@pytest.mark.parametrize("key", [None, ["day"]], ids=["append", "upsert"])
def test_an_epoch_loads_the_table_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, key: list[str] | None
) -> None:
    sink = lake.opened(key=key)
    load, loads = DeltaPlace.load, []

    def counted(place: DeltaPlace, version: int | None = None) -> DeltaTable:
        loads.append(version)
        return load(place, version)

    monkeypatch.setattr(DeltaPlace, "load", counted)
    run(sink, 1, 1)
    assert len(loads) == 1


# --- the table -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "options", "message"),
    [
        (pa.schema([("day", pa.string())]), {}, "'amount' is not in the table"),
        (SCHEMA.append(pa.field("more", pa.int64())), {}, "'more' is not in the sink"),
        (pa.schema([("day", pa.string()), ("amount", pa.int32())]), {}, "'amount' has int32, not int64"),
        (pa.schema([("day", pa.string()), ("amount", pa.int32())]), {"schema_evolution": True}, "has int32"),
        (pa.schema([("day", pa.string()), pa.field("amount", pa.int64(), False)]), {}, "must not be null"),
        (SCHEMA, {"partition_by": ["day"]}, r"partitioned by \[\], not by \['day'\]"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    lake: Lake, found: pa.Schema, options: dict[str, Any], message: str
) -> None:
    DeltaTable.create(lake.uri, found)
    with pytest.raises(SinkError, match=message) as caught:
        lake.opened(**options)
    assert not isinstance(caught.value, SinkStorageError)


def test_a_table_with_rules_is_refused(lake: Lake) -> None:
    DeltaTable.create(lake.uri, SCHEMA)
    lake.table.alter.add_constraint({"positive": "amount > 0"})
    with pytest.raises(SinkError, match=r"delta.constraints.positive=amount > 0"):
        lake.opened()


def test_schema_evolution_adds_columns_and_an_older_job_goes_on(lake: Lake) -> None:
    old = lake.opened(schema_evolution=True, job="b" * 32)
    run(old, 1, 1)
    wide = SCHEMA.append(pa.field("note", pa.string()))
    sink = lake.opened(schema=wide, schema_evolution=True)
    prepare(sink, 1, [("day2", 2, "new")])
    sink.commit(1)
    run(old, 2, 3)
    assert lake.rows == [
        ("day1", 1, None),
        ("day1", 3, None),
        ("day2", 2, "new"),
    ]


def test_a_table_that_is_made_anew_is_noticed(lake: Lake) -> None:
    sink = lake.opened()
    run(sink, 1, 1)
    prepare(sink, 2, [("day0", 2)])
    shutil.rmtree(lake.uri)
    with pytest.raises(SinkError, match="its marker in the target was at epoch 1, and is gone"):
        sink.commit(2)
    assert not Path(lake.uri, "_delta_log").exists()
    DeltaTable.create(lake.uri, SCHEMA)
    with pytest.raises(SinkError, match=r"its marker for job a+ was removed"):
        lake.opened(2, 2)


@pytest.mark.parametrize(
    "field",
    [
        pa.field("x", pa.uint32()),
        pa.field("x", pa.timestamp("ns")),
        pa.field("x", pa.null()),
        pa.field("x", pa.float16()),
        pa.field("x", pa.list_(pa.uint8())),
    ],
    ids=str,
)
def test_types_that_delta_does_not_have_are_refused(lake: Lake, field: pa.Field) -> None:
    with pytest.raises(ConfigurationError, match="Delta Lake has no"):
        lake.sink(SCHEMA.append(field))
    lake.sink(SCHEMA.append(pa.field("x", pa.struct([("null", pa.int64()), ("uint8", pa.int8())]))))


@pytest.mark.parametrize(
    "options",
    [
        {"key": []},
        {"key": ["nonesuch"]},
        {"key": "day"},
        {"partition_by": ["nonesuch"]},
        {"compact_every": 0},
        {"schema": SCHEMA.append(pa.field("x", pa.float64())), "key": ["x"]},
        {"schema": SCHEMA.append(pa.field("x", pa.binary())), "partition_by": ["x"]},
    ],
    ids=str,
)
def test_arguments_that_do_not_go_together(lake: Lake, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        lake.sink(**options)


@pytest.mark.parametrize("uri", ["gs://bucket/x", "s3://bucket/x?region=y", "hdfs://x/y"])
def test_other_storage_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="must be a local path, or s3://"):
        DeltaSink(uri, SCHEMA)


def test_the_default_name_is_that_of_the_table(tmp_path: Path) -> None:
    names = {DeltaSink(tmp_path / name, SCHEMA).name for name in ("a b", "x/ab", "y/ab")}
    assert len(names) == 3
    assert names == {DeltaSink(f"{tmp_path}/{name}/", SCHEMA).name for name in ("a b", "x/ab", "y/ab")}


def test_rows_are_appended_by_name_or_position(lake: Lake) -> None:
    sink = lake.opened()
    prepare(sink, 1, [Row("a", 1), Row(amount=2, day="b"), Row.of_kind(RowKind.UPDATE_AFTER, "c", 3)])
    sink.commit(1)
    assert lake.rows == [("a", 1), ("b", 2), ("c", 3)]
    for kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE):
        with pytest.raises(BadRecordError, match=f"a row of kind {kind} needs a sink with a key"):
            prepare(sink, 2, [Row.of_kind(kind, "a", 1)])


# --- upserts ---------------------------------------------------------------------------------------------


def test_the_last_record_of_a_key_wins(lake: Lake) -> None:
    sink = lake.opened(key=["day"], partition_by=["amount"])
    prepare(sink, 1, [("a", 1), {"day": "a", "amount": 2}, ["b", 3]], [("c", 4)])
    sink.commit(1)
    assert lake.rows == [("a", 2), ("b", 3), ("c", 4)]
    delete = Row.of_kind(RowKind.DELETE, amount=4, day="c")
    before, after = Row.of_kind(RowKind.UPDATE_BEFORE, "a", 2), Row.of_kind(RowKind.UPDATE_AFTER, "a", 5)
    gone = Row.of_kind(RowKind.DELETE, "nonesuch", 1)
    again = [Row.of_kind(RowKind.DELETE, "b", 3), Row("b", 6)]
    prepare(
        sink, 2, [after, before, gone], [delete], again, [Row("d", 7), Row.of_kind(RowKind.DELETE, "d", 7)]
    )
    sink.commit(2)
    assert lake.rows == [("a", 5), ("b", 6)]


def test_an_epoch_that_changes_no_row_sets_the_marker(lake: Lake) -> None:
    sink = lake.opened(key=["day"])
    prepare(sink, 1, [Row.of_kind(RowKind.DELETE, "nonesuch", 1)])
    sink.commit(1)
    assert sink.committed_epoch() == 1
    run(sink, 2, 2)
    assert lake.amounts == [2]


def test_what_was_staged_for_an_upsert_is_not_left_in_the_table(lake: Lake) -> None:
    sink = lake.opened(key=["day"])
    run(sink, 1, 1, 2)
    files = {Path(uri).name for uri in lake.table.file_uris()}
    assert {path.name for path in Path(lake.uri).rglob("*.parquet")} == files
    assert not list((lake.folder / "staging").rglob("*.parquet"))


def test_a_table_whose_key_must_not_be_null(lake: Lake) -> None:
    DeltaTable.create(lake.uri, pa.schema([pa.field("day", pa.string(), False), ("amount", pa.int64())]))
    sink = lake.opened(key=["day"])
    for amount in (1, 2):
        prepare(sink, amount, [("a", amount)])
        sink.commit(amount)
    assert lake.rows == [("a", 2)]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.binary(), [b"", b"\xff"]),
        (pa.bool_(), [False, True]),
        (pa.date32(), [date(1960, 1, 1), date(2024, 1, 1)]),
        (pa.timestamp("us", "UTC"), [datetime(2024, 2, 29, 0, 0, 0, 123456, tzinfo=timezone.utc)]),
        (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("1.50")]),
    ],
    ids=str,
)
def test_keys_of_other_kinds(lake: Lake, kind: pa.DataType, keys: list[Any]) -> None:
    sink = lake.opened(schema=pa.schema([("one", kind), ("n", pa.int64())]), key=["one"])
    for epoch in (1, 2):
        prepare(sink, epoch, [(key, epoch) for key in keys])
        sink.commit(epoch)
    assert lake.rows == [(key, 2) for key in keys]


# --- what is on the disk -----------------------------------------------------------------------------------


def test_the_names_of_files_are_flushed_before_the_checkpoint(lake: Lake, flushed: Flushed) -> None:
    sink = lake.opened()
    staged = list(sink.writer(1).write(0, iter([("a", 1)])))
    flushed.inodes.clear()
    sink.prepare(1, staged)
    assert flushed.has(Path(lake.uri))


@pytest.mark.parametrize("options", [{"key": ["day"]}, {"compact_every": 1}], ids=["upsert", "compaction"])
def test_files_that_the_library_writes_are_flushed_with_the_commit(
    lake: Lake, flushed: Flushed, options: dict[str, Any]
) -> None:
    sink = lake.opened(partition_by=["day"], **options)
    prepare(sink, 1, [("a", 1)], [("a", 1)])
    flushed.inodes.clear()
    sink.commit(1)
    (file,) = map(Path, lake.table.file_uris())
    log = Path(lake.uri, "_delta_log")
    for path in (file, file.parent, log, log / f"{lake.table.version():020d}.json"):
        assert flushed.has(path), path


# --- going back --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, ["day"]], ids=["append", "upsert"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_later_epochs_are_taken_back_in_one_commit(
    lake: Lake, key: list[str] | None, is_killed: bool
) -> None:
    sink = lake.opened(key=key, compact_every=3)
    states = {}
    for epoch in (1, 2, 3, 4):
        run(sink, epoch, *(() if epoch == 2 else (epoch, 10 + epoch)))
        states[epoch] = lake.rows
    for restored in (3, 2, 1):
        version = lake.table.version()
        if is_killed:
            sink = lake.opened(
                10 - restored, runs=history((1, 0), (10 - restored, restored)), restored=restored, key=key
            )
        else:
            sink.rewind(restored)
        assert lake.rows == states[restored]
        assert lake.table.version() == version + 1 + is_killed, "one commit, and that which takes the table"
    run(sink, 2, 5)
    assert 5 in lake.amounts
    assert sink.committed_epoch() == 2


def test_commits_of_others_are_not_taken_back(lake: Lake) -> None:
    sink = lake.opened()
    run(sink, 1, 1)
    run(sink, 2, 2)
    lake.append(100)
    with pytest.raises(SinkError, match=r"version \d+ \(WRITE\) is not of this sink"):
        sink.rewind(1)
    assert lake.amounts == [1, 2, 100]
    assert sink.committed_epoch() == 2


def test_files_that_a_vacuum_has_deleted_are_not_brought_back(lake: Lake) -> None:
    sink = lake.opened(key=["day"])
    run(sink, 1, 1)
    run(sink, 2, 3)
    (Path(lake.uri) / DeltaTable(lake.uri, version=lake.table.version() - 1).file_uris()[0]).unlink()
    with pytest.raises(SinkError, match="which later epochs have replaced, was deleted"):
        sink.rewind(1)
    assert lake.amounts == [3]


def test_a_checkpoint_of_another_line_is_refused(lake: Lake) -> None:
    """A job went back and wrote an epoch anew; the checkpoint of the first try does not go with that."""
    run_1 = lake.opened()
    for epoch in (1, 2, 3):
        run(run_1, epoch, epoch)
    run_2 = lake.opened(runs=history((1, 0), (2, 1)), restored=1)
    run(run_2, 2, 20)
    run(run_2, 3, 30)
    with pytest.raises(
        SinkError, match=r"epoch 3 in the Delta table .* is not that of the restored checkpoint"
    ):
        lake.opened(runs=history((1, 0), (3, 3)), restored=3)
    with pytest.raises(SinkError, match=f"has that epoch as run {run_id(2)} has written it"):
        lake.opened(runs=history((1, 0), (4, 2)), restored=2)
    assert lake.amounts == [1, 20, 30]
    lake.opened(runs=history((1, 0), (2, 1), (5, 2)), restored=2)
    assert lake.amounts == [1, 20]


# --- compaction and errors ---------------------------------------------------------------------------------


def test_compaction_leaves_each_row_once(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    sink = lake.opened(compact_every=2)
    for epoch in range(1, 5):
        run(sink, epoch, epoch, 10 * epoch)
    assert lake.amounts == [1, 2, 3, 4, 10, 20, 30, 40]
    assert len(lake.table.file_uris()) == 1
    sink = lake.opened(2, 4, compact_every=2)
    run(sink, 5, 5)
    assert lake.amounts == [1, 2, 3, 4, 5, 10, 20, 30, 40]
    assert not caplog.records


def test_a_compaction_that_fails_is_logged(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink = lake.opened(compact_every=1)
    commit, load = DeltaSink._publish, DeltaPlace.load

    def away(place: DeltaPlace, version: int | None = None) -> DeltaTable:
        raise OSError("the storage is away")

    def then_away(sink: DeltaSink, *args: Any) -> None:
        commit(sink, *args)
        monkeypatch.setattr(DeltaPlace, "load", away)

    monkeypatch.setattr(DeltaSink, "_publish", then_away)
    with caplog.at_level(logging.WARNING):
        run(sink, 1, 1)
    assert "cannot compact the Delta table" in caplog.text
    monkeypatch.setattr(DeltaPlace, "load", load)
    assert lake.amounts == [1]


def test_a_damaged_log_is_an_error_that_names_the_table(lake: Lake) -> None:
    sink = lake.opened()
    Path(lake.uri, "_delta_log", f"{lake.table.version():020d}.json").write_text("{nonsense\n")
    with pytest.raises(SinkError, match="cannot open the Delta table"):
        run(sink, 1, 1)


# --- S3 ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """A server in a process of its own; yields its port."""
    program = "import s3_server, sys; print(s3_server.Server().port, flush=True); sys.stdin.read()"
    path = os.pathsep.join([str(Path(__file__).parents[1] / "support"), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def bucket_of(port: int, tmp_path: Path) -> Bucket:
    return Bucket(port, "b" + "".join(filter(str.isalnum, tmp_path.name.lower()))).create()


def options_of(port: int) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


@pytest.mark.full
@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("key", [None, ["day"]], ids=["append", "upsert"])
def test_a_table_in_s3(server: int, tmp_path: Path, key: list[str] | None) -> None:
    bucket, options = bucket_of(server, tmp_path), options_of(server)
    uri = f"s3://{bucket.name}/lake/orders"

    def opened(run: int, restored: int | None = None) -> DeltaSink:
        sink = DeltaSink(uri, SCHEMA, key=key, storage_options=options, staging=bucket.uri("staging"))
        sink.open_run(JOB, history((run, restored or 0)), restored)
        return sink

    def rows() -> list[int]:
        found = DeltaTable(uri, storage_options=options).to_pyarrow_dataset().to_table()["amount"]
        return sorted(found.to_pylist())

    old = opened(1)
    run(old, 1, 1, 2)
    prepare(old, 2, [("day7", 3)])
    new = opened(2, 1)
    with pytest.raises(JobSupersededError):
        old.commit(2)
    assert rows() == [1, 2]
    run(new, 2, 4, 5)
    assert rows() == ([1, 2, 4, 5] if key is None else [4, 5])
    new.rewind(1)
    assert rows() == [1, 2]


@pytest.mark.full
@pytest.mark.usefixtures("credentials")
def test_s3_that_refuses_and_s3_that_is_away(tmp_path: Path) -> None:
    own = Server()
    bucket = bucket_of(own.port, tmp_path)
    options = {**options_of(own.port), "max_retries": "1", "retry_timeout": "1s"}
    sink = DeltaSink(
        f"s3://{bucket.name}/orders", SCHEMA, storage_options=options, staging=tmp_path / "staging"
    )
    sink.open_run(JOB, history((1, 0)), None)
    own.denied = lambda method, path: method == "PUT"
    with pytest.raises(SinkError, match="Give this user the right to list, read and write") as refused:
        sink.publish(1, [])
    assert not isinstance(refused.value, SinkStorageError)
    own.denied = lambda method, path: False
    own.stop()
    with pytest.raises(SinkStorageError, match="Try again when its storage can be reached"):
        sink.publish(1, [])
