"""Reports the metrics of jobs to reporters, each on a thread of its own."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from pyflinkstate.api.metrics import MetricReporter, ReportedMetric

#: How long the end of a program waits for a last report.
END_TIMEOUT_S = 10.0

_log = logging.getLogger("pyflinkstate.monitor")

_Key = tuple[str, tuple[tuple[str, str], ...]]
_Told = TypeVar("_Told")


class Reporting:
    """Tells one reporter metrics at an interval, until it is closed or the program ends.

    Args:
        reporter: it is opened here.
        metrics: returns the present metrics.
        interval_s: the time between two reports.
        ended: makes the thread end; a test may wait in another way.
    """

    def __init__(
        self,
        reporter: MetricReporter,
        metrics: Callable[[], list[ReportedMetric]],
        interval_s: float,
        ended: threading.Event | None = None,
    ) -> None:
        self._reporter = reporter
        self._metrics = metrics
        self._interval_s = interval_s
        self._ended = threading.Event() if ended is None else ended
        self._known: dict[_Key, ReportedMetric] = {}
        reporter.open()
        self._thread = threading.Thread(target=self._run, name="pyflinkstate reporter", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Report for the last time, and close the reporter; wait for that for some seconds."""
        atexit.unregister(self.close)
        self._ended.set()
        self._thread.join(END_TIMEOUT_S)

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self._report()
        self._report()
        self._tell(lambda _: self._reporter.close(), None)

    def _report(self) -> None:
        metrics = self._metrics()
        known = {(metric.name, metric.labels): metric for metric in metrics}
        for key in known.keys() - self._known.keys():
            self._tell(self._reporter.notify_of_added_metric, known[key])
        for key in self._known.keys() - known.keys():
            self._tell(self._reporter.notify_of_removed_metric, self._known[key])
        self._known = known
        self._tell(self._reporter.report, metrics)

    def _tell(self, tell: Callable[[_Told], object], what: _Told) -> None:
        try:
            tell(what)
        except Exception:  # noqa: BLE001 - whatever a reporter does, the next report comes
            _log.exception("metric reporter %s has raised an error", type(self._reporter).__name__)
