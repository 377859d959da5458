"""What the rows of a DataFrame mean, as its users say it: keys, timestamps, and initial state."""

from __future__ import annotations

import datetime
import inspect
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from pyflinkstate.api import (
    Duration,
    KeyedProcessFunction,
    LengthOfTime,
    Record,
    SelectKey,
    SparkObject,
    Time,
    TimestampAssigner,
    WatermarkStrategy,
    as_int,
    check_dataframe,
    milliseconds_of,
    safe_repr,
)
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.operators import awaits
from pyflinkstate.runtime.plan import SourceNode
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.sources import InitialRows
from pyflinkstate.runtime.spark import row_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pyflinkstate.runtime.program.environment import StreamExecutionEnvironment


#: The name of a column, several names, or a function of the row.
KeyColumns: TypeAlias = "str | list[str] | tuple[str, ...] | SelectKey"


def columns_of(key: KeyColumns) -> list[str]:
    """Return the columns of a key; none if it is a function of the row.

    Raises:
        ConfigurationError: it is something else, or names no column.
    """
    if callable(key):
        return []
    names: list[Any] = list(key) if isinstance(key, (list, tuple)) else [key]
    if not names:
        raise ConfigurationError(
            f"key={key!r} names no column, so that all rows would have one key: give the names of columns, "
            f"or a function of the row"
        )
    # What else has several names may have no order, or be used up when it is looked at.
    if isinstance(key, Iterable) and not (isinstance(key, (str, list, tuple)) or _is_column(key)):
        raise ConfigurationError(
            f"key= takes the name of a column, a list of names or a function of the row, not {safe_repr(key)}"
        )
    for name in names:
        check_name("key=", name)
    return names


def check_name(option: str, name: object) -> None:
    """Check that a column is given by its name.

    Raises:
        ConfigurationError: it is a Spark ``Column``, or anything else that is not a string.
    """
    if _is_column(name):
        told = str(name).removeprefix("Column<'").removesuffix("'>")
        raise ConfigurationError(f"{option} is the name of a column, not a Column: {told!r}")
    if not isinstance(name, str):
        raise ConfigurationError(
            f"{option} is the name of a column, or a function of the row, not {safe_repr(name)}"
        )


def _is_column(name: object) -> bool:
    return type(name).__name__ == "Column" and type(name).__module__.startswith("pyspark.")


def selector(key: KeyColumns, columns: list[str] | None, of: str = "") -> SelectKey:
    """Return what selects the key of a row.

    Args:
        key: the key.
        columns: the columns of the rows, if they are known.
        of: where the rows come from, for the error.

    Raises:
        ConfigurationError: there is no such column.
    """
    if callable(key):
        return key
    names = columns_of(key)
    missing = [name for name in names if columns is not None and name not in columns]
    if missing:
        where = f"{of}: " if of else ""
        raise ConfigurationError(
            f"{where}there is no column {missing[0]!r}; the columns are {', '.join(columns or ())}"
        )
    return row_batches.ColumnKey(tuple(names))


#: A column, or a function of the row that returns a moment, a day or milliseconds since 1970.
Timestamp: TypeAlias = str | Callable[[Any], object]
#: A length of time: in words such as ``"10 seconds"``, in milliseconds, or as a window takes it.
Length: TypeAlias = str | int | LengthOfTime

_UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_PART = re.compile(r"(\d+)\s*([a-z]+)")


def length_ms(name: str, length: Length) -> int:
    """Return a length of time in milliseconds.

    >>> length_ms("watermark", "1 minute 30 seconds")
    90000

    Raises:
        ConfigurationError: it is not a length of time, or it is negative.
    """
    if isinstance(length, str):
        return _parsed(name, length)
    is_number = not isinstance(length, (Duration, Time, datetime.timedelta))
    found = as_int(length) if is_number else milliseconds_of(length)  # type: ignore[arg-type]
    if found is None or found < 0:
        raise _no_length(name, length)
    return found


def _parsed(name: str, text: str) -> int:
    parts = _PART.findall(text.lower())
    units = [unit.removesuffix("s") for _, unit in parts]
    if not parts or _PART.sub("", text.lower()).strip() or not set(units) <= _UNITS_MS.keys():
        raise _no_length(name, text)
    return sum(int(number) * _UNITS_MS[unit] for (number, _), unit in zip(parts, units, strict=True))


def _no_length(name: str, length: object) -> ConfigurationError:
    return ConfigurationError(
        f"{name} takes a length of time, such as '10 seconds', a timedelta or a number of milliseconds, not "
        f"{length!r}"
    )


@attrs.frozen
class _FunctionTimestamps(TimestampAssigner):
    function: Callable[[Any], object]

    def extract_timestamp(self, value: Record, record_timestamp: int) -> int:
        found: int = row_batches.as_milliseconds(self.function(value))
        return found


def strategy_of(
    columns: list[str],
    is_streaming: bool,
    timestamp: Timestamp | None,
    watermark: Length | WatermarkStrategy | None,
) -> WatermarkStrategy | None:
    """Return how timestamps and watermarks are made, or None if the job does not use event time.

    Raises:
        ConfigurationError: there is no such column, ``timestamp`` is no name of one, or one of the two is
            missing.
    """
    if timestamp is None and watermark is None:
        return None
    assigner = None if timestamp is None else _assigner(columns, timestamp)
    if isinstance(watermark, WatermarkStrategy):
        return watermark if assigner is None else watermark.with_timestamp_assigner(assigner)
    if assigner is None:
        raise ConfigurationError("watermark= needs timestamp=: the column that says when a row happened")
    if watermark is not None:
        strategy = WatermarkStrategy(length_ms("watermark", watermark))
    elif is_streaming:
        raise ConfigurationError(
            "timestamp= on a streaming DataFrame needs watermark=: how late rows may come, as '10 seconds'"
        )
    else:
        strategy = WatermarkStrategy.no_watermarks()
    return strategy.with_timestamp_assigner(assigner)


def _assigner(columns: list[str], timestamp: Timestamp) -> TimestampAssigner:
    if callable(timestamp):
        return _FunctionTimestamps(timestamp)
    check_name("timestamp=", timestamp)
    if timestamp not in columns:
        raise ConfigurationError(f"there is no column {timestamp!r}; the columns are {', '.join(columns)}")
    return row_batches.ColumnTimestamps(timestamp)


#: Under this name the rows are counted and shown.
SOURCE_NAME = "initial state"
_WHOLE_NUMBERS = {"tinyint", "smallint", "int", "bigint"}


def check_frame(initial_state: SparkObject, df: DataFrame, key: KeyColumns) -> None:
    """Check that rows of ``initial_state`` can have keys of ``df``.

    Raises:
        ConfigurationError: it is not a batch DataFrame, or lacks these columns, or their types differ.
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
