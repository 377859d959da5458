"""A sink into a table of Delta Lake, exactly once.

Tasks write Parquet files into the table's folder. The driver adds those of an epoch to the table in one
commit, which also has the *marker*: the version of an application transaction, a number that the table keeps
for each application. There are three of them for a sink of a job: the epoch; the run of the job that has the
table; and the run whose tasks wrote the epoch.

Each commit has the second one. So of two drivers that commit at the same time one fails, loads the table
again, and finds out whether it is the older. Delta-rs would not refuse a commit because of a number that is
already there: the driver loads the table, looks, and commits in this order, with no other load in between.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from urllib.parse import unquote

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from pyflinkstate.api import Record, Reported, Row, RowKind, check_list, positive
from pyflinkstate.backends.wall_clock import wall_clock_ms
from pyflinkstate.connectors.delta import LOG, DeltaPlace, columns_of, delta_errors, rules_of, storable
from pyflinkstate.connectors.extras import needs
from pyflinkstate.errors import ConfigurationError, SinkError, SinkStorageError
from pyflinkstate.runtime.sinks import (
    FILE_BYTES,
    OpenFolder,
    SinkWriter,
    StagedFile,
    StagedFilesSink,
    TableFileWriter,
    name_of_target,
    opened,
    sink_errors,
)
from pyflinkstate.runtime.storage import (
    AnyPath,
    RunHistory,
    child_uri,
    flush_file,
    flush_folder,
    is_local,
)

with needs("delta"):
    from deltalake import CommitProperties, DeltaTable, Schema as DeltaSchema, Transaction
    from deltalake.exceptions import CommitFailedError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction

_log = logging.getLogger("pyflinkstate.sinks")

#: The key of this package in a commit's metadata.
_METADATA = "pyflinkstate"
#: As often a commit is tried if other writers of the table are faster.
MOST_ATTEMPTS = 20
#: Columns that the changes of an upsert have as well.
_IS_DELETE, _ORDER = "_pyflinkstate_delete", "_pyflinkstate_order"


def _number(run: str) -> int:
    """Return the number that stands for a run in a transaction; that of a newer run is greater."""
    number, _, token = run.partition("-")
    return int(number) << 32 | int(token, 16)


def _run(number: int) -> str:
    return f"{number >> 32:06d}-{number & 0xFFFFFFFF:08x}"


class DeltaSink(StagedFilesSink):
    """Appends records to a table of Delta Lake, or replaces them by key, in one commit for each epoch.

    The table is created if it does not exist. Other programs may write to it at the same time. A job that
    goes back to an older checkpoint takes its later commits back, if the table has only commits of this sink
    since then, and the files are still there.

    With ``key`` the driver merges an epoch's changes into the table: it needs memory for the changes of one
    epoch. The records of a key must come from one task, as they do behind ``key_by``; the last one counts. A
    ``Row`` of kind ``DELETE`` deletes the row of its key, one of kind ``UPDATE_BEFORE`` is left out.

    The files of tasks that ran twice, and of epochs that failed, lie in the table's folder until
    ``vacuum(full=True)`` deletes them. Keep its retention longer than a checkpoint takes.

    Args:
        table_uri: a local path that driver and executors reach, or ``s3://BUCKET/PATH``.
        schema: the columns of the table. Records are dicts with these fields, or tuples or lists in their
            order.
        partition_by: the columns by whose values the table is partitioned. An empty string is read as null.
        key: the columns by which records replace each other; they must not be null. Default: none, records
            are appended.
        name: the name of the sink in its marker. Default: made of ``table_uri``.
        storage_options: options of S3 as ``deltalake`` takes them, such as ``AWS_ENDPOINT_URL``.
        schema_evolution: whether columns that the table does not have are added to it, and columns that the
            sink does not have are null. Default: no, a table with other columns is refused.
        compact_every: number of epochs after which small files are compacted; the old files stay until a
            ``vacuum``. Default: never.
        file_bytes: a task begins a new file when one has about so many bytes. Default: 128 MiB.
        staging: see :class:`StagedSink`.
        now_ms: returns the time in ms since 1970.

    Raises:
        ConfigurationError: the arguments do not go together, or Delta Lake has no such type.
    """

    has_partition_columns = False

    def __init__(
        self,
        table_uri: AnyPath,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        key: Sequence[str] | None = None,
        name: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        schema_evolution: bool = False,
        compact_every: int | None = None,
        file_bytes: int = FILE_BYTES,
        staging: AnyPath | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.place = DeltaPlace(table_uri, storage_options)
        super().__init__(
            name_of_target("delta", self.place.uri) if name is None else name,
            schema,
            partition_by,
            file_bytes=file_bytes,
            staging=staging,
        )
        self.schema = storable(f"sink {self.name!r}", schema)
        check_list("key", () if key is None else key)
        self.key = None if key is None else tuple(key)
        if self.key is not None and not (self.key and set(self.key) <= set(schema.names)):
            raise ConfigurationError(f"sink {self.name!r}: key must be some of {schema.names}, not {key}")
        for field in map(self.schema.field, (*self.partition_by, *(self.key or ()))):
            if any(is_(field.type) for is_ in _NO_KEY):
                raise ConfigurationError(
                    f"sink {self.name!r}: key and partition_by must not have a column of {field.type}, such "
                    f"as {field.name!r}"
                )
        self._evolves = schema_evolution
        self._compact_every = None if compact_every is None else positive("compact_every", compact_every)
        self._now_ms = now_ms
        self._history = RunHistory()

    # --- tasks -------------------------------------------------------------------------------------

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        if self.key is None:
            return super().writer(epoch)
        schema = self.schema.append(pa.field(_IS_DELETE, pa.bool_()))
        for name in self.key:
            position = schema.get_field_index(name)
            schema = schema.set(position, schema.field(position).with_nullable(False))
        folder = partial(opened, self.area.folder_of(epoch), None)
        files = TableFileWriter(folder, schema, (), True, self._file_bytes)
        return _ChangeWriter(files, f"{self.run}/epoch={epoch}")

    def open_folder(self) -> OpenFolder:
        """See :class:`StagedFilesSink`."""
        return self.place.folder

    def prepare(self, epoch: int, results: list[Reported]) -> None:
        """See :class:`StagedSink`."""
        if results and self.key is None:
            with sink_errors(f"flush {self.place.uri}"):
                flush_folder(*self.place.folder())
        super().prepare(epoch, results)

    # --- the marker --------------------------------------------------------------------------------

    def open_run(self, job_id: str, history: RunHistory, restored_epoch: int | None) -> None:
        """See :class:`StagedSink`."""
        self._history = history
        super().open_run(job_id, history, restored_epoch)

    @property
    def _app(self) -> str:
        return f"{_METADATA}/{self.job_id}/{self.name}"

    def committed_epoch(self) -> int | None:
        """See :class:`StagedSink`; the table is created if the sink has never had it."""
        with self._errors("open"):
            try:
                self.place.load()
            except TableNotFoundError:
                if self.area.was_marked:
                    return None
                DeltaTable.create(
                    self.place.uri,
                    DeltaSchema.from_arrow(self.schema),
                    mode="ignore",
                    partition_by=list(self.partition_by),
                    storage_options=self.place.options,
                )
        return self._change("open", self._take).transaction_version(self._app)

    def _take(self, table: DeltaTable) -> None:
        """Make the table fit the sink, and this run the one that has it."""
        columns = columns_of(table)
        misfits = list(self._misfits(table, columns))
        if misfits:
            raise SinkError(
                f"sink {self.name!r}: the Delta table {self.place.uri} does not fit: {'; '.join(misfits)}. "
                f"Change the schema of the sink or the table, or write to another one",
                sink=self.name,
                table=self.place.uri,
            )
        new = [field.with_nullable(True) for field in self.schema if field.name not in columns.names]
        gate = self._properties(None)
        if new:
            table.alter.add_columns(DeltaSchema.from_arrow(pa.schema(new)).fields, commit_properties=gate)
        elif table.transaction_version(f"{self._app}.run") != _number(self.run):
            self._check_line(table)
            self._write(table, [], gate)

    def _misfits(self, table: DeltaTable, columns: pa.Schema) -> Iterator[str]:
        """Yield what about a table does not fit."""
        partitions = table.metadata().partition_columns
        if partitions != list(self.partition_by):
            yield f"it is partitioned by {partitions}, not {list(self.partition_by)}"
        yield from rules_of(table)
        yield from filter(None, (self._misfit(field, columns) for field in self.schema))
        yield from (
            f"column {field.name!r} is not in the sink"
            for field in columns
            if field.name not in self.schema.names and not (self._evolves and field.nullable)
        )

    def _misfit(self, field: pa.Field, columns: pa.Schema) -> str | None:
        """Return what about a column does not fit, or None if it fits."""
        if field.name not in columns.names:
            new = f"column {field.name!r} is not in the table (schema_evolution=True adds it)"
            return None if self._evolves else new
        found = columns.field(field.name)
        if found.type != field.type:
            return f"column {field.name!r} has {found.type}, not {field.type}"
        is_strict = field.nullable and not found.nullable and field.name not in (self.key or ())
        return f"column {field.name!r} must not be null: declare it so" if is_strict else None

    def _check_line(self, table: DeltaTable) -> None:
        """Check that the published epochs are those of the restored checkpoint, if it is not an older one."""
        epoch = table.transaction_version(self._app)
        maker = table.transaction_version(f"{self._app}.maker")
        if epoch is None or epoch > self._history.runs[-1][1]:
            return
        own = self._history.run_of(epoch)
        if own and maker and maker != _number(own):
            raise SinkError(
                f"sink {self.name!r}: epoch {epoch} in the Delta table {self.place.uri} is not that of the "
                f"restored checkpoint: the job had gone back behind it and has written it anew. Restore a "
                f"checkpoint that was taken since then",
                sink=self.name,
                epoch=epoch,
            )

    # --- commits -----------------------------------------------------------------------------------

    def _errors(self, what: str) -> AbstractContextManager[None]:
        return delta_errors(f"sink {self.name!r}", what, self.place, SinkError, SinkStorageError)

    def _change(self, what: str, change: Callable[[DeltaTable], None]) -> DeltaTable:
        """Load the table and change it, again if others have changed it meanwhile; return what was loaded.

        Raises:
            JobSupersededError: a newer run has the table.
        """
        with self._errors(what):
            for _ in range(MOST_ATTEMPTS):
                table = self.place.load()
                run = table.transaction_version(f"{self._app}.run")
                if run is not None:
                    self.check_run(_run(run))
                version = table.version()
                try:
                    change(table)
                except CommitFailedError as error:
                    _log.info("sink %r: %s: %s; it is tried again", self.name, self.place.uri, error)
                else:
                    self._flush(table, version)
                    return table
        raise SinkStorageError(
            f"sink {self.name!r}: cannot {what} the Delta table {self.place.uri}: other writers were faster, "
            f"{MOST_ATTEMPTS} times. Try again when they write less",
            sink=self.name,
        )

    def _flush(self, table: DeltaTable, version: int) -> None:
        """Make the commits after a version durable: the library does not wait for the disk."""
        file_system, folder = self.place.folder()
        if is_local(file_system):
            table.update_incremental()
            for number in range(version + 1, table.version() + 1):
                flush_file(file_system, f"{folder}/{LOG}/{number:020d}.json")
            flush_folder(file_system, f"{folder}/{LOG}")

    def _properties(self, epoch: int | None) -> CommitProperties:
        """Return the properties of a commit, with the marker if it changes the epoch."""
        transactions = [Transaction(f"{self._app}.run", _number(self.run))]
        maker = "" if epoch is None else self._history.run_of(epoch) or ""
        if epoch is not None:
            made = Transaction(f"{self._app}.maker", _number(maker) if maker else 0)
            transactions += [Transaction(self._app, epoch), made]
        return CommitProperties(
            custom_metadata={_METADATA: {"sink": self._app, "epoch": epoch, "maker": maker}},
            app_transactions=transactions,
        )

    def _write(
        self, table: DeltaTable, actions: Sequence[AddAction | RemoveAction], properties: CommitProperties
    ) -> None:
        columns = table.metadata().partition_columns
        table.create_write_transaction(
            list(actions), "append", table.schema(), columns, commit_properties=properties
        )

    def add_files(self, epoch: int, files: list[StagedFile]) -> None:
        """See :class:`StagedFilesSink`."""
        changes = self._changes_in(files) if self.key is not None and files else None

        def add(table: DeltaTable) -> None:
            if self._is_at(table, epoch):
                return
            if changes is None:
                self._write(table, [self._added(file) for file in files], self._properties(epoch))
                return
            self._merge(table, changes, self._properties(epoch))
            table.update_incremental()
            if not self._is_at(table, epoch):  # the library makes no commit if no row has changed
                self._write(table, [], self._properties(epoch))

        self._change(f"add epoch {epoch} to", add)

    def _is_at(self, table: DeltaTable, epoch: int) -> bool:
        found = table.transaction_version(self._app)
        return found is not None and found >= epoch

    def _added(self, file: StagedFile) -> AddAction:
        """Return the action that adds a file.

        Its statistics have the number of rows alone. With bounds of some columns and not of all, filters of
        the library's ``to_pyarrow_dataset`` lose rows. Readers find bounds in the files themselves.
        """
        stats = json.dumps({"numRecords": file.rows})
        partition = {name: value or None for name, value in file.partition.items()}
        return AddAction(file.name, file.size_bytes, partition, self._now_ms(), True, stats)

    # --- upserts -----------------------------------------------------------------------------------

    def _changes_in(self, files: Iterable[StagedFile]) -> pa.Table:
        """Return the last change of each key."""
        tables = []
        for file in files:
            file_system, path = opened(child_uri(self.area.uri, file.name), None)
            with sink_errors(f"read {path}"), file_system.open_input_file(path) as stream:
                tables.append(pq.read_table(stream))
        changes = pa.concat_tables(tables)
        changes = changes.append_column(_ORDER, pa.array(range(changes.num_rows), pa.int64()))
        last = changes.group_by(list(self.key or ())).aggregate([(_ORDER, "max")])
        return changes.take(last[f"{_ORDER}_max"]).drop_columns([_ORDER])

    def _merge(self, table: DeltaTable, changes: pa.Table, properties: CommitProperties) -> None:
        """Merge changes into the table: 0.4 s for 200,000 into as many.

        A copy-on-write of our own with pyarrow took 1.0 s for them, and was faster only for few changes of a
        large table: 0.7 s in place of 1.1 s for 1,000 changes of a million rows.
        """
        values = {f"`{name}`": f"s.`{name}`" for name in self.schema.names}
        merger = table.merge(
            changes,
            " AND ".join(f"t.`{name}` = s.`{name}`" for name in self.key or ()),
            source_alias="s",
            target_alias="t",
            commit_properties=properties,
        )
        merger.when_matched_delete(f"s.{_IS_DELETE}").when_matched_update(values).when_not_matched_insert(
            values, f"NOT s.{_IS_DELETE}"
        ).execute()

    # --- going back --------------------------------------------------------------------------------

    def take_back(self, epoch: int) -> None:
        """Take later epochs out of the table, and set the marker to ``epoch``, in one commit.

        Raises:
            SinkError: another program has changed the table since then, or files were deleted.
        """
        self._change(f"take output after epoch {epoch} out of", partial(self._take_back, epoch))

    def _take_back(self, epoch: int, table: DeltaTable) -> None:
        now, then = _files(table), _files(self.place.load(self._version_of(table, epoch)))
        file_system, folder = self.place.folder()
        back = {path: file for path, file in then.items() if path not in now}
        for path in back:
            if not file_system.get_file_info(f"{folder}/{path}").is_file:
                raise self._refused(epoch, f"its file {path}, which later epochs have replaced, was deleted")
        removed = [
            RemoveAction(path, True, self._now_ms(), file.size_bytes, file.partition)
            for path, file in now.items()
            if path not in then
        ]
        self._write(table, [*removed, *map(self._added, back.values())], self._properties(epoch))

    def _version_of(self, table: DeltaTable, epoch: int) -> int:
        """Return the version of the table at the end of an epoch.

        That is the commit of the epoch or, if the epoch has no output, the one before the next commit.
        """
        wanted = self._history.run_of(epoch)
        maker = ""
        for commit in table.history():
            found, version = commit.get(_METADATA) or {}, int(commit["version"])
            if found.get("sink") != self._app:
                raise self._refused(epoch, f"version {version} ({commit['operation']}) is not of this sink")
            if found["epoch"] is None:
                continue
            maker = found["maker"] if found["epoch"] >= epoch else maker
            if found["epoch"] > epoch:
                continue
            if wanted and maker and wanted != maker:
                raise self._refused(epoch, f"version {version} has that epoch as run {maker} has written it")
            return version
        raise self._refused(epoch, "its log does not reach back to it")

    def _refused(self, epoch: int, why: str) -> SinkError:
        return SinkError(
            f"sink {self.name!r}: the job goes back to epoch {epoch}, and its output up to epoch "
            f"{self._committed} cannot be taken back out of the Delta table {self.place.uri}: {why}. Restore "
            f"the newest checkpoint; or remove from the table what came after epoch {epoch}, and give the "
            f"sink another name",
            sink=self.name,
            epoch=epoch,
        )

    # --- compaction --------------------------------------------------------------------------------

    def commit(self, epoch: int) -> None:
        """See :class:`StagedSink`."""
        before = self._committed
        super().commit(epoch)
        every = self._compact_every
        if every is not None and self._committed // every > before // every:
            self._compact()

    def _compact(self) -> None:
        """Compact small files. If that fails, it is logged, and the next time may do better."""
        try:
            with self._errors("compact"):
                self.place.load().optimize.compact(commit_properties=self._properties(None))
        except SinkError as error:
            _log.warning("%s", error)


#: Tests for types whose values cannot be compared, or have no text.
_NO_KEY = (pa.types.is_nested, pa.types.is_floating, pa.types.is_binary)


def _files(table: DeltaTable) -> dict[str, StagedFile]:
    """Return the files of a table by their paths."""
    columns = columns_of(table)
    return {
        unquote(file["path"]): StagedFile(
            unquote(file["path"]),
            file["size_bytes"],
            file["num_records"],
            {
                name: pa.scalar(value, columns.field(name).type).cast(pa.string()).as_py()
                for name, value in (file.get("partition") or {}).items()
            },
        )
        for file in pa.table(table.get_add_actions()).to_pylist()
    }


@attrs.frozen
class _ChangeWriter:
    """Stages changes: records with a column that says which of them delete."""

    files: TableFileWriter
    folder: str

    def write(self, partition: int, records: Iterator[Record]) -> Iterator[Reported]:
        """See :class:`SinkWriter`."""
        changes = (change for change in map(self._change, records) if change is not None)
        for staged in self.files.write(partition, changes):
            file = StagedFile.of(staged)
            yield attrs.asdict(attrs.evolve(file, name=f"{self.folder}/{file.name}"))

    def _change(self, record: Record) -> Record | None:
        if isinstance(record, dict):
            return {**record, _IS_DELETE: False}
        if not isinstance(record, Row):
            return [*record, False] if isinstance(record, (tuple, list)) else record
        kind = record.get_row_kind()
        with sink_errors("stage a row", lambda: record):
            fields = record.get_fields_by_names(self.files.schema.names[:-1])
        return None if kind is RowKind.UPDATE_BEFORE else [*fields, kind is RowKind.DELETE]
