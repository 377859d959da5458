"""The file sink: its output is committed by epoch and is never partly visible."""

from __future__ import annotations

import csv
import io
import json
import logging
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeAlias, runtime_checkable

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from pyflinkstate.api import (
    ArrowObject,
    Encoder,
    Record,
    Reported,
    Row,
    RowKind,
    as_int,
    check_list,
    positive,
)
from pyflinkstate.backends.wall_clock import wall_clock_ms
from pyflinkstate.errors import ConfigurationError, SinkError
from pyflinkstate.runtime.sinks.epoch_folders import EpochFoldersSink
from pyflinkstate.runtime.sinks.joined_files import FileCompactStrategy, FileJoiner
from pyflinkstate.runtime.sinks.run_area import RUNS_FOLDER
from pyflinkstate.runtime.sinks.sink_files import (
    ENCODING_ERRORS,
    OutputFile,
    opened,
    real_folder,
    sink_errors,
)
from pyflinkstate.runtime.sinks.sinks import SinkWriter
from pyflinkstate.runtime.sinks.text_file_sink import RowFormatBuilder as _RowFormatBuilder
from pyflinkstate.runtime.storage import AnyPath, read_note

_log = logging.getLogger("pyflinkstate.sinks")

MARKER = "_pyflinkstate.json"
#: Number of records that are written at once.
RECORDS_PER_WRITE = 4096

_NESTED = (
    pa.types.is_struct,
    pa.types.is_map,
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
)

#: Names, a schema, or a maker of batches; None: the records decide.
Columns: TypeAlias = ArrowObject


@runtime_checkable
class BatchMaker(Protocol):
    """Makes Arrow batches of records; the error of a record that does not fit can be reported as it is."""

    def batch(self, rows: list[Record]) -> pa.RecordBatch:
        """Return the records as a batch."""


class _Encoder:
    """Writes records into one open file, whose columns are set as far as they are known."""

    def __init__(self, stream: ArrowObject, columns: Columns) -> None:
        self._stream = stream
        self.columns = columns

    def write(self, records: list[Record]) -> None:
        """Append records."""
        raise NotImplementedError

    def close(self) -> None:
        """Write the end of the file; the caller closes the stream."""


class _LineEncoder(_Encoder):
    """Writes each record as one line."""

    def __init__(self, stream: ArrowObject, columns: Columns, encode: Callable[[Record], str]) -> None:
        super().__init__(stream, columns)
        self._encode = encode

    def write(self, records: list[Record]) -> None:
        self._stream.write("".join([self._encode(record) + "\n" for record in records]).encode())


def _encode_json(record: Record) -> str:
    try:
        return json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        json.dumps(record)  # raises, unless only such a number is the reason
        raise ValueError(
            "JSON has neither NaN nor infinity: convert it to None or to a string before it reaches the sink"
        ) from None


class _CsvEncoder(_Encoder):
    """Writes CSV as in RFC 4180, with a header line if the columns are known."""

    def write(self, records: list[Record]) -> None:
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        if self.columns is None and isinstance(records[0], dict):
            self.columns = list(records[0])
        if self._stream.tell() == 0 and self.columns is not None:
            writer.writerow(self.columns)
        writer.writerows([fields_of(record, self.columns) for record in records])
        self._stream.write(text.getvalue().encode())


