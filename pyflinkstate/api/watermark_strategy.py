"""Event time: timestamps and watermarks (``pyflink.common.watermark_strategy``)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs

from pyflinkstate.api.time import LengthOfTime, milliseconds_of
from pyflinkstate.api.values import Record
from pyflinkstate.errors import ConfigurationError

#: Flink's ``Long.MIN_VALUE``: passed to an assigner if a record has no timestamp yet.
NO_TIMESTAMP = -(2**63)


class TimestampAssigner(ABC):
    """Assigns a timestamp to each record."""

    @abstractmethod
    def extract_timestamp(self, value: Record, record_timestamp: int) -> int:
        """Return the event time of ``value``, in milliseconds since 1970.

        Args:
            value: the record.
            record_timestamp: the timestamp that the record already has, or :data:`NO_TIMESTAMP`.
        """


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

    def with_timestamp_assigner(self, timestamp_assigner: TimestampAssigner) -> WatermarkStrategy:
        """Return a new strategy like this one, with an assigner that takes timestamps from records.

        As with all methods of a strategy, this one stays as it is: use what is returned. PyFlink changes the
        strategy itself.
        """
        if not isinstance(timestamp_assigner, TimestampAssigner):
            raise ConfigurationError(f"a TimestampAssigner is needed, not {timestamp_assigner!r}")
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
        if not isinstance(watermark_group, str) or not watermark_group:
            raise ConfigurationError(f"watermark_group must be a name, not {watermark_group!r}")
        drift_ms = _milliseconds("max_allowed_watermark_drift", max_allowed_watermark_drift)
        if update_interval is not None:
            _milliseconds("update_interval", update_interval)
        return attrs.evolve(self, alignment=WatermarkAlignment(watermark_group, drift_ms))


def _milliseconds(name: str, duration: LengthOfTime) -> int:
    milliseconds = milliseconds_of(duration)
    if milliseconds < 0:
        raise ConfigurationError(f"{name} must not be negative: {duration!r}")
    return milliseconds
