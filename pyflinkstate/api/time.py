"""Lengths of time and instants, under PyFlink's names (``pyflink.common.time``)."""

from __future__ import annotations

import datetime
import math
import numbers
from collections.abc import Callable
from typing import TypeAlias

import attrs

from pyflinkstate.api.checks import as_int
from pyflinkstate.errors import ConfigurationError


def _whole_number(made_by: str, number: object, factor: int = 1, finer: str = "") -> int:
    """Convert a whole number, also one of numpy's, to the ``finer`` unit, ``factor`` of which make one.

    Raises:
        ConfigurationError: it is not a whole number.
    """
    whole = as_int(number)
    if whole is not None:
        return whole * factor
    told = f"{made_by} takes a whole number, not {number!r}"
    if not finer:
        raise ConfigurationError(told)
    raise ConfigurationError(f"{told}: use {finer}({_in_finer(number, factor)})")


def _in_finer(number: object, factor: int) -> str:
    """Convert a number to the next finer unit; the empty string if the result is not a whole number."""
    if not isinstance(number, numbers.Real) or isinstance(number, bool):
        return ""
    scaled = float(number) * factor
    # 2.01 s are 2010 ms, though 2.01 * 1000 is a little less.
    is_whole = math.isfinite(scaled) and math.isclose(scaled, round(scaled), rel_tol=1e-12)
    return str(round(scaled)) if is_whole else ""


def _of_milliseconds(number: object) -> int:
    return _whole_number("Time", number)


def _of_nanos(number: object) -> int:
    return _whole_number("Duration", number)


@attrs.frozen(order=True)
class Time:
    """A length of time in whole milliseconds, such as ``Time.hours(1)``.

    Raises:
        ConfigurationError: the number is not a whole number.
    """

    _milliseconds: int = attrs.field(converter=_of_milliseconds)

    def __str__(self) -> str:
        return f"{self._milliseconds} ms"

    def to_milliseconds(self) -> int:
        """Return the length in milliseconds."""
        return self._milliseconds

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """Return a length in milliseconds."""
        return Time(_whole_number("Time.milliseconds()", milliseconds))

    @staticmethod
    def seconds(seconds: int) -> Time:
        """Return a length in seconds."""
        return Time(_whole_number("Time.seconds()", seconds, 1000, "Time.milliseconds"))

    @staticmethod
    def minutes(minutes: int) -> Time:
        """Return a length in minutes."""
        return Time(_whole_number("Time.minutes()", minutes, 60_000, "Time.milliseconds"))

    @staticmethod
    def hours(hours: int) -> Time:
        """Return a length in hours."""
        return Time(_whole_number("Time.hours()", hours, 3_600_000, "Time.milliseconds"))

    @staticmethod
    def days(days: int) -> Time:
        """Return a length in days."""
        return Time(_whole_number("Time.days()", days, 86_400_000, "Time.milliseconds"))


@attrs.frozen(order=True)
class Duration:
    """A length of time, such as ``Duration.of_hours(1)``.

    Raises:
        ConfigurationError: the number is not a whole number.
    """

    _nanos: int = attrs.field(converter=_of_nanos)

    def to_milliseconds(self) -> int:
        """Return the length in whole milliseconds."""
        return self._nanos // 1_000_000

    def to_millis(self) -> int:
        """Return the length in whole milliseconds, under the name that Java gives it."""
        return self.to_milliseconds()

    @staticmethod
    def of_days(days: int) -> Duration:
        """Return a length in days."""
        return Duration.of_millis(_whole_number("Duration.of_days()", days, 86_400_000, "Duration.of_millis"))

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """Return a length in hours."""
        return Duration.of_millis(
            _whole_number("Duration.of_hours()", hours, 3_600_000, "Duration.of_millis")
        )

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """Return a length in minutes."""
        return Duration.of_millis(
            _whole_number("Duration.of_minutes()", minutes, 60_000, "Duration.of_millis")
        )

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """Return a length in seconds."""
        return Duration.of_millis(_whole_number("Duration.of_seconds()", seconds, 1000, "Duration.of_millis"))

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """Return a length in milliseconds."""
        return Duration(_whole_number("Duration.of_millis()", millis, 1_000_000, "Duration.of_nanos"))

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Return a length in nanoseconds."""
        return Duration(_whole_number("Duration.of_nanos()", nanos))


#: The seconds of Java's ``Instant.MIN`` and ``Instant.MAX``, about a billion years away.
_MIN_SECONDS, _MAX_SECONDS = -31_557_014_167_219_200, 31_556_889_864_403_199


def _whole(instant: Instant, attribute: attrs.Attribute[int], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(f"the {attribute.name} of an Instant must be an int, not {value!r}")


def _within(low: int, high: int) -> Callable[[Instant, attrs.Attribute[int], int], None]:
    def validate(instant: Instant, attribute: attrs.Attribute[int], value: int) -> None:
        if not low <= value <= high:
            raise ConfigurationError(
                f"the {attribute.name} of an Instant must be from {low} to {high}, not {value}"
            )

    return validate


@attrs.frozen(order=True, repr=False)
class Instant:
    """A point in time, to the nanosecond, such as ``Instant.of_epoch_milli(1700000000123)``.

    Args:
        seconds: whole seconds since 1970-01-01T00:00:00Z, rounded down, so negative before.
        nanos: nanoseconds after that second, 0 to 999999999.

    Raises:
        ConfigurationError: one of them is not an int, or is out of range.
    """

    seconds: int = attrs.field(validator=[_whole, _within(_MIN_SECONDS, _MAX_SECONDS)])
    nanos: int = attrs.field(validator=[_whole, _within(0, 999_999_999)])

    def __repr__(self) -> str:
        return f"Instant<{self.seconds}, {self.nanos}>"

    def to_epoch_milli(self) -> int:
        """Return the milliseconds since 1970, rounded down as in Java, even before 1970."""
        return self.seconds * 1000 + self.nanos // 1_000_000

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """Return the instant this many milliseconds after 1970, or before it if negative."""
        seconds, milliseconds = divmod(_whole_number("Instant.of_epoch_milli()", epoch_milli), 1000)
        return Instant(seconds, milliseconds * 1_000_000)


#: The lengths of time that :func:`milliseconds_of` accepts.
LengthOfTime: TypeAlias = Time | Duration | datetime.timedelta


def milliseconds_of(length: LengthOfTime) -> int:
    """Return a length of time in whole milliseconds.

    Raises:
        ConfigurationError: ``length`` is not a length of time.
    """
    if isinstance(length, (Time, Duration)):
        return length.to_milliseconds()
    if isinstance(length, datetime.timedelta):
        return length // datetime.timedelta(milliseconds=1)
    raise ConfigurationError(f"a Time, Duration or timedelta is needed, not {length!r}")
