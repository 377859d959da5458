"""Columns of state in the types that Spark accepts."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from pyflinkstate.errors import StateTableError

#: Maximum number of rows in a batch for Spark; a batch of a key group may have many more.
_MOST_ROWS = 1 << 16


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the schema of a ``DataFrame`` for one of Arrow.

    Raises:
        StateTableError: Spark has no type for a column.
    """
    columns = [_spark_column(pa.schema([field])) for field in schema]
    return StructType([field for column in columns for field in column.fields])


def _spark_column(schema: pa.Schema) -> StructType:
    try:
        found: StructType = from_arrow_schema(schema, True)  # timestamps without a zone stay so in Spark
    except PySparkException as error:
        (field,) = schema
        raise StateTableError(
            f"Spark has no type for column {field.name!r}, which is {field.type} in Arrow: read the table "
            f"with to_arrow(), or name other states",
            column=field.name,
        ) from error
    return found


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark takes the rows of a ``DataFrame``."""
    return to_arrow_schema(schema, timezone="UTC")


def fitting(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in Spark's types, in batches that Spark can take.

    Args:
        batch: rows of a table of state.
        schema: the wanted columns, as :func:`arrow_schema` gives them.

    Raises:
        StateTableError: there is no such column, or its values do not fit the wanted type.
    """
    picked = [_column(batch, name) for name in schema.names]
    for begin in range(0, batch.num_rows, _MOST_ROWS):
        yield from _cast([array.slice(begin, _MOST_ROWS) for array in picked], schema)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in batch.schema.names:
        nearest = difflib.get_close_matches(name, batch.schema.names, len(batch.schema), 0.0)
        raise StateTableError(
            f"the table has no column {name!r}; it has {', '.join(map(repr, nearest))}", column=name
        )
    return batch.column(name)


def _cast(arrays: list[pa.Array], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        columns = [_cast_column(array, field) for array, field in zip(arrays, schema, strict=True)]
    except StateTableError as error:
        yield from _cast_in_halves(arrays, schema, error)
        return
    yield pa.record_batch(columns, schema=schema)


def _cast_column(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return array.cast(field.type)
    except pa.ArrowException as error:
        raise StateTableError(
            f"a value does not fit column {field.name!r}, which is {field.type}: {error}", column=field.name
        ) from error


def _cast_in_halves(
    arrays: list[pa.Array], schema: pa.Schema, error: StateTableError
) -> Iterator[pa.RecordBatch]:
    """Cast half of the rows at a time: Spark's texts and lists have at most 2 GiB in a batch."""
    rows = len(arrays[0]) if arrays else 0
    if rows < 2:
        raise error
    for half in (range(rows // 2), range(rows // 2, rows)):
        taken = pa.array(half)
        yield from _cast([array.take(taken) for array in arrays], schema)
