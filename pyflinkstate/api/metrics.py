"""Metrics that a function keeps about itself (``pyflink.metrics``), and receivers of the metrics of jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import attrs


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


@attrs.frozen
class ReportedMetric:
    """A metric of a job, with its value at one moment.

    Attributes:
        name: its name, which is Flink's where Flink has the metric; the same for all operators and subtasks.
        value: its value. Moments and lengths of time are in ms, sizes in bytes.
        labels: pairs of name and string that identify the job, the operator and the subtask.
        help: its description in a sentence; empty for the metrics of functions.
        kind: ``"counter"`` if it only grows while a job runs, else ``"gauge"``.
    """

    name: str
    value: float
    labels: tuple[tuple[str, str], ...]
    help: str = ""
    kind: str = "gauge"


class MetricReporter(ABC):
    """Receives the metrics of all jobs of an environment, at an interval.

    ``env.add_metric_reporter(reporter)`` calls :meth:`open`. All methods after it are called on one thread,
    which no job waits for. Their exceptions are logged, and the next report comes nevertheless. The last one
    comes before :meth:`close`, when the environment is closed or the program ends.
    """

    def open(self) -> None:  # noqa: B027 - optional to override
        """Prepare to report; what this raises is raised where the reporter was added."""

    def notify_of_added_metric(self, metric: ReportedMetric) -> None:  # noqa: B027 - optional to override
        """A metric with this name and these labels is reported for the first time; this comes before it."""

    def notify_of_removed_metric(self, metric: ReportedMetric) -> None:  # noqa: B027 - optional to override
        """A metric is not reported any more; ``metric`` has its last value."""

    @abstractmethod
    def report(self, metrics: Sequence[ReportedMetric]) -> None:
        """Take the present values of all metrics of all jobs."""

    def close(self) -> None:  # noqa: B027 - optional to override
        """Release the resources of :meth:`open`."""
