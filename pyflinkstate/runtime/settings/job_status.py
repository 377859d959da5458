"""What a job is about, in Flink's words."""

from __future__ import annotations

import enum


class JobStatus(enum.Enum):
    """What a job is about (``pyflink.common.JobStatus``)."""

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
