"""PyFlink's ``pyflink.common.job_execution_result``."""

from __future__ import annotations

from pyflinkstate.runtime.job import JobExecutionResult

__all__ = [
    "JobExecutionResult",
]
