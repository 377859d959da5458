"""Sinks whose tasks write Parquet files into a table's folder, which the driver adds to the table.

A table format such as Delta Lake or Iceberg shows only the files that a commit names. So a file may lie in
the table's folder as soon as a task has written it: that is its staging. Files of tasks that ran twice, and
of epochs that failed, are never named, and the format's own cleaning deletes them (``vacuum``).
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial, reduce
from itertools import islice
from typing import TypeAlias

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from pyflinkstate.api import Record, Reported, check_list, positive
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.sinks.file_sink import RECORDS_PER_WRITE, ParquetEncoder
from pyflinkstate.runtime.sinks.sink_files import ENCODING_ERRORS, OutputFile, sink_errors
from pyflinkstate.runtime.sinks.sinks import SinkWriter
from pyflinkstate.runtime.sinks.staged_sinks import StagedSink
from pyflinkstate.runtime.storage import OBJECT_STORES, AnyPath, make_folder, split_options

#: A task begins a new file when one has about so many bytes.
FILE_BYTES = 128 * 1024 * 1024
#: As many files a task has open at a time; a table with more partitions gets smaller files.
MOST_OPEN_FILES = 64

#: Opens the table's folder in a task: its file system and the path on it.
OpenFolder = Callable[[], tuple[fs.FileSystem, str]]
#: Returns the path of a file below the table's folder, of a name that no other file has, and the values of
#: the partition columns.
PathOf: TypeAlias = Callable[[str, Mapping[str, "str | None"]], str]


@attrs.frozen
class StagedFile:
    """A file that a task has written.

    Attributes:
        name: its name in the folder.
        size_bytes: its size.
        rows: how many rows it has.
        partition: the values of the partition columns of its rows, as texts; None for null.
    """

    name: str
    size_bytes: int
    rows: int
    partition: dict[str, str | None] = attrs.Factory(dict)

    @staticmethod
    def of(staged: Reported) -> StagedFile:
        """Return the file of which a note or a task says this."""
        assert isinstance(staged, dict)
        return StagedFile(**staged)


class StagedFilesSink(StagedSink):
    """A sink into a table of Parquet files.

    A subclass implements ``committed_epoch``, ``open_folder`` and ``add_files``.

    Attributes:
        has_partition_columns: whether files have the columns by which the table is partitioned.

    Args:
        name: see :class:`StagedSink`.
        schema: the columns of the table. Records are dicts with these fields, or tuples or lists in their
            order.
        partition_by: the columns by whose values the table is partitioned: a file has rows of one partition.
        file_bytes: a task begins a new file when one has about so many bytes. Default: 128 MiB.
        staging: see :class:`StagedSink`; only notes are kept there.
    """

    has_partition_columns = True

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        partition_by: Sequence[str] = (),
        *,
        file_bytes: int = FILE_BYTES,
        staging: AnyPath | None = None,
    ) -> None:
        super().__init__(name, staging)
        if not isinstance(schema, pa.Schema):
            raise ConfigurationError(f"sink {name!r}: schema must be a pyarrow.Schema, not {schema!r}")
        self.schema = schema
        check_list("partition_by", partition_by)
        self.partition_by = tuple(partition_by)
        unknown = [column for column in self.partition_by if column not in schema.names]
        if unknown or len(self.partition_by) >= len(schema.names):
            raise ConfigurationError(
                f"sink {name!r}: partition_by must be some of the columns {schema.names}, not "
                f"{list(self.partition_by)}"
            )
        self._file_bytes = positive("file_bytes", file_bytes)

    @abstractmethod
    def open_folder(self) -> OpenFolder:
        """Return a function, which is pickled, that opens the table's folder in a task."""

    @abstractmethod
    def add_files(self, epoch: int, files: list[StagedFile]) -> None:
        """Add an epoch's files to the table, and set the marker to the epoch, in one commit.

        Raises:
            JobSupersededError: the marker belongs to a newer run.
        """

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        path_of = self.path_of(epoch)
        return TableFileWriter(
            self.open_folder(),
            self.schema,
            self.partition_by,
            self.has_partition_columns,
            self._file_bytes,
            path_of,
        )

    def path_of(self, epoch: int) -> PathOf:
        """Return a function, which is pickled, that returns a file's path. Default: one folder has all."""
        return _flat

    def publish(self, epoch: int, staged: list[Reported]) -> None:
        """See :class:`StagedSink`."""
        self.add_files(epoch, [StagedFile.of(file) for file in staged])


