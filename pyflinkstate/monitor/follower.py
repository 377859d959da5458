"""Follows the jobs of a folder while viewers are connected: new events and new jobs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.monitor.dead_jobs import JobInFolder, Place, job_ids_at, jobs_at
from pyflinkstate.monitor.jobs import Jobs, Shown
from pyflinkstate.monitor.journal import STORAGE_ERRORS

#: Interval at which the folder is read while viewers are connected.
LOOK_EVERY_S = 2.0

_log = logging.getLogger("pyflinkstate.monitor")


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
        self._followed: dict[Place, tuple[JobInFolder, Shown]] = {}
        #: Jobs that have told nothing that can be shown.
        self._waiting: dict[Place, JobInFolder] = {}
        for job in jobs_at(path):
            self._show(job)

    def _show(self, job: JobInFolder) -> None:
        shown = Shown(job.story, threading.Lock(), folder=job.folder)
        self._followed[job.place] = job, shown
        self._jobs.add(shown)

    def follow(self, is_watched: Callable[[], bool], ended: threading.Event) -> None:
        """Read the folder at intervals while viewers are connected, until the end."""
        while not ended.wait(LOOK_EVERY_S):
            if is_watched():
                self.look()

    def look(self) -> None:
        """Read new events. Files that cannot be read now are read later."""
        is_new = [
            self._tried(partial(self._refresh, *followed), _told(place))
            for place, followed in self._followed.items()
        ]
        if any([*is_new, self._tried(self._find_new, self._path)]):
            self._changed()

    def _tried(self, look: Callable[[], bool], where: str) -> bool:
        """Return what a look returns; a failed one finds nothing new, and does not stop the others."""
        try:
            return look()
        except (PyFlinkStateError, *STORAGE_ERRORS) as error:
            _log.warning("%s could not be read again: %s", where, error)
            return False

    def _refresh(self, job: JobInFolder, shown: Shown) -> bool:
        story = job.refreshed(shown.lock)
        if story is not None:
            with shown.lock:
                shown.story = story
        return story is not None

    def _find_new(self) -> bool:
        """Show jobs that have appeared; one that cannot be shown yet is looked at again."""
        places = [place for place in job_ids_at(self._path) if place not in self._followed]
        is_new = [self._tried(partial(self._show_new, place), _told(place)) for place in places]
        return any(is_new)

    def _show_new(self, place: Place) -> bool:
        job = self._waiting_at(place)
        if job.story.started_ms is None:
            return False
        del self._waiting[place]
        self._show(job)
        return True

    def _waiting_at(self, place: Place) -> JobInFolder:
        job = self._waiting.get(place)
        if job is None:
            job = self._waiting[place] = JobInFolder(*place)
        else:
            job.refreshed(threading.Lock())
        return job


def _told(place: Place) -> str:
    directory, job_id = place
    return f"the job {job_id} in {directory}"
