"""The monitor of a program: records its jobs, and shows them on one page if that was asked for."""

from __future__ import annotations

import atexit
import logging
import threading

from pyflinkstate.api.metric_reporter import MetricReporter
from pyflinkstate.monitor.follower import Follower
from pyflinkstate.monitor.jobs import Jobs, Shown
from pyflinkstate.monitor.metrics.registry import MetricRegistry
from pyflinkstate.monitor.metrics.reporting import Reporting
from pyflinkstate.monitor.recorder import Recorder
from pyflinkstate.monitor.story import JobStory
from pyflinkstate.monitor.web.access import Access
from pyflinkstate.monitor.web.pages import Pages
from pyflinkstate.monitor.web.server import PageServer
from pyflinkstate.runtime.job import Job, JobObserver, WebPageSettings
from pyflinkstate.runtime.wire import Clock, SystemClock

_log = logging.getLogger("pyflinkstate.monitor")


class Monitor:
    """Records the jobs of one program, and shows them.

    Args:
        page: how the page is served; None for no page.
        keeps_journal: whether journals are kept, if :meth:`observe` gets a directory.
        clock: the time.
        is_told: whether the log has the address of the page.

    Raises:
        ConfigurationError: the page cannot listen where it should.
    """

    def __init__(
        self,
        page: WebPageSettings | None = None,
        keeps_journal: bool = True,
        clock: Clock | None = None,
        is_told: bool = True,
    ) -> None:
        self._clock = clock or SystemClock()
        self._keeps_journal = keeps_journal
        self._jobs = Jobs()
        self._server: PageServer | None = None
        self._is_told = is_told
        self._reports: list[Reporting] = []
        #: Ends what follows a folder.
        self._ended = threading.Event()
        #: Where the page is, with its token; None if there is none.
        self.address: str | None = None
        self.serve(page)

    def serve(self, page: WebPageSettings | None) -> None:
        """Serve the page with new settings, with all jobs that it showed; None stops it.

        Raises:
            ConfigurationError: the page cannot listen where it should; there is none then.
        """
        if self._server is not None:
            self._server.close()
        self._server = self.address = None
        if page is not None:
            self._open(page)
            if self._is_told:
                _log.warning("the web page is at %s", self.address)

    def _open(self, page: WebPageSettings) -> None:
        names = [name for name in (page.address, page.host) if name]
        access = Access(names, page.metrics_without_token)
        pages = Pages(self._jobs, access, page.has_actions, self._clock)
        self._server = PageServer(page.host, page.ports, pages.answer)
        access.port = self._server.port
        host = page.address or page.host
        name = f"[{host}]" if ":" in host else host
        self.address = f"http://{name}:{self._server.port}/?token={access.token}"

    def observe(self, directory: str | None) -> JobObserver:
        """Return a new listener, for one job; ``directory`` is that of its checkpoints."""
        recorder = Recorder(self._clock, directory if self._keeps_journal else None, self._changed)
        self._jobs.add(Shown(recorder.story, recorder.lock, recorder))
        return recorder

    def attach(self, observer: JobObserver, job: Job, savepoints: str | None) -> None:
        """Let the page control the job of an observer."""
        self._jobs.attach(observer, job, savepoints)

    def show(self, story: JobStory) -> None:
        """Show a job of another process."""
        self._jobs.add(Shown(story, threading.Lock()))

    def add_reporter(self, reporter: MetricReporter, interval_ms: int) -> None:
        """Report the metrics of all jobs to a reporter; errors of its ``open`` are raised."""
        registry = MetricRegistry(self._jobs, self._clock)
        self._reports.append(Reporting(reporter, registry, interval_ms / 1000))
        if len(self._reports) == 1:
            atexit.register(self._close_reports)

    def _close_reports(self) -> None:
        reports, self._reports = self._reports, []
        for reporting in reports:
            reporting.close()
        atexit.unregister(self._close_reports)

    def follow(self, path: str) -> None:
        """Show the jobs at a path, and their new events while viewers are connected.

        Raises:
            CheckpointNotFoundError: there is no job.
            CheckpointStorageError: the storage cannot be read.
        """
        follower = Follower(path, self._jobs, self._changed)
        args = (self._is_watched, self._ended)
        threading.Thread(target=follower.follow, args=args, name="pyflinkstate follower", daemon=True).start()

    def _is_watched(self) -> bool:
        return self._server is not None and self._server.is_watched()

    def close(self) -> None:
        """Close the page and reporters; jobs go on, and so do their journals."""
        if self._server is not None:
            self._server.close()
        self._ended.set()
        self._close_reports()

    def _changed(self) -> None:
        self._jobs.changed()
        if self._server is not None:
            self._server.changed(self._jobs.news())
