"""PyFlink's ``pyflink.common.job_status``."""

from __future__ import annotations

from pyflinkstate.runtime.settings import JobStatus

__all__ = [
    "JobStatus",
]
