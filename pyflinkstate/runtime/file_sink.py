"""The file sink: output that is committed by epoch, and never seen by halves."""

from __future__ import annotations

import csv
import io
import json
import re
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Protocol

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from pyflinkstate.api.encoder import Encoder
from pyflinkstate.errors import SinkError
from pyflinkstate.runtime.row_format import RowFormatBuilder
from pyflinkstate.runtime.sink_errors import ENCODING_ERRORS, sink_errors
from pyflinkstate.runtime.sinks import SinkWriter
from pyflinkstate.runtime.uris import absolute, open_file_system

MARKER = "_pyflinkstate.json"
#: Records that are written at once.
RECORDS_PER_WRITE = 4096
_EPOCH_FOLDER = re.compile(r"epoch=(\d+)")


#: Names, or a schema; None leaves it to the records.
Columns = Any


class _Encoder(Protocol):
    """Writes records into one open file."""

    @property
    def columns(self) -> Columns:
        """What the columns are, as far as is known."""

    def write(self, records: list[Any]) -> None:
        """Append records."""

    def close(self) -> None:
        """Write what belongs at the end; the stream itself is closed by others."""


class _LineEncoder:
    """One line for each record."""

    def __init__(self, stream: Any, columns: Columns, encode: Callable[[Any], str]) -> None:
        self._stream = stream
        self._encode = encode
        self.columns = columns

    def write(self, records: list[Any]) -> None:
        self._stream.write("".join([self._encode(record) + "\n" for record in records]).encode())

    def close(self) -> None:
        return


def _encode_json(record: Any) -> str:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


class _CsvEncoder:
    """CSV as in RFC 4180, with a header line where the columns are known."""

    def __init__(self, stream: Any, columns: Columns) -> None:
        self._stream = stream
        self.columns = columns

    def write(self, records: list[Any]) -> None:
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        if self.columns is None and isinstance(records[0], dict):
            self.columns = list(records[0])
        if self._stream.tell() == 0 and self.columns is not None:
            writer.writerow(self.columns)
        writer.writerows([_fields(record, self.columns) for record in records])
        self._stream.write(text.getvalue().encode())

    def close(self) -> None:
        return


class _ParquetEncoder:
    """Parquet; without a schema the first records of a file say what its columns are."""

    def __init__(self, stream: Any, columns: Columns) -> None:
        self._stream = stream
        self.columns = columns
        self._names = columns.names if isinstance(columns, pa.Schema) else columns
        self._schema = columns if isinstance(columns, pa.Schema) else None
        self._writer: pq.ParquetWriter | None = None

    def write(self, records: list[Any]) -> None:
        table = self.table(records)
        if self._writer is None:
            self._names, self._schema = table.schema.names, table.schema
            self._writer = pq.ParquetWriter(self._stream, table.schema)
        self._writer.write_table(table)

    def table(self, records: list[Any]) -> pa.Table:
        """Return the records as columns; raises ``ValueError`` where a value would be cut down."""
        names = self._names
        if names is None and isinstance(records[0], dict):
            names = list(records[0])
        if not names:
            raise ValueError("records of Parquet are dicts with fields, or the sink is given columns")
        rows = [_fields(record, names) for record in records]
        columns = [list(column) for column in zip(*rows, strict=True)]
        if self._schema is None:
            return pa.table(dict(zip(names, map(pa.array, columns), strict=True)))
        arrays = [_lossless(values, field.type) for values, field in zip(columns, self._schema, strict=True)]
        return pa.table(arrays, schema=self._schema)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _lossless(values: list[Any], wanted: pa.DataType) -> pa.Array:
    """Return ``values`` as an array of ``wanted``; pyarrow itself would cut some down without a word."""
    found = pa.array(values)
    if found.type == wanted:
        return found
    if not _holds(wanted, found.type):
        raise ValueError(f"values of {found.type} do not fit a column of {wanted}")
    if pa.types.is_nested(wanted):
        return pa.array(values, wanted)
    return found.cast(wanted)  # raises where a value does not fit


def _holds(wanted: pa.DataType, found: pa.DataType, nested: bool = False) -> bool:
    """Return whether values of one type may be tried as another; inside of others nothing may be lost."""
    types = pa.types
    if types.is_null(found) or found == wanted:
        return True
    if types.is_struct(found) and types.is_struct(wanted):
        fields = {field.name: field.type for field in wanted}
        return all(field.name in fields and _holds(fields[field.name], field.type, True) for field in found)
    if types.is_list(found) and (types.is_list(wanted) or types.is_large_list(wanted)):
        return _holds(wanted.value_type, found.value_type, True)
    if types.is_struct(found) and types.is_map(wanted):
        return not nested
    if types.is_integer(found):
        return bool(types.is_integer(wanted) or types.is_floating(wanted) or types.is_decimal(wanted))
    if types.is_floating(found):
        return bool(types.is_floating(wanted) or (types.is_integer(wanted) and not nested))
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


