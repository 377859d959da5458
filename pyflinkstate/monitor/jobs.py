"""The jobs that a page shows, and the actions on them."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from pyflinkstate.monitor.recorder import Recorder
from pyflinkstate.monitor.story import JobStory
from pyflinkstate.runtime.master import Job, JobObserver, SavepointRequest
from pyflinkstate.runtime.storage import absolute

#: Maximum number of jobs of a program that are kept; ended ones are dropped first, the oldest first.
MOST_JOBS = 50
#: The actions on a job.
ACTIONS = frozenset({"cancel", "savepoint", "stop", "drain", "sample", "unsample"})
#: How long a stream is sampled after each request.
SAMPLE_MS = 60_000

_log = logging.getLogger("pyflinkstate.monitor")


@attrs.define(eq=False)
class Shown:
    """A job on a page.

    Attributes:
        story: its story.
        lock: held while the story is read or changed.
        recorder: records it; None if it is only read from its folder.
        job: steers it; None if it cannot be steered, or is forgotten. A page does not keep jobs, and what
            they have collected, in memory.
        savepoints: the directory for its savepoints; None if there is none.
        folder: where all this was read, if it does not run here.
    """

    story: JobStory
    lock: threading.Lock
    recorder: Recorder | None = None
    job: Callable[[], Job | None] = lambda: None
    savepoints: str | None = None
    folder: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether it is recorded in this process."""
        return self.recorder is not None

    def checkpoint_path(self) -> str | None:
        """Return where the last checkpoint is: a journal may say anything, so only a live job is believed."""
        last = self.story.checkpoints.last()
        return self.folder if not self.is_live or last is None else last["uri"]


class Jobs:
    """The jobs of one page; each has a lock of its own, so that a viewer of one never delays another."""

    def __init__(self) -> None:
        self._shown: list[Shown] = []
        self._lock = threading.Lock()
        self._version = 0

    @property
    def version(self) -> int:
        """A number that grows with each event of any job."""
        return self._version

    def changed(self) -> None:
        """Note that a job has a new event."""
        with self._lock:
            self._version += 1

    def add(self, shown: Shown) -> None:
        """Show a job from now on."""
        with self._lock:
            over = [one for one in self._shown if one.story.is_over]
            for one in over[: max(0, len(self._shown) - MOST_JOBS + 1)]:
                self._shown.remove(one)
            self._shown.append(shown)
            self._version += 1

    def attach(self, observer: JobObserver, job: Job, savepoints: str | None) -> None:
        """Let the page control the job of an observer."""
        with self._lock:
            shown = next((one for one in self._shown if one.recorder is observer), None)
            if shown is not None:
                shown.savepoints = savepoints
                shown.job = weakref.ref(job)

    def begun(self) -> list[Shown]:
        """Return the jobs that have begun, the oldest first."""
        with self._lock:
            return [shown for shown in self._shown if shown.story.started_ms is not None]

    @contextmanager
    def locked(self, job_id: str) -> Iterator[Shown | None]:
        """Return the newest job with an id, which does not change meanwhile; None if there is none."""
        found = next((shown for shown in self.begun()[::-1] if shown.story.job["job_id"] == job_id), None)
        if found is None:
            yield None
            return
        with found.lock:
            yield found

    def running(self, job_id: str) -> Job | None:
        """Return a job of this program if it still runs."""
        with self.locked(job_id) as shown:
            return None if shown is None or shown.story.is_over else shown.job()

    def act(self, job_id: str, action: str, stream: str = "") -> tuple[bool, str]:
        """Perform one of ``ACTIONS`` on a job; return whether it was accepted, and a message."""
        with self.locked(job_id) as shown:
            job = None if shown is None or shown.story.is_over else shown.job()
            if shown is None or job is None:
                return False, "The job is not running any more."
            directory, streams = shown.savepoints, {one["id"] for one in shown.story.job["vertices"]}
        if action in ("sample", "unsample"):
            return _sample(job, stream, streams, SAMPLE_MS if action == "sample" else 0)
        if action == "cancel":
            _log.warning("job %s was cancelled from its page", job_id)
            job.cancel()
            return True, "The job is being cancelled."
        if directory is None:
            return False, "The job has no directory for savepoints: call set_default_savepoint_directory()."
        return True, _ask_for_savepoint(job, action, directory)


def _sample(job: Job, stream: str, streams: set[str], for_ms: int) -> tuple[bool, str]:
    if stream not in streams:
        return False, "The job has no such stream."
    job.sample(stream, for_ms)
    return (
        True,
        "A few records of each epoch are shown for a minute." if for_ms else "No more are shown.",
    )


def _ask_for_savepoint(job: Job, action: str, directory: str) -> str:
    stops = action in ("stop", "drain")
    _log.warning("job %s: a savepoint was requested from its page (%s)", job.job_id, action)
    job.request_savepoint(SavepointRequest(absolute(directory), stops, drains=action == "drain"))
    return "A savepoint is taken at the next barrier" + (", and the job stops with it." if stops else ".")
