"""A table of state: read when it is asked for, a key group at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import attrs
import pyarrow as pa

from pyflinkstate.api.safe_repr import short_repr
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import ArrowObject, JsonObject
from pyflinkstate.backends.types import decode_column, sealed
from pyflinkstate.errors import StateTableError
from pyflinkstate.state_access.pickles import common_schema, has_pickles, loaded, no_common_type

#: Reads batches.
Read: TypeAlias = Callable[[], Iterator[pa.RecordBatch]]


@attrs.frozen
class Column:
    """A column of a state table.

    Attributes:
        name: its name.
        arrow: its Arrow type, in which pickles are bytes.
        type_info: the declared type of its values; None if the Arrow type is enough.
    """

    name: str
    arrow: pa.DataType
    type_info: TypeInformation | None = None

    @property
    def is_pickled(self) -> bool:
        """Whether there are pickles in its values."""
        return self.type_info is not None and has_pickles(self.type_info)


def _names_and_types(columns: tuple[Column, ...]) -> str:
    return short_repr({column.name: str(column.arrow) for column in columns})


@attrs.frozen
class StateTable:
    """A table of a checkpoint's state. Each call reads the checkpoint again; nothing is kept.

    Values of declared types are Arrow columns. Others are a column of pickles, as bytes, unless the
    table was asked for with ``allow_pickle=True``: then they are loaded, in the Arrow type that fits all of
    them.

    Attributes:
        columns: names and types.
        read: reads the batches, pickles as bytes.
        allow_pickle: whether pickles are loaded.
        split: returns readers for the given number of parts, or for a number that suits its size; None if it
            is read as one.
    """

    columns: tuple[Column, ...] = attrs.field(repr=_names_and_types)
    read: Read = attrs.field(repr=False)
    allow_pickle: bool = False
    split: Callable[[int | None], list[Read]] | None = attrs.field(default=None, repr=False)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches. If pickles are loaded, all of them are read to find it."""
        return self._loaded_schema() if self.loads_pickles else self._schema

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema([(column.name, column.arrow) for column in self.columns])

    @property
    def loads_pickles(self) -> bool:
        """Whether there are pickles in it that are loaded."""
        return self.allow_pickle and any(column.is_pickled for column in self.columns)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches, one for each key group that has rows.

        Raises:
            CorruptCheckpointError: a file is missing, truncated or altered.
        """
        if not self.loads_pickles:
            return self.read()
        schema = self._loaded_schema()
        return (_cast(self._loaded(batch), schema) for batch in self.read())

    def to_reader(self) -> pa.RecordBatchReader:
        """Return Arrow's reader of the same batches, which other libraries take."""
        schema = self.schema
        return pa.RecordBatchReader.from_batches(schema, self.to_batches())

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

    def parts(self, number: int | None = None) -> list[StateTable]:
        """Return tables that have the rows of this one between them, to be read in several processes.

        Each has the rows of a range of key groups; of operator state, those of some subtasks. They can be
        pickled, with cloudpickle if the clock of the checkpoint is a function of the program.

        Args:
            number: the most parts. There is at most one for each key group, and none for key groups in which
                no wanted key is. Default: one for each subtask that wrote the state, or one for each 32 MiB
                of it if these are more.

        Raises:
            StateTableError: the number is less than 1.
        """
        if number is not None and number < 1:
            raise StateTableError(f"a table is read in at least 1 part, not in {number}")
        if self.split is None:
            return [self]
        return [attrs.evolve(self, read=read, split=None) for read in self.split(number)]

    def to_spark(self, spark: ArrowObject, partitions: int | None = None) -> ArrowObject:
        """Return all rows as a Spark ``DataFrame``, with a partition for each range of key groups.

        Executors read the checkpoint when the ``DataFrame`` is evaluated; nothing is collected in the
        driver. They need this package, and a path that leads to the checkpoint from where they are. Columns
        have Spark's types for those of :attr:`schema`: strings are ``STRING``, lists ``ARRAY``, timestamps
        ``TIMESTAMP_NTZ``.

        Args:
            spark: a session, classic or Spark Connect.
            partitions: the most partitions; see :meth:`parts`.

        Raises:
            StateTableError: Spark has no such type, or the number is less than 1.
        """
        from pyflinkstate.state_access.spark.frames import dataframe

        return dataframe(spark, self.parts(partitions))

    def rows(self) -> Iterator[JsonObject]:
        """Yield each row as a dict of Python values, as the program that wrote them knows them.

        Pickles are bytes unless they may be loaded.
        """
        for batch in self.read():
            yield from self.rows_of(batch)

    def rows_of(self, batch: pa.RecordBatch) -> Iterator[JsonObject]:
        """Yield the rows of a batch that :attr:`read` gave, as :meth:`rows` does."""
        values = [self._decoded(column, batch.column(column.name)) for column in self.columns]
        names = [column.name for column in self.columns]
        yield from (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))

    def _decoded(self, column: Column, array: pa.Array) -> ArrowObject:
        if column.type_info is None:
            return array.to_pylist()
        type_info = column.type_info if self.allow_pickle else sealed(column.type_info)
        return decode_column(type_info, array)

    # --- loaded pickles ------------------------------------------------------------------------------

    def _loaded_schema(self) -> pa.Schema:
        schemas = [self._loaded(batch).schema for batch in self.read()]
        return common_schema(schemas or [self._schema])

    def _loaded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            arrays = [
                loaded(column.type_info, array) if column.type_info is not None else array
                for column, array in zip(self.columns, batch.columns, strict=True)
            ]
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise no_common_type(error) from error
        return pa.record_batch(arrays, [column.name for column in self.columns])


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [array.cast(field.type) for array, field in zip(batch.columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)
