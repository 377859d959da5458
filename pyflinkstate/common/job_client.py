"""PyFlink's ``pyflink.common.job_client``."""

from __future__ import annotations

from pyflinkstate.runtime.program import JobClient

__all__ = [
    "JobClient",
]
