"""The jobs of a program or folder: what records them, how a page has them, and the actions on them.

A recorder is a listener that only fills a queue, and a thread that does the rest.

The job waits for nothing here but its own end: there the last events are written, for which it waits a few
seconds at most. If the storage is slow, events wait in the queue; if the queue is full, further ones are
counted and left out, and the journal says so. If the storage fails, the journal is lost, not the job.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from functools import partial

import attrs

from pyflinkstate.api import JsonObject
from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.monitor import events
from pyflinkstate.monitor.journal import Journal, JournalReader, encode
from pyflinkstate.monitor.story import JobStory, take_all
from pyflinkstate.runtime.master import (
    CheckpointPart,
    CheckpointStats,
    EpochReport,
    Job,
    JobDescription,
    JobObserver,
    SavepointRequest,
)
from pyflinkstate.runtime.settings import JobStatus
from pyflinkstate.runtime.sinks import SinkTotals
from pyflinkstate.runtime.storage import absolute, child_uri
from pyflinkstate.runtime.wire import Clock, SlotId, SlotOutput, take

#: Maximum bytes of the waiting events.
QUEUE_BYTES = 32 << 20
#: How long an event waits before it is written.
WRITE_EVERY_S = 1.0
#: How long a job waits at its end for its last events to be written.
END_TIMEOUT_S = 5.0

_log = logging.getLogger("pyflinkstate.monitor")


class Recorder(JobObserver):
    """Keeps the story of one job, and its journal if there is a directory for it.

    Args:
        clock: returns the time of an event.
        directory: the URI or path of the checkpoint directory; None for no journal.
        changed: called after the story has changed, on the recorder's thread.
        queue_bytes: how many bytes the events that wait may take.
        settings: the settings of the job, as strings by key.
    """

    def __init__(
        self,
        clock: Clock,
        directory: str | None = None,
        changed: Callable[[], None] = lambda: None,
        queue_bytes: int = QUEUE_BYTES,
        settings: dict[str, str] | None = None,
    ) -> None:
        #: Held while the story changes.
        self.lock = threading.Lock()
        self.story = JobStory()
        self._clock = clock
        self._directory = directory
        self._settings = settings or {}
        self._changed = changed
        self._queue = EventQueue(queue_bytes)
        self._left_out = 0
        self._is_left_out_told = 0
        self._parts: tuple[CheckpointPart, ...] = ()
        self._journal: Journal | None = None
        #: What earlier runs of the job have left.
        self._earlier: JournalReader | None = None
        self._thread = threading.Thread(target=self._run, name="pyflinkstate monitor", daemon=True)

    # --- called by the job -------------------------------------------------------------------------

    def on_start(self, job: JobDescription) -> None:
        if self._directory is not None:
            try:
                folder = child_uri(self._directory, job.job_id)
                self._earlier = JournalReader(folder)
                self._journal = Journal(folder, self._clock.now_ms())
                self._journal.head = lambda: encode(self.story.head())
            except Exception as error:  # noqa: BLE001 - a file system in Python may raise anything
                _log.warning("no journal is kept: %r", error)
        self._put(events.started, job, self._directory, self._settings)
        self._thread.start()

    def on_epoch_report(self, report: EpochReport) -> None:
        self._put(events.epoch_ended, report, size=events.bytes_of_report(report))
        if report.samples:
            size = sum(len(text) for texts in report.samples.values() for text in texts)
            self._put(events.sampled, report.stats.epoch, report.samples, size=size)

    def on_output(self, output: SlotOutput) -> None:
        self._put(events.printed, output, size=sum(len(line) for _, line in output.lines))

    def on_commit(self, epoch: int, duration_ms: int, sinks: SinkTotals) -> None:
        self._put(events.committed, epoch, duration_ms, sinks)

    def on_checkpoint_written(self, checkpoint_id: int, parts: tuple[CheckpointPart, ...]) -> None:
        self._parts = parts

    def on_checkpoint(self, stats: CheckpointStats) -> None:
        parts, self._parts = self._parts, ()
        self._put(events.checkpoint_ended, stats, parts, size=events.bytes_of_parts(parts))

    def on_checkpoint_failed(self, stats: CheckpointStats) -> None:
        self._put(events.checkpoint_ended, stats)

    def on_restart(self, attempt: int, error: PyFlinkStateError) -> None:
        self._put(events.restarted, attempt, error, size=events.BYTES_OF_FAILURE)

    def on_failure(self, error: BaseException) -> None:
        self._put(events.failed, error, size=events.BYTES_OF_FAILURE)

    def on_end(self, status: JobStatus) -> None:
        self._queue.end(partial(events.ended, self._clock.now_ms(), status))
        if self._thread.is_alive():
            self._thread.join(END_TIMEOUT_S)

    def _put(self, make: Callable[..., JsonObject], *told: object, size: int = 0) -> None:
        if not self._queue.add(partial(make, self._clock.now_ms(), *told), size):
            self._left_out += 1

    # --- on the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        if self._earlier is not None:
            self._go_on_with(self._earlier)
        while self._take_batch():
            pass

    def _go_on_with(self, journal: JournalReader) -> None:
        """Go on with the history of earlier runs of the job, whose journal may say anything."""
        before = JobStory()
        try:
            take_all(before, journal.read_new())
            with self.lock:
                self.story.history.load(before.heard_ms or 0, before.history.told())
        except Exception as error:  # noqa: BLE001 - a file system in Python may raise anything
            _log.warning("the history of earlier runs cannot be read: %r", error)

    def _take_batch(self) -> bool:
        """Process an event and those that follow at once, and write them; return whether more may come."""
        lines: list[bytes] = []
        until_s = time.monotonic() + WRITE_EVERY_S
        make = self._queue.take()
        while make is not None:
            lines += self._lines(make)
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                break  # even if more is there: it is written with the next ones
            try:
                make = self._queue.take(left_s)
            except queue.Empty:
                break
        self._write(lines)
        return make is not None

    def _lines(self, make: MakeEvent) -> list[bytes]:
        try:
            return self._taken(make())
        except Exception:  # noqa: BLE001 - whatever it is, the events after it are recorded
            _log.exception("an event is not recorded")
            return []

    def _taken(self, event: JsonObject) -> list[bytes]:
        made = [event]
        if self._left_out > self._is_left_out_told:
            count = self._left_out - self._is_left_out_told
            self._is_left_out_told += count
            made.append(events.left_out(self._clock.now_ms(), count))
        with self.lock:
            for event in made:
                self.story.take(event)
        self._changed()
        if self._journal is None:
            return []
        return [encode(event) for event in made if event["event"] not in events.NOT_KEPT]

    def _write(self, lines: list[bytes]) -> None:
        if self._journal is None or not lines:
            return
        try:
            self._journal.write(lines)
        except Exception as error:  # noqa: BLE001 - a file system in Python may raise anything
            _log.warning("%d events are missing in the journal: %r", len(lines), error)


MakeEvent = Callable[[], JsonObject]
#: The bytes that the smallest event takes, with overhead.
LEAST_BYTES = 1024


class EventQueue:
    """Holds events that are still to be made, each with the bytes that it is thought to take."""

    def __init__(self, most_bytes: int) -> None:
        self._left_bytes = most_bytes
        self._lock = threading.Lock()
        self._events: queue.SimpleQueue[tuple[MakeEvent | None, int]] = queue.SimpleQueue()

    def add(self, make: MakeEvent, size: int = 0) -> bool:
        """Add an event; return False if there is no room."""
        size = max(size, LEAST_BYTES)
        with self._lock:
            if self._left_bytes <= 0:
                return False
            self._left_bytes -= size
        self._events.put((make, size))
        return True

    def end(self, make: MakeEvent) -> None:
        """Add the last event, for which there is always room."""
        self._events.put((make, 0))
        self._events.put((None, 0))

    def take(self, timeout_s: float | None = None) -> MakeEvent | None:
        """Return the oldest event, or None after the last one.

        Raises:
            queue.Empty: none came in time.
        """
        make, size = take(self._events, timeout_s)
        with self._lock:
            self._left_bytes += size
        return make


#: Maximum number of jobs of a program that are kept; ended ones are dropped first, the oldest first.
MOST_JOBS = 50
#: The actions on a job.
ACTIONS = frozenset({"cancel", "savepoint", "stop", "drain", "sample", "unsample", "threads"})
#: How long a stream is sampled after each request.
SAMPLE_MS = 60_000


@attrs.frozen
class Acted:
    """What has come of an action.

    Attributes:
        is_accepted: whether it was accepted.
        message: for people.
        savepoint: the URI of the savepoint that it asks for, when it is complete.
    """

    is_accepted: bool
    message: str
    savepoint: Future[str] | None = None


@attrs.define(eq=False)
class MonitoredJob:
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
        self._shown: list[MonitoredJob] = []
        self._lock = threading.Lock()
        #: A number that grows with each event of any job.
        self.version = 0

    def changed(self) -> None:
        """Note that a job has a new event."""
        with self._lock:
            self.version += 1

    def add(self, shown: MonitoredJob) -> None:
        """Show a job from now on."""
        with self._lock:
            over = [one for one in self._shown if one.story.is_over]
            for one in over[: max(0, len(self._shown) - MOST_JOBS + 1)]:
                self._shown.remove(one)
            self._shown.append(shown)
            self.version += 1

    def attach(self, observer: JobObserver, job: Job, savepoints: str | None) -> None:
        """Let the page control the job of an observer."""
        with self._lock:
            shown = next((one for one in self._shown if one.recorder is observer), None)
            if shown is not None:
                shown.savepoints = savepoints
                shown.job = weakref.ref(job)

    def begun(self) -> list[MonitoredJob]:
        """Return the jobs that have begun, the oldest first."""
        with self._lock:
            return [shown for shown in self._shown if shown.story.started_ms is not None]

    def live(self) -> list[Job]:
        """Return the jobs of this program that have begun and have not ended."""
        found = [shown.job() for shown in self.begun() if not shown.story.is_over]
        return [job for job in found if job is not None]

    @contextmanager
    def locked(self, job_id: str) -> Iterator[MonitoredJob | None]:
        """Return the newest job with an id, which does not change meanwhile; None if there is none."""
        found = next((shown for shown in self.begun()[::-1] if shown.story.job["job_id"] == job_id), None)
        with nullcontext() if found is None else found.lock:
            yield found

    def running(self, job_id: str) -> Job | None:
        """Return a job of this program if it still runs."""
        with self.locked(job_id) as shown:
            return None if shown is None or shown.story.is_over else shown.job()

    def act(self, job_id: str, action: str, stream: str = "", subtask: str = "") -> Acted:
        """Perform one of ``ACTIONS`` on a job."""
        with self.locked(job_id) as shown:
            job = None if shown is None or shown.story.is_over else shown.job()
            if shown is None or job is None:
                return Acted(False, "The job is not running any more.")
            directory, streams = shown.savepoints, {one["id"] for one in shown.story.job["vertices"]}
        if action in ("sample", "unsample"):
            return _sample(job, stream, streams, SAMPLE_MS if action == "sample" else 0)
        if action == "threads":
            return _ask_for_threads(job, stream, subtask)
        if action == "cancel":
            _log.warning("job %s was cancelled from its page", job_id)
            job.cancel()
            return Acted(True, "The job is being cancelled.")
        if directory is None:
            why = "The job has no directory for savepoints: call set_default_savepoint_directory()."
            return Acted(False, why)
        return _ask_for_savepoint(job, action, directory)


def _sample(job: Job, stream: str, streams: set[str], for_ms: int) -> Acted:
    if stream not in streams:
        return Acted(False, "The job has no such stream.")
    job.sample(stream, for_ms)
    return Acted(
        True, "A few records of each epoch are shown for a minute." if for_ms else "No more are shown."
    )


def _ask_for_threads(job: Job, operator: str, subtask: str) -> Acted:
    is_asked = subtask.isdecimal() and job.dump_threads(SlotId(operator, int(subtask)))
    if not is_asked:
        return Acted(False, "There is no such slot now.")
    return Acted(True, "The stacks of its threads come as lines of the slot.")


def _ask_for_savepoint(job: Job, action: str, directory: str) -> Acted:
    stops = action in ("stop", "drain")
    _log.warning("job %s: a savepoint was requested from its page (%s)", job.job_id, action)
    request = SavepointRequest(absolute(directory), stops, drains=action == "drain")
    job.request_savepoint(request)
    told = "A savepoint is taken at the next barrier" + (", and the job stops with it." if stops else ".")
    return Acted(True, told, request.done)
