"""A run's claim on its job, which decides which of several drivers may change anything.

Two programs can end up running the same job, because a supervisor restarts a program that it believes dead.
Each program writes a file, named by the id of its run, into the folder ``runs`` of the job. Ids are ordered,
and a new run takes one that is greater than all that it sees, so listing the folder shows whether a newer run
has begun. A driver lists it before it publishes a checkpoint, commits to sinks, or deletes or moves anything,
and now and then while it waits. If there is a newer run, the driver ends and leaves everything as it is.

A driver may be suspended between its check and its action, and resume long after another one has taken over.
Its action must then be harmless, which three rules ensure:

* A new driver first claims the job, then finds out which checkpoint ids are in use, and takes others. If it
  did not see a checkpoint of the older driver, that one had not begun yet, and its driver checks the claims
  again before it publishes it.
* A driver that cleans up first lists files, then checks the claims, and deletes only what was listed, so it
  deletes nothing of a newer run.
* A checkpoint knows the runs that led to it, and a new driver adds its own run when it takes over. A
  checkpoint outside that history cannot be the "latest" one.

As its last act, a driver that another one has followed deletes the state files that its own subtasks wrote
for checkpoints which it never published. The names of these files begin with the token of the driver, and
nobody else needs them. The other driver may have ended before they were written.

A claim needs no compare-and-set, which not all file systems and object stores offer. It only needs listings
that show everything written before, which all of them offer.
"""

from __future__ import annotations

import uuid
from contextlib import suppress

from pyflinkstate.errors import CheckpointStorageError, JobSupersededError
from pyflinkstate.runtime.storage import CheckpointFolders, RunHistory, newest_run, run_id_after
from pyflinkstate.runtime.wire import Clock

#: How often a waiting job checks the claims.
CHECK_INTERVAL_MS = 5_000


class RunClaim:
    """The claim of one driver.

    Args:
        job_id: the id of the job.
        job_name: the name that the program gave it.
        storage: where the job's checkpoints are.
    """

    def __init__(self, job_id: str, job_name: str, storage: CheckpointFolders, clock: Clock) -> None:
        self._job_id = job_id
        self._job_name = job_name
        self._storage = storage
        self._clock = clock
        self._looked_ms = 0
        self._successor: str | None = None
        #: The id of the run; None before the job is claimed.
        self.run: str | None = None
        #: Eight random digits, the same in the ids of all runs of this driver; empty before the first.
        self.token = ""

    def make(self, past: RunHistory) -> str:
        """Claim the job for a new run and return its id.

        The id is also newer than those of all runs in ``past``.

        Raises:
            JobSupersededError: another driver claims the job at the same moment and has the newer id.
        """
        known = [run for run, _ in past.runs] + ([] if self.run is None else [self.run])
        self.token = self.token or uuid.uuid4().hex[:8]
        run = run_id_after([*self._storage.runs(self._job_id), *known], self.token)
        self._storage.write_run(self._job_id, run)
        self.run = run
        self.check()
        return run

    def take_over(self, line: RunHistory, last_checkpoint_id: int) -> None:
        """Write down the history with which the job goes on, and which checkpoint ids are used up.

        Claims of older runs are then meaningless and are deleted, which keeps listings short.
        """
        assert self.run is not None
        self.check()
        self._storage.write_run(self._job_id, self.run, line, last_checkpoint_id)
        self._storage.forget_runs(self._job_id, before=self.run)

    def check(self) -> None:
        """Check that the job still belongs to this run.

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
                f"anything any more. Run only one program at a time for a job",
                job_id=self._job_id,
                run=self.run,
                newer_run=self._successor,
            )

    def check_now_and_then(self) -> None:
        """Call :meth:`check`, unless that was done a moment ago.

        If the storage fails, the check is repeated later, as nothing is about to be changed.
        """
        if not 0 <= self._clock.monotonic_ms() - self._looked_ms < CHECK_INTERVAL_MS:
            with suppress(CheckpointStorageError):
                self.check()
