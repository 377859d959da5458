"""A sink into a table of Apache Iceberg, exactly once.

Tasks write Parquet files into the table's folder. The driver adds those of an epoch to the table in one
commit, which also sets the *marker*, a property of the table: the number of the epoch, and the run of the job
that the table belongs to. Properties stay when snapshots expire.

A catalog checks what a commit requires of the table, and properties cannot be required. But each commit of
this sink, also one without files, makes a snapshot, and requires that the snapshot before it is still the
newest. So two commits never change the marker at the same time. An older driver that has read the marker
before a newer one took it over fails, reads the marker again, and ends.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import pairwise

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from pyflinkstate.api import positive
from pyflinkstate.backends.wall_clock import wall_clock_ms
from pyflinkstate.connectors.extras import needs
from pyflinkstate.errors import SinkError, SinkStorageError
from pyflinkstate.runtime.sinks import FILE_BYTES, IS_DELETE, StagedFile, StagedFilesSink
from pyflinkstate.runtime.storage import AnyPath, RunHistory

with needs("iceberg"):
    from pyiceberg.catalog import Catalog
    from pyiceberg.exceptions import (
        CommitFailedException,
        CommitStateUnknownException,
        TableAlreadyExistsError,
    )
    from pyiceberg.io.pyarrow import PyArrowFileIO, pyarrow_to_schema, schema_to_pyarrow
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import ancestors_of
    from pyiceberg.table.update.snapshot import ExpireSnapshots, ManageSnapshots
    from pyiceberg.table.upsert_util import create_match_filter

    from pyflinkstate.connectors.iceberg import IcebergTable, iceberg_errors

#: Number of commits from one that lets old snapshots expire to the next.
COMMITS_PER_EXPIRY = 50
#: How often a commit is tried again while other writers change the table.
MOST_ATTEMPTS = 20
_SINK, _EPOCH = "pyflinkstate.sink", "pyflinkstate.epoch"

#: What a commit changes in a transaction. It gets the properties of its snapshots.
_Change = Callable[[Transaction, dict[str, str]], None]


class IcebergSink(StagedFilesSink):
    """Writes records into an Iceberg table; readers see each epoch once, when its checkpoint is complete.

    The table and its namespace are created if they do not exist. Other programs may write to the table at the
    same time: a commit that meets another one is tried again. An epoch with output makes one commit, which
    takes about 40 ms, and longer the more snapshots the table has: set ``expire_after_ms``, and checkpoint
    every few seconds rather than several times a second. Files of tasks that failed stay in the table's
    folder; remove orphan files that are older than the longest time between two checkpoints, with Spark's
    ``remove_orphan_files`` for example.

    A job that goes back behind a commit rolls the table back, in one commit together with the marker, if
    since then only this sink has changed the table and no snapshot has expired. Otherwise it ends with
    ``SinkError``. Do not roll back the table yourself: the marker, a property, does not go back with it.

    Args:
        catalog: the properties that ``pyiceberg.catalog.load_catalog`` takes, and its name as ``name``.
        table: the table, as ``"namespace.table"``.
        schema: the columns. Records are dicts or ``Row``s with these fields, or tuples or lists in their
            order. A table that exists must have them, with the same types; it may have further columns, which
            are null.
        partition_by: the columns by whose values the table is partitioned, not floating-point, binary or
            nested ones.
            A table that exists must have the same partitions.
        key: upsert by these columns: the last record of a key in an epoch replaces the row of that key, and a
            ``Row`` of kind ``DELETE`` deletes it; one of kind ``UPDATE_BEFORE`` is ignored. The driver holds
            the records of an epoch in memory and rewrites the files that have their keys, which is slow:
            5,000 records into 200,000 rows took 0.3 s of processor time, with a key of two columns 1,000 took
            2.4 s. Use it for up to a few thousand records an epoch. Default: append.
        name: the name of the sink in its marker. Default: the name of the table.
        expire_after_ms: every 50 commits the snapshots expire, also those of other writers, that have not
            been the newest for longer than this, in ms; not those with a tag or branch. Default: never.
        file_bytes: a task begins a new file when one has about so many bytes. Default: 128 MiB.
        staging: where notes, and with ``key`` records, are kept until the commit. Default: a folder of the
            job in its checkpoint directory.
        now_ms: returns the time in ms since 1970.

    Raises:
        ConfigurationError: an argument is wrong.
    """

    #: Parquet has no statistics of longer values, from which the library takes the partition of a file.
    most_partition_bytes = 4096
    may_leave_columns = True
    #: Where tasks write, once the sink is open.
    _folder: _Folder

    def __init__(
        self,
        catalog: Mapping[str, str],
        table: str,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        key: Sequence[str] | None = None,
        name: str | None = None,
        expire_after_ms: int | None = None,
        file_bytes: int = FILE_BYTES,
        staging: AnyPath | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._table = IcebergTable(catalog, table)
        super().__init__(
            table if name is None else name,
            schema,
            partition_by,
            key=key,
            file_bytes=file_bytes,
            staging=staging,
        )
        self._expire_after_ms = (
            None if expire_after_ms is None else positive("expire_after_ms", expire_after_ms)
        )
        self._now_ms = now_ms
        self._commits = 0

    # --- opening -------------------------------------------------------------------------------------

    def open_run(self, job_id: str, history: RunHistory, restored_epoch: int | None) -> None:
        """See :class:`StagedSink`; creates the table if it does not exist."""
        with self._errors("open"):
            self._create(self._table.catalog)
            self._check_table(self._load())
        super().open_run(job_id, history, restored_epoch)

    def _create(self, catalog: Catalog) -> None:
        identifier = self._table.identifier
        if catalog.table_exists(identifier):
            return
        namespace = Catalog.namespace_from(identifier)
        if not catalog.namespace_exists(namespace):
            catalog.create_namespace_if_not_exists(namespace)
        with (
            suppress(TableAlreadyExistsError, CommitFailedException),  # another program creates it as well
            catalog.create_table_transaction(
                identifier, self.schema, properties={"write.metadata.delete-after-commit.enabled": "true"}
            ) as transaction,
            transaction.update_spec() as spec,
        ):
            for column in self.partition_by:
                spec.add_identity(column)

    def _check_table(self, table: Table) -> None:
        """Raise ``SinkError`` if the table cannot take what the sink writes."""
        schema = table.schema()
        known = pa.schema([field for field in self.schema if field.name in schema.column_names])
        own = schema_to_pyarrow(pyarrow_to_schema(known, schema.name_mapping), include_field_ids=False)
        columns = schema_to_pyarrow(schema, include_field_ids=False)
        parts = ((schema.find_column_name(part.source_id), part.transform) for part in table.spec().fields)
        partitions = [f"{name}" if str(how) == "identity" else f"{how}({name})" for name, how in parts]
        self.check_fits(self._table.identifier, columns, partitions, own)

    # --- what tasks write ------------------------------------------------------------------------------

    def open_folder(self) -> _Folder:
        """See :class:`StagedFilesSink`."""
        return self._folder

    # --- commits -------------------------------------------------------------------------------------

    def committed_epoch(self) -> int | None:
        """See :class:`StagedSink`."""
        return self._commit(None, _add)

    def add_files(self, epoch: int, files: list[StagedFile]) -> None:
        """See :class:`StagedFilesSink`."""
        location = self.open_folder().location
        self._commit(epoch, partial(_add, paths=[f"{location}/{file.name}" for file in files]))

    def add_changes(self, epoch: int, changes: pa.Table) -> None:
        """See :class:`StagedFilesSink`."""
        rows = changes.filter(pc.invert(changes[IS_DELETE])).select(self.schema.names).cast(self.schema)
        self._commit(epoch, partial(_upsert, rows=rows, keys=changes.select(list(self.key or ()))))

    def take_back(self, epoch: int) -> None:
        """Roll the table back to the snapshot of an epoch, if all later ones are of this sink.

        An older driver has not read that one: each takeover makes a snapshot, with the epoch before it.
        """

        def change(transaction: Transaction, _: dict[str, str]) -> None:
            snapshot_id = self._snapshot_of(epoch, transaction.table_metadata)
            if snapshot_id is None:
                raise self.not_taken_back(
                    epoch, "others have changed the table since then, or snapshots expired"
                )
            ManageSnapshots(transaction).rollback_to_snapshot(snapshot_id).commit()

        self._commit(epoch, change)

    def _snapshot_of(self, epoch: int, metadata: TableMetadata) -> int | None:
        """Return the newest snapshot up to an epoch, or None if the later ones are not all of this sink."""
        for snapshot in ancestors_of(metadata.current_snapshot(), metadata):
            summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
            if summary.get(_SINK) != self._property or _EPOCH not in summary:
                return None
            if int(summary[_EPOCH]) <= epoch:
                return snapshot.snapshot_id
        return None

    def _commit(self, epoch: int | None, change: _Change) -> int | None:
        """Change the table and set the marker to an epoch, in one commit; return the epoch.

        None keeps the epoch of the marker, and makes it a marker of this run.
        """
        for _ in range(MOST_ATTEMPTS):
            with self._errors("change"), suppress(CommitFailedException, CommitStateUnknownException):
                table = self._load()
                found = self._marker(table)
                if epoch is not None and found.run != self.run:
                    raise SinkError(
                        f"sink {self.name!r}: another program has changed the property {self._property!r} of "
                        f"the table {self._table.identifier}. Start the job again when nothing else does",
                        sink=self.name,
                    )
                wanted = _Marker(self.run, found.epoch if epoch is None else epoch)
                if found == wanted:  # also if a commit that was reported as failed has arrived
                    return wanted.epoch
                is_new = (wanted.epoch or 0) > (found.epoch or 0)
                with table.transaction() as transaction:
                    expires = is_new and self._commits % COMMITS_PER_EXPIRY == 0
                    if expires and (expired := self._expired(table.metadata)):
                        ExpireSnapshots(transaction).by_ids(expired).commit()
                    change(transaction, wanted.summary(self._property))
                    transaction.set_properties({self._property: json.dumps(attrs.asdict(wanted))})
                self._commits += is_new
                return wanted.epoch
        raise SinkStorageError(
            f"sink {self.name!r}: the table {self._table.identifier} was changed by others during each of "
            f"{MOST_ATTEMPTS} attempts to commit. Let fewer programs write to it, or less often",
            sink=self.name,
        )

    def _expired(self, metadata: TableMetadata) -> list[int]:
        """Return the snapshots that have not been the newest for long enough, and are not named."""
        if self._expire_after_ms is None:
            return []
        replaced_ms = {
            older.snapshot_id: newer.timestamp_ms
            for newer, older in pairwise(ancestors_of(metadata.current_snapshot(), metadata))
        }
        named = {ref.snapshot_id for ref in metadata.refs.values()}
        return [
            snapshot.snapshot_id
            for snapshot in metadata.snapshots
            if snapshot.snapshot_id not in named
            and replaced_ms.get(snapshot.snapshot_id, snapshot.timestamp_ms)
            < self._now_ms() - self._expire_after_ms
        ]

    @property
    def _property(self) -> str:
        return f"pyflinkstate.epoch.{self.job_id}.{self.name}"

    def _marker(self, table: Table) -> _Marker:
        text = table.properties.get(self._property)
        if text is None:
            return _Marker("", None)
        try:
            found = _Marker(**json.loads(text))
        except (ValueError, TypeError, RecursionError) as error:
            raise SinkError(
                f"sink {self.name!r}: the property {self._property!r} of the table "
                f"{self._table.identifier} is damaged: {text!r}. Put it back, or give the sink another name",
                sink=self.name,
            ) from error
        self.check_run(found.run)
        return found

    def _load(self) -> Table:
        """Return the newest version of the table, whose commits are tried once.

        The library itself would try again without reading the marker. The property that forbids it is set in
        memory, as other writers to the table may want that.
        """
        table = self._table.load()
        table.metadata.properties["commit.retry.num-retries"] = "0"
        location = table.properties.get("write.data.path", f"{table.location().rstrip('/')}/data")
        self._folder = _Folder(location.rstrip("/"), dict(table.io.properties))
        return table

    def _errors(self, what: str) -> AbstractContextManager[None]:
        who = f"sink {self.name!r}"
        return iceberg_errors(who, what, self._table.identifier, SinkError, SinkStorageError)


@attrs.frozen
class _Marker:
    """The run that a table belongs to, and the epoch up to which it has the sink's output."""

    run: str
    epoch: int | None

    def summary(self, sink: str) -> dict[str, str]:
        """Return properties of the snapshot of a commit, by which it is found again."""
        return {_SINK: sink} | ({} if self.epoch is None else {_EPOCH: str(self.epoch)})


def _add(transaction: Transaction, summary: dict[str, str], paths: Sequence[str] = ()) -> None:
    transaction.add_files(list(paths), snapshot_properties=summary, check_duplicate_files=False)


def _upsert(transaction: Transaction, summary: dict[str, str], rows: pa.Table, keys: pa.Table) -> None:
    """Replace the rows of keys."""
    where = create_match_filter(keys, keys.column_names)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Delete operation did not match any records")
        transaction.overwrite(rows, where, snapshot_properties=summary)


@attrs.frozen
class _Folder:
    """Opens the folder of a table's files in a task.

    Attributes:
        location: the folder as the catalog names it.
        properties: those of the table's storage, such as credentials.
    """

    location: str
    properties: dict[str, str] = attrs.field(repr=False)

    def __call__(self) -> tuple[fs.FileSystem, str]:
        scheme, host, path = PyArrowFileIO.parse_location(self.location, self.properties)
        return PyArrowFileIO(self.properties).fs_by_scheme(scheme, host), path
