"""The job master, in the driver: attempts and epochs, the deployment of slots, events for listeners."""

from pyflinkstate.runtime.job.deployment import Deployments, fit
from pyflinkstate.runtime.job.job import Job
from pyflinkstate.runtime.job.job_settings import JobSettings
from pyflinkstate.runtime.job.observe import EpochStats, JobExecutionResult, JobListener
from pyflinkstate.runtime.job.progress import ProgressLine

__all__ = [
    "Deployments",
    "EpochStats",
    "Job",
    "JobExecutionResult",
    "JobListener",
    "JobSettings",
    "ProgressLine",
    "fit",
]
