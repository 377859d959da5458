"""The file sink: output that is committed by epoch, and never seen by halves."""

from __future__ import annotations

import csv
import io
import json
import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice
from typing import Protocol, TypeAlias

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from pyflinkstate.api.encoder import Encoder
from pyflinkstate.api.values import ArrowObject, Record, Reported
from pyflinkstate.errors import SinkError
from pyflinkstate.runtime.sinks.run_area import Change, RunArea, epoch_of, maker_of
from pyflinkstate.runtime.sinks.sink_errors import ENCODING_ERRORS, sink_errors
from pyflinkstate.runtime.sinks.sink_files import OutputFile, real_folder
from pyflinkstate.runtime.sinks.sinks import SinkWriter
from pyflinkstate.runtime.sinks.text_file_sink import RowFormatBuilder as _RowFormatBuilder
from pyflinkstate.runtime.storage import RunHistory, absolute, make_folder, open_file_system

_log = logging.getLogger("pyflinkstate")

MARKER = "_pyflinkstate.json"
#: Records that are written at once.
RECORDS_PER_WRITE = 4096

#: Names, or a schema; None leaves it to the records.
Columns: TypeAlias = ArrowObject


class _Encoder(Protocol):
    """Writes records into one open file."""

    @property
    def columns(self) -> Columns:
        """What the columns are, as far as is known."""

    def write(self, records: list[Record]) -> None:
        """Append records."""

    def close(self) -> None:
        """Write what belongs at the end; the stream itself is closed by others."""


class _LineEncoder:
    """One line for each record."""

    def __init__(self, stream: ArrowObject, columns: Columns, encode: Callable[[Record], str]) -> None:
        self._stream = stream
        self._encode = encode
        self.columns = columns

    def write(self, records: list[Record]) -> None:
        self._stream.write("".join([self._encode(record) + "\n" for record in records]).encode())

    def close(self) -> None:
        return


def _encode_json(record: Record) -> str:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


class _CsvEncoder:
    """CSV as in RFC 4180, with a header line where the columns are known."""

    def __init__(self, stream: ArrowObject, columns: Columns) -> None:
        self._stream = stream
        self.columns = columns

    def write(self, records: list[Record]) -> None:
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

    def __init__(self, stream: ArrowObject, columns: Columns) -> None:
        self._stream = stream
        self.columns = columns
        self._names = columns.names if isinstance(columns, pa.Schema) else columns
        self._schema = columns if isinstance(columns, pa.Schema) else None
        self._writer: pq.ParquetWriter | None = None

    def write(self, records: list[Record]) -> None:
        table = self.table(records)
        if self._writer is None:
            self._names, self._schema = table.schema.names, table.schema
            self._writer = pq.ParquetWriter(self._stream, table.schema)
        self._writer.write_table(table)

    def table(self, records: list[Record]) -> pa.Table:
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


def _lossless(values: list[Record], wanted: pa.DataType) -> pa.Array:
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


def _fields(record: Record, columns: Columns) -> list[Record]:
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


