"""The status of a job, in Flink's terms."""

from __future__ import annotations

import enum


class JobStatus(enum.Enum):
    """The status of a job (``pyflink.common.JobStatus``)."""

    CREATED = 0
    RUNNING = 1
    FAILED = 3
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self in {JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED}
