"""The id of a job (``pyflink.common.JobID``)."""

from __future__ import annotations


class JobID(str):
    """A job's id, 32 hexadecimal digits: also the folder of its checkpoints. It is a string."""

    __slots__ = ()
