"""The metrics of all jobs of a page or program, for collectors."""

from __future__ import annotations

from pyflinkstate.api.metric_reporter import ReportedMetric
from pyflinkstate.monitor.jobs import Jobs
from pyflinkstate.monitor.metrics.job_metrics import samples
from pyflinkstate.runtime.wire import Clock


class MetricRegistry:
    """Collects the present values.

    Args:
        jobs: whose metrics they are.
        clock: the time.
    """

    def __init__(self, jobs: Jobs, clock: Clock) -> None:
        self._jobs = jobs
        self._clock = clock

    def metrics(self) -> list[ReportedMetric]:
        """Return the metrics of all jobs that have begun, also of those that have ended."""
        found: list[ReportedMetric] = []
        for shown in self._jobs.begun():
            with shown.lock:
                found += samples(shown.story, self._clock.now_ms())
        return found
