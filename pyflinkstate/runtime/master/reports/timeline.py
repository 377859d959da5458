"""Where the time of an epoch goes, as the driver sees it.

The driver learns about a task from the task's final report. Sources report when their last record has been
read, and state slots when they have processed the epoch. So the phases of an epoch are: *planning*, until
the engine starts it; *reading*, until the last source has reported; *slots*, until the last state slot has
reported; *finishing*, until the engine has ended all tasks, among them those of the sinks; and *preparing*,
in which the sinks prepare their output. A job without state slots has no time in that phase. The *commit*
comes later, with a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyflinkstate.runtime.tasks import MOST_RECORDS
from pyflinkstate.runtime.wire import SubtaskStatus, TaskReport

PHASES = ("planning", "reading", "slots", "finishing", "preparing")


class EpochTimeline:
    """Notes when each phase of the running epoch ends; ``now_ms`` is monotonic.

    Args:
        now_ms: tells the time.
        sources: the names of the sources.
    """

    def __init__(self, now_ms: Callable[[], int], sources: Collection[str]) -> None:
        self._now_ms = now_ms
        self._sources = frozenset(sources)
        self._ends = [0] * (len(PHASES) + 1)
        #: The attempt and the number of the running epoch.
        self._running = (0, 0)
        #: By slot: what it knew of itself at its end of the epoch.
        self.statuses: dict[str, SubtaskStatus] = {}
        #: By attempt and epoch, and stream: a few records.
        self._samples: dict[tuple[int, int], dict[str, list[str]]] = {}

    def begin(self) -> None:
        """The job asks the source for the next epoch."""
        self._ends = [self._now_ms()] * len(self._ends)
        self.statuses = {}

    def started(self, attempt: int, number: int) -> None:
        """The engine starts epoch ``number``."""
        self._running = (attempt, number)
        self._samples = {self._running: self.samples}
        self._note(1)

    def reported(self, report: TaskReport) -> None:
        """A task has ended. One of a later epoch, which is read ahead, counts only for that epoch."""
        of_epoch = (report.attempt, report.epoch)
        for stream, records in report.samples.items():
            known = self._samples.setdefault(of_epoch, {}).setdefault(stream, [])
            known.extend(records[: MOST_RECORDS - len(known)])
        if of_epoch == self._running:
            self._ended(report)

    @property
    def samples(self) -> dict[str, list[str]]:
        """By stream: a few records of the epoch."""
        return self._samples.get(self._running, {})

    def _ended(self, report: TaskReport) -> None:
        if report.status is not None:
            self.statuses[report.task] = report.status
        if report.is_slot:
            self._note(3)
        elif report.task.rpartition("[")[0] in self._sources:
            self._note(2)

    def ran(self) -> None:
        """The engine has ended the epoch."""
        self._note(4)

    def prepared(self) -> dict[str, int]:
        """Return the milliseconds that each phase took, now that the output is prepared."""
        self._note(5)
        return {phase: self._ends[n + 1] - self._ends[n] for n, phase in enumerate(PHASES)}

    def _note(self, phase: int) -> None:
        """A phase ends now, and so have those before it, at the latest; none after it has begun."""
        self._ends[phase:] = [self._now_ms()] * (len(self._ends) - phase)
