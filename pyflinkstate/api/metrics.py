"""Metrics that a function keeps about itself (``pyflink.metrics``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable


class Metric(ABC):  # noqa: B024 - it has a name for type hints, and nothing to implement
    """A metric of a :class:`MetricGroup`."""


class Counter(Metric, ABC):
    """Counts something."""

    @abstractmethod
    def inc(self, n: int = 1) -> None:
        """Add ``n``."""

    @abstractmethod
    def dec(self, n: int = 1) -> None:
        """Subtract ``n``."""

    @abstractmethod
    def get_count(self) -> int:
        """Return the count."""


class Meter(Metric, ABC):
    """Counts events and computes how many there are per second."""

    @abstractmethod
    def mark_event(self, value: int = 1) -> None:
        """Record ``value`` events."""

    @abstractmethod
    def get_count(self) -> int:
        """Return how many events there were."""


class Distribution(Metric, ABC):
    """Keeps the count, sum, minimum and maximum of values."""

    @abstractmethod
    def update(self, value: int) -> None:
        """Record a value."""


class MetricGroup(ABC):
    """Makes metrics by name. The same name returns the same metric, and each name has one kind of metric.

    The driver collects metrics at the end of each epoch. They live as long as a subtask does: after a
    restart they start again, and a replayed record is counted again. Keep figures that must be exact in
    state.
    """

    @abstractmethod
    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return a group below this one, called ``name``, or ``name.extra``."""

    @abstractmethod
    def counter(self, name: str) -> Counter:
        """Return a counter."""

    @abstractmethod
    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        """Call ``obj`` whenever metrics are collected, and show its value for each subtask."""

    @abstractmethod
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Return a meter whose rate covers about the last ``time_span_in_seconds``."""

    @abstractmethod
    def distribution(self, name: str) -> Distribution:
        """Return a distribution."""
