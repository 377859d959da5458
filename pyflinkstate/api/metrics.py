"""Metrics that a function keeps about itself (``pyflink.metrics``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable


class Metric(ABC):  # noqa: B024 - it has a name for type hints, and nothing to implement
    """What a :class:`MetricGroup` makes."""


class Counter(Metric, ABC):
    """Counts something."""

    @abstractmethod
    def inc(self, n: int = 1) -> None:
        """Add ``n``."""

    @abstractmethod
    def dec(self, n: int = 1) -> None:
        """Take ``n`` away."""

    @abstractmethod
    def get_count(self) -> int:
        """Return the count."""


class Meter(Metric, ABC):
    """Counts events and tells how many there are in a second."""

    @abstractmethod
    def mark_event(self, value: int = 1) -> None:
        """Note ``value`` events."""

    @abstractmethod
    def get_count(self) -> int:
        """Return how many events there were."""


class Distribution(Metric, ABC):
    """Keeps number, sum, least and greatest of values."""

    @abstractmethod
    def update(self, value: int) -> None:
        """Note a value."""


class MetricGroup(ABC):
    """Makes metrics, by name. The same name gives the same metric; a name has one kind of metric.

    Metrics are gathered by the driver at the end of each epoch. They live as long as a subtask does: after a
    restart they begin anew, and a replayed record is counted again. What must be exact is state.
    """

    @abstractmethod
    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return a group below this one, called ``name``, or ``name.extra``."""

    @abstractmethod
    def counter(self, name: str) -> Counter:
        """Return a counter."""

    @abstractmethod
    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        """Have ``obj`` called whenever metrics are gathered; its value is shown for each subtask."""

    @abstractmethod
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Return a meter whose rate is that of about the last ``time_span_in_seconds``."""

    @abstractmethod
    def distribution(self, name: str) -> Distribution:
        """Return a distribution."""
