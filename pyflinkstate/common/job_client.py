"""PyFlink's ``pyflink.common.job_client``."""

from pyflinkstate.runtime.program import JobClient as JobClient
