"""Timestamps and watermarks of the rows of a DataFrame, as its users name them."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

from pyflinkstate.api.checks import as_int
from pyflinkstate.api.time import Duration, LengthOfTime, Time, milliseconds_of
from pyflinkstate.api.values import Record
from pyflinkstate.api.watermark_strategy import TimestampAssigner, WatermarkStrategy
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.program.dataframes.keys import check_name
from pyflinkstate.runtime.spark import row_batches

#: A column, or a function of the row that returns a moment, a day or milliseconds since 1970.
Timestamp: TypeAlias = str | Callable[[Record], object]
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
        ConfigurationError: it is none, or negative.
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
    function: Callable[[Record], object]

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
