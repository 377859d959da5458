"""The monitor of a program: records its jobs, and shows them on one page if that was asked for."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from pyflinkstate.api.metrics import MetricReporter
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.monitor.follower import Follower
from pyflinkstate.monitor.jobs import Jobs, Shown
from pyflinkstate.monitor.metrics.job_metrics import all_metrics
from pyflinkstate.monitor.metrics.reporting import Reporting
from pyflinkstate.monitor.recorder import Recorder
from pyflinkstate.runtime.master import Job, JobObserver, WebPageSettings
from pyflinkstate.runtime.wire import Clock, SystemClock

if TYPE_CHECKING:
    from pyflinkstate.monitor.web.pages import Pages
    from pyflinkstate.monitor.web.server import PageServer

_log = logging.getLogger("pyflinkstate.monitor")


class Monitor:
    """Records the jobs of one program, and shows them.

    Args:
        page: how the page is served; None for no page.
        clock: the time.
        is_told: whether the log has the address of the page.

    Raises:
        ConfigurationError: the page cannot listen where it should, or its extra is not installed.
    """

    def __init__(
        self,
        page: WebPageSettings | None = None,
        clock: Clock | None = None,
        is_told: bool = True,
    ) -> None:
        self._clock = clock or SystemClock()
        self._jobs = Jobs()
        self._pages: Pages | None = None
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
            ConfigurationError: the page cannot listen where it should, or its extra is not installed; there
                is no page then.
        """
        if self._server is not None:
            self._server.close()
        self._server = self._pages = self.address = None
        if page is not None:
            self._open(page)
            if self._is_told:
                _log.warning("the web page is at %s", self.address)

    def _open(self, page: WebPageSettings) -> None:
        try:
            from pyflinkstate.monitor.web.access import Access
            from pyflinkstate.monitor.web.pages import Pages
            from pyflinkstate.monitor.web.server import PageServer
        except ImportError as error:
            raise ConfigurationError(
                f"the web page needs starlette and uvicorn ({error}): install them where the page is served "
                "(pip install 'pyflinkstate[web]'), or do not ask for a page"
            ) from error
        names = [name for name in (page.address, page.host) if name]
        access = Access(names, page.metrics_without_token)
        self._pages = Pages(self._jobs, access, page.has_actions, self._clock)
        self._server = PageServer(page.host, page.ports, self._pages)
        host = page.address or page.host
        name = f"[{host}]" if ":" in host else host
        self.address = f"http://{name}:{self._server.port}/?token={access.token}"

    def observe(self, directory: str | None) -> JobObserver:
        """Return a new listener, for one job; its journal is kept in ``directory``, if there is one."""
        recorder = Recorder(self._clock, directory, self._jobs.changed)
        self._jobs.add(Shown(recorder.story, recorder.lock, recorder))
        return recorder

    def attach(self, observer: JobObserver, job: Job, savepoints: str | None) -> None:
        """Let the page control the job of an observer."""
        self._jobs.attach(observer, job, savepoints)

    def add_reporter(self, reporter: MetricReporter, interval_ms: int) -> None:
        """Tell a reporter the metrics of all jobs; what its ``open`` raises is passed on."""
        metrics = partial(all_metrics, self._jobs, self._clock)
        self._reports.append(Reporting(reporter, metrics, interval_ms / 1000))

    def follow(self, path: str) -> None:
        """Show the jobs at a path, and their new events while viewers are connected.

        Raises:
            CheckpointNotFoundError: there is no job.
            CheckpointStorageError: the storage cannot be read.
        """
        follower = Follower(path, self._jobs, self._jobs.changed)
        args = (self._is_watched, self._ended)
        threading.Thread(target=follower.follow, args=args, name="pyflinkstate follower", daemon=True).start()

    def _is_watched(self) -> bool:
        return self._pages is not None and self._pages.is_watched()

    def close(self) -> None:
        """Close the page and reporters; jobs go on, and so do their journals."""
        if self._server is not None:
            self._server.close()
        self._ended.set()
        for reporting in self._reports:
            reporting.close()
