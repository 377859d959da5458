"""Results on their way into a DataFrame: tasks write Arrow batches, which Spark reads as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.utils import require_minimum_pandas_version

from pyflinkstate.api.values import Record, Reported, SparkObject
from pyflinkstate.runtime.spark.arrow.row_columns import RowColumns
from pyflinkstate.runtime.wire import FrameCutter

#: As many rows as Spark puts into a batch.
ROWS_PER_BATCH = 10_000


@attrs.frozen
class ArrowWriter:
    """Writes rows as Arrow batches; see :class:`~pyflinkstate.runtime.sinks.sinks.SinkWriter`."""

    columns: RowColumns

    def write(self, partition: int, records: Iterator[Record]) -> Iterator[Reported]:
        """See ``SinkWriter``."""
        cutter = FrameCutter(ROWS_PER_BATCH)
        while rows := cutter.take(records):
            data = self.columns.batch(rows).serialize().to_pybytes()
            cutter.encoded(len(data))
            yield data


@attrs.frozen
class _Decode:
    columns: RowColumns

    def __call__(self, frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.columns.arrow
        for data in chain.from_iterable(frame.column(0) for frame in frames):
            yield pa.ipc.read_record_batch(data.as_buffer(), schema)


def can_make_dataframes() -> bool:
    """Return whether Spark would take the batches: ``mapInArrow`` asks for pandas, without using it."""
    try:
        require_minimum_pandas_version()
    except ImportError:
        return False
    return True


def dataframe_of(spark: SparkSession, batches: list[SparkObject], columns: RowColumns) -> DataFrame:
    """Return the rows of RDDs of batches that :class:`ArrowWriter` wrote."""
    if not batches:
        return spark.createDataFrame([], columns.schema)
    frames = spark.sparkContext.union(batches).map(_in_a_row)
    packed = spark.createDataFrame(frames, "batch binary", verifySchema=False)
    return packed.mapInArrow(_Decode(columns), columns.schema)


def _in_a_row(data: bytes) -> tuple[bytes]:
    return (data,)
