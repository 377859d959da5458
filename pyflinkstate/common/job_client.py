"""PyFlink's ``pyflink.common.job_client``."""

from __future__ import annotations

from pyflinkstate.runtime.job_client import JobClient

__all__ = [
    "JobClient",
]
