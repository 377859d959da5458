"""The runs of a job, and which run made each epoch.

A *run* is one life of a job's driver, from its start to its end. A restored job continues in a new run. The
new run agrees with the old ones up to the epoch of the checkpoint that it started from, and may differ after
it, as the input can be cut in another way. So the output of an epoch is identified by run and epoch together,
and a :class:`RunHistory` says for each epoch to which run it belongs. Checkpoints contain the history that
led to them; a job that goes back to a checkpoint goes back to the epochs of its history.

The ids of runs are ordered: the greater of two is the newer run. They serve as fencing tokens, which keep an
older driver that is still alive from publishing anything.
"""

from __future__ import annotations

import re
from itertools import takewhile

import attrs

_RUN_ID = re.compile(r"\d{6,}-[0-9a-f]{8}")


def run_id_after(others: list[str], token: str) -> str:
    """Return the id of a run that is newer than all of ``others``.

    Args:
        others: ids of runs of the same job.
        token: eight random hexadecimal digits, which tell apart two runs that begin at the same time.
    """
    newest = max((int(other.partition("-")[0]) for other in others), default=0)
    return f"{newest + 1:06d}-{token}"


def is_run_id(name: str) -> bool:
    """Return whether ``name`` is the id of a run."""
    return _RUN_ID.fullmatch(name) is not None


def newest_run(runs: list[str]) -> str | None:
    """Return the newest of some runs, or None if there are no runs."""
    return max(runs, key=_age, default=None)


def sorted_runs(runs: list[str], newest_first: bool = False) -> list[str]:
    """Return runs in order, by default the oldest first."""
    return sorted(runs, key=_age, reverse=newest_first)


def _age(run: str) -> tuple[int, str]:
    number, _, token = run.partition("-")
    return int(number), token


@attrs.frozen
class RunHistory:
    """The history of a job: which run made each epoch.

    Attributes:
        runs: the ids of runs, oldest first, each with the epoch after which it began.
    """

    runs: tuple[tuple[str, int], ...] = ()

    def continued(self, epoch: int, run: str) -> RunHistory:
        """Return the history of a run that continues this history after ``epoch``."""
        kept = tuple(takewhile(lambda item: item[1] < epoch, self.runs))
        return RunHistory((*kept, (run, epoch)))

    def run_of(self, epoch: int) -> str | None:
        """Return the run that made ``epoch``, or None if the history does not reach back to it."""
        return next((run for run, began in reversed(self.runs) if began < epoch), None)

    def holds(self, other: RunHistory, epoch: int) -> bool:
        """Return whether ``epoch``, the last one of ``other``, is an epoch of this history too.

        A run that is newer than all runs of this history has continued it, even if this history does not know
        it.
        """
        if not self.runs or (other.runs and _age(other.runs[-1][0]) > _age(self.runs[-1][0])):
            return True
        shared = self.shared_with(other)
        return shared is None or epoch <= shared

    def has_reached(self, other: RunHistory) -> bool:
        """Return whether the last run of this history, or a newer one, has added to another history."""
        return bool(self.runs and other.runs) and _age(other.runs[-1][0]) >= _age(self.runs[-1][0])

    def shared_with(self, other: RunHistory) -> int | None:
        """Return the last epoch that both histories share, or None if they are equal and share all epochs."""
        for (run, began), (other_run, other_began) in zip(self.runs, other.runs, strict=False):
            if (run, began) != (other_run, other_began):
                return min(began, other_began)
        longer = max(self.runs, other.runs, key=len)
        shorter = min(len(self.runs), len(other.runs))
        return longer[shorter][1] if len(longer) > shorter else None


@attrs.frozen
class TakenOver:
    """What a run writes down when it takes its job over.

    Attributes:
        line: the history with which the job goes on; the run is the last one in it.
        last_checkpoint_id: the highest checkpoint id that was in use.
        job_name: the name that the program gave the job.
        at_ms: when, in ms since 1970.
        savepoint: the URI of the savepoint that it went back to, until it has completed a checkpoint; None if
            it went on from a checkpoint in the job's own folder, or from the beginning.
    """

    line: RunHistory = RunHistory()
    last_checkpoint_id: int = 0
    job_name: str = ""
    at_ms: int = 0
    savepoint: str | None = None
