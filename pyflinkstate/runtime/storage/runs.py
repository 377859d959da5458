"""Runs of a job, and which of them made which epoch.

A *run* is one life of a job's driver, from its start to its end. A job that is restored goes on in a new run.
The new run agrees with the old ones up to the epoch of the checkpoint that it started from, and may differ
behind it: the input can be cut in another way. So an epoch's output is named by run and epoch together, and
a :class:`RunHistory` says for each epoch which run it belongs to. Checkpoints carry the history that led to
them; whoever goes back to a checkpoint goes back to the epochs of its history.

The ids of runs are ordered: of two, the greater one is the newer run. This is what keeps an older driver that
is still alive from publishing anything (a fencing token).
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
        token: eight hexadecimal digits, chosen at random; they tell apart two runs that begin at once.
    """
    newest = max((int(other.partition("-")[0]) for other in others), default=0)
    return f"{newest + 1:06d}-{token}"


def is_run_id(name: str) -> bool:
    """Return whether ``name`` is the id of a run."""
    return _RUN_ID.fullmatch(name) is not None


def newest_run(runs: list[str]) -> str | None:
    """Return the newest of some runs; None of none."""
    return max(runs, key=_age, default=None)


def sorted_runs(runs: list[str], newest_first: bool = False) -> list[str]:
    """Return runs in their order, the oldest first unless told otherwise."""
    return sorted(runs, key=_age, reverse=newest_first)


def _age(run: str) -> tuple[int, str]:
    number, _, token = run.partition("-")
    return int(number), token


@attrs.frozen
class RunHistory:
    """Which run made each epoch, up to the newest.

    Attributes:
        runs: the ids of runs, oldest first, each with the epoch after which it began.
    """

    runs: tuple[tuple[str, int], ...] = ()

    def continued(self, epoch: int, run: str) -> RunHistory:
        """Return the history of a run that goes on behind ``epoch`` of this one."""
        kept = tuple(takewhile(lambda item: item[1] < epoch, self.runs))
        return RunHistory((*kept, (run, epoch)))

    def run_of(self, epoch: int) -> str | None:
        """Return the run that made ``epoch``; None where the history does not reach back to it."""
        return next((run for run, began in reversed(self.runs) if began < epoch), None)

    def holds(self, other: RunHistory, epoch: int) -> bool:
        """Return whether ``epoch``, as ``other`` ends with it, is an epoch of this history too.

        A run that is newer than all of this history has gone on from it, whatever is known of that here.
        """
        if not self.runs or (other.runs and _age(other.runs[-1][0]) > _age(self.runs[-1][0])):
            return True
        shared = self.shared_with(other)
        return shared is None or epoch <= shared

    def shared_with(self, other: RunHistory) -> int | None:
        """Return the last epoch up to which both tell the same; None where one is the other's beginning."""
        for (run, began), (other_run, other_began) in zip(self.runs, other.runs, strict=False):
            if (run, began) != (other_run, other_began):
                return min(began, other_began)
        longer = max(self.runs, other.runs, key=len)
        shorter = min(len(self.runs), len(other.runs))
        return longer[shorter][1] if len(longer) > shorter else None
