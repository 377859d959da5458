"""The sinks of a job: opened by a run, and then prepared, committed and taken back, an epoch at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyflinkstate.runtime.job.events import Results
from pyflinkstate.runtime.plan import SinkNode
from pyflinkstate.runtime.sinks import ReplacingSink, RunAwareSink, errors_of_sink, open_sink
from pyflinkstate.runtime.storage import RunHistory


class JobSinks:
    """All sinks of one job. The errors of each name it.

    Args:
        sinks: the sinks, in the order of the plan.
        job_id: the id of the job, which they are told.
        check_run: raises ``JobSupersededError`` if another driver has taken the job over.
    """

    def __init__(self, sinks: Sequence[SinkNode], job_id: str, check_run: Callable[[], None]) -> None:
        self._sinks = sinks
        self._job_id = job_id
        self._check_run = check_run
        self._opened: set[SinkNode] = set()
        #: Whether one relies on the numbers of epochs: they are then cut the same way after a crash, too.
        self.rely_on_numbers = any(isinstance(sink.sink, ReplacingSink) for sink in sinks)

    def open(self, line: RunHistory, restored: int | None, epoch: int) -> None:
        """Open the sinks for a new run; a sink that does not know about runs is opened only once.

        Args:
            line: the runs that lead to this one.
            restored: the epoch of the checkpoint that is restored, or None.
            epoch: where a sink goes back to that an earlier try has opened.
        """
        for sink in self._sinks:
            self._check_run()
            if sink not in self._opened or isinstance(sink.sink, RunAwareSink):
                with errors_of_sink(sink.name, "open"):
                    open_sink(sink.sink, self._job_id, line, restored)
                self._opened.add(sink)
            else:
                _go_back(sink, epoch)

    def go_back(self, epoch: int) -> None:
        """Discard all output after ``epoch``, and commit that up to it."""
        self._check_run()
        for sink in self._sinks:
            _go_back(sink, epoch)

    def prepare(self, epoch: int, results: Results) -> None:
        """Prepare the output of an epoch, whose results are in the order of the sinks."""
        if (
            self.rely_on_numbers
        ):  # at its target, the output of an older driver looks like that of a newer one
            self._check_run()
        for sink, of_sink in zip(self._sinks, results, strict=True):
            with errors_of_sink(sink.name, "prepare"):
                sink.sink.prepare(epoch, of_sink)

    def commit(self, epoch: int) -> None:
        """Commit the output of all epochs up to ``epoch``."""
        self._check_run()
        for sink in self._sinks:
            with errors_of_sink(sink.name, "commit"):
                sink.sink.commit(epoch)


def _go_back(sink: SinkNode, epoch: int) -> None:
    with errors_of_sink(sink.name, "rewind"):
        sink.sink.rewind(epoch)
    with errors_of_sink(sink.name, "commit"):
        sink.sink.commit(epoch)  # again, in case the commit itself failed