def _fields(record: Any, columns: Any) -> list[Any]:
    """Return a record's fields in the order of ``columns``; raises ``ValueError`` if it has others."""
    if isinstance(record, dict):
        if columns is None or record.keys() != set(columns):
            raise ValueError(f"its fields are {list(record)}, and the columns {columns}")
        return [record[name] for name in columns]
    if not isinstance(record, (tuple, list)):
        raise TypeError("records are dicts, tuples or lists here")
    if columns is not None and len(record) != len(columns):
        raise ValueError(f"it has {len(record)} fields, and there are {len(columns)} columns")
    return list(record)


_ENCODERS: dict[str, tuple[str, Callable[[Any, Columns], _Encoder]]] = {
    "json": (".jsonl", lambda stream, columns: _LineEncoder(stream, columns, _encode_json)),
    "text": (".txt", lambda stream, columns: _LineEncoder(stream, columns, str)),
    "csv": (".csv", _CsvEncoder),
    "parquet": (".parquet", _ParquetEncoder),
}


def _opened(uri: str, file_system: fs.FileSystem | None) -> tuple[fs.FileSystem, str]:
    return open_file_system(uri) if file_system is None else (file_system, uri)


@attrs.frozen
class FileWriter:
    """Writes one partition's records into a file of its own."""

    folder_uri: str
    format: str
    columns: Columns = None
    file_system: fs.FileSystem | None = None

    def write(self, partition: int, records: Iterator[Any]) -> Iterator[Any]:
        """See :class:`SinkWriter`; yields the file's name, or nothing for no records."""
        batch = list(islice(records, RECORDS_PER_WRITE))
        if not batch:
            return
        suffix, make_encoder = _ENCODERS[self.format]
        name = f"part-{partition:05d}-{uuid.uuid4().hex}{suffix}"
        file_system, folder = _opened(self.folder_uri, self.file_system)
        path = f"{folder}/{name}"
        with sink_errors(f"write {path}"):
            file_system.create_dir(folder, recursive=True)
            stream = file_system.open_output_stream(path)
        encoder = make_encoder(stream, self.columns)
        # What goes wrong in getting the next records is not the sink's fault, so only writes are guarded.
        while batch:
            with sink_errors(f"write {path}", partial(self._bad_record, encoder, batch)):
                encoder.write(batch)
            batch = list(islice(records, RECORDS_PER_WRITE))
        with sink_errors(f"close {path}"):
            encoder.close()
            stream.close()
        yield name

    def _bad_record(self, encoder: _Encoder, batch: list[Any]) -> Any:
        """Return the first record that cannot be written; the whole batch if each of them could."""
        for record in batch:
            try:
                if isinstance(encoder, _ParquetEncoder):
                    encoder.table([record])
                else:
                    _ENCODERS[self.format][1](io.BytesIO(), encoder.columns).write([record])
            except ENCODING_ERRORS:
                return record
        return batch


def _check_columns(format: str, columns: Columns) -> None:
    if columns is None:
        return
    if isinstance(columns, pa.Schema) and format != "parquet":
        raise SinkError(f"file sink: a schema is for Parquet; {format} takes names of columns")
    names = columns.names if isinstance(columns, pa.Schema) else list(columns)
    if len(set(names)) < len(names):
        raise SinkError(f"file sink: a column stands twice in {names}")


