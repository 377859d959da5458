"""Record formats: what becomes of each row, and of rows that cannot be parsed."""

from __future__ import annotations

import datetime
import enum
import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support_runtime import raising

from pyflinkstate.errors import FunctionResultError, MalformedRecordError, SourceError
from pyflinkstate.runtime.sources import Available, BatchReaderSource, Epoch, Source, SplitEpoch
from pyflinkstate.runtime.sources.formats import (
    FORMATS,
    CsvFormat,
    JsonFormat,
    OnMalformed,
    ParquetFormat,
    RecordFormat,
    RejectedRecord,
    TextLines,
)
from pyflinkstate.runtime.sources.source_set import GuardedSource, SourceSet

NO_REJECTS = raising(AssertionError("a record was rejected"))


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., str]:
    """Makes a file and returns its path."""

    def make(content: str | bytes, name: str = "data.csv") -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return make


def read(record_format: RecordFormat, path: str) -> tuple[list[Any], list[RejectedRecord]]:
    rejected: list[RejectedRecord] = []
    return list(record_format.read(path, rejected.append)), rejected


def lines_of(rejected: list[RejectedRecord]) -> list[int]:
    return [row.line for row in rejected]


Make = Callable[..., str]

# --- CSV ---------------------------------------------------------------------------------------------

CSV_ROWS: dict[str, tuple[str, list[list[str]]]] = {
    "plain": ("a,b\n1,2\n3,4\n", [["1", "2"], ["3", "4"]]),
    "no newline at the end": ("a,b\n1,2", [["1", "2"]]),
    "CRLF": ("a,b\r\n1,2\r\n3,4\r\n", [["1", "2"], ["3", "4"]]),
    "commas in quotes": ('a,b\n"1,5",2\n', [["1,5", "2"]]),
    "newlines in quotes": ('a,b\n"1\n5",2\n3,4\n', [["1\n5", "2"], ["3", "4"]]),
    "CRLF in quotes": ('a,b\r\n"1\r\n5",2\r\n', [["1\r\n5", "2"]]),
    "quotes in quotes": ('a,b\n"say ""hi""",2\n', [['say "hi"', "2"]]),
    "empty fields": ("a,b\n,\n", [["", ""]]),
    "blank lines": ("a,b\n\n1,2\n\n\n3,4\n\n", [["1", "2"], ["3", "4"]]),
    "beyond ASCII": ("a,b\né,\U0001f600\n", [["é", "\U0001f600"]]),
    "header only": ("a,b\n", []),
    "empty": ("", []),
}


@pytest.mark.parametrize("case", CSV_ROWS)
def test_rows_of_csv_are_dicts_of_strings(file: Make, case: str) -> None:
    text, rows = CSV_ROWS[case]
    records = list(CsvFormat().read(file(text), NO_REJECTS))
    assert records == [dict(zip(("a", "b"), row, strict=True)) for row in rows]


def test_another_delimiter(file: Make) -> None:
    assert read(CsvFormat(delimiter=";"), file("a;b\n1,5;2\n"))[0] == [{"a": "1,5", "b": "2"}]


def test_a_gzip_file_is_told_by_its_name(file: Make) -> None:
    text = "a,b\n" + "1,2\n" * 50_000
    path = file(gzip.compress(text.encode()), "data.csv.gz")
    assert read(CsvFormat(), path) == ([{"a": "1", "b": "2"}] * 50_000, [])


def test_a_gzip_file_cut_short_is_an_error_of_reading_and_not_the_end(file: Make) -> None:
    text = "a,b\n" + "".join(f"{n},{n * n}\n" for n in range(50_000))
    path = file(gzip.compress(text.encode())[:-1_000], "data.csv.gz")
    with pytest.raises(OSError, match=r"(?i)truncated|unexpected|end"):
        read(CsvFormat(), path)


@pytest.mark.parametrize("record_format", [CsvFormat(), JsonFormat(), TextLines()], ids=lambda one: one.name)
@pytest.mark.parametrize("ending", ["gz", "bz2", "zst"])
def test_a_broken_compressed_file_is_named(file: Make, record_format: RecordFormat, ending: str) -> None:
    path = file(b"this is not compressed", f"data.{ending}")
    with pytest.raises(OSError, match=f"^{re.escape(path)}: .*(inflate|decompress) failed"):
        read(record_format, path)