_ENCODERS: dict[str, tuple[str, Callable[[ArrowObject, Columns], _Encoder]]] = {
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

    def write(self, partition: int, records: Iterator[Record]) -> Iterator[Reported]:
        """See :class:`SinkWriter`; yields the file's name, or nothing for no records."""
        batch = list(islice(records, RECORDS_PER_WRITE))
        if not batch:
            return
        suffix, make_encoder = _ENCODERS[self.format]
        name = f"part-{partition:05d}-{uuid.uuid4().hex}{suffix}"
        file_system, folder = _opened(self.folder_uri, self.file_system)
        path = f"{folder}/{name}"
        with ExitStack() as cleared:
            file = OutputFile(file_system, path)
            cleared.callback(file.abandon)
            with sink_errors(f"write {path}"):
                encoder = make_encoder(file.open(), self.columns)
            cleared.callback(_abandon, encoder)
            # What goes wrong in getting the next records is not the sink's fault, so only writes are guarded.
            while batch:
                with sink_errors(f"write {path}", partial(self._bad_record, encoder, batch)):
                    encoder.write(batch)
                batch = list(islice(records, RECORDS_PER_WRITE))
            with sink_errors(f"close {path}"):
                encoder.close()
                file.close()
            cleared.pop_all()
        yield name

    def _bad_record(self, encoder: _Encoder, batch: list[Record]) -> Record:
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


def _abandon(encoder: _Encoder) -> None:
    """Close what would otherwise try to write when it is collected."""
    with suppress(OSError, pa.ArrowException):
        encoder.close()


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

    Spark reads the directory as a table partitioned by ``epoch``; ``_runs`` is skipped by it, as all names
    with an underscore are. What is there, and who may change it, is in ``run_area``. A job that goes back to
    an older checkpoint finds the output as that checkpoint covers it; what came later is moved aside.

    A directory belongs to one sink of one job. Two sinks of a job on one directory are refused when the job
    is built. Of two jobs the second is refused; while nothing is visible yet it is the first that fails.

    Args:
        directory: a path or URI that every executor reaches.
        format: ``"json"`` (one JSON value on each line), ``"csv"``, ``"parquet"``, or ``"text"`` (``str`` of
            each record; a line end in it stands as it is). Records of CSV and Parquet are dicts, tuples or
            lists.
        columns: of CSV their names, of Parquet names or a ``pyarrow.Schema``. Without, the first record of a
            file says them, if it is a dict; name them where files are to agree.
        file_system: where ``directory`` is a path on it, and not a URI. It must be able to rename folders.
    """

    #: What :meth:`for_row_format` returns.
    RowFormatBuilder = _RowFormatBuilder

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
        self._root = self._root.rstrip("/")
        legacy = {name: f"{self._root}/_{name}" for name in ("pending", "prepared", "dropped")}
        self._area = RunArea(self._fs, self._root, {**legacy, "aside": f"{self._root}/_aside"})

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> _RowFormatBuilder:
        """Begin to make a sink for lines of text, with PyFlink's folders and names.

        Args:
            base_path: a path or URI that driver and executors reach; several jobs may write below it.
            encoder: ``Encoder.simple_string_encoder()``: a record's line is what ``print()`` shows.
        """
        return _RowFormatBuilder(base_path, encoder)

    @property
    def owned_folder(self) -> str:
        """The folder that no other sink may write to, the same however its path was written."""
        return real_folder(self.directory, self._fs, self._root)

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """Begin where nobody knows the job's runs: a further one, behind what the directory has noted.

        Raises:
            SinkError: see :meth:`open_run`.
        """
        with sink_errors(f"use {self.directory}"):
            history = self._area.next_history(job_id, restored_epoch or 0)
        self.open_run(job_id, history, restored_epoch)

    def open_run(self, job_id: str, history: RunHistory, restored_epoch: int | None) -> None:
        """Take the directory for a run of a job, and bring what is visible to its history.

        Epochs that do not belong to it are moved aside; those that it needs and that were moved aside, or
        were prepared, are made visible.

        Raises:
            JobSupersededError: a newer run of the job has it.
            SinkError: the directory holds the output of another job, or output that the restored checkpoint
                covers was moved aside, and is there no more.
        """
        restored = restored_epoch or 0
        with sink_errors(f"use {self.directory}"):
            make_folder(self._fs, self._root)
            self._area.sync(self._root.rpartition("/")[0])  # an earlier try may not have come so far
            self._check_owner(job_id, restored_epoch)
            self._area.claim(job_id, history.runs[-1][0])
        with self._area.guarded(f"use {self.directory}"):
            if self._check_owner(job_id, restored_epoch) != job_id:
                self._forget_the_others(job_id)
            change = self._area.change_to(history, restored)
            self._retract(change)
            self._area.sync(self._root, self._area.path("prepared"))
            self._area.note(history)
            self._area.bring_back(change, self._bring_back)
            self._area.sync(self._root)
            self._clear()

    def _check_owner(self, job_id: str, restored_epoch: int | None) -> str | None:
        owner = self._owner()
        if self._visible() and (owner != job_id or restored_epoch is None):
            raise SinkError(
                f"file sink: {self.directory} holds output of another run (job {owner}): give an "
                f"empty directory, or restore that run's checkpoint",
                directory=self.directory,
            )
        return owner

    def _forget_the_others(self, job_id: str) -> None:
        for _, name in self._area.epochs("prepared"):
            self._area.drop(self._area.path("prepared", name))
        self._area.write_file(f"{self._root}/{MARKER}", json.dumps({"job_id": job_id}).encode())

    def _retract(self, change: Change) -> None:
        """Move aside what is not in the new history, and make visible what is prepared and in it."""
        for epoch in self._visible():
            if not change.stays(epoch):
                self._put_aside(f"{self._root}/epoch={epoch}", maker_of(change.before, epoch), epoch)
        for epoch, name in self._area.epochs("prepared"):
            prepared = self._area.path("prepared", name)
            if change.stays(epoch):
                self._fs.move(prepared, f"{self._root}/epoch={epoch}")
            elif (maker := maker_of(change.before, epoch)) == self._area.owner.run:
                self._area.drop(prepared)
            else:
                self._put_aside(prepared, maker, epoch)

    def _put_aside(self, folder: str, run: str, epoch: int) -> None:
        aside = self._area.free_name_aside(run, f"epoch={epoch}")
        self._fs.move(folder, aside)
        self._area.sync(aside.rpartition("/")[0])
        _log.info("file sink: moved epoch %d of %s to %s", epoch, self.directory, aside)

    def _bring_back(self, run: str, name: str) -> None:
        self._fs.move(self._area.path("aside", run, name), f"{self._root}/{name}")

    def _clear(self) -> None:
        for _, name in self._area.epochs("pending"):
            self._area.drop(self._area.path("pending", name))
        self._area.sweep()

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        with self._area.guarded(f"begin epoch {epoch}"):
            self._area.make("pending", f"epoch={epoch}")
        folder = "/".join([self.directory, self._area.below_parent("pending", f"epoch={epoch}")])
        return FileWriter(folder, self._format, self._columns, self._own_file_system)

    def prepare(self, epoch: int, results: list[Reported]) -> None:
        """Set the epoch aside: just the files of those task attempts that Spark counted."""
        pending = self._area.path("pending", f"epoch={epoch}")
        with self._area.guarded(f"prepare epoch {epoch}"):
            if results:
                prepared = self._area.make("prepared", f"epoch={epoch}")
                for name in results:
                    self._fs.move(f"{pending}/{name}", f"{prepared}/{name}")
                self._area.sync(prepared, self._area.path("prepared"))
            if self._area.exists(pending):
                self._fs.delete_dir(pending)

    def commit(self, epoch: int) -> None:
        """See :class:`Sink`. A commit that was interrupted is carried on by the next."""
        with self._area.guarded(f"commit epoch {epoch}"):
            for number, name in self._area.epochs("prepared"):
                if number <= epoch:
                    self._fs.move(self._area.path("prepared", name), f"{self._root}/epoch={number}")
            self._area.sync(self._root, self._area.path("prepared"))

    def rewind(self, epoch: int) -> None:
        """Throw away what was prepared after an epoch, and move aside what was even committed."""
        with self._area.guarded(f"rewind to epoch {epoch}"):
            for number, name in self._area.epochs("prepared"):
                if number > epoch:
                    self._area.drop(self._area.path("prepared", name))
            self._take_back(epoch)
            self._clear()

    def _take_back(self, epoch: int) -> None:
        later = [number for number in self._visible() if number > epoch]
        noted = self._area.noted()
        history = RunHistory() if noted is None else noted.history
        for number in later:
            self._put_aside(f"{self._root}/epoch={number}", maker_of(history, number), number)
        if later:
            self._area.sync(self._root)
            self._area.note(history.continued(epoch, self._area.owner.run))

    def _owner(self) -> str | None:
        """Return the job that the directory belongs to, by its mark."""
        if not self._area.exists(f"{self._root}/{MARKER}"):
            return None
        with self._fs.open_input_stream(f"{self._root}/{MARKER}") as stream:
            data = stream.read()
        try:
            return str(json.loads(data)["job_id"])
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("file sink: %s/%s is damaged, and passed over: %s", self._root, MARKER, error)
            found = self._area.found()
            return None if found is None else found.job_id

    def _visible(self) -> list[int]:
        names = self._area.names_in(self._root)
        numbers = {epoch_of(name): name for name in names}
        return sorted(n for n, name in numbers.items() if n is not None and name == f"epoch={n}")
