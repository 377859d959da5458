"""The monitor of a program: records its jobs, and shows them, or those of other processes, on one page.

Jobs of other processes are read and followed in their folders: their journals, or the files beside them.

A job whose program kept no journal has at least ``checkpoints.json``, the statistics of its last checkpoints,
and the ``_metadata`` of its newest one, with operators, counts, watermarks and the sizes of state. Damaged or
unknown content is left out.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from pyflinkstate.api import JsonObject, MetricReporter, ReportedMetric
from pyflinkstate.backends.format import CheckpointMetadata, is_job_id
from pyflinkstate.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointStorageError,
    ConfigurationError,
    PyFlinkStateError,
)
from pyflinkstate.monitor.api import VIEWS, all_metrics, samples
from pyflinkstate.monitor.events import state_sizes
from pyflinkstate.monitor.jobs import Jobs, MonitoredJob, Recorder
from pyflinkstate.monitor.journal import STORAGE_ERRORS, JournalReader, path_in_job
from pyflinkstate.monitor.story import JobStory, take_all
from pyflinkstate.runtime.master import CheckpointStats, Job, JobObserver, WebPageSettings
from pyflinkstate.runtime.storage import (
    CheckpointFolders,
    ForeignFileError,
    absolute,
    child_uri,
    parent_uri,
    read_note,
)
from pyflinkstate.runtime.wire import Clock, SystemClock

if TYPE_CHECKING:
    from pyflinkstate.monitor.web.pages import Pages
    from pyflinkstate.monitor.web.server import PageServer

_log = logging.getLogger("pyflinkstate.monitor")

#: A checkpoint directory, and the id of a job in it.
Place = tuple[str, str]
HISTORY = "checkpoints.json"
#: Maximum size of a file of statistics; a job writes no longer ones.
MOST_HISTORY_BYTES = 1 << 24
#: The known fields of a checkpoint there; a later version may have more.
_STATISTICS: Final = frozenset(attrs.fields_dict(CheckpointStats))


def jobs_at(path: str) -> list[JobInFolder]:
    """Return the jobs in a checkpoint directory or in a job's folder, the one heard of last at the end.

    Args:
        path: a checkpoint directory, the folder of a job, or that of one of its checkpoints.

    Raises:
        CheckpointNotFoundError: there is no job.
        CheckpointStorageError: the storage cannot be read.
    """
    try:
        known = _known(job_ids_at(path))
    except CheckpointError:
        raise
    except STORAGE_ERRORS as error:
        raise CheckpointStorageError(f"{path} cannot be read: {error}", path=path) from error
    if not known:
        raise CheckpointNotFoundError(
            f"{path} has no job: name a checkpoint directory, or the folder of a job in it", path=path
        )
    return sorted(known, key=lambda job: job.story.heard_ms or 0)


def _known(places: list[Place]) -> list[JobInFolder]:
    """Return the jobs that have events; raise an error only if there are none."""
    found: list[JobInFolder] = []
    failure: Exception | None = None
    for directory, job_id in places:
        try:
            found.append(JobInFolder(directory, job_id))
        except (CheckpointError, *STORAGE_ERRORS) as error:
            _log.warning("the job %s in %s cannot be read, and is left out: %s", job_id, directory, error)
            failure = error
    known = [job for job in found if job.story.started_ms is not None]
    if failure is not None and not known:
        raise failure
    return known


class JobInFolder:
    """A job that is read from its folder, at once and again later.

    Args:
        directory: the checkpoint directory.
        job_id: the name of the job's folder in it.
    """

    def __init__(self, directory: str, job_id: str) -> None:
        self.place = (directory, job_id)
        self._storage, self._job_id = CheckpointFolders(directory), job_id
        self.folder = child_uri(self._storage.uri, job_id)
        self.story = JobStory()
        self._history: tuple[int | None, int | None] | None = None
        self._made_anew()

    def refreshed(self, lock: threading.Lock) -> JobStory | None:
        """Read new events and return the story, which may be a new object; None if nothing is new.

        Raises:
            OSError, pa.ArrowException: the storage cannot be read.
        """
        return self._heard(lock) if self._has_told else self._made_anew()

    def _heard(self, lock: threading.Lock) -> JobStory | None:
        events = self._journal.read_new()
        if not events:
            return None
        with lock:
            take_all(self.story, events)
            if not _makes_sense(self.story, self._job_id):
                self.story = JobStory()
        return self.story

    def _made_anew(self) -> JobStory | None:
        """Build the story from everything there is. What cannot be read now is read later."""
        journal, history = JournalReader(self.folder), _fingerprint(self.folder)
        events = journal.read_new()
        if not events and history == self._history:
            return None
        self.story = _story(self._storage, self._job_id, events)
        self._journal, self._history = journal, history
        #: Whether it has told anything itself.
        self._has_told = bool(events)
        return self.story


def _fingerprint(folder: str) -> tuple[int | None, int | None]:
    """Return a value that changes with each completed checkpoint: size and time of the statistics."""
    file_system, path = path_in_job(folder, HISTORY)
    info = file_system.get_file_info(path)
    return info.size, info.mtime_ns


def job_ids_at(path: str) -> list[Place]:
    """Return the checkpoint directories and ids of the jobs that a path means."""
    whole = absolute(path)
    parent, name = parent_uri(whole)
    if is_job_id(name):
        return [(parent, name)]
    above, job_id = parent_uri(parent)
    if is_job_id(job_id):
        return [(above, job_id)]
    return [(whole, job_id) for job_id in CheckpointFolders(whole).job_ids()]


def _story(storage: CheckpointFolders, job_id: str, events: list[JsonObject]) -> JobStory:
    folder = child_uri(storage.uri, job_id)
    metadata = _newest(storage, job_id)
    story = _told(job_id, events)
    if story.started_ms is None and metadata is not None:
        story = _told(job_id, _events_without_journal(storage.uri, folder, metadata))
    if not story.checkpoints.states and metadata is not None:
        story.checkpoints.states = state_sizes(
            (operator.operator_id, state) for operator in metadata.operators for state in operator.subtasks
        )
    return story


def _told(job_id: str, events: list[JsonObject]) -> JobStory:
    """Return the story that events make; an empty one if they belong to another job."""
    story = JobStory()
    take_all(story, events)
    if _makes_sense(story, job_id):
        return story
    _log.warning("the folder of job %s has events of another job, which are left out", job_id)
    return JobStory()


def _makes_sense(story: JobStory, job_id: str) -> bool:
    """Return whether a story can be shown, so that a damaged one does not break the page of other jobs."""
    try:
        for view in VIEWS.values():
            json.dumps(view(story, False), allow_nan=False)
        numbers = all(isinstance(one.value, (int, float)) for one in samples(story, story.heard_ms or 0))
        return numbers and story.job["job_id"] in ("", job_id)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
        return False


def _newest(storage: CheckpointFolders, job_id: str) -> CheckpointMetadata | None:
    try:
        return storage.load_newest(job_id, fall_back=True)
    except CheckpointError as error:
        _log.warning("the newest checkpoint of %s cannot be read: %s", job_id, error)
        return None


def _events_without_journal(directory: str, folder: str, metadata: CheckpointMetadata) -> list[JsonObject]:
    """Return the events that can be reconstructed from a job's last checkpoints."""
    checkpoints = _history(folder)
    first = min((one["at"] for one in checkpoints), default=metadata.timestamp_ms)
    vertices = [
        {
            "id": operator.operator_id,
            "name": operator.operator_id,
            "kind": "keyed",
            "parallelism": operator.parallelism,
            "max_parallelism": operator.max_parallelism,
        }
        for operator in metadata.operators
    ]
    job = {
        "job_id": metadata.job_id,
        "name": metadata.job_name,
        "vertices": vertices,
        "edges": [],
        "restored_from": None,
    }
    epoch = {
        "event": "epoch",
        "at": metadata.timestamp_ms,
        "epoch": metadata.epoch,
        "records": 0,
        "duration_ms": 0,
        "attempt": 0,
        "phases_ms": {},
        "counts": {},
        "subtasks": {},
        "totals": metadata.counters,
        "watermarks": metadata.watermarks,
        "metrics": [],
    }
    committed = {
        "event": "committed",
        "at": metadata.timestamp_ms,
        "epoch": metadata.epoch,
        "duration_ms": None,
    }
    started = {"event": "started", "at": first, "job": job, "directory": directory}
    return [started, epoch, committed, *checkpoints]


