"""PyFlink's ``pyflink.common.job_execution_result``."""

from pyflinkstate.runtime.master import JobExecutionResult as JobExecutionResult
