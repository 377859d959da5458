"""PyFlink's ``pyflink.common.job_execution_result``."""

from __future__ import annotations

from pyflinkstate.runtime.master import JobExecutionResult

__all__ = [
    "JobExecutionResult",
]
