"""The monitor of a program: loaded when a web page, a journal or a reporter needs it."""

from __future__ import annotations

import attrs

from pyflinkstate.api.metric_reporter import MetricReporter
from pyflinkstate.runtime.master import Job, JobObserver, MonitorOfProgram, WebPageSettings, load_monitor
from pyflinkstate.runtime.program.environment_settings import EnvironmentSettings


@attrs.define(eq=False)
class Monitoring:
    """Monitors the jobs of one environment: web page, journal and reporters."""

    settings: EnvironmentSettings
    _monitor: MonitorOfProgram | None = None
    #: How the page is served now.
    _served: WebPageSettings | None = None

    def add_reporter(self, reporter: MetricReporter, interval_ms: int) -> None:
        """Tell a reporter the metrics of all jobs at an interval."""
        if self._monitor is None:
            self._monitor = load_monitor()
        self._monitor.add_reporter(reporter, interval_ms)

    def serve_anew(self) -> None:
        """Serve the page by the present settings, even if they have not changed."""
        self._served = None
        self._started()

    def address(self) -> str | None:
        """Return the address of the page with its token, or None if there is no page."""
        monitor = self._started()
        return None if monitor is None else monitor.address

    def page(self) -> str | None:
        """Return the address of the page without its token, if it is served."""
        address = None if self._monitor is None else self._monitor.address
        return None if address is None else address.partition("?")[0]

    def observer(self) -> JobObserver | None:
        """Return a listener for a new job, if there is a monitor."""
        monitor, directory = self._started(), self.settings.checkpoints.checkpoint_directory()
        if monitor is None:
            return None
        if directory is None or not self.settings.keeps_journal:
            return monitor.observe(None)
        return monitor.observe(directory.checkpoint_path)

    def attach(self, observer: JobObserver | None, job: Job) -> None:
        """Let the page steer the job of an observer."""
        if observer is not None and self._monitor is not None:
            self._monitor.attach(observer, job, self.settings.savepoint_directory)

    def close(self) -> None:
        """Close the page and the reporters."""
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = self._served = None

    def _started(self) -> MonitorOfProgram | None:
        """Return the monitor, which is loaded when it is needed for the first time."""
        page = self.settings.web_page
        if self._monitor is None and (page is not None or self.settings.keeps_journal):
            self._monitor = load_monitor()
        if self._monitor is not None and self._served is not page:  # it was chosen later
            self._monitor.serve(page)
            self._served = page
        return self._monitor
