"""A source that reads a table of Apache Iceberg as records are appended to it.

An offset names the table by its UUID, and the *snapshot* up to which it is read. Snapshots and files never
change, so the same two offsets give the same records, as long as the snapshots between them are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from operator import attrgetter

from pyflinkstate.api import Offset, Record, positive
from pyflinkstate.connectors.extras import needs
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, SourceError
from pyflinkstate.runtime.sources import Available, Epoch, Reject, Source, SplitEpoch, check_position

with needs("iceberg"):
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io import FileIO
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

    from pyflinkstate.connectors.iceberg import IcebergTable, iceberg_errors

#: Snapshots that leave the rows of a table as they were, or only add some.
_GROWS = (Operation.APPEND, Operation.REPLACE)


class IcebergSource(Source):
    """Reads an Iceberg table, and then what is appended to it; the job does not end by itself.

    Records are dicts, with the columns that the table has at the end of their epoch. A split is a file. Order
    is kept in a file only. The library reads a null list of structs as an empty list.

    Only appended rows can be read. If another program deletes or overwrites rows, the job ends with
    ``ConfigurationError``; if snapshots expire before they are read, with ``IncompatibleCheckpointError``. So
    keep them for longer than the job may stand still. Rewriting files (compaction) is no change.

    Args:
        catalog: the properties that ``pyiceberg.catalog.load_catalog`` takes, and its name as ``name``.
        table: the table, as ``"namespace.table"``.
        starting_snapshot: the id of a snapshot: read what was appended after it. Default: the first epoch has
            all rows of the table.
        max_snapshots_per_epoch: an epoch has what was appended by at most as many snapshots. Default: 10.

    Raises:
        ConfigurationError: an argument is wrong.
    """

    #: Seconds that an idle job waits before it loads the table again.
    poll_s = 1.0

    def __init__(
        self,
        catalog: Mapping[str, str],
        table: str,
        *,
        starting_snapshot: int | None = None,
        max_snapshots_per_epoch: int = 10,
    ) -> None:
        self._table = IcebergTable(catalog, table)
        self._start = None if starting_snapshot is None else positive("starting_snapshot", starting_snapshot)
        self._most = positive("max_snapshots_per_epoch", max_snapshots_per_epoch)

    def initial_offset(self) -> Offset:
        """See :class:`Source`."""
        return _offset(self._load(), self._start)

    def check_restored(self, position: Offset) -> None:
        """See :class:`Source`."""
        self._check(self._load(), position)

    def latest_offset(self, start: Mapping[str, int | None], whole: bool) -> Available:
        """See :class:`Source`.

        Raises:
            ConfigurationError: rows were deleted or overwritten after ``start``.
        """
        table = self._load()
        newer = self._check(table, start)
        if start["snapshot"] is None:
            return Available(_offset(table, newer[-1].snapshot_id if newer else None))
        for snapshot in newer[: self._most]:
            operation = None if snapshot.summary is None else snapshot.summary.operation
            if operation not in _GROWS:
                raise ConfigurationError(
                    f"Iceberg source: snapshot {snapshot.snapshot_id} of the table {self._table.identifier} "
                    f"does not append ({operation}), and only appended rows can be read. Start a new job "
                    f"with starting_snapshot={snapshot.snapshot_id}, or read a table that only grows",
                    table=self._table.identifier,
                )
        end = newer[: self._most][-1].snapshot_id if newer else start["snapshot"]
        return Available(_offset(table, end), is_full=len(newer) >= self._most)

    def plan(self, start: Mapping[str, int | None], end: Mapping[str, int]) -> Epoch:
        """See :class:`Source`."""
        table = self._load()
        with _errors("read", self._table.identifier):
            last = table.snapshot_by_id(end["snapshot"])
            if last is None:
                raise self._lost(end["snapshot"])
            if start["snapshot"] is None:
                tasks = table.scan(snapshot_id=last.snapshot_id).plan_files()
            else:
                scan = table.incremental_append_scan().from_snapshot_id_exclusive(start["snapshot"])
                tasks = scan.to_snapshot_id_inclusive(last.snapshot_id).plan_files()
            schema = table.schemas()[table.schema().schema_id if last.schema_id is None else last.schema_id]
            read = partial(_read, self._table.identifier, _without_history(table.metadata), table.io, schema)
            return SplitEpoch(sorted(tasks, key=attrgetter("file.file_path")), read, is_fresh=True)

    def close(self, error: BaseException | None) -> None:
        """See :class:`Source`."""
        self._table.close()

    def _load(self) -> Table:
        with _errors("load", self._table.identifier):
            return self._table.load()

    def _check(self, table: Table, position: Offset) -> list[Snapshot]:
        """Return the snapshots after an offset, the oldest first."""
        uuid = str(table.metadata.table_uuid)
        check_position(position, {"table": uuid}, f"the table {self._table.identifier}")
        snapshot_id = position["snapshot"]
        newer: list[Snapshot] = []
        for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
            if snapshot.snapshot_id == snapshot_id:
                break
            newer.insert(0, snapshot)
        else:  # Spark lets it expire when it is read, and keeps its id in the next one
            if snapshot_id is not None and (not newer or newer[0].parent_snapshot_id != snapshot_id):
                raise self._lost(snapshot_id)
        return newer

    def _lost(self, snapshot_id: int) -> IncompatibleCheckpointError:
        return IncompatibleCheckpointError(
            f"Iceberg source: the table {self._table.identifier} has no history from snapshot {snapshot_id} "
            f"to the newest: snapshots have expired before they were read, or the table was rolled back. "
            f"Start a new job, and keep snapshots for longer than a job may stand still",
            table=self._table.identifier,
        )


def _offset(table: Table, snapshot_id: int | None) -> Offset:
    return {"table": str(table.metadata.table_uuid), "snapshot": snapshot_id}


def _errors(what: str, table: str) -> AbstractContextManager[None]:
    return iceberg_errors("Iceberg source", what, table, SourceError, SourceError)


def _without_history(metadata: TableMetadata) -> TableMetadata:
    """Return what tasks need of a table, which does not grow with each snapshot."""
    return metadata.model_copy(
        update={
            "snapshots": [],
            "refs": {},
            "current_snapshot_id": None,
            "snapshot_log": [],
            "metadata_log": [],
        }
    )


def _read(
    table: str, metadata: TableMetadata, io: FileIO, schema: Schema, split: FileScanTask, _: Reject
) -> Iterator[Record]:
    """Yield the rows of a file of a table, in a task."""
    scan = ArrowScan(metadata, io, schema, AlwaysTrue())
    with _errors(f"read {split.file.file_path} of", table):
        for batch in scan.to_record_batches([split]):
            yield from batch.to_pylist()
