"""The monitor of a program: records its jobs, and shows them on one page if that was asked for."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pyflinkstate.api import MetricReporter, ReportedMetric
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.monitor.api import all_metrics
from pyflinkstate.monitor.dead_jobs import Follower
from pyflinkstate.monitor.jobs import Jobs, Recorder, Shown
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


def show_jobs(path: str, port: int = 0, host: str = "127.0.0.1") -> None:
    """Serve the page of the jobs at a path until the user ends it with Ctrl-C.

    New events and new jobs are shown within seconds while a viewer is connected.

    Raises:
        CheckpointNotFoundError: there is no job.
        CheckpointStorageError: the storage cannot be read.
        ConfigurationError: the page cannot listen there, or its extra is not installed.
    """
    monitor = Monitor(is_told=False)
    monitor.follow(path)
    monitor.serve(WebPageSettings((port,), host, has_actions=False))
    print(f"{monitor.address}\nThe page is there until you press Ctrl-C.", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        monitor.close()


#: How long the end of a program waits for a last report.
END_TIMEOUT_S = 10.0


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
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], ReportedMetric] = {}
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