def test_a_file_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    path = str(tmp_path / "none.csv")
    with pytest.raises(FileNotFoundError) as caught:
        read(CsvFormat(), path)
    assert str(caught.value).count(path) == 1


def test_a_field_may_be_long(file: Make) -> None:
    text = "x" * 1_000_000
    assert read(CsvFormat(), file(f"a,b\n{text},2\n")) == ([{"a": text, "b": "2"}], [])


def test_columns_without_a_name_have_those_that_spark_gives_them(file: Make) -> None:
    """A spreadsheet often ends its rows with commas."""
    row = {"id": "1", "_c1": "a", "_c2": ""}
    assert read(CsvFormat(), file("id,,\n1,a,\n")) == ([row], [])


BAD_HEADERS: dict[str, tuple[bytes, str]] = {
    "a name twice": (b"id,name,name\n1,a,b\n", "has two columns 'name'"),
    "Spark's name of a column without one": (b"id,_c2,\n1,a,b\n", "has two columns '_c2'"),
    "not UTF-8": (b"id,caf\xe9\n1,a\n", "is not UTF-8"),
    "a quote that is open": (b'id,"name\n', "cannot be parsed: unexpected end of data"),
}


@pytest.mark.parametrize("policy", OnMalformed)
@pytest.mark.parametrize("case", BAD_HEADERS)
def test_a_bad_header_is_an_error_whatever_the_policy(file: Make, case: str, policy: OnMalformed) -> None:
    content, reason = BAD_HEADERS[case]
    path = file(content)
    with pytest.raises(MalformedRecordError) as caught:
        list(CsvFormat(policy).read(path, NO_REJECTS))
    assert f"{path}, line 1: the header {reason}" in str(caught.value)
    assert caught.value.context == {"file": path}


