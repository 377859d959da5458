"""Records the events of a job: a listener that only fills a queue, and a thread that does the rest.

The job waits for nothing here but its own end: there the last events are written, for which it waits a few
seconds at most. If the storage is slow, events wait in the queue; if the queue is full, further ones are
counted and left out, and the journal says so. If the storage fails, the journal is lost, not the job.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from functools import partial

from pyflinkstate.api.values import JsonObject
from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.monitor import events
from pyflinkstate.monitor.journal import Journal, encode
from pyflinkstate.monitor.story import JobStory
from pyflinkstate.runtime.master import (
    CheckpointPart,
    CheckpointStats,
    EpochReport,
    JobDescription,
    JobObserver,
)
from pyflinkstate.runtime.settings import JobStatus
from pyflinkstate.runtime.storage import child_uri
from pyflinkstate.runtime.wire import Clock, SlotOutput

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
    """

    def __init__(
        self,
        clock: Clock,
        directory: str | None = None,
        changed: Callable[[], None] = lambda: None,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        #: Held while the story changes.
        self.lock = threading.Lock()
        self.story = JobStory()
        self._clock = clock
        self._directory = directory
        self._changed = changed
        self._queue = EventQueue(queue_bytes)
        #: Set at the end of the job, which needs no room in the queue.
        self._ended: MakeEvent | None = None
        self._left_out = 0
        self._is_left_out_told = 0
        self._parts: tuple[CheckpointPart, ...] = ()
        self._journal: Journal | None = None
        self._thread = threading.Thread(target=self._run, name="pyflinkstate monitor", daemon=True)

    # --- called by the job -------------------------------------------------------------------------

    def on_start(self, job: JobDescription) -> None:
        if self._directory is not None:
            self._journal = self._open_journal(self._directory, job.job_id)
        self._put(events.started, job, self._directory)
        try:
            self._thread.start()
        except RuntimeError as error:
            _log.warning("job %s is not recorded: %s", job.job_id, error)

    def on_epoch_report(self, report: EpochReport) -> None:
        self._put(events.epoch_ended, report, size=events.bytes_of_report(report))
        if report.samples:
            size = sum(len(text) for texts in report.samples.values() for text in texts)
            self._put(events.sampled, report.stats.epoch, report.samples, size=size)

    def on_output(self, output: SlotOutput) -> None:
        self._put(events.printed, output, size=sum(len(line) for _, line in output.lines))

    def on_commit(self, epoch: int, duration_ms: int) -> None:
        self._put(events.committed, epoch, duration_ms)

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
        self._ended = partial(events.ended, self._clock.now_ms(), status)
        self._queue.add(None)  # if it is full, the thread sees the end when it has taken everything
        if self._thread.is_alive():
            self._thread.join(END_TIMEOUT_S)

    def _open_journal(self, directory: str, job_id: str) -> Journal | None:
        try:
            return Journal(child_uri(directory, job_id), self._clock.now_ms())
        except Exception as error:  # noqa: BLE001 - a file system in Python may raise anything
            _log.warning("no journal is kept: %r", error)
            return None

    def _put(self, make: Callable[..., JsonObject], *told: object, size: int = 0) -> None:
        if not self._queue.add(partial(make, self._clock.now_ms(), *told), size):
            self._left_out += 1

    # --- on the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while self._take_batch():
            pass
        if self._ended is not None:
            self._write(self._lines(self._ended))

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
        return make is not None and (self._ended is None or not self._queue.empty())

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
        if made[0]["event"] in events.IN_HEAD:
            self._journal.head = encode(self.story.head())
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

    def add(self, make: MakeEvent | None, size: int = 0) -> bool:
        """Add an event, or None for the end; return False if there is no room."""
        size = max(size, LEAST_BYTES)
        with self._lock:
            if self._left_bytes <= 0:
                return False
            self._left_bytes -= size
        self._events.put((make, size))
        return True

    def take(self, timeout_s: float | None = None) -> MakeEvent | None:
        """Return the oldest event, or None for the end.

        Raises:
            queue.Empty: none came in time.
        """
        make, size = self._events.get(timeout=timeout_s)
        with self._lock:
            self._left_bytes += size
        return make

    def empty(self) -> bool:
        """Return whether nothing waits."""
        return self._events.empty()
