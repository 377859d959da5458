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
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from urllib.parse import unquote

import pyarrow as pa

from pyflinkstate.api import positive
from pyflinkstate.backends.wall_clock import wall_clock_ms
from pyflinkstate.connectors.delta import DeltaPlace, columns_of, delta_errors, log_name, rules_of, storable
from pyflinkstate.connectors.extras import needs
from pyflinkstate.errors import SinkError, SinkStorageError
from pyflinkstate.runtime.sinks import (
    FILE_BYTES,
    IS_DELETE,
    OpenFolder,
    StagedFile,
    StagedFilesSink,
    name_of_target,
)
from pyflinkstate.runtime.storage import AnyPath, flush_file, flush_folder, is_local

with needs("delta"):
    from deltalake import CommitProperties, DeltaTable, Schema as DeltaSchema, Transaction
    from deltalake.exceptions import CommitFailedError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction

_log = logging.getLogger("pyflinkstate.sinks")

#: The key of this package in a commit's metadata.
_METADATA = "pyflinkstate"
#: As often a commit is tried if other writers of the table are faster.
MOST_ATTEMPTS = 20


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
        schema: the columns of the table. Records are dicts or ``Row``s with these fields, or tuples or lists
            in their order.
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
        self.place = DeltaPlace(table_uri, dict(storage_options or {}))
        super().__init__(
            name_of_target("delta", self.place.uri) if name is None else name,
            schema,
            partition_by,
            key=key,
            file_bytes=file_bytes,
            staging=staging,
        )
        self.schema = storable(f"sink {self.name!r}", schema)
        self.may_add_columns = self.may_leave_columns = schema_evolution
        self._compact_every = None if compact_every is None else positive("compact_every", compact_every)
        self._now_ms = now_ms
        self._loaded: DeltaTable | None = None

    def open_folder(self) -> OpenFolder:
        """See :class:`StagedFilesSink`."""
        return self.place.folder

    # --- the marker --------------------------------------------------------------------------------

    @property
    def _app(self) -> str:
        return f"{_METADATA}/{self.job_id}/{self.name}"

    def committed_epoch(self) -> int | None:
        """See :class:`StagedSink`; the table is created if the sink has never had it."""
        with self._errors("open"):
            try:
                table = self.place.load()
            except TableNotFoundError:
                if self.area.was_marked:
                    return None
                table = DeltaTable.create(
                    self.place.uri,
                    DeltaSchema.from_arrow(self.schema),
                    mode="ignore",
                    partition_by=list(self.partition_by),
                    storage_options=self.place.options,
                )
        self._loaded = self._change("open", self._take, table)
        return self._loaded.transaction_version(self._app)

    def _take(self, table: DeltaTable) -> None:
        """Make the table fit the sink, and this run the one that has it."""
        columns = columns_of(table)
        partitions = table.metadata().partition_columns
        self.check_fits(self.place.uri, columns, partitions, self.schema, rules_of(table))
        new = [field.with_nullable(True) for field in self.schema if field.name not in columns.names]
        gate = self._properties(None)
        if new:
            table.alter.add_columns(DeltaSchema.from_arrow(pa.schema(new)).fields, commit_properties=gate)
        elif table.transaction_version(f"{self._app}.run") != _number(self.run):
            self._check_line(table)
            self._write(table, [], gate)

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

    def _change(
        self, what: str, change: Callable[[DeltaTable], object], loaded: DeltaTable | None = None
    ) -> DeltaTable:
        """Change the table, again if others have changed it meanwhile; return what it was before.

        Args:
            what: what is done, for errors.
            change: changes what was loaded of the table.
            loaded: the table, if it was loaded just now.

        Raises:
            JobSupersededError: a newer run has the table.
        """
        with self._errors(what):
            for _ in range(MOST_ATTEMPTS):
                table, loaded = loaded or self.place.load(), None
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
        """Make the commits after a version durable, with their files: the library does not flush them."""
        file_system, folder = self.place.folder()
        if not is_local(file_system):
            return
        table.update_incremental()
        for number in range(version + 1, table.version() + 1):
            added = (unquote(file["path"]) for kind, file in self.place.actions(number) if kind == "add")
            paths = [f"{folder}/{name}" for name in (*added, log_name(number))]
            for path in paths:
                flush_file(file_system, path)
            for parent in {path.rpartition("/")[0] for path in paths}:
                flush_folder(file_system, parent)

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
        self._add(epoch, lambda table, marker: self._write(table, list(map(self._added, files)), marker))

    def add_changes(self, epoch: int, changes: pa.Table) -> None:
        """See :class:`StagedFilesSink`."""

        def merge(table: DeltaTable, marker: CommitProperties) -> None:
            self._merge(table, changes, marker)
            table.update_incremental()
            if not self._is_at(table, epoch):  # the library makes no commit if no row has changed
                self._write(table, [], marker)

        self._add(epoch, merge)

    def _add(self, epoch: int, add: Callable[[DeltaTable, CommitProperties], None]) -> None:
        def change(table: DeltaTable) -> None:
            if not self._is_at(table, epoch):
                add(table, self._properties(epoch))

        loaded, self._loaded = self._loaded, None  # what committed_epoch() has loaded
        self._change(f"add epoch {epoch} to", change, loaded)

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
        merger.when_matched_delete(f"s.{IS_DELETE}").when_matched_update(values).when_not_matched_insert(
            values, f"NOT s.{IS_DELETE}"
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
                raise self.not_taken_back(
                    epoch, f"its file {path}, which later epochs have replaced, was deleted"
                )
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
                raise self.not_taken_back(
                    epoch, f"version {version} ({commit['operation']}) is not of this sink"
                )
            if found["epoch"] is None:
                continue
            maker = found["maker"] if found["epoch"] >= epoch else maker
            if found["epoch"] > epoch:
                continue
            if wanted and maker and wanted != maker:
                raise self.not_taken_back(
                    epoch, f"version {version} has that epoch as run {maker} has written it"
                )
            return version
        raise self.not_taken_back(epoch, "its log does not reach back to it")

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
        marker = self._properties(None)
        try:
            self._change("compact", lambda table: table.optimize.compact(commit_properties=marker))
        except SinkError as error:
            _log.warning("%s", error)


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
