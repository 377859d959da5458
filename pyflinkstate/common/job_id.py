"""PyFlink's ``pyflink.common.job_id``."""

from pyflinkstate.api import JobID as JobID
