"""The master of a job, in the driver: its life, its epochs and checkpoints, and what it tells others."""

from pyflinkstate.runtime.master.actions import JobParts
from pyflinkstate.runtime.master.deployment import Deployments, RestorePoint, fit
from pyflinkstate.runtime.master.epochs import SavepointRequest
from pyflinkstate.runtime.master.job_settings import JobSettings
from pyflinkstate.runtime.master.loop import Job
from pyflinkstate.runtime.master.reports.checkpoint_stats import CheckpointPart, CheckpointStats
from pyflinkstate.runtime.master.reports.description import JobDescription, JobEdge, JobVertex
from pyflinkstate.runtime.master.reports.monitoring import (
    LOOPBACK,
    MonitorOfProgram,
    WebPageSettings,
    load_monitor,
)
from pyflinkstate.runtime.master.reports.observe import (
    EpochReport,
    EpochStats,
    JobExecutionResult,
    JobListener,
    JobObserver,
)
from pyflinkstate.runtime.master.reports.progress import ProgressLine

__all__ = [
    "LOOPBACK",
    "CheckpointPart",
    "CheckpointStats",
    "Deployments",
    "EpochReport",
    "EpochStats",
    "Job",
    "JobDescription",
    "JobEdge",
    "JobExecutionResult",
    "JobListener",
    "JobObserver",
    "JobParts",
    "JobSettings",
    "JobVertex",
    "MonitorOfProgram",
    "ProgressLine",
    "RestorePoint",
    "SavepointRequest",
    "WebPageSettings",
    "fit",
    "load_monitor",
]
