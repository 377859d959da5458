"""Lengths of time, as PyFlink names them (``pyflink.common.time``)."""

from __future__ import annotations

import datetime

import attrs

from pyflinkstate.errors import ConfigurationError


@attrs.frozen(order=True)
class Time:
    """A length of time in whole milliseconds, such as ``Time.hours(1)``."""

    _milliseconds: int

    def to_milliseconds(self) -> int:
        """Return the length in milliseconds."""
        return self._milliseconds

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """Return a length in milliseconds."""
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """Return a length in seconds."""
        return Time(seconds * 1000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """Return a length in minutes."""
        return Time(minutes * 60_000)

    @staticmethod
    def hours(hours: int) -> Time:
        """Return a length in hours."""
        return Time(hours * 3_600_000)

    @staticmethod
    def days(days: int) -> Time:
        """Return a length in days."""
        return Time(days * 86_400_000)


@attrs.frozen(order=True)
class Duration:
    """A length of time, such as ``Duration.of_hours(1)``."""

    _nanos: int

    def to_milliseconds(self) -> int:
        """Return the length in whole milliseconds."""
        return self._nanos // 1_000_000

    @staticmethod
    def of_days(days: int) -> Duration:
        """Return a length in days."""
        return Duration.of_millis(days * 86_400_000)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """Return a length in hours."""
        return Duration.of_millis(hours * 3_600_000)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """Return a length in minutes."""
        return Duration.of_millis(minutes * 60_000)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """Return a length in seconds."""
        return Duration.of_millis(seconds * 1000)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """Return a length in milliseconds."""
        return Duration(millis * 1_000_000)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Return a length in nanoseconds."""
        return Duration(nanos)


def milliseconds_of(length: Time | Duration | datetime.timedelta) -> int:
    """Return a length of time in whole milliseconds.

    Raises:
        ConfigurationError: it is none.
    """
    if isinstance(length, (Time, Duration)):
        return length.to_milliseconds()
    if isinstance(length, datetime.timedelta):
        return length // datetime.timedelta(milliseconds=1)
    raise ConfigurationError(f"a Time, Duration or timedelta is needed, not {length!r}")
