"""PyFlink's ``pyflink.common.job_id``."""

from pyflinkstate.api.values import JobID as JobID
