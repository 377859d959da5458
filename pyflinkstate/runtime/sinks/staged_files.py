"""Sinks whose tasks write Parquet files into a table's folder, which the driver adds to the table.

A table format such as Delta Lake or Iceberg shows only the files that a commit names. So a file may lie in
the table's folder as soon as a task has written it: that is its staging. Files of tasks that ran twice, and
of epochs that failed, are never named, and the format's own cleaning deletes them (``vacuum``).

With a key, tasks write *changes* in place of rows, into files of the staging area, and the driver reads the
last change of each key.
"""

from __future__ import annotations

import hashlib
import math
import posixpath
import re
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial, reduce
from itertools import islice
from typing import TypeAlias

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from pyflinkstate.api import Record, Reported, check_kind, check_list, positive
from pyflinkstate.errors import BadRecordError, ConfigurationError, SinkError
from pyflinkstate.runtime.sinks.file_sink import RECORDS_PER_WRITE, ParquetEncoder, bad_record
from pyflinkstate.runtime.sinks.sink_files import OutputFile, opened, sink_errors
from pyflinkstate.runtime.sinks.sinks import SinkWriter
from pyflinkstate.runtime.sinks.staged_sinks import Convert, RowConverter, StagedSink
from pyflinkstate.runtime.storage import (
    OBJECT_STORES,
    AnyPath,
    child_uri,
    flush_folder,
    make_folder,
    split_options,
)

#: A task begins a new file when one has about so many bytes.
FILE_BYTES = 128 * 1024 * 1024
#: As many files a task has open at a time; a table with more partitions gets smaller files.
MOST_OPEN_FILES = 64

#: The column of changes that says whether the row is deleted.
IS_DELETE = "_pyflinkstate_delete"
_NUMBER = "_pyflinkstate_number"

#: Opens the table's folder in a task: its file system and the path on it.
OpenFolder = Callable[[], tuple[fs.FileSystem, str]]
#: Returns the path of a file below the table's folder, of a name that no other file has, and the values of
#: the partition columns.
PathOf: TypeAlias = Callable[[str, Mapping[str, "str | None"]], str]
#: Tests of types.
Kinds = Sequence[Callable[[pa.DataType], bool]]
_NO_KEY: Kinds = (pa.types.is_floating, pa.types.is_nested)  # their values cannot be compared
_NO_PARTITION: Kinds = (*_NO_KEY, pa.types.is_binary, pa.types.is_large_binary)  # nor have these a text


