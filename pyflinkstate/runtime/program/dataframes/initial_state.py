"""DataFrames that fill the state of keyed functions before there is any input."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

from pyflinkstate.api.checks import check_dataframe
from pyflinkstate.api.functions import KeyedProcessFunction
from pyflinkstate.api.values import SparkObject
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.operators import awaits
from pyflinkstate.runtime.plan import SourceNode
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.program.dataframes.keys import KeyColumns, columns_of, selector
from pyflinkstate.runtime.sources import InitialRows
from pyflinkstate.runtime.spark import row_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pyflinkstate.runtime.program.environment import StreamExecutionEnvironment

#: Under this name the rows are counted and shown.
SOURCE_NAME = "initial state"
_WHOLE_NUMBERS = {"tinyint", "smallint", "int", "bigint"}


def check_frame(initial_state: SparkObject, df: DataFrame, key: KeyColumns) -> None:
    """Check that rows of ``initial_state`` can have keys of ``df``.

    Raises:
        ConfigurationError: it is no batch DataFrame, has no such columns, or they are of other types.
    """
    check_dataframe("initial_state=", initial_state)
    if initial_state.isStreaming:
        raise ConfigurationError(
            "initial_state= takes a batch DataFrame, and this is a streaming one: it is read once, before "
            "the first row of the input"
        )
    selector(key, initial_state.columns, "initial_state=")
    for name in columns_of(key):
        _check_same_type(name, df, initial_state)


def _check_same_type(name: str, df: DataFrame, initial_state: DataFrame) -> None:
    """Check a column of the key: a number and its text are two keys, which would never meet."""
    if name not in df.columns:
        return  # the step says so
    own, other = (frame.schema[name].dataType.simpleString() for frame in (df, initial_state))
    if own != other and not {own, other} <= _WHOLE_NUMBERS:
        raise ConfigurationError(
            f"initial_state=: its column {name!r} is {other}, and that of the input is {own}, so their keys "
            f"would not meet: cast one of them"
        )


def check_method(function: object) -> None:
    """Check that a function takes rows of initial state.

    Raises:
        ConfigurationError: it does not, or would emit or await something.
    """
    if not isinstance(function, KeyedProcessFunction):
        raise ConfigurationError(
            f"initial_state= needs a KeyedProcessFunction, which says in handle_initial_state() what a row "
            f"means, not {function!r}"
        )
    kind, method = type(function), function.handle_initial_state
    if kind.handle_initial_state is KeyedProcessFunction.handle_initial_state:
        raise ConfigurationError(
            f"initial_state= needs a function that says what a row of it means: define "
            f"handle_initial_state(self, value, ctx) in {kind.__name__}"
        )
    if awaits(method) or inspect.isgeneratorfunction(method):
        does = "is 'async def'" if awaits(method) else "yields"
        raise ConfigurationError(
            f"{kind.__name__}.handle_initial_state() {does}: it fills the state of the row's key, and "
            f"returns nothing"
        )


def rows_of(env: StreamExecutionEnvironment, initial_state: DataFrame) -> DataStream:
    """Return the rows of a DataFrame, which a job reads first if it does not go on from a checkpoint."""
    return DataStream(env, SourceNode(InitialRows(partial(row_batches.epoch_of, initial_state)), SOURCE_NAME))