def _history(folder: str) -> list[dict[str, Any]]:
    """Return the checkpoints of ``checkpoints.json``, the oldest first."""
    file_system, path = path_in_job(folder, HISTORY)
    try:
        history = json.loads(read_note(file_system, path, MOST_HISTORY_BYTES))
        return [_checkpoint(one) for one in reversed(history)]
    except FileNotFoundError:
        return []
    except (ForeignFileError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        _log.warning("%s is damaged and is left out: %s", path, error)
        return []


def _checkpoint(one: dict[str, Any]) -> JsonObject:
    stats = CheckpointStats(**{name: one[name] for name in _STATISTICS & one.keys()})
    ended = int(stats.triggered_ms) + int(stats.duration_ms)
    return {"event": "checkpoint", "at": ended, "stats": attrs.asdict(stats), "subtasks": [], "states": {}}


#: Interval at which the folder is read while viewers are connected.
LOOK_EVERY_S = 2.0


class Follower:
    """Reads the jobs at a path, at once and later again.

    Args:
        path: a checkpoint directory, or the folder of a job.
        jobs: where they are shown.
        changed: called when something is new.

    Raises:
        CheckpointNotFoundError: there is no job.
        CheckpointStorageError: the storage cannot be read.
    """

    def __init__(self, path: str, jobs: Jobs, changed: Callable[[], None]) -> None:
        self._path = path
        self._jobs = jobs
        self._changed = changed
        #: The jobs that have appeared; one that has told nothing that can be shown is not shown yet.
        self._found: dict[Place, JobInFolder] = {}
        self._shown: dict[Place, MonitoredJob] = {}
        for job in jobs_at(path):
            self._show(job)

    def _show(self, job: JobInFolder) -> None:
        shown = MonitoredJob(job.story, threading.Lock(), folder=job.folder)
        self._found[job.place], self._shown[job.place] = job, shown
        self._jobs.add(shown)

    def follow(self, is_watched: Callable[[], bool], ended: threading.Event) -> None:
        """Read the folder at intervals while viewers are connected, until the end."""
        while not ended.wait(LOOK_EVERY_S):
            if is_watched():
                self.look()

    def look(self) -> None:
        """Read new events. Files that cannot be read now are read later."""
        places, is_new = [*self._found], False
        with _survived(self._path):
            places += [place for place in job_ids_at(self._path) if place not in self._found]
        for place in places:
            with _survived(f"the job {place[1]} in {place[0]}"):
                is_new |= self._look_at(place)
        if is_new:
            self._changed()

    def _look_at(self, place: Place) -> bool:
        """Read a job again, or for the first time; return whether the page has something new."""
        job, shown = self._found.get(place), self._shown.get(place)
        if job is None:
            job = self._found[place] = JobInFolder(*place)
            story = None
        else:
            story = job.refreshed(threading.Lock() if shown is None else shown.lock)
        if shown is None:
            if job.story.started_ms is not None:
                self._show(job)
            return job.story.started_ms is not None
        if story is not None:
            with shown.lock:
                shown.story = story
        return story is not None


@contextmanager
def _survived(where: str) -> Iterator[None]:
    """Log an error of a look, which does not stop the others."""
    try:
        yield
    except (PyFlinkStateError, *STORAGE_ERRORS) as error:
        _log.warning("%s could not be read again: %s", where, error)


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
            from pyflinkstate.monitor.web.access import Access, token_in
            from pyflinkstate.monitor.web.pages import Pages
            from pyflinkstate.monitor.web.server import PageServer
        except ImportError as error:
            raise ConfigurationError(
                f"the web page needs starlette and uvicorn ({error}): install them where the page is served "
                "(pip install 'pyflinkstate[web]'), or do not ask for a page"
            ) from error
        names = [name for name in (page.address, page.host) if name]
        token = None if page.token_file is None else token_in(page.token_file)
        access = Access(names, page.metrics_without_token, token)
        self._pages = Pages(self._jobs, access, page.has_actions, self._clock, page.health_timeout_ms)
        self._server = PageServer(page.host, page.ports, self._pages)
        host = page.address or page.host
        name = f"[{host}]" if ":" in host else host
        self.address = f"http://{name}:{self._server.port}/?token={access.token}"

    def observe(self, directory: str | None, settings: dict[str, str] | None = None) -> JobObserver:
        """Return a new listener, for one job; its journal is kept in ``directory``, if there is one."""
        recorder = Recorder(self._clock, directory, self._jobs.changed, settings=settings)
        self._jobs.add(MonitoredJob(recorder.story, recorder.lock, recorder))
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
        self._tell(self._reporter.close)

    def _report(self) -> None:
        metrics = self._metrics()
        known = {(metric.name, metric.labels): metric for metric in metrics}
        for key in known.keys() - self._known.keys():
            self._tell(partial(self._reporter.notify_of_added_metric, known[key]))
        for key in self._known.keys() - known.keys():
            self._tell(partial(self._reporter.notify_of_removed_metric, self._known[key]))
        self._known = known
        self._tell(partial(self._reporter.report, metrics))

    def _tell(self, tell: Callable[[], object]) -> None:
        try:
            tell()
        except Exception:  # noqa: BLE001 - whatever a reporter does, the next report comes
            _log.exception("metric reporter %s has raised an error", type(self._reporter).__name__)
