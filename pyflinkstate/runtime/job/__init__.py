"""The job master, in the driver: attempts and epochs, the deployment of slots, events for listeners."""

from pyflinkstate.runtime.job.deployment import Deployments, fit
from pyflinkstate.runtime.job.job import Job
from pyflinkstate.runtime.job.job_settings import JobSettings
from pyflinkstate.runtime.job.monitoring import LOOPBACK, MonitorOfProgram, WebPageSettings, load_monitor
from pyflinkstate.runtime.job.reports.description import JobDescription, JobEdge, JobVertex
from pyflinkstate.runtime.job.reports.observe import (
    EpochReport,
    EpochStats,
    JobExecutionResult,
    JobListener,
    JobObserver,
)
from pyflinkstate.runtime.job.reports.progress import ProgressLine

__all__ = [
    "LOOPBACK",
    "Deployments",
    "EpochReport",
    "EpochStats",
    "Job",
    "JobDescription",
    "JobEdge",
    "JobExecutionResult",
    "JobListener",
    "JobObserver",
    "JobSettings",
    "JobVertex",
    "MonitorOfProgram",
    "ProgressLine",
    "WebPageSettings",
    "fit",
    "load_monitor",
]