MALFORMED: dict[str, tuple[bytes, list[str], int, str, str]] = {
    "too many fields": (b"a,b\n1,2\n3,4,5\n6,7\n", ["1", "6"], 3, "3,4,5", "3 fields"),
    "too few fields": (b"a,b\n1,2\n3\n6,7\n", ["1", "6"], 3, "3", "1 fields"),
    "a blank in a row": (b"a,b\n1,2\n \n6,7\n", ["1", "6"], 3, " ", "1 fields"),
    "not UTF-8": (b"a,b\n1,2\n3,\xff\n6,7\n", ["1", "6"], 3, "3,\udcff", "not UTF-8"),
    "Latin-1": (b"a,b\n1,2\n3,caf\xe9\n6,7\n", ["1", "6"], 3, "3,caf\udce9", "not UTF-8"),
    "text after a quote": (b'a,b\n1,2\n"3"x,4\n6,7\n', ["1", "6"], 3, "", "expected after"),
    "quote open at the end": (b'a,b\n1,2\n6,7\n"8,9\n', ["1", "6"], 4, "", "unexpected end of data"),
    "behind a row of many lines": (b'a,b\n"1\n\n",2\n3\n6,7\n', ["1\n\n", "6"], 5, "3", "1 fields"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_row_fails_the_job_unless_the_user_says_otherwise(file: Make, case: str) -> None:
    content, _, line, text, reason = MALFORMED[case]
    path = file(content)
    with pytest.raises(MalformedRecordError) as caught:
        read(CsvFormat(), path)
    message = str(caught.value)
    assert f"{path}, line {line}: malformed row" in message
    assert reason in message
    assert repr(text) in message
    assert "on_malformed='drop'" in message
    assert caught.value.context == {"file": path, "line": line}


@pytest.mark.parametrize("policy", ["drop", OnMalformed.COLLECT])
@pytest.mark.parametrize("case", MALFORMED)
def test_under_the_other_policies_the_good_rows_are_read(
    file: Make, case: str, policy: OnMalformed | str
) -> None:
    content, good, line, text, reason = MALFORMED[case]
    path = file(content)
    records, (rejected,) = read(CsvFormat(policy), path)
    assert [record["a"] for record in records] == good
    assert (rejected.file, rejected.line, rejected.text) == (path, line, text)
    assert reason in rejected.reason


def test_every_malformed_row_is_told_of(file: Make) -> None:
    records, rejected = read(CsvFormat("collect"), file("a,b\n1\n2,2\n3\n\n4,4\n5,5,5\n"))
    assert [record["a"] for record in records] == ["2", "4"]
    assert lines_of(rejected) == [2, 4, 7]


def test_the_good_rows_before_a_malformed_one_have_been_given_out(file: Make) -> None:
    rows = CsvFormat().read(file("a,b\n1,2\n3\n"), NO_REJECTS)
    assert next(rows) == {"a": "1", "b": "2"}
    with pytest.raises(MalformedRecordError):
        next(rows)


@pytest.mark.parametrize("header", ['"a,b\n1,2\n', '"a"x,b\n1,2\n'], ids=["open quote", "text after quote"])
def test_a_header_that_cannot_be_parsed_is_a_malformed_record(file: Make, header: str) -> None:
    with pytest.raises(MalformedRecordError, match="line"):
        read(CsvFormat(), file(header))


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="ignore"):
        CsvFormat(on_malformed="ignore")


# --- JSON --------------------------------------------------------------------------------------------


def test_each_line_of_json_is_a_record(file: Make) -> None:
    text = '{"a": 1}\n\n[1, null]\r\n  \n"\\u00e9 é"\n5'
    assert read(JsonFormat(), file(text, "data.json")) == ([{"a": 1}, [1, None], "é é", 5], [])


def test_json_is_decompressed_by_its_name(file: Make) -> None:
    assert read(JsonFormat(), file(gzip.compress(b"1\n2\n"), "data.json.gz")) == ([1, 2], [])


def test_malformed_json_is_told_of_by_line(file: Make) -> None:
    path = file('{"a": 1}\n{"a": \n\nnot json\n2\n', "data.json")
    records, rejected = read(JsonFormat("collect"), path)
    assert records == [{"a": 1}, 2]
    assert [(row.line, row.text) for row in rejected] == [(2, '{"a": '), (4, "not json")]
    with pytest.raises(MalformedRecordError, match=r"data\.json, line 2: malformed row"):
        read(JsonFormat(), path)


def test_json_that_is_not_utf8_is_malformed(file: Make) -> None:
    records, rejected = read(JsonFormat("collect"), file(b'"a"\n"\xff"\n"b"\n', "data.json"))
    assert records == ["a", "b"]
    assert lines_of(rejected) == [2]


# --- Parquet -----------------------------------------------------------------------------------------


def test_rows_of_parquet_are_dicts(tmp_path: Path) -> None:
    rows = [{"n": n, "text": None if n % 3 else "é", "list": [n] * 2} for n in range(10)]
    path = tmp_path / "data.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=4)
    assert list(ParquetFormat().read(str(path), NO_REJECTS)) == rows


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"PAR1"], ids=len)
def test_what_is_no_parquet_file_is_malformed(file: Make, content: bytes) -> None:
    path = file(content, "data.parquet")
    with pytest.raises(MalformedRecordError, match="is not a readable Parquet file") as caught:
        read(ParquetFormat(), path)
    assert caught.value.context["file"] == path


def test_a_parquet_file_cut_short_is_malformed(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"n": list(range(10_000))}), path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(MalformedRecordError):
        read(ParquetFormat(), str(path))


# --- all ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_a_missing_file_is_an_error_of_reading(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(FORMATS[name](), str(tmp_path / "missing"))


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_knows_the_name_it_is_chosen_by(name: str) -> None:
    assert FORMATS[name]().name == name


@pytest.mark.parametrize("content", [b"PAR1" + bytes(100) + b"PAR1", b"no parquet"])
def test_what_is_no_parquet_is_malformed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "1.parquet"
    path.write_bytes(content)
    with pytest.raises(MalformedRecordError, match=r"1\.parquet is not a readable Parquet file"):
        list(ParquetFormat().read(str(path), lambda _: None))


# --- where JSON goes wrong ---------------------------------------------------------------------------------


class Side(enum.IntEnum):
    LEFT = 1


