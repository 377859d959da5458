"""Tables of state as ``DataFrame``s: each partition reads a part of the checkpoint on its executor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from pyflinkstate.api.values import ArrowObject
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.state_access.pickles import common_schema
from pyflinkstate.state_access.spark.schemas import arrow_schema, fitting, spark_schema


class Part(Protocol):
    """A part of a table, which can be pickled."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of its batches."""

    @property
    def loads_pickles(self) -> bool:
        """Whether the schema depends on pickles in its rows."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield its rows."""


def dataframe(spark: ArrowObject, parts: Sequence[Part]) -> DataFrame:
    """Return the rows of all parts, a partition for each.

    Raises:
        ConfigurationError: ``spark`` is not a session.
        StateTableError: Spark has no type for a column.
    """
    if not hasattr(spark, "range"):
        raise ConfigurationError(f"to_spark() takes a SparkSession, not {spark!r}")
    numbers: DataFrame = spark.range(0, len(parts), 1, len(parts))
    schema = spark_schema(_schema_of(numbers, parts))
    arrow = arrow_schema(schema)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (
            made
            for part in _named(batches, parts)
            for rows in part.to_batches()
            for made in fitting(rows, arrow)
        )

    return numbers.mapInArrow(read, schema)


def _named(batches: Iterable[pa.RecordBatch], parts: Sequence[Part]) -> Iterator[Part]:
    """Yield the parts whose numbers a partition has."""
    return (parts[number] for batch in batches for number in batch.column(0).to_pylist())


def _schema_of(numbers: DataFrame, parts: Sequence[Part]) -> pa.Schema:
    """Return the schema of all parts; executors determine it if it depends on pickled values."""
    if not parts[0].loads_pickles:
        return parts[0].schema

    def schemas(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [part.schema.serialize().to_pybytes() for part in _named(batches, parts)]
        yield pa.record_batch([pa.array(found, pa.binary())], ["schema"])

    rows = numbers.mapInArrow(schemas, "schema binary").collect()
    return common_schema(pa.ipc.read_schema(pa.py_buffer(row.schema)) for row in rows)
