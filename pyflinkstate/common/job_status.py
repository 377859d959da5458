"""PyFlink's ``pyflink.common.job_status``."""

from pyflinkstate.runtime.settings import JobStatus as JobStatus