class ParquetEncoder(_Encoder):
    """Writes Parquet; without a schema the first records of a file determine its columns."""

    def __init__(self, stream: ArrowObject, columns: Columns) -> None:
        super().__init__(stream, columns)
        self._names = columns.names if isinstance(columns, pa.Schema) else columns
        self._maker = columns if isinstance(columns, BatchMaker) else None
        self._schema = columns if isinstance(columns, pa.Schema) else None
        self._writer: pq.ParquetWriter | None = None

    def write(self, records: list[Record]) -> None:
        table = self.table(records)
        if self._writer is None:
            self._names, self._schema = table.schema.names, table.schema
            self._writer = pq.ParquetWriter(self._stream, table.schema)
        self._writer.write_table(table)

    def table(self, records: list[Record]) -> pa.Table:
        """Return the records as columns; raise ``ValueError`` if a value would lose precision."""
        if self._maker is not None:
            return pa.Table.from_batches([self._maker.batch(records)])
        names = self._names
        if names is None and isinstance(records[0], dict):
            names = list(records[0])
        if not names:
            raise ValueError("records for Parquet must be dicts with fields, or the sink needs columns")
        columns = [
            list(column) for column in zip(*[fields_of(record, names) for record in records], strict=True)
        ]
        if self._schema is None:
            return pa.table(dict(zip(names, map(pa.array, columns), strict=True)))
        return pa.table(
            [_lossless(values, field.type) for values, field in zip(columns, self._schema, strict=True)],
            schema=self._schema,
        )

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _lossless(values: list[Record], wanted: pa.DataType) -> pa.Array:
    """Return ``values`` as an array of ``wanted``; pyarrow itself would silently truncate some of them."""
    if any(is_nested(wanted) for is_nested in _NESTED):
        for parts, part_type in _parts([value for value in values if value is not None], wanted):
            _lossless(parts, part_type)  # raises if one of them does not fit
        return pa.array(values, wanted)
    if pa.types.is_uint64(wanted) and all(value is None or as_int(value) is not None for value in values):
        return pa.array(values, wanted)  # without the type, pyarrow knows no number from 2**63 on
    found = pa.array(values)
    if found.type == wanted:
        return found
    if not _holds(wanted, found.type):
        raise ValueError(f"values of {found.type} do not fit a column of {wanted}")
    return found.cast(wanted)  # raises if a value does not fit


def _parts(values: list[Any], wanted: pa.DataType) -> Iterator[tuple[list[Record], pa.DataType]]:
    """Yield the parts of nested values, each with the type that they must fit."""
    is_list = not (pa.types.is_struct(wanted) or pa.types.is_map(wanted))
    misfit = next((value for value in values if not (_is_list if is_list else _is_dict)(value)), None)
    if misfit is not None:
        raise ValueError(f"a value of type {type(misfit).__name__} does not fit a column of {wanted}")
    if is_list:
        yield [item for value in values for item in value], wanted.value_type
    elif pa.types.is_map(wanted):
        yield [key for value in values for key in value], wanted.key_type
        yield [item for value in values for item in value.values()], wanted.item_type
    else:
        fields = {field.name: field.type for field in wanted}
        surplus = sorted({str(name) for value in values for name in value.keys() - fields.keys()})
        if surplus:
            raise ValueError(f"fields {surplus} do not fit a column of {wanted}")
        yield from (([value.get(name) for value in values], type_) for name, type_ in fields.items())


def _is_dict(value: Record) -> bool:
    return isinstance(value, dict)


def _is_list(value: Record) -> bool:
    return isinstance(value, Collection) and not isinstance(value, (str, bytes, bytearray, dict))


def _holds(wanted: pa.DataType, found: pa.DataType) -> bool:
    """Return whether a cast of one type to another, neither of them nested, may be tried."""
    types = pa.types
    if types.is_null(found) or found == wanted:
        return True
    if types.is_integer(found):
        return bool(types.is_integer(wanted) or types.is_floating(wanted) or types.is_decimal(wanted))
    if types.is_floating(found):
        return bool(types.is_floating(wanted) or types.is_integer(wanted))
    kinds = (
        (types.is_string, types.is_large_string),
        (types.is_binary, types.is_large_binary, types.is_fixed_size_binary),
        (types.is_timestamp,),
        (types.is_decimal,),
        (types.is_date,),
        (types.is_time,),
        (types.is_duration,),
    )
    return any(any(is_(found) for is_ in kind) and any(is_(wanted) for is_ in kind) for kind in kinds)


def fields_of(record: Record, columns: Columns) -> list[Record]:
    """Return a record's fields in the order of ``columns``; raise ``ValueError`` if it has other fields."""
    if isinstance(record, dict):
        if columns is None or record.keys() != set(columns):
            raise ValueError(f"its fields are {list(record)}, and the columns are {columns}")
        return [record[name] for name in columns]
    if isinstance(record, Row):
        if record.get_row_kind() in (RowKind.UPDATE_BEFORE, RowKind.DELETE):
            raise ValueError(f"a row of kind {record.get_row_kind()} needs a sink with a key")
        record = fields_of_row(record, columns)
    elif not isinstance(record, (tuple, list)):
        raise TypeError("records must be dicts, tuples, lists or Rows")
    if columns is not None and len(record) != len(columns):
        raise ValueError(f"it has {len(record)} fields, and there are {len(columns)} columns")
    return list(record)


def fields_of_row(row: Row, columns: Columns) -> list[Record]:
    """Return the fields of a ``Row``, by name if it has names; all of them if their number does not fit."""
    is_table = columns is not None and len(row) == len(columns)
    return row.get_fields_by_names(columns) if is_table else list(row)


