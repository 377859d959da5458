"""A source that reads a table of Delta Lake, and then what is added to it.

An epoch is a range of the table's versions. What a version has changed is read from its file in the log, and
does not change any more, so an epoch has the same records, in the same order, whenever it is read. A table
is known by its id: one that is made anew at the same place has another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timezone
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from pyflinkstate.api import Position, Record, at_least, positive
from pyflinkstate.connectors.delta import DeltaPlace, columns_of, delta_errors, rules_of
from pyflinkstate.connectors.extras import needs
from pyflinkstate.errors import SourceError
from pyflinkstate.runtime.sources import Available, Epoch, Reject, Source, SplitEpoch, check_position
from pyflinkstate.runtime.storage import AnyPath

with needs("delta"):
    from deltalake import DeltaTable

#: The default number of versions in an epoch.
VERSIONS_PER_EPOCH = 100
#: Rows that are converted at once.
_ROWS_PER_BATCH = 4096
#: Fields that records of a change feed have as well.
_CHANGE, _VERSION, _TIME = "_change_type", "_commit_version", "_commit_timestamp"
#: Kinds of changes by actions; None if the file has them.
_KINDS = {"add": "insert", "remove": "delete", "cdc": None}
_FEED = "delta.enableChangeDataFeed"
_CHANGE_FIELDS = (
    pa.field(_CHANGE, pa.string()),
    pa.field(_VERSION, pa.int64()),
    pa.field(_TIME, pa.timestamp("ms", "UTC")),
)


#: A split: the path of a file in the table's folder, and the values of columns that are not in the file.
_File: TypeAlias = tuple[str, dict[str, Any]]


class DeltaSource(Source):
    """Reads the rows of a table of Delta Lake as dicts, and then those that are added, without end.

    It reads a file in one task, ``max_versions_per_epoch`` versions in an epoch. Files that were only
    rewritten, by a compaction for example, are not read again. The files of a version must stay until its
    epoch is covered by a checkpoint that the job does not go back behind; ``vacuum`` deletes old ones.

    Args:
        table_uri: a local path that driver and executors reach, or ``s3://BUCKET/PATH``.
        starting_version: the first version whose changes are read. Default: the whole table as it is when
            the job starts, and then later versions.
        storage_options: options of S3 as ``deltalake`` takes them, such as ``AWS_ENDPOINT_URL``.
        change_data_feed: whether updates and deletes are read too. Records then have the fields
            ``_change_type`` (``insert``, ``delete``, ``update_preimage`` or ``update_postimage``),
            ``_commit_version`` and ``_commit_timestamp`` (a datetime). The table needs the property
            ``delta.enableChangeDataFeed``. Default: no, a version that updates or deletes rows is an error.
        max_versions_per_epoch: the most versions in an epoch. Default: 100.

    Raises:
        ConfigurationError: an argument is wrong.
    """

    poll_s = 1.0

    def __init__(
        self,
        table_uri: AnyPath,
        *,
        starting_version: int | None = None,
        storage_options: Mapping[str, str] | None = None,
        change_data_feed: bool = False,
        max_versions_per_epoch: int = VERSIONS_PER_EPOCH,
    ) -> None:
        self.place = DeltaPlace(table_uri, dict(storage_options or {}))
        first = None if starting_version is None else at_least("starting_version", starting_version, 0)
        self._before = None if first is None else first - 1
        self._has_changes = change_data_feed
        self._most = positive("max_versions_per_epoch", max_versions_per_epoch)

    def initial_offset(self) -> Position:
        """See :class:`Source`: the id of the table and the last version that is read, None for none."""
        return {"table": self._load(None).metadata().id, "version": self._before}

    def check_restored(self, position: Position) -> None:
        """See :class:`Source`."""
        self._load(position)

    def latest_offset(self, start: Any, whole: bool) -> Available:
        """See :class:`Source`."""
        table = self._load(start)
        newest, done = table.version(), start["version"]
        end = newest if done is None else max(done, min(newest, done + self._most))
        return Available({**start, "version": end}, is_full=done is not None and end - done == self._most)

    def plan(self, start: Any, end: Any) -> Epoch:
        """See :class:`Source`."""
        table = self._load(end, end["version"])
        columns = columns_of(table)
        done = -1 if start["version"] is None else start["version"]
        versions = range(done + 1, end["version"] + 1)
        changes = (file for version in versions for file in self._changes(version, columns))
        files = self._all(table) if start["version"] is None else changes
        fields = [*columns, *(_CHANGE_FIELDS if self._has_changes else ())]
        return SplitEpoch(list(files), partial(_read, self.place, pa.schema(fields)), is_fresh=True)

    def _load(self, position: Position, version: int | None = None) -> DeltaTable:
        """Return the table, which must be that of a position if there is one."""
        with self._errors("open"):
            table = self.place.load(version)
        if position is not None:
            check_position(position, {"table": table.metadata().id}, f"the Delta table {self.place.uri}")
        misfits = [rule for rule in rules_of(table) if "constraints" not in rule]
        if self._has_changes and table.metadata().configuration.get(_FEED) != "true":
            misfits.append(f"its property {_FEED} must be true, which makes a feed of later versions")
        if misfits:
            raise SourceError(f"Delta source: cannot read {self.place.uri}: {'; '.join(misfits)}")
        return table

    def _errors(self, what: str) -> AbstractContextManager[None]:
        return delta_errors("Delta source", what, self.place, SourceError, SourceError)

    def _more(self, kind: str | None, version: int, time_ms: int) -> dict[str, Any]:
        """Return the fields of a change feed; the kind is None if it is in the file."""
        if not self._has_changes:
            return {}
        return {_CHANGE: kind, _VERSION: version, _TIME: datetime.fromtimestamp(time_ms / 1000, timezone.utc)}

    def _all(self, table: DeltaTable) -> Iterator[_File]:
        """Yield the files of a version of the table."""
        extra = self._more("insert", table.version(), table.history(1)[0]["timestamp"])
        for file in pa.table(table.get_add_actions()).to_pylist():
            yield unquote(file["path"]), {**(file.get("partition") or {}), **extra}

    def _changes(self, version: int, columns: pa.Schema) -> Iterator[_File]:
        """Yield the files that have what a version has changed."""
        with _reading(self.place, f"version {version}", "delta.logRetentionDuration"):
            actions = self.place.actions(version)
        names = {name for name, _ in actions}
        wanted = ("cdc",) if self._has_changes and "cdc" in names else ("add", "remove")
        time_ms = next((info["timestamp"] for name, info in actions if name == "commitInfo"), 0)
        for name, file in actions:
            if name not in wanted or not (name == "cdc" or file["dataChange"]):
                continue
            if name == "remove" and not self._has_changes:
                raise SourceError(
                    f"Delta source: version {version} of {self.place.uri} updates or deletes rows. Read that "
                    f"with change_data_feed=True, or start with starting_version={version + 1}",
                    version=version,
                )
            values = {
                column: _value(text, columns.field(column).type)
                for column, text in (file.get("partitionValues") or {}).items()
            }
            yield unquote(file["path"]), {**values, **self._more(_KINDS[name], version, time_ms)}


def _value(text: str | None, column: pa.DataType) -> Any:
    """Return the value of a partition column."""
    if not text:
        return None
    if pa.types.is_timestamp(column):  # in UTC, with a Z or without
        return pa.scalar(text.removesuffix("Z")).cast(pa.timestamp("us")).cast(column).as_py()
    return pa.scalar(text).cast(column).as_py()


@contextmanager
def _reading(place: DeltaPlace, what: str, retention: str) -> Iterator[None]:
    """Convert errors of reading a file; one that is gone was deleted too early."""
    with delta_errors("Delta source", f"read {what} of", place, SourceError, SourceError):
        try:
            yield
        except FileNotFoundError as error:
            raise SourceError(
                f"Delta source: {what} of {place.uri} was deleted before it was read: start without a "
                f"checkpoint, and keep old files longer (the table's property {retention})",
                table=place.uri,
            ) from error


def _read(place: DeltaPlace, columns: pa.Schema, file: _File, _: Reject) -> Iterator[Record]:
    """Yield the rows of a file as dicts, in a task."""
    path, constants = file
    file_system, folder = place.folder()
    with (
        _reading(place, f"file {path}", "delta.deletedFileRetentionDuration"),
        file_system.open_input_file(f"{folder}/{path}") as stream,
    ):
        for batch in pq.ParquetFile(stream).iter_batches(_ROWS_PER_BATCH):
            cells = [
                batch.column(field.name).cast(field.type).to_pylist()
                if field.name in batch.schema.names
                else [constants.get(field.name)] * batch.num_rows
                for field in columns
            ]
            yield from (dict(zip(columns.names, row, strict=True)) for row in zip(*cells, strict=True))
