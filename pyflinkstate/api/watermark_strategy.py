"""Event time: timestamps and watermarks (``pyflink.common.watermark_strategy``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import attrs

from pyflinkstate.api.time import Duration, milliseconds_of
from pyflinkstate.errors import ConfigurationError

#: Flink's ``Long.MIN_VALUE``: what an assigner is given where a record has no timestamp yet.
NO_TIMESTAMP = -(2**63)


class TimestampAssigner(ABC):
    """Gives each record its timestamp."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the event time of ``value``, in milliseconds since 1970.

        Args:
            value: the record.
            record_timestamp: the timestamp that it has already, or :data:`NO_TIMESTAMP`.
        """


@attrs.frozen
class WatermarkStrategy:
    """How timestamps and watermarks are made, for ``DataStream.assign_timestamps_and_watermarks``.

    A watermark ``t`` says that no record with a timestamp of ``t`` or before is to come. It advances after
    every few thousand records of a Spark partition and at the end of every epoch, is the least over the
    partitions that had records, never goes back, and is kept in checkpoints.

    Attributes:
        max_out_of_orderness_ms: how far the watermark stays behind the greatest timestamp; None: there are no
            watermarks until the input ends.
        idle_timeout_ms: so long after its last record a stream no longer holds back others.
        timestamp_assigner: gives timestamps; without it records keep theirs.
    """

    max_out_of_orderness_ms: int | None = None
    idle_timeout_ms: int | None = None
    timestamp_assigner: TimestampAssigner | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Timestamps never go down; the watermark is one millisecond behind the greatest."""
        return WatermarkStrategy(0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> WatermarkStrategy:
        """No record comes later than so long after one with a greater timestamp."""
        return WatermarkStrategy(_milliseconds("max_out_of_orderness", max_out_of_orderness))

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Timestamps alone; event time passes when the input has ended."""
        return WatermarkStrategy()

    def with_timestamp_assigner(self, timestamp_assigner: TimestampAssigner) -> WatermarkStrategy:
        """Take timestamps from records."""
        if not isinstance(timestamp_assigner, TimestampAssigner):
            raise ConfigurationError(f"a TimestampAssigner is needed, not {timestamp_assigner!r}")
        return attrs.evolve(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: Duration) -> WatermarkStrategy:
        """Do not let this stream hold back the others of a union or connection when it falls silent.

        Spark partitions of one stream never hold back each other: one without records in an epoch is idle.
        """
        timeout_ms = _milliseconds("idle_timeout", idle_timeout)
        if timeout_ms == 0:
            raise ConfigurationError("idle_timeout must be more than nothing")
        return attrs.evolve(self, idle_timeout_ms=timeout_ms)


def _milliseconds(name: str, duration: Duration) -> int:
    milliseconds = milliseconds_of(duration)
    if milliseconds < 0:
        raise ConfigurationError(f"{name} must not be negative: {duration!r}")
    return milliseconds
