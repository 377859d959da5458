"""The formats of the file sink, read back with pyarrow; what a format cannot hold is refused."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import pickle
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.json as pa_json
import pyarrow.parquet as pq
import pytest
from support_runtime import tree
from support_sinks import JOB, Seen, seen, write

from pyflinkstate import Encoder, Row, RowKind
from pyflinkstate.errors import BadRecordError, ConfigurationError, SinkError
from pyflinkstate.runtime.sinks.file_sink import RECORDS_PER_WRITE, FileSink
from pyflinkstate.runtime.sinks.text_file_sink import (
    OWN_FOLDER,
    BucketAssigner,
    OutputFileConfig,
    RollingPolicy,
    RowFormatFileSink,
)

FORMATS = ("json", "text", "csv", "parquet")
SUFFIXES = {"json": ".jsonl", "text": ".txt", "csv": ".csv", "parquet": ".parquet"}


def made(out: Path, format: str, columns: Any = None) -> FileSink:
    """Return a sink that a new job has opened."""
    sink = FileSink(str(out), format, columns)
    sink.open(JOB, None)
    return sink


def run(sink: FileSink, epoch: int, *partitions: Iterable[Any]) -> None:
    """Run an epoch to its commit."""
    sink.prepare(epoch, write(sink, epoch, *partitions, is_pickled=True))
    sink.commit(epoch)


def files(out: Path, epoch: int = 1) -> list[Path]:
    return sorted((out / f"epoch={epoch}").iterdir())


def rows_of(file: Path) -> list[Any]:
    """Read one file as another program would."""
    if file.suffix == ".parquet":
        return pq.read_table(file, partitioning=None).to_pylist()
    if file.suffix == ".csv":
        options = pa_csv.ParseOptions(newlines_in_values=True)
        return pa_csv.read_csv(file, parse_options=options).to_pylist()
    if file.suffix == ".jsonl":
        return pa_json.read_json(file).to_pylist()
    return file.read_text(encoding="utf-8").splitlines()


def visible(out: Path) -> dict[str, list[Any]]:
    """Return what a reader sees, by epoch; names with an underscore are skipped, as everywhere on Spark."""
    return {
        folder.name: [row for file in sorted(folder.iterdir()) for row in rows_of(file)]
        for folder in sorted(out.iterdir())
        if folder.is_dir() and not folder.name.startswith("_")
    }


def dicts(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}"} for number in numbers]


def as_read(format: str, records: list[dict[str, Any]]) -> list[Any]:
    """Return records as ``rows_of`` gives them."""
    return [str(record) for record in records] if format == "text" else records


MANY = RECORDS_PER_WRITE * 2 + 7


@pytest.mark.parametrize("format", FORMATS)
class TestEveryFormat:
    """What holds whatever the files look like."""

    def test_records_come_back_in_their_order(self, tmp_path: Path, format: str) -> None:
        run(made(tmp_path, format), 1, dicts(3, 1, 2), [], dicts(9, 8))
        assert visible(tmp_path) == {"epoch=1": as_read(format, dicts(3, 1, 2, 9, 8))}
        assert [file.suffix for file in files(tmp_path)] == [SUFFIXES[format]] * 2

    def test_more_records_than_are_written_at_once_are_one_file(self, tmp_path: Path, format: str) -> None:
        records = dicts(*range(MANY))
        run(made(tmp_path, format), 1, records)
        (file,) = files(tmp_path)
        assert rows_of(file) == as_read(format, records)

    @pytest.mark.parametrize("count", [RECORDS_PER_WRITE - 1, RECORDS_PER_WRITE, RECORDS_PER_WRITE + 1])
    def test_no_record_is_lost_where_writes_meet(self, tmp_path: Path, format: str, count: int) -> None:
        run(made(tmp_path, format), 1, dicts(*range(count)))
        assert len(visible(tmp_path)["epoch=1"]) == count

    def test_no_records_are_no_file(self, tmp_path: Path, format: str) -> None:
        sink = made(tmp_path, format, ["id", "name"])
        before = tree(tmp_path)
        run(sink, 1, [], [])
        assert tree(tmp_path) == before

    def test_text_of_any_language_comes_back(self, tmp_path: Path, format: str) -> None:
        records = [{"name": text} for text in ("käse", "日本", "\U0001f600", 'say "hi", then go')]
        run(made(tmp_path, format), 1, records)
        assert visible(tmp_path) == {"epoch=1": as_read(format, records)}


#: What each format cannot hold; the record has the id -77.
BAD: dict[str, Any] = {
    "json": {"id": -77, "name": dt.datetime(2026, 1, 1)},
    "text": "-77 is no \ud800 Unicode",
    "csv": {"id": -77, "name": "a", "extra": 1},
    "parquet": {"id": -77, "name": 5},
}
COLUMNS: dict[str, Any] = {
    "json": None,
    "text": None,
    "csv": ["id", "name"],
    "parquet": pa.schema([("id", pa.int64()), ("name", pa.string())]),
}


@pytest.mark.parametrize("format", FORMATS)
class TestBadRecords:
    """They fail the job, and what is told of them must lead to them."""

    @pytest.mark.parametrize("place", [0, 1, 300, RECORDS_PER_WRITE, RECORDS_PER_WRITE + 300])
    def test_a_bad_record_is_named_wherever_it_stands(self, tmp_path: Path, format: str, place: int) -> None:
        records: list[Any] = dicts(*range(MANY))
        records[place] = BAD[format]
        with pytest.raises(BadRecordError, match="-77"):
            write(made(tmp_path, format, COLUMNS[format]), 1, records)

    @pytest.mark.parametrize("place", [0, MANY - 1])
    def test_nothing_of_its_epoch_is_seen_and_nothing_before_it_is_lost(
        self, tmp_path: Path, format: str, place: int
    ) -> None:
        sink = made(tmp_path, format, COLUMNS[format])
        run(sink, 1, dicts(1))
        records: list[Any] = dicts(*range(MANY))
        records[place] = BAD[format]
        with pytest.raises(BadRecordError):
            write(sink, 2, dicts(2), records)
        assert visible(tmp_path) == {"epoch=1": as_read(format, dicts(1))}
        sink.rewind(1)
        run(sink, 2, dicts(2, 3))
        assert visible(tmp_path) == {
            "epoch=1": as_read(format, dicts(1)),
            "epoch=2": as_read(format, dicts(2, 3)),
        }


@pytest.mark.parametrize("format", ["csv", "parquet"])
class TestColumns:
    """Tables: dicts by name, tuples and lists by place."""

    @pytest.mark.parametrize(
        "row",
        [
            (1, "a"),
            [1, "a"],
            {"id": 1, "name": "a"},
            {"name": "a", "id": 1},
            Row(1, "a"),
            Row(name="a", id=1),
        ],
        ids=repr,
    )
    def test_records_may_be_tuples_lists_dicts_or_rows(self, tmp_path: Path, format: str, row: Any) -> None:
        run(made(tmp_path, format, ["id", "name"]), 1, [row])
        assert visible(tmp_path) == {"epoch=1": [{"id": 1, "name": "a"}]}

    def test_they_stand_in_the_order_asked_for(self, tmp_path: Path, format: str) -> None:
        run(made(tmp_path, format, ("name", "id")), 1, dicts(1))
        (file,) = files(tmp_path)
        assert list(rows_of(file)[0]) == ["name", "id"]

    def test_without_them_the_first_record_says_what_they_are(self, tmp_path: Path, format: str) -> None:
        run(made(tmp_path, format), 1, [{"b": 1, "a": 2}, {"a": 4, "b": 3}])
        (file,) = files(tmp_path)
        assert rows_of(file) == [{"b": 1, "a": 2}, {"b": 3, "a": 4}]
        assert list(rows_of(file)[0]) == ["b", "a"]

    def test_names_may_be_used_up_only_once(self, tmp_path: Path, format: str) -> None:
        run(made(tmp_path, format, iter(["id", "name"])), 1, [(1, "a")], [(2, "b")])
        assert visible(tmp_path) == {"epoch=1": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]}

    def test_a_column_twice_is_refused(self, tmp_path: Path, format: str) -> None:
        """A reader could not tell them apart, and one would be lost."""
        with pytest.raises((SinkError, BadRecordError)):
            run(made(tmp_path, format, ["a", "a"]), 1, [(1, 2)])

    @pytest.mark.parametrize("place", [0, 1, RECORDS_PER_WRITE])
    @pytest.mark.parametrize(
        "bad",
        [
            {"id": -77},
            {"id": -77, "name": "a", "extra": 1},
            {"id": -77, "nom": "a"},
            (-77,),
            (-77, "a", 3),
            Row(id=-77),
            Row(id=-77, name="a", extra=1),
            Row.of_kind(RowKind.DELETE, -77, "a"),
            "-77",
            -77,
            None,
        ],
        ids=repr,
    )
    def test_a_record_of_another_form_is_named(
        self, tmp_path: Path, format: str, bad: Any, place: int
    ) -> None:
        sink = made(tmp_path, format, ["id", "name"])
        records: list[Any] = dicts(*range(MANY))
        records[place] = bad
        with pytest.raises(BadRecordError) as caught:
            write(sink, 1, records)
        assert repr(bad) in str(caught.value)
        assert visible(tmp_path) == {}


class TestCsv:
    def text(self, out: Path, columns: Any, *records: Any) -> str:
        run(made(out, "csv", columns), 1, records)
        (file,) = files(out)
        return file.read_bytes().decode()

    def test_a_header_comes_first_and_once(self, tmp_path: Path) -> None:
        text = self.text(tmp_path, ["id", "name"], *[(number, "x") for number in range(MANY)])
        lines = text.split("\r\n")
        assert lines[:2] == ["id,name", "0,x"]
        assert lines.count("id,name") == 1
        assert len(lines) == 1 + MANY + 1

    def test_every_file_has_its_header(self, tmp_path: Path) -> None:
        run(made(tmp_path, "csv"), 1, dicts(1), dicts(2))
        assert [file.read_text().splitlines()[0] for file in files(tmp_path)] == ["id,name"] * 2

    def test_tuples_without_columns_have_no_header(self, tmp_path: Path) -> None:
        assert self.text(tmp_path, None, (1, "a"), (2, "b")) == "1,a\r\n2,b\r\n"

    def test_what_needs_quotes_gets_them(self, tmp_path: Path) -> None:
        values = ["a,b", 'say "hi"', "two\nlines", " kept ", "plain"]
        run(made(tmp_path, "csv", ["text"]), 1, [(value,) for value in values])
        assert [row["text"] for row in visible(tmp_path)["epoch=1"]] == values

    def test_none_and_an_empty_text_are_empty_fields(self, tmp_path: Path) -> None:
        assert self.text(tmp_path, ["a", "b"], (None, ""), (1, 2)) == "a,b\r\n,\r\n1,2\r\n"

    def test_a_schema_is_for_parquet(self, tmp_path: Path) -> None:
        with pytest.raises(SinkError, match="csv"):
            FileSink(str(tmp_path), "csv", pa.schema([("id", pa.int64())]))

    @pytest.mark.parametrize("columns", ["user", b"user", 7], ids=repr)
    def test_names_are_a_list(self, tmp_path: Path, columns: Any) -> None:
        with pytest.raises(SinkError, match=rf"columns is a list, not {columns!r}: give \[{columns!r}\]"):
            FileSink(str(tmp_path), "csv", columns)


class TestJsonLines:
    def test_nested_records_come_back(self, tmp_path: Path) -> None:
        records = [{"a": {"b": [1, 2], "c": None}, "d": True}, {"a": {"b": [], "c": "x"}, "d": False}]
        run(made(tmp_path, "json"), 1, records)
        assert visible(tmp_path) == {"epoch=1": records}

    def test_each_line_is_one_value(self, tmp_path: Path) -> None:
        records = [1, "a\nb", None, [1, {"x": 2.5}], {"a": "ä"}]
        run(made(tmp_path, "json"), 1, records)
        (file,) = files(tmp_path)
        assert [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] == records


class TestText:
    def test_each_record_is_its_str(self, tmp_path: Path) -> None:
        run(made(tmp_path, "text"), 1, ["a", 5, None, ("x", 1.0), dt.date(2026, 1, 2)])
        assert visible(tmp_path) == {"epoch=1": ["a", "5", "None", "('x', 1.0)", "2026-01-02"]}

    def test_a_line_end_stands_as_it_is(self, tmp_path: Path) -> None:
        run(made(tmp_path, "text"), 1, ["a\nb", "c"])
        (file,) = files(tmp_path)
        assert file.read_bytes() == b"a\nb\nc\n"


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("raw", pa.binary()),
        ("place", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
    ]
)
ROW = {
    "id": 1,
    "price": decimal.Decimal("12.50"),
    "at": dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.timezone.utc),
    "tags": ["a", None],
    "raw": b"\x00\xff",
    "place": {"x": 1.5, "y": -1.0},
}


class TestParquet:
    def test_a_schema_is_the_files(self, tmp_path: Path) -> None:
        nulls = dict.fromkeys(ROW)
        run(made(tmp_path, "parquet", SCHEMA), 1, [ROW, nulls], [tuple(ROW.values())])
        assert [pq.read_schema(file) for file in files(tmp_path)] == [SCHEMA] * 2
        assert visible(tmp_path) == {"epoch=1": [ROW, nulls, ROW]}

    def test_readers_take_the_directory_for_a_table_by_epoch(self, tmp_path: Path) -> None:
        sink = made(tmp_path, "parquet", pa.schema([("id", pa.int64()), ("name", pa.string())]))
        for epoch in (1, 2):
            run(sink, epoch, dicts(epoch), dicts(epoch * 10))
        sink.prepare(3, write(sink, 3, dicts(3)))
        write(sink, 4, dicts(4))
        table = ds.dataset(tmp_path, format="parquet", partitioning="hive").to_table().sort_by("id")
        assert table.column("id").to_pylist() == [1, 2, 10, 20]
        assert table.column("epoch").to_pylist() == [1, 2, 1, 2]

    def test_without_a_schema_types_are_found(self, tmp_path: Path) -> None:
        records = [{"n": 1, "x": 0.5, "s": "a", "b": True, "l": [1], "t": dt.datetime(2026, 1, 1)}]
        run(made(tmp_path, "parquet"), 1, records)
        (file,) = files(tmp_path)
        assert pq.read_schema(file).types == [
            pa.int64(),
            pa.float64(),
            pa.string(),
            pa.bool_(),
            pa.list_(pa.int64()),
            pa.timestamp("us"),
        ]
        assert rows_of(file) == records

    @pytest.mark.parametrize("place", [0, RECORDS_PER_WRITE])
    @pytest.mark.parametrize("value", ["text", 2**70, [1], object], ids=repr)
    def test_a_value_of_another_type_is_a_bad_record(self, tmp_path: Path, value: Any, place: int) -> None:
        sink = made(tmp_path, "parquet", pa.schema([("id", pa.int64()), ("name", pa.string())]))
        records = dicts(*range(MANY))
        records[place] = {"id": value, "name": "bad one"}
        with pytest.raises(BadRecordError, match="bad one"):
            write(sink, 1, records)

    @pytest.mark.parametrize("wanted", [pa.list_(pa.float64()), pa.large_list(pa.int64())], ids=str)
    def test_a_list_goes_into_a_column_of_other_lists(self, tmp_path: Path, wanted: pa.DataType) -> None:
        run(made(tmp_path, "parquet", pa.schema([("a", wanted)])), 1, [{"a": [1, 2]}])
        assert visible(tmp_path) == {"epoch=1": [{"a": [1, 2]}]}


LOSSY = [
    (pa.int64(), 1.5),
    (pa.struct([("x", pa.int64())]), {"x": 1, "y": 2}),
    (pa.list_(pa.int64()), [1, 2.5]),
    (pa.timestamp("s"), dt.datetime(2026, 1, 1, 0, 0, 0, 5)),
    (pa.date32(), dt.datetime(2026, 1, 1, 12)),
    (pa.decimal128(5, 2), decimal.Decimal("1.234")),
    (pa.int8(), 300),
    (pa.float64(), 2**53 + 1),
    (pa.uint64(), -1),
    (pa.uint64(), 2**64),
    (pa.uint64(), 1.5),
    (pa.list_(pa.timestamp("ms")), [dt.datetime(2026, 1, 1, 0, 0, 0, 5)]),
    (pa.list_(pa.timestamp("ms"), 1), [dt.datetime(2026, 1, 1, 0, 0, 0, 5)]),
    (pa.struct([("at", pa.timestamp("ms"))]), {"at": dt.datetime(2026, 1, 1, 0, 0, 0, 5)}),
    (pa.list_(pa.time32("s")), [dt.time(1, 2, 3, 4)]),
    (pa.list_(pa.duration("s")), [dt.timedelta(milliseconds=1500)]),
    (pa.map_(pa.string(), pa.int64()), {"a": 1.7}),
    (pa.map_(pa.string(), pa.list_(pa.int64())), {"a": [1, 1.7]}),
    (pa.map_(pa.date32(), pa.int64()), {dt.datetime(2026, 1, 1, 12): 1}),
    (pa.list_(pa.struct([("x", pa.int64())])), [{"x": 1, "y": 2}]),
    (pa.list_(pa.int64()), {"x": 1}),
    (pa.list_(pa.string()), "abc"),
    (pa.struct([("x", pa.int64())]), [1]),
]
#: A type, a value that it holds, and what is read of it.
HELD = [
    (pa.uint64(), 2**64 - 1, 2**64 - 1),
    (pa.uint64(), 3.0, 3),
    (pa.list_(pa.uint64()), [2**63, None], [2**63, None]),
    (pa.list_(pa.int64()), [1.0], [1]),
    (pa.list_(pa.float32(), 2), (1, 2), [1.0, 2.0]),
    (
        pa.list_(pa.timestamp("ms")),
        [dt.datetime(2026, 1, 1, 0, 0, 0, 5000)],
        [dt.datetime(2026, 1, 1, 0, 0, 0, 5000)],
    ),
    (pa.map_(pa.string(), pa.int64()), {"a": 1, "b": None}, [("a", 1), ("b", None)]),
    (pa.map_(pa.int64(), pa.float64()), {1: 2}, [(1, 2.0)]),
    (pa.struct([("x", pa.int64()), ("y", pa.string())]), {"x": 1}, {"x": 1, "y": None}),
    (pa.list_(pa.struct([("x", pa.int32())])), [{"x": 1}, None], [{"x": 1}, None]),
]


class TestParquetLosesNothing:
    """pyarrow cuts some values down without a word; a sink must not."""

    @pytest.mark.parametrize(("type_", "value", "read"), HELD, ids=repr)
    def test_a_value_that_the_schema_holds_is_written(
        self, tmp_path: Path, type_: pa.DataType, value: Any, read: Any
    ) -> None:
        run(made(tmp_path, "parquet", pa.schema([("a", type_)])), 1, [{"a": value}, {"a": None}])
        assert visible(tmp_path) == {"epoch=1": [{"a": read}, {"a": None}]}

    @pytest.mark.parametrize(
        ("first", "last"),
        [
            ({"price": 1}, {"price": 0.75}),
            ({"place": {"x": 1}}, {"place": {"x": 1, "y": 2}}),
            ({"note": None}, {"note": "at last"}),
            ({}, {}),
        ],
        ids=repr,
    )
    def test_what_the_first_records_did_not_show_is_kept_or_refused(
        self, tmp_path: Path, first: Any, last: Any
    ) -> None:
        try:
            run(made(tmp_path, "parquet"), 1, [*[first] * RECORDS_PER_WRITE, last])
        except BadRecordError:
            return
        found = visible(tmp_path)["epoch=1"]
        assert (len(found), found[-1]) == (RECORDS_PER_WRITE + 1, last)


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
NO_JSON = "not JSON serializable|keys must be"
WHOLE = pa.schema([pa.field("id", pa.int64(), nullable=False)])
#: What a format cannot hold: the format, its columns, the records, and what the error says.
REFUSED: list[tuple[str, Any, list[Any], str]] = [
    ("csv", None, [{"a": "\ud800"}], "ud800"),
    ("text", None, ["a", "\ud800"], "ud800"),
    *(("json", None, [bad], NO_JSON) for bad in ({1, 2}, object(), b"raw", {(1, 2): 3})),
    ("json", None, [{"at": dt.date(2026, 1, 1)}], NO_JSON),
    ("json", None, [ENDLESS], "Circular reference"),
    *(
        ("json", None, [*dicts(1), {"id": -77, "readings": [1.5, float(text)]}], "neither NaN .*record .*-77")
        for text in ("nan", "inf", "-inf")
    ),
    *((form, None, [{"id": 1}, {"id": 2, "extra": 3}], "extra") for form in ("csv", "parquet")),
    ("parquet", None, [(1, "a")], "needs columns"),
    ("parquet", None, [{"id": 2**70}], str(2**70)),
    ("parquet", WHOLE, [{"id": 1}, {"id": None}], "None"),
    ("parquet", None, [{"a": {}}], "record"),
    *(("parquet", pa.schema([("a", type_)]), [{"a": value}], "record") for type_, value in LOSSY),
]


@pytest.mark.parametrize(("format", "columns", "records", "message"), REFUSED)
def test_what_a_format_cannot_hold_is_refused(
    tmp_path: Path, format: str, columns: Any, records: list[Any], message: str
) -> None:
    with pytest.raises(BadRecordError, match=message):
        write(made(tmp_path, format, columns), 1, records)


# --- sinks for row formats ---------------------------------------------------------------------------------


#: 2024-02-29T23:30:00Z
LEAP_DAY_MS = 1_709_249_400_000
BASE = BucketAssigner.base_path_bucket_assigner()


def builder(path: Path | str) -> Any:
    return FileSink.for_row_format(str(path), Encoder.simple_string_encoder())


def opened_rows(path: Path | str, job_id: str = JOB, restored: int | None = None) -> RowFormatFileSink:
    sink: RowFormatFileSink = builder(path).with_bucket_assigner(BASE).build()
    sink.open(job_id, restored)
    return sink


def write_rows(sink: RowFormatFileSink, epoch: int, *partitions: Iterable[str]) -> list[str]:
    writer = attrs.evolve(pickle.loads(pickle.dumps(sink.writer(epoch))), now_ms=lambda: LEAP_DAY_MS)
    return [name for number, texts in enumerate(partitions) for name in writer.write(number, iter(texts))]


def prepare_rows(sink: RowFormatFileSink, epoch: int, *partitions: Iterable[str]) -> None:
    sink.prepare(epoch, write_rows(sink, epoch, *partitions))


class TestEpochs:
    def test_an_epoch_is_seen_when_it_is_committed(self, tmp_path: Path) -> None:
        sink = opened_rows(tmp_path)
        prepare_rows(sink, 1, ["a", "b"], ["c"])
        assert not seen(tmp_path)
        sink.commit(1)
        assert seen(tmp_path) == Seen("abc")

    def test_what_a_task_wrote_that_does_not_count_is_never_seen(self, tmp_path: Path) -> None:
        sink = opened_rows(tmp_path)
        write_rows(sink, 1, ["lost"])
        prepare_rows(sink, 1, ["kept"])
        sink.commit(1)
        assert seen(tmp_path) == Seen(["kept"])
        assert not list((tmp_path / OWN_FOLDER).rglob("pending/*"))
        assert not list((tmp_path / OWN_FOLDER).rglob("dropped/*"))

    @pytest.mark.parametrize("rest", ["/out/", "/out?user=etl", "/out/?user=etl"])
    def test_a_sink_on_a_uri(self, tmp_path: Path, rest: str) -> None:
        sink = opened_rows(f"file://{tmp_path}{rest}")
        prepare_rows(sink, 1, ["a"])
        assert not seen(tmp_path / "out"), "it is not committed"
        sink.commit(1)
        assert seen(tmp_path / "out") == Seen(["a"])
        assert [path.name for path in tmp_path.iterdir()] == ["out"]


class TestNames:
    def test_files_are_named_as_the_user_says_in_a_folder_for_each_hour(self, tmp_path: Path) -> None:
        config = OutputFileConfig.builder().with_part_prefix("prefix").with_part_suffix(".ext").build()
        bucket = BucketAssigner.date_time_bucket_assigner(timezone_id="UTC")
        sink = builder(tmp_path).with_output_file_config(config).with_bucket_assigner(bucket).build()
        sink.open(JOB, None)
        (name,) = write_rows(sink, 1, ["a"])
        assert re.fullmatch(r"2024-02-29--23/prefix-[0-9a-f-]{36}-0\.ext", name)
        sink.prepare(1, [name])
        sink.commit(1)
        assert (tmp_path / name).read_text() == "a\n"

    @pytest.mark.parametrize(
        ("format_str", "folder"),
        [("yyyy/MM/dd", "2024/03/01"), ("HH:mm:ss", "00:30:00"), ("'at' yy 100%", "at 24 100%")],
    )
    def test_folders_are_named_in_javas_letters(self, format_str: str, folder: str) -> None:
        bucket = BucketAssigner.date_time_bucket_assigner(format_str, "Europe/Berlin")
        assert bucket.bucket_of(LEAP_DAY_MS) == folder

    @pytest.mark.parametrize("arguments", [("EEE",), ("yyyy", "Nowhere/City")])
    def test_a_folder_that_cannot_be_named_is_refused(self, arguments: tuple[str, ...]) -> None:
        with pytest.raises(ConfigurationError, match="BucketAssigner"):
            BucketAssigner.date_time_bucket_assigner(*arguments)

    @pytest.mark.parametrize("names", [("a/b", ""), ("_hidden", ""), ("part", "/x")])
    def test_a_name_that_readers_would_skip_is_refused(self, names: tuple[str, str]) -> None:
        with pytest.raises(ConfigurationError, match="OutputFileConfig"):
            OutputFileConfig(*names)

    def test_a_part_that_is_full_is_followed_by_another(self, tmp_path: Path) -> None:
        policy = RollingPolicy.default_rolling_policy(part_size=4)
        sink = builder(tmp_path).with_bucket_assigner(BASE).with_rolling_policy(policy).build()
        sink.open(JOB, None)
        names = write_rows(sink, 1, ["a", "b", "long", "c"])
        assert [name.rpartition("-")[2] for name in names] == ["0", "1", "2"]

    def test_a_part_ends_with_its_epoch_alone_if_the_policy_says_so(self, tmp_path: Path) -> None:
        settings = builder(tmp_path).with_bucket_check_interval(1_000).with_bucket_assigner(BASE)
        sink = settings.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
        sink.open(JOB, None)
        assert len(write_rows(sink, 1, ["a", "b" * 10_000, "c"])) == 1

    @pytest.mark.parametrize("part_size", [0, -1, True, 1.5, "4"])
    def test_a_part_without_bytes_is_refused(self, part_size: Any) -> None:
        with pytest.raises(ConfigurationError, match="RollingPolicy"):
            RollingPolicy(part_size)


def test_what_the_charset_has_not_is_an_error_that_names_the_record(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), Encoder("ascii")).build()
    sink.open(JOB, None)
    with pytest.raises(BadRecordError, match="record 'é'"):
        write_rows(sink, 1, ["é"])


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SinkError):
        opened_rows(tmp_path / "file")


@pytest.mark.parametrize("method", ["with_bucket_assigner", "with_rolling_policy", "with_output_file_config"])
def test_a_setting_of_another_kind_is_refused(tmp_path: Path, method: str) -> None:
    with pytest.raises(ConfigurationError, match="is needed here"):
        getattr(builder(tmp_path), method)("text")
