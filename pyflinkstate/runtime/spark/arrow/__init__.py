"""Rows of DataFrames as Arrow, on their way in and out."""

from pyflinkstate.runtime.spark.arrow.arrow_frames import ArrowWriter, can_make_dataframes, dataframe_of
from pyflinkstate.runtime.spark.arrow.row_batches import (
    ColumnKey,
    ColumnTimestamps,
    as_milliseconds,
    epoch_of,
    rows_of,
)
from pyflinkstate.runtime.spark.arrow.row_classes import row_maker
from pyflinkstate.runtime.spark.arrow.row_columns import RowColumns

__all__ = [
    "ArrowWriter",
    "ColumnKey",
    "ColumnTimestamps",
    "RowColumns",
    "as_milliseconds",
    "can_make_dataframes",
    "dataframe_of",
    "epoch_of",
    "row_maker",
    "rows_of",
]