class FileSink:
    """Files below a directory, ``epoch=<n>/part-*``, each epoch visible at once or not at all.

    Spark reads the directory as a table partitioned by ``epoch``; ``_pending`` and ``_prepared`` are
    skipped by it, as all names with an underscore are.

    Args:
        directory: a path or URI that every executor reaches.
        format: ``"json"`` (one JSON value on each line), ``"csv"``, ``"parquet"``, or ``"text"`` (``str`` of
            each record; a line end in it stands as it is). Records of CSV and Parquet are dicts, tuples or
            lists.
        columns: of CSV their names, of Parquet names or a ``pyarrow.Schema``. Without, the first record of a
            file says them, if it is a dict; name them where files are to agree.
        file_system: where ``directory`` is a path on it, and not a URI. It must be able to rename folders.
    """

    def __init__(
        self,
        directory: str,
        format: str = "json",
        columns: Columns = None,
        file_system: fs.FileSystem | None = None,
    ) -> None:
        if format not in _ENCODERS:
            raise SinkError(f"file sink: no format {format!r}; choose one of {', '.join(_ENCODERS)}")
        self.directory = (absolute(directory) if file_system is None else directory).rstrip("/")
        self._format = format
        self._columns = columns if columns is None or isinstance(columns, pa.Schema) else list(columns)
        _check_columns(format, self._columns)
        with sink_errors(f"open {directory}"):
            self._fs, self._root = _opened(self.directory, file_system)
        self._own_file_system = file_system
        if file_system is None and not isinstance(self._fs, (fs.LocalFileSystem, fs.HadoopFileSystem)):
            raise SinkError(
                f"file sink: {directory}: an epoch is made visible by renaming a folder, which "
                f"{self._fs.type_name} storage cannot do; write to a local or HDFS directory"
            )

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> RowFormatBuilder:
        """Begin to make a sink for lines of text, with PyFlink's folders and names.

        Args:
            base_path: a path or URI that driver and executors reach; several jobs may write below it.
            encoder: ``Encoder.simple_string_encoder()``: a record's line is what ``print()`` shows.
        """
        return RowFormatBuilder(base_path, encoder)

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """Take the directory for this job.

        Raises:
            SinkError: it holds the output of another run, which would be mixed with this one's.
        """
        with sink_errors(f"use {self.directory}"):
            self._fs.create_dir(self._root, recursive=True)
            owner = self._owner()
            if self._epochs("") and (owner != job_id or restored_epoch is None):
                raise SinkError(
                    f"file sink: {self.directory} holds output of another run (job {owner}): give an "
                    f"empty directory, or restore that run's checkpoint",
                    directory=self.directory,
                )
            self._set_owner(job_id)
            keep = restored_epoch if restored_epoch is not None and owner == job_id else 0
            self.rewind(keep)
            self.commit(keep)

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        folder = f"{self.directory}/_pending/epoch={epoch}"
        return FileWriter(folder, self._format, self._columns, self._own_file_system)

    def prepare(self, epoch: int, results: list[Any]) -> None:
        """Set the epoch aside: just the files of those task attempts that Spark counted."""
        pending = f"{self._root}/_pending/epoch={epoch}"
        with sink_errors(f"prepare epoch {epoch}"):
            if not results:
                return
            prepared = f"{self._root}/_prepared/epoch={epoch}"
            self._fs.create_dir(prepared, recursive=True)
            for name in results:
                self._fs.move(f"{pending}/{name}", f"{prepared}/{name}")
            self._fs.delete_dir(pending)

    def commit(self, epoch: int) -> None:
        """See :class:`Sink`. A commit that was interrupted is carried on by the next."""
        with sink_errors(f"commit epoch {epoch}"):
            for number in self._epochs("/_prepared"):
                if number <= epoch:
                    name = f"epoch={number}"
                    self._fs.move(f"{self._root}/_prepared/{name}", f"{self._root}/{name}")

    def rewind(self, epoch: int) -> None:
        """See :class:`Sink`."""
        with sink_errors(f"rewind to epoch {epoch}"):
            for folder in ("/_pending", "/_prepared", ""):
                for number in self._epochs(folder):
                    if number > epoch or folder == "/_pending":
                        self._drop(f"{self._root}{folder}/epoch={number}")
            dropped = f"{self._root}/_dropped"
            if self._fs.get_file_info(dropped).type != fs.FileType.NotFound:
                self._fs.delete_dir(dropped)

    def _drop(self, folder: str) -> None:
        """Take a folder out of sight at once; deleting it may be interrupted half-way."""
        self._fs.create_dir(f"{self._root}/_dropped", recursive=True)
        self._fs.move(folder, f"{self._root}/_dropped/{uuid.uuid4().hex}")

    def _set_owner(self, job_id: str) -> None:
        unfinished = f"{self._root}/{MARKER}.{uuid.uuid4().hex}"
        with self._fs.open_output_stream(unfinished) as stream:
            stream.write(json.dumps({"job_id": job_id}).encode())
        self._fs.move(unfinished, f"{self._root}/{MARKER}")

    def _owner(self) -> str | None:
        if self._fs.get_file_info(f"{self._root}/{MARKER}").type == fs.FileType.NotFound:
            return None
        with self._fs.open_input_stream(f"{self._root}/{MARKER}") as stream:
            owner: str = json.loads(stream.read())["job_id"]
        return owner

    def _epochs(self, folder: str) -> list[int]:
        infos = self._fs.get_file_info(fs.FileSelector(self._root + folder, allow_not_found=True))
        return sorted(int(match[1]) for info in infos if (match := _EPOCH_FOLDER.fullmatch(info.base_name)))