@attrs.frozen
class StagedFile:
    """A file that a task has written.

    Attributes:
        name: its path in the table's folder or, if it has changes, in the folder where the sink stages them.
        size_bytes: its size.
        rows: how many rows it has.
        partition: the values of the partition columns of its rows, as strings; None for null.
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

    A subclass implements ``committed_epoch``, ``open_folder``, ``add_files`` and, if it takes a key,
    ``add_changes``.

    With a key, tasks stage *changes* in files that are not the table's, and the driver changes the table: it
    needs memory for what changes between two checkpoints. The records of a key must come from one task, as
    they do behind ``key_by``; the last one counts. A ``Row`` of kind ``DELETE`` deletes the row of its key,
    one of kind ``UPDATE_BEFORE`` is left out. Without a key, these two are errors.

    Attributes:
        has_partition_columns: whether files have the columns by which the table is partitioned.
        most_partition_bytes: the longest value of a partition column, as UTF-8. Default: no limit.
        may_add_columns: whether columns that the table does not have are added to it.
        may_leave_columns: whether the table may have further columns, which are null.

    Args:
        name: see :class:`StagedSink`.
        schema: the columns of the table. Records are dicts with these fields, or tuples, lists or ``Row``s in
            their order; a ``Row`` with names is taken by these.
        partition_by: the columns by whose values the table is partitioned: a file has rows of one partition.
            They and those of the key must not be floating-point or nested, and they not binary.
        key: the columns by which records replace each other; they must not be null. Default: records are
            appended.
        file_bytes: a task begins a new file when one has about so many bytes. Default: 128 MiB.
        staging: see :class:`StagedSink`; it keeps notes, and with a key changes.
    """

    has_partition_columns = True
    most_partition_bytes = math.inf
    may_add_columns = False
    may_leave_columns = False

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        partition_by: Sequence[str] = (),
        *,
        key: Sequence[str] | None = None,
        file_bytes: int = FILE_BYTES,
        staging: AnyPath | None = None,
    ) -> None:
        super().__init__(name, staging)
        check_kind(f"sink {name!r}: schema must be a pyarrow.Schema", schema, pa.Schema)
        self.schema = schema
        self.partition_by = self._some_columns("partition_by", partition_by, _NO_PARTITION)
        if len(self.partition_by) == len(schema.names):
            raise ConfigurationError(f"sink {name!r}: partition_by must leave columns for the files")
        self.key = None if key is None else self._some_columns("key", key, _NO_KEY)
        if self.key == ():
            raise ConfigurationError(f"sink {name!r}: key must be some of the columns {schema.names}")
        self._file_bytes = positive("file_bytes", file_bytes)
        self.prepared_bytes = 0

    def _some_columns(self, what: str, columns: Sequence[str], refused: Kinds) -> tuple[str, ...]:
        check_list(what, columns)
        if not set(columns) <= set(self.schema.names):
            raise ConfigurationError(
                f"sink {self.name!r}: {what} must be some of the columns {self.schema.names}, not {columns}"
            )
        for field in map(self.schema.field, columns):
            if any(is_(field.type) for is_ in refused):
                raise ConfigurationError(
                    f"sink {self.name!r}: {what} must not have a column of {field.type}, such as "
                    f"{field.name!r}"
                )
        return tuple(columns)

    def check_fits(
        self,
        table: str,
        columns: pa.Schema,
        partitions: Sequence[str],
        own: pa.Schema,
        more: Iterable[str] = (),
    ) -> None:
        """Check that a table can take the files of the sink.

        Args:
            table: the name of the table, for the error.
            columns: its columns.
            partitions: the columns by which it is partitioned.
            own: those columns of the sink that the table has, with the types that it would give them.
            more: what else does not fit.

        Raises:
            SinkError: it cannot.
        """
        misfits = [*more, *self._misfits(columns, own)]
        if set(partitions) != set(self.partition_by):
            misfits.append(f"it is partitioned by {list(partitions)}, not by {list(self.partition_by)}")
        if misfits:
            raise SinkError(
                f"sink {self.name!r}: the table {table} does not fit: {'; '.join(misfits)}. Change "
                f"the schema of the sink or the table, or write to another one",
                sink=self.name,
                table=table,
            )

    def _misfits(self, columns: pa.Schema, own: pa.Schema) -> Iterator[str]:
        for name in self.schema.names:
            if name not in columns.names and not self.may_add_columns:
                yield f"column {name!r} is not in the table"
        for field in columns:
            if field.name not in self.schema.names:
                if not (self.may_leave_columns and field.nullable):
                    is_strict = "" if field.nullable else ", and must not be null"
                    yield f"column {field.name!r} is not in the sink{is_strict}"
            elif (given := own.field(field.name)).type != field.type:
                yield f"column {field.name!r} has {field.type}, not {given.type}"
            elif given.nullable and not field.nullable and field.name not in (self.key or ()):
                yield f"column {field.name!r} must not be null: declare it so in the sink"

    @abstractmethod
    def open_folder(self) -> OpenFolder:
        """Return a function, which is pickled, that opens the table's folder in a task."""

    @abstractmethod
    def add_files(self, epoch: int, files: list[StagedFile]) -> None:
        """Add files to the table, and set the marker to an epoch, in one commit.

        Raises:
            JobSupersededError: the marker belongs to a newer run.
        """

    def add_changes(self, epoch: int, changes: pa.Table) -> None:
        """Change rows of the table by key, and set the marker to an epoch, in one commit.

        Args:
            epoch: the number of the epoch.
            changes: the last change of each key: the columns of the schema, and ``IS_DELETE``, whether the
                row is deleted.

        Raises:
            JobSupersededError: the marker belongs to a newer run.
        """
        raise NotImplementedError

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        area = self.area
        if self.key is None:
            return TableFileWriter(
                self.open_folder(),
                self.schema,
                self.partition_by,
                self.has_partition_columns,
                self._file_bytes,
                self.path_of(epoch),
                self.most_partition_bytes,
            )
        return TableFileWriter(
            partial(opened, area.uri, None),
            self.schema.append(pa.field(IS_DELETE, pa.bool_())),
            (),
            True,
            self._file_bytes,
            partial(_path_below, f"{self.run}/epoch={epoch}"),
            convert=RowConverter(self.name, tuple(self.schema.names), self.key),
        )

    def path_of(self, epoch: int) -> PathOf:
        """Return a function, which is pickled, that returns a file's path. Default: one folder has all."""
        return partial(_path_below, "")

    def prepare(self, epoch: int, results: list[Reported]) -> None:
        """See :class:`StagedSink`; the names of files in the table's folder are durable too."""
        if results and self.key is None:
            with sink_errors("flush the table's folder"):
                flush_folder(*self.open_folder()())
        super().prepare(epoch, results)
        self.prepared_bytes += sum(StagedFile.of(result).size_bytes for result in results)

    def publish(self, epoch: int, staged: list[Reported]) -> None:
        """See :class:`StagedSink`."""
        files = [StagedFile.of(file) for file in staged]
        if self.key is None or not files:
            self.add_files(epoch, files)
        else:
            self.add_changes(epoch, self._last_changes(files, self.key))

    def _last_changes(self, files: list[StagedFile], key: tuple[str, ...]) -> pa.Table:
        tables = []
        for file in files:
            file_system, path = opened(child_uri(self.area.uri, file.name), None)
            with sink_errors(f"read {path}"), file_system.open_input_file(path) as stream:
                tables.append(pq.read_table(stream))
        changes = pa.concat_tables(tables)
        numbered = changes.append_column(_NUMBER, pa.array(range(changes.num_rows), pa.int64()))
        last = numbered.group_by(list(key)).aggregate([(_NUMBER, "max")])
        return changes.take(last[f"{_NUMBER}_max"])