NO_JSON = [
    ((1, 2), r"\(1, 2\): JSON would read it back as \[1, 2\]"),
    ({"at": [0, (1,)]}, r"\{'at': \[0, \(1,\)\]\}: JSON would read it back as \{'at': \[0, \[1\]\]\}"),
    ({0: 100}, r"\{0: 100\}: JSON would read it back as \{'0': 100\}"),
    ({"orders": {0: 5}}, r"\{'orders': \{0: 5\}\}: JSON would read it back as \{'orders': \{'0': 5\}\}"),
    ({"orders": {None: 5}}, "JSON would read it back as .*'null': 5"),
    ({"next": numpy.int64(5)}, r"\{'next': .*5.*\}: Object of type int64 is not JSON serializable"),
    (datetime.date(2024, 2, 29), r"datetime.date\(2024, 2, 29\): Object of type date is not"),
    ({"seen": {"a"}}, r"\{'seen': \{'a'\}\}: Object of type set is not"),
    ([0.5, float("nan")], r"\[0.5, nan\]: Out of range float"),
    (float("-inf"), "-inf: Out of range float"),
]


@attrs.define
class Fixed(Source):
    """Returns one offset all the time."""

    offset: Any

    def initial_offset(self) -> Any:
        return self.offset

    def latest_offset(self, start: Any, whole: bool) -> Available:
        return Available(self.offset)

    def plan(self, start: Any, end: Any) -> Epoch:
        return SplitEpoch([], lambda split, _: split)


@pytest.mark.parametrize(
    "offset",
    [
        {"partitions": [{"a": [1, 2.5, None, True]}], "\udcff": 2**70},
        {"at": Side.LEFT},
        {"at": numpy.float64(0.5)},
        {"at": numpy.str_("a")},
    ],
    ids=repr,
)
def test_what_json_keeps_as_it_is_is_an_offset(offset: Any) -> None:
    assert GuardedSource(Fixed(offset), "shelf").initial_offset() is offset


@pytest.mark.parametrize(("offset", "flaw"), NO_JSON, ids=lambda value: str(value)[:20])
def test_any_other_offset_is_refused_with_what_is_wrong(offset: Any, flaw: str) -> None:
    source = GuardedSource(Fixed(offset), "shelf")
    with pytest.raises(FunctionResultError, match=rf"'shelf': initial_offset returned .*: {flaw}") as caught:
        source.initial_offset()
    assert not caught.value.recoverable
    assert caught.value.context == {"source": "shelf"}
    with pytest.raises(FunctionResultError, match=rf"'shelf': latest_offset returned .*: {flaw}"):
        source.latest_offset(0, whole=False)


def test_the_offset_of_each_of_several_sources_is_checked() -> None:
    both = SourceSet({"good-0": Fixed(1), "odd-1": Fixed({0: 1})})
    with pytest.raises(FunctionResultError, match=r"\{0: 1\}.*: JSON would read it back as"):
        GuardedSource(both, "sources").initial_offset()
    with pytest.raises(FunctionResultError, match=r"\{0: 1\}.*: JSON would read it back as"):
        GuardedSource(both, "sources").restored({"good-0": 5}, may_drop=False)


def test_the_position_of_a_single_source_is_restored_as_it_is() -> None:
    source = GuardedSource(Fixed(1), "shelf")
    assert source.restored({"any": 1}, may_drop=False) == source.planned({"any": 1}) == {"any": 1}


def test_so_is_what_a_function_for_a_batch_reader_returns() -> None:
    source = BatchReaderSource(lambda start, end: None, lambda start: {"orders": {0: 5}})
    with pytest.raises(FunctionResultError, match=r"'kafka': latest_offset .*'orders': \{'0': 5\}"):
        GuardedSource(source, "kafka").latest_offset("earliest", whole=False)


def test_what_is_not_even_available_is_an_error_of_the_source() -> None:
    class Careless(Fixed):
        def latest_offset(self, start: Any, whole: bool) -> Any:
            return 5

    with pytest.raises(SourceError, match="'shelf': latest_offset raised AttributeError"):
        GuardedSource(Careless(0), "shelf").latest_offset(0, whole=False)
