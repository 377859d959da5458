"""The answer to a question: a table of live state."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import pyarrow as pa

from pyflinkstate.api.values import ArrowObject, JsonObject
from pyflinkstate.state_access.tables import StateTable


@attrs.frozen(eq=False)
class LiveTable:
    """The entries of a state of a running job, all as they are after the same epoch.

    Without keys it is streamed from the slots, in no particular order, and can be read once. The slots keep a
    copy of what changes until it is read, so read it at once or close it. They cut off a reader that does not
    take anything for 10 seconds, or takes longer than 10 minutes. The answer to named keys is in memory, and
    can be read again.

    Columns are those of ``Checkpoint.entries``. Values with time to live that have expired are left out.
    Batches have pickles as bytes; rows have the values, as they are the job's own.

    Attributes:
        epoch: the epoch after which the state was frozen. It may not be committed yet.
    """

    epoch: int
    _table: StateTable = attrs.field(repr=False)
    _close: Callable[[], None] = attrs.field(repr=False)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self._table.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches as they come.

        Raises:
            StateQueryError: a slot died or cut the answer off, or it has been read already.
        """
        return self._table.to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return Arrow's reader of the same batches, which other libraries take."""
        return self._table.to_reader()

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""
        return self._table.to_arrow()

    def to_pandas(self) -> ArrowObject:
        """Return all rows as a pandas ``DataFrame``; whole numbers with gaps stay whole numbers."""
        return self._table.to_pandas()

    def to_duckdb(self, connection: ArrowObject, name: str | None = None) -> ArrowObject:
        """Return a DuckDB relation of all rows; see :meth:`StateTable.to_duckdb`."""
        return self._table.to_duckdb(connection, name)

    def rows(self) -> Iterator[JsonObject]:
        """Yield each row as a dict of Python values, as the program knows them."""
        return attrs.evolve(self._table, allow_pickle=True).rows()

    def __iter__(self) -> Iterator[JsonObject]:
        """Yield the same rows as :meth:`rows`."""
        return self.rows()

    @property
    def table(self) -> StateTable:
        """The answer as a table whose rows keep pickles as bytes."""
        return self._table

    def close(self) -> None:
        """Release the state that slots still keep for this answer. Idempotent."""
        self._close()

    def __enter__(self) -> LiveTable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
