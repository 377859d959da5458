"""Lengths of time, instants, timestamps and watermarks (``pyflink.common.time``, ``watermark_strategy``)."""

from __future__ import annotations

import datetime
import inspect
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

import attrs

from pyflinkstate.api.checks import as_int, check_text
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

    #: The same under the name that Java gives it.
    to_millis = to_milliseconds

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


#: The seconds of Java's ``Instant.MIN`` and ``Instant.MAX``, about a billion years away, and the nanoseconds.
_BOUNDS = {"seconds": (-31_557_014_167_219_200, 31_556_889_864_403_199), "nanos": (0, 999_999_999)}


def _within_bounds(_: Instant, attribute: attrs.Attribute[int], value: object) -> None:
    low, high = _BOUNDS[attribute.name]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigurationError(
            f"the {attribute.name} of an Instant must be an int from {low} to {high}, not {value!r}"
        )


@attrs.frozen(order=True, repr=False)
class Instant:
    """A point in time, to the nanosecond, such as ``Instant.of_epoch_milli(1700000000123)``.

    Args:
        seconds: whole seconds since 1970-01-01T00:00:00Z, rounded down, so negative before.
        nanos: nanoseconds after that second, 0 to 999999999.

    Raises:
        ConfigurationError: one of them is not an int, or is out of range.
    """

    seconds: int = attrs.field(validator=_within_bounds)
    nanos: int = attrs.field(validator=_within_bounds)

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


#: Flink's ``Long.MIN_VALUE``: no watermark has arrived yet.
NO_WATERMARK: Final = -(2**63)
#: Flink's ``Watermark.MAX_WATERMARK``: no more records will come.
MAX_WATERMARK: Final = 2**63 - 1


#: Flink's ``Long.MIN_VALUE``: passed to an assigner if a record has no timestamp yet.
NO_TIMESTAMP = -(2**63)


class TimestampAssigner(ABC):
    """Assigns a timestamp to each record."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int, /) -> int:
        """Return the event time of ``value``, in milliseconds since 1970.

        Args:
            value: the record.
            record_timestamp: the timestamp that the record already has, or :data:`NO_TIMESTAMP`.
        """


#: Returns the event time of a record, in ms since 1970; called as ``extract_timestamp``.
AssignTimestamp: TypeAlias = Callable[[Any, int], int]


@attrs.frozen
class FunctionTimestamps(TimestampAssigner):
    """Assigns the timestamps that a function returns."""

    function: AssignTimestamp

    def extract_timestamp(self, value: object, record_timestamp: int) -> int:
        """Call the function with the record and the timestamp that it already has."""
        return self.function(value, record_timestamp)


@attrs.frozen
class WatermarkAlignment:
    """How far a source may be ahead of the other sources in its group, in event time.

    Attributes:
        group: the name of the group; its sources wait for each other.
        max_drift_ms: how far a source's watermark may be above the least one in the group.
    """

    group: str
    max_drift_ms: int


@attrs.frozen
class WatermarkStrategy:
    """How timestamps and watermarks are made, for ``DataStream.assign_timestamps_and_watermarks``.

    A watermark ``t`` says that no more records with a timestamp of ``t`` or before will come. It advances
    after every few thousand records of a Spark partition and at the end of every epoch. It is the least over
    the partitions that had records, never goes back, and is kept in checkpoints.

    Attributes:
        max_out_of_orderness_ms: how far the watermark stays behind the greatest timestamp; with None there
            are no watermarks until the input ends.
        idle_timeout_ms: how long after its last record a stream stops holding back others.
        timestamp_assigner: assigns timestamps; without it records keep their own.
        alignment: how far the source may be ahead of others; with None there is no limit.
    """

    max_out_of_orderness_ms: int | None = None
    idle_timeout_ms: int | None = None
    timestamp_assigner: TimestampAssigner | None = None
    alignment: WatermarkAlignment | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Return a strategy for timestamps that never decrease; the watermark is 1 ms behind the greatest."""
        return WatermarkStrategy(0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: LengthOfTime) -> WatermarkStrategy:
        """Return a strategy for records that are out of order by at most ``max_out_of_orderness``."""
        return WatermarkStrategy(_milliseconds("max_out_of_orderness", max_out_of_orderness))

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Return a strategy without watermarks; event time advances only when the input has ended."""
        return WatermarkStrategy()

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | AssignTimestamp
    ) -> WatermarkStrategy:
        """Return a new strategy like this one, with an assigner that takes timestamps from records.

        As with all methods of a strategy, this one stays as it is: use what is returned. PyFlink changes the
        strategy itself.

        Args:
            timestamp_assigner: a ``TimestampAssigner``, or a function such as
                ``lambda order, previous: order["at"]``, which is called with the arguments of
                :meth:`TimestampAssigner.extract_timestamp`.

        Raises:
            ConfigurationError: it is neither.
        """
        if not isinstance(timestamp_assigner, TimestampAssigner):
            timestamp_assigner = FunctionTimestamps(_two_arguments(timestamp_assigner))
        return attrs.evolve(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: LengthOfTime) -> WatermarkStrategy:
        """Do not let this stream hold back the others of a union or connection while it has no records.

        Spark partitions of one stream never hold each other back: one without records in an epoch is idle.
        """
        timeout_ms = _milliseconds("idle_timeout", idle_timeout)
        if timeout_ms == 0:
            raise ConfigurationError("idle_timeout must be positive")
        return attrs.evolve(self, idle_timeout_ms=timeout_ms)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: LengthOfTime,
        update_interval: LengthOfTime | None = None,
    ) -> WatermarkStrategy:
        """Let the source wait while it is too far ahead of others, so that less state waits for them.

        A source whose watermark is more than the drift above the least one in its group adds no records to
        the next epoch. Sources that have ended or are idle hold nobody back; a source that has had no record
        yet does. As in Flink, alignment concerns sources: it has no effect behind a stateful operator, nor in
        a job without checkpoints, which reads all its input in one epoch.

        Args:
            watermark_group: a name that the sources have in common.
            max_allowed_watermark_drift: how far one may be ahead.
            update_interval: ignored, it is part of PyFlink's signature. Watermarks are compared before each
                epoch.

        Raises:
            ConfigurationError: the group has no name, or a duration is negative.
        """
        check_text("watermark_group", watermark_group)
        drift_ms = _milliseconds("max_allowed_watermark_drift", max_allowed_watermark_drift)
        return attrs.evolve(self, alignment=WatermarkAlignment(watermark_group, drift_ms))


def _two_arguments(function: AssignTimestamp) -> AssignTimestamp:
    """Return the function; raise ``ConfigurationError`` if it cannot take a record and a timestamp."""
    try:
        with suppress(ValueError):  # functions in C may not tell their parameters
            inspect.signature(function).bind(None, 0)
    except TypeError as error:
        raise ConfigurationError(
            f"a TimestampAssigner is needed, not {function!r}, or a function of a record and the timestamp "
            f"that it already has: {error}"
        ) from None
    return function


def _milliseconds(name: str, duration: LengthOfTime) -> int:
    milliseconds = milliseconds_of(duration)
    if milliseconds < 0:
        raise ConfigurationError(f"{name} must not be negative: {duration!r}")
    return milliseconds