def name_of_target(kind: str, uri: str) -> str:
    """Return a name for the sink of a table: letters and digits of its last folder, and a digest."""
    place, _, _ = split_options(uri)
    letters = re.sub(r"[^A-Za-z0-9_-]+", "-", place.rpartition("/")[2])
    return f"{kind}.{letters}-{hashlib.blake2s(place.encode(), digest_size=4).hexdigest()}"


def _path_below(folder: str, name: str, partition: Mapping[str, str | None]) -> str:
    return posixpath.join(folder, name)


@attrs.frozen
class TableFileWriter:
    """Writes the records of a partition into files of a table."""

    open_folder: OpenFolder
    schema: pa.Schema
    partition_by: tuple[str, ...]
    has_partition_columns: bool
    file_bytes: int
    path_of: PathOf
    most_partition_bytes: float = math.inf
    convert: Convert = iter

    def write(self, partition: int, records: Iterator[Record]) -> Iterator[Reported]:
        """See :class:`SinkWriter`; yields a :class:`StagedFile` as a dict for each file."""
        encoder = ParquetEncoder(None, self.schema)
        rows = self.convert(records)
        with sink_errors("open the table's folder"):
            file_system, folder = self.open_folder()
        files: dict[tuple[str | None, ...], _OpenFile] = {}
        with ExitStack() as cleared:
            while batch := list(islice(rows, RECORDS_PER_WRITE)):
                with sink_errors(f"write to {folder}", partial(bad_record, encoder.table, batch)):
                    table = encoder.table(batch)
                for values, part in self._parts(table):
                    file = files.get(values)
                    if file is None:
                        if len(files) >= MOST_OPEN_FILES:
                            yield files.pop(next(iter(files))).close()
                        file = files[values] = self._begin(file_system, folder, partition, values)
                        cleared.callback(file.abandon)
                    if file.write(part) >= self.file_bytes:
                        yield files.pop(values).close()
            for file in files.values():
                yield file.close()
            cleared.pop_all()

    def _parts(self, table: pa.Table) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
        """Yield the rows of each partition of the table."""
        if not self.partition_by:
            yield (), table
            return
        import pyarrow.compute as pc  # each slot loads this module, and few partition files

        texts = [table.column(name).cast(pa.string()) for name in self.partition_by]
        rows = table if self.has_partition_columns else table.drop_columns(list(self.partition_by))
        for values in dict.fromkeys(zip(*[column.to_pylist() for column in texts], strict=True)):
            masks = [
                pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)
                for column, value in zip(texts, values, strict=True)
            ]
            for name, value in zip(self.partition_by, values, strict=True):
                if value is not None and len(value.encode()) > self.most_partition_bytes:
                    raise BadRecordError(
                        f"sink: a value of the partition column {name!r} has more than "
                        f"{self.most_partition_bytes} bytes: {value[:40]!r}... Partition by shorter values",
                        column=name,
                    )
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