_ENCODERS: dict[str, tuple[str, Callable[[ArrowObject, Columns], _Encoder]]] = {
    "json": (".jsonl", lambda stream, columns: _LineEncoder(stream, columns, _encode_json)),
    "text": (".txt", lambda stream, columns: _LineEncoder(stream, columns, str)),
    "csv": (".csv", _CsvEncoder),
    "parquet": (".parquet", ParquetEncoder),
}


@attrs.frozen
class FileWriter:
    """Writes one partition's records into a file of its own."""

    folder_uri: str
    format: str
    columns: Columns = None
    file_system: fs.FileSystem | None = None

    def write(self, partition: int, records: Iterator[Record]) -> Iterator[Reported]:
        """See :class:`SinkWriter`; yields the name of the file, or nothing if there are no records."""
        batch = list(islice(records, RECORDS_PER_WRITE))
        if not batch:
            return
        suffix, make_encoder = _ENCODERS[self.format]
        name = f"part-{partition:05d}-{uuid.uuid4().hex}{suffix}"
        file_system, folder = opened(self.folder_uri, self.file_system, RUNS_FOLDER)
        with ExitStack() as cleared:
            file = OutputFile(file_system, f"{folder}/{name}")
            cleared.callback(file.abandon)
            encoder = make_encoder(file.stream, self.columns)
            cleared.callback(_abandon, encoder)
            # An error in getting the next records is not the sink's fault, so only writes are guarded.
            while batch:
                with sink_errors(f"write {file.path}", partial(self._bad_record, encoder, batch)):
                    encoder.write(batch)
                batch = list(islice(records, RECORDS_PER_WRITE))
            with sink_errors(f"close {file.path}"):
                encoder.close()
            file.close()
            cleared.pop_all()
        yield name

    def _bad_record(self, encoder: _Encoder, batch: list[Record]) -> Record:
        if isinstance(encoder, ParquetEncoder):
            return bad_record(encoder.table, batch)
        return bad_record(_ENCODERS[self.format][1](io.BytesIO(), encoder.columns).write, batch)


def bad_record(encode: Callable[[list[Record]], object], batch: list[Record]) -> Record:
    """Return the first record that cannot be encoded, or the whole batch if each one alone can."""
    for record in batch:
        try:
            encode([record])
        except ENCODING_ERRORS:
            return record
    return batch


def _abandon(encoder: _Encoder) -> None:
    """Close the encoder, which would otherwise try to write when it is garbage-collected."""
    with suppress(OSError, pa.ArrowException):
        encoder.close()


@contextmanager
def _errors_of_arguments() -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        raise SinkError(f"file sink: {error.message}") from None


def _checked_columns(format: str, columns: Columns) -> Columns:
    """Return the columns, their names as a list."""
    if columns is None or isinstance(columns, BatchMaker):
        return columns
    if isinstance(columns, pa.Schema):
        if format != "parquet":
            raise SinkError(f"file sink: only Parquet takes a schema; {format} takes names of columns")
        names = columns.names
    else:
        with _errors_of_arguments():
            check_list("columns", columns)
        columns = names = list(columns)
    if len(set(names)) < len(names):
        raise SinkError(f"file sink: a column occurs twice in {names}")
    return columns


def _check_strategy(format: str, columns: Columns, compact: FileCompactStrategy | None) -> None:
    if compact is not None and not isinstance(compact, FileCompactStrategy):
        raise SinkError(f"file sink: compact takes a FileCompactStrategy, not {compact!r}")
    if compact is not None and format == "csv" and columns is None:
        raise SinkError("file sink: CSV files can be joined only if they have one header: set columns")


