"""Rows that come in record batches, as other libraries take them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from pyflinkstate.api import ArrowObject


class ArrowRows(ABC):
    """A table that is read in record batches."""

    __slots__ = ()

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of the batches."""

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Return Arrow's reader of the same batches, which other libraries take."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the batches for ``pyarrow.table(t)``, ``polars.DataFrame(t)`` and others (PyCapsule)."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""
        return self.to_reader().read_all()

    def to_pandas(self) -> ArrowObject:
        """Return all rows as a pandas ``DataFrame``; whole numbers with gaps stay whole numbers."""
        return self.to_arrow().to_pandas(integer_object_nulls=True)

    def to_duckdb(self, connection: ArrowObject, name: str | None = None) -> ArrowObject:
        """Return a DuckDB relation of all rows.

        Args:
            connection: a connection of ``duckdb.connect()``.
            name: also register the rows under this name, for SQL.
        """
        table = self.to_arrow()
        if name is not None:
            connection.register(name, table)
        return connection.from_arrow(table)