def name_of_target(kind: str, uri: str) -> str:
    """Return a name for the sink of a table: letters and digits of its last folder, and a digest."""
    place, _, _ = split_options(uri)
    letters = re.sub(r"[^A-Za-z0-9_-]+", "-", place.rpartition("/")[2])
    return f"{kind}.{letters}-{hashlib.blake2s(place.encode(), digest_size=4).hexdigest()}"


def _flat(name: str, partition: Mapping[str, str | None]) -> str:
    return name


@attrs.frozen
class TableFileWriter:
    """Writes the records of a partition into files of a table."""

    open_folder: OpenFolder
    schema: pa.Schema
    partition_by: tuple[str, ...]
    has_partition_columns: bool
    file_bytes: int
    path_of: PathOf = _flat

    def write(self, partition: int, records: Iterator[Record]) -> Iterator[Reported]:
        """See :class:`SinkWriter`; yields a :class:`StagedFile` as a dict for each file."""
        encoder = ParquetEncoder(None, self.schema)
        with sink_errors("open the table's folder"):
            file_system, folder = self.open_folder()
        files: dict[tuple[str | None, ...], _OpenFile] = {}
        with ExitStack() as cleared:
            while batch := list(islice(records, RECORDS_PER_WRITE)):
                with sink_errors(f"write to {folder}", partial(_bad_record, encoder, batch)):
                    table = encoder.table(batch)
                for values, rows in self._parts(table):
                    file = files.get(values)
                    if file is None:
                        if len(files) >= MOST_OPEN_FILES:
                            yield files.pop(next(iter(files))).close()
                        file = files[values] = self._begin(file_system, folder, partition, values)
                        cleared.callback(file.abandon)
                    if file.write(rows) >= self.file_bytes:
                        yield files.pop(values).close()
            for file in files.values():
                yield file.close()
            cleared.pop_all()

    def _parts(self, table: pa.Table) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
        """Yield the rows of each partition of the table."""
        if not self.partition_by:
            yield (), table
            return
        texts = [table.column(name).cast(pa.string()) for name in self.partition_by]
        rows = table if self.has_partition_columns else table.drop_columns(list(self.partition_by))
        for values in dict.fromkeys(zip(*[column.to_pylist() for column in texts], strict=True)):
            masks = [
                pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)
                for column, value in zip(texts, values, strict=True)
            ]
            yield values, rows.filter(reduce(pc.and_, masks))

    def _begin(
        self, file_system: fs.FileSystem, folder: str, partition: int, values: tuple[str | None, ...]
    ) -> _OpenFile:
        of_columns = dict(zip(self.partition_by, values, strict=True))
        name = self.path_of(f"part-{partition:05d}-{uuid.uuid4().hex}.parquet", of_columns)
        path = f"{folder}/{name}"
        if file_system.type_name not in OBJECT_STORES:  # these need no folders
            with sink_errors(f"create {posixpath.dirname(path)}"):
                make_folder(file_system, posixpath.dirname(path))
        return _OpenFile(OutputFile(file_system, path), name, of_columns)


@attrs.define
class _OpenFile:
    """A file that is being written."""

    file: OutputFile
    name: str
    partition: dict[str, str | None]
    rows: int = 0
    _writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> int:
        """Append rows; return how many bytes the file has so far."""
        with sink_errors(f"write {self.file.path}"):
            if self._writer is None:
                self._writer = pq.ParquetWriter(self.file.stream, table.schema)
            self._writer.write_table(table)
            self.rows += table.num_rows
            return int(self.file.stream.tell())

    def close(self) -> Reported:
        """Finish the file, and return its :class:`StagedFile` as a dict."""
        assert self._writer is not None, "rows are written as soon as it is open"
        with sink_errors(f"close {self.file.path}"):
            self._writer.close()
            size_bytes = int(self.file.stream.tell())
        self.file.close()
        return attrs.asdict(StagedFile(self.name, size_bytes, self.rows, self.partition))

    def abandon(self) -> None:
        """Delete the file."""
        with suppress(OSError, ValueError, pa.ArrowException):
            if self._writer is not None:
                self._writer.close()
        self.file.abandon()


def _bad_record(encoder: ParquetEncoder, batch: list[Record]) -> Record:
    """Return the first record that does not fit the schema, or the whole batch if each one alone does."""
    for record in batch:
        try:
            encoder.table([record])
        except ENCODING_ERRORS:
            return record
    return batch
