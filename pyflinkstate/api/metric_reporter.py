"""Receivers of the metrics of jobs (Flink: ``org.apache.flink.metrics.reporter.MetricReporter``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import attrs


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
