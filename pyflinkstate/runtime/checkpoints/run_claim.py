"""A run's claim on its job: which of several drivers may change anything.

Two programs may come to run one job: a supervisor starts again what it takes for dead. Each of them writes
a file, named by the id of its run, into the folder ``runs`` of the job. Ids are ordered, and a newcomer takes
one that is greater than all that it sees, so whoever lists the folder knows whether a newer run has begun. A
driver lists it before it publishes a checkpoint, commits to sinks, or deletes or moves anything, and now and
then while it waits. When there is a newer run it ends, and leaves everything as it is.

A driver may be stopped between the look and the deed, and go on when another one has long taken over. The
deed must then be harmless, which rests on three rules:

* A newcomer claims the job first, and then looks which checkpoint ids are in use; it takes others. If it
  could not see a checkpoint of the older driver, that had not begun then, and its driver looks again before
  it publishes it.
* Who sweeps lists first, then looks at the claims, and deletes just what was listed: nothing of a newer run.
* A checkpoint knows the runs that led to it, and a newcomer notes its own when it takes over. What does not
  lie on that line is no "latest" checkpoint.

A claim needs no compare-and-set, which file systems and object stores do not have in common; it needs
listings that show what was written before, as all of them have.
"""

from __future__ import annotations

import uuid
from contextlib import suppress

from pyflinkstate.errors import CheckpointStorageError, JobSupersededError
from pyflinkstate.runtime.storage import CheckpointStorage, RunHistory, newest_run, run_id_after
from pyflinkstate.runtime.wire import Clock

#: While the job waits, it looks so often.
CHECK_INTERVAL_MS = 5_000


class RunClaim:
    """The claim of one driver.

    Args:
        job_id: of the job.
        job_name: what the program calls it.
        storage: where the job's checkpoints are.
    """

    def __init__(self, job_id: str, job_name: str, storage: CheckpointStorage, clock: Clock) -> None:
        self._job_id = job_id
        self._job_name = job_name
        self._storage = storage
        self._clock = clock
        self._looked_ms = 0
        self._successor: str | None = None
        #: The id of the run; None before the job is claimed.
        self.run: str | None = None

    def make(self, past: RunHistory) -> str:
        """Claim the job for a new run and return its id. It is newer than all runs of ``past``, too.

        Raises:
            JobSupersededError: another driver claims the job at this moment, and it is the newer one.
        """
        known = [run for run, _ in past.runs] + ([] if self.run is None else [self.run])
        run = run_id_after([*self._storage.runs(self._job_id), *known], uuid.uuid4().hex[:8])
        self._storage.write_run(self._job_id, run)
        self.run = run
        self.check()
        return run

    def take_over(self, line: RunHistory, last_checkpoint_id: int) -> None:
        """Note the history that the job goes on with, and which checkpoint ids are used up.

        Claims of older runs say nothing any more, and go: listings stay short.
        """
        assert self.run is not None
        self.check()
        self._storage.write_run(self._job_id, self.run, line, last_checkpoint_id)
        self._storage.forget_runs(self._job_id, before=self.run)

    def check(self) -> None:
        """See whether the job is this run's still.

        Raises:
            JobSupersededError: there is a newer run.
            CheckpointStorageError: the runs cannot be listed.
        """
        if self.run is None:
            return
        if self._successor is None:
            self._looked_ms = self._clock.monotonic_ms()
            newest = newest_run([*self._storage.runs(self._job_id), self.run])
            self._successor = newest if newest != self.run else None
        if self._successor is not None:
            raise JobSupersededError(
                f"job {self._job_name!r} ({self._job_id}): another driver has taken the job over, with run "
                f"{self._successor}; this one, of run {self.run}, ends, and neither commits nor deletes "
                f"anything any more. Let one program at a time run a job",
                job_id=self._job_id,
                run=self.run,
                newer_run=self._successor,
            )

    def check_now_and_then(self) -> None:
        """See :meth:`check`; does nothing if that was done a little while ago.

        A storage that cannot tell now is asked again later: nothing is about to be changed.
        """
        if not 0 <= self._clock.monotonic_ms() - self._looked_ms < CHECK_INTERVAL_MS:
            with suppress(CheckpointStorageError):
                self.check()
