"""PyFlink's ``pyflink.common.job_id``."""

from __future__ import annotations

from pyflinkstate.api.job_id import JobID

__all__ = ["JobID"]
