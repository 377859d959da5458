"""The status of a job, in Flink's terms."""

from __future__ import annotations

import enum


class JobStatus(enum.Enum):
    """The status of a job (``pyflink.common.JobStatus``).

    A job never reports ``FAILING``, ``CANCELLING``, ``SUSPENDED`` or ``RECONCILING``; these exist because
    PyFlink has them.
    """

    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9

    def is_globally_terminal_state(self) -> bool:
        """Return whether the job has ended, for good."""
        return self in {JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED}

    def is_terminal_state(self) -> bool:
        """Return whether nobody runs the job any more; of a suspended one somebody else may."""
        return self is JobStatus.SUSPENDED or self.is_globally_terminal_state()
