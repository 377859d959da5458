"""Record formats: how files are parsed into records, and what happens to malformed rows.

Paths go through ``pyarrow.fs``, so a file may be local or in an object store; the extension of a
name determines the compression, such as ``.gz``.
"""

from __future__ import annotations

import csv
import ctypes
import enum
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from pyflinkstate.api import Record, check_charset
from pyflinkstate.errors import MalformedRecordError
from pyflinkstate.runtime.storage import open_file_system

#: The largest number that ``csv`` takes for the length of a field: what a long of C's holds.
_LONGEST_FIELD: Final = 2 ** (8 * ctypes.sizeof(ctypes.c_long) - 1) - 1


class OnMalformed(enum.Enum):
    """The policy for rows that cannot be parsed. Dropped and collected rows are counted."""

    FAIL = "fail"
    DROP = "drop"
    COLLECT = "collect"


@attrs.frozen
class RejectedRecord:
    """A row that could not be parsed: its place, its text, and the reason.

    ``keep`` is False under the policy ``drop``: the row is only counted.
    """

    file: str
    line: int
    text: str
    reason: str
    keep: bool = True


class Reject(Protocol):
    """A function that is called with each record that the policy for malformed records removes."""

    def __call__(self, rejected: RejectedRecord, /) -> None:
        """Count the record, and keep it if ``rejected.keep`` says so."""


class RecordFormat(Protocol):
    """Reads one file."""

    @property
    def name(self) -> str:
        """Its name in a checkpoint: ``csv``, ``json``, ``parquet``, ``text``, or that of your own format."""

    def read(self, path: str, reject: Reject) -> Iterator[Record]:
        """Yield the records of a file in order; pass rejected ones to ``reject``."""


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Name the file in errors of reading; those of a broken compressed file do not."""
    try:
        yield
    except (OSError, EOFError) as error:
        if path in str(error):
            raise
        raise OSError(f"{path}: {error}") from error


def _open_text(
    path: str, charset: str = "utf-8-sig", errors: str = "surrogateescape", newline: str | None = ""
) -> io.TextIOWrapper:
    file_system, name = open_file_system(path)
    stream = file_system.open_input_stream(name, compression="detect")
    return io.TextIOWrapper(stream, encoding=charset, errors=errors, newline=newline)


def _is_utf8(text: str) -> bool:
    """Return whether the text was valid UTF-8: invalid bytes are surrogates now."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_delimiter(_: object, __: object, delimiter: object) -> None:
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise ValueError(f"the delimiter must be one character, and no quote or line end: {delimiter!r}")


@attrs.frozen
class CsvFormat:
    """CSV with a header line; a record is a dict of strings by the names of the columns.

    A column without a name is called ``_c0``, ``_c1`` and so on by its place, as in Spark. A row is malformed
    if the number of its fields differs from the header, or its quotes do not close. A file whose header is
    not valid text, or has a name twice, cannot be read at all.
    """

    on_malformed: OnMalformed = attrs.field(default=OnMalformed.FAIL, converter=OnMalformed)
    delimiter: str = attrs.field(default=",", validator=_check_delimiter)

    #: The format's name in a checkpoint.
    name = "csv"

    def read(self, path: str, reject: Reject) -> Iterator[dict[str, str]]:
        """See :class:`RecordFormat`."""
        with _naming(path), _open_text(path) as text:
            csv.field_size_limit(_LONGEST_FIELD)  # of the whole process; otherwise a long text is malformed
            rows = csv.reader(text, delimiter=self.delimiter, strict=True)
            header = _header(rows, path)
            width = len(header)
            while True:
                try:
                    row = next(rows)
                except StopIteration:
                    return
                except csv.Error as error:
                    _refuse(self.on_malformed, RejectedRecord(path, rows.line_num, "", str(error)), reject)
                    continue
                line = self.delimiter.join(row)
                if len(row) == width and _is_utf8(line):
                    yield dict(zip(header, row, strict=True))
                elif row:
                    fields = f"{len(row)} fields, and the header has {width}"
                    reason = fields if len(row) != width else "not UTF-8"
                    _refuse(self.on_malformed, RejectedRecord(path, rows.line_num, line, reason), reject)


def _header(rows: Iterator[list[str]], path: str) -> list[str]:
    """Return the first row. Without it no row can be read, whatever the policy."""
    try:
        header = next(rows, [])
    except csv.Error as error:
        raise _no_header(path, f"cannot be parsed: {error}") from error
    if not all(map(_is_utf8, header)):
        raise _no_header(path, "is not UTF-8")
    names = [name or f"_c{number}" for number, name in enumerate(header)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _no_header(path, f"has two columns {twice!r}")
    return names


def _no_header(path: str, reason: str) -> MalformedRecordError:
    return MalformedRecordError(f"{path}, line 1: the header {reason}", file=path)


@attrs.frozen
class JsonFormat:
    """JSON lines: one JSON value on each line."""

    on_malformed: OnMalformed = attrs.field(default=OnMalformed.FAIL, converter=OnMalformed)

    #: The format's name in a checkpoint.
    name = "json"

    def read(self, path: str, reject: Reject) -> Iterator[Record]:
        """See :class:`RecordFormat`."""
        with _naming(path), _open_text(path) as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    if not _is_utf8(line):
                        raise ValueError("not UTF-8")
                    record = json.loads(line)
                except (ValueError, RecursionError) as error:
                    _refuse(
                        self.on_malformed, RejectedRecord(path, number, line.rstrip("\n"), str(error)), reject
                    )
                else:
                    yield record


@attrs.frozen
class TextLines:
    """Text lines without line ends; bytes that are not valid text are replaced by U+FFFD, as in Flink."""

    charset_name: str = attrs.field(
        default="UTF-8", validator=lambda _, __, name: check_charset("text lines", name)
    )

    #: The format's name in a checkpoint.
    name = "text"

    def read(self, path: str, _: Reject) -> Iterator[str]:
        """See :class:`RecordFormat`."""
        with _naming(path), _open_text(path, self.charset_name, "replace", None) as lines:
            yield from (line.removesuffix("\n") for line in lines)


@attrs.frozen
class ParquetFormat:
    """Parquet; a record is a dict. A file that is not Parquet fails whatever the policy."""

    #: The format's name in a checkpoint.
    name = "parquet"

    def read(self, path: str, _: Reject) -> Iterator[dict[str, Record]]:
        """See :class:`RecordFormat`."""
        file_system, name = open_file_system(path)
        try:
            with file_system.open_input_file(name) as file:
                for batch in pq.ParquetFile(file).iter_batches():
                    yield from batch.to_pylist()
        except (pa.ArrowInvalid, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # with an error number the file cannot be read; without one its content is malformed
            raise MalformedRecordError(
                f"{path} is not a readable Parquet file: {error}", file=path
            ) from error


def _refuse(policy: OnMalformed, rejected: RejectedRecord, reject: Reject) -> None:
    if policy is OnMalformed.FAIL:
        raise MalformedRecordError(
            f"{rejected.file}, line {rejected.line}: malformed row ({rejected.reason}): "
            f"{rejected.text!r}; set on_malformed='drop' or 'collect' to go on without it",
            file=rejected.file,
            line=rejected.line,
        )
    reject(attrs.evolve(rejected, keep=policy is OnMalformed.COLLECT))


FORMATS: dict[str, type[Any]] = {
    "csv": CsvFormat,
    "json": JsonFormat,
    "parquet": ParquetFormat,
    "text": TextLines,
}