class FileSink(EpochFoldersSink):
    """Writes files below a directory, ``epoch=<n>/part-*``; each epoch becomes visible at once or not at all.

    Spark reads the directory as a table partitioned by ``epoch``; it skips ``_runs``, like all names that
    begin with an underscore. ``run_area`` says what is in there and who may change it. When a job goes back
    to an older checkpoint, later output is moved aside, so that the directory matches the checkpoint.

    A directory belongs to one sink of one job. Two sinks of a job with the same directory are refused when
    the job is built. If two jobs use it, the second is refused; as long as nothing is visible, the first
    fails.

    Args:
        directory: a path or URI that driver and executors can reach.
        format: ``"json"`` (one JSON value on each line, without NaN and infinity), ``"csv"``, ``"parquet"``,
            or ``"text"`` (``str`` of each record; a line end in it is written as it is). Records for CSV and
            Parquet are dicts, tuples, lists or ``Row``s.
        columns: for CSV their names, for Parquet names or a ``pyarrow.Schema``. By default the first record
            of each file determines them, if it is a dict; set them if all files must have the same.
        file_system: the file system of ``directory``, if that is not a URI. It must be able to rename
            folders.
        retention_ms: for how long an epoch stays after it was written, in ms: a commit deletes earlier epochs
            that are older. Readers must have read them by then. Default: for ever.
        compact: joins the files of small epochs into larger ones before readers see them, as
            ``FileCompactStrategy.builder().set_delay(120_000).build()``. They are then seen later; the end of
            the job and a savepoint show everything. Default: each epoch is seen when it is committed.
        now_ms: returns the time in ms since 1970.

    Raises:
        SinkError: the arguments do not go together, or the storage cannot rename folders.
    """

    #: The builder that :meth:`for_row_format` returns.
    RowFormatBuilder = _RowFormatBuilder

    def __init__(
        self,
        directory: AnyPath,
        format: str = "json",
        columns: Columns = None,
        file_system: fs.FileSystem | None = None,
        *,
        retention_ms: int | None = None,
        compact: FileCompactStrategy | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        with _errors_of_arguments():
            self._retention_ms = None if retention_ms is None else positive("retention_ms", retention_ms)
        self._next_look_ms = 0
        if format not in _ENCODERS:
            raise SinkError(f"file sink: there is no format {format!r}; choose one of {', '.join(_ENCODERS)}")
        self._format = format
        self._columns = _checked_columns(format, columns)
        _check_strategy(format, columns, compact)
        super().__init__(directory, file_system, compact, now_ms)

    @staticmethod
    def for_row_format(base_path: AnyPath, encoder: Encoder) -> _RowFormatBuilder:
        """Return a builder for a sink of text lines, with PyFlink's folders and names.

        Args:
            base_path: a path or URI that driver and executors can reach; several jobs may write below it.
            encoder: ``Encoder.simple_string_encoder()``, which writes each record as ``print()`` shows it.
        """
        return _RowFormatBuilder(base_path, encoder)

    @property
    def owned(self) -> tuple[str, ...]:
        """The folder, to which no other sink may write."""
        return (f"the folder {real_folder(self.directory, self._fs, self._root)}",)

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        return FileWriter(self._begin(epoch), self._format, self._columns, self._own_file_system)

    @property
    def _joiner(self) -> FileJoiner:
        suffix, make_encoder = _ENCODERS[self._format]
        if self._format == "parquet":
            return FileJoiner(self._fs, suffix, None)
        header = io.BytesIO()
        if self._columns is not None:
            make_encoder(header, self._columns).write([])
        return FileJoiner(self._fs, suffix, len(header.getvalue()))

    def _committed(self, epoch: int) -> None:
        """Delete the epochs before ``epoch`` that are too old; each disappears at once."""
        now_ms = self._now_ms()
        if self._retention_ms is None or now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + self._retention_ms // 100  # a look lists the whole directory
        time_ms = now_ms - self._retention_ms
        for number, path in self._visible():
            if number >= epoch or (self._fs.get_file_info(path).mtime_ns or 0) >= time_ms * 1_000_000:
                break
            self._area.drop(path)
        self._area.sweep()

    # --- the job that owns the directory -------------------------------------------------------------

    def _check_owner(self, job_id: str, restored_epoch: int | None) -> None:
        owner = self._owner()
        if self._visible() and (owner != job_id or restored_epoch is None):
            raise SinkError(
                f"file sink: {self.directory} holds output of another run (job {owner}): choose an "
                f"empty directory, or restore that run's checkpoint",
                directory=self.directory,
            )

    def _take_ownership(self, job_id: str) -> None:
        if self._owner() != job_id:
            for _, path in self._area.epochs("prepared"):
                self._area.drop(path)
            self._area.write_file(f"{self._root}/{MARKER}", json.dumps({"job_id": job_id}).encode())

    def _owner(self) -> str | None:
        """Return the job that owns the directory, according to its marker file."""
        if not self._area.exists(f"{self._root}/{MARKER}"):
            return None
        data = read_note(self._fs, f"{self._root}/{MARKER}")
        try:
            return str(json.loads(data)["job_id"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            _log.warning("file sink: %s/%s is damaged and is ignored: %s", self._root, MARKER, error)
            found = self._area.found()
            return None if found is None else found.job_id
