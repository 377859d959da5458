"""The master of a job, in the driver: its life, its epochs and checkpoints, and what it tells others."""

from pyflinkstate.runtime.master.actions import JobParts
from pyflinkstate.runtime.master.deployment import Deployments, JobSettings, RestorePoint, fit
from pyflinkstate.runtime.master.epochs import SavepointRequest
from pyflinkstate.runtime.master.loop import Job
from pyflinkstate.runtime.master.monitoring import (
    LOOPBACK,
    MonitorOfProgram,
    ProgressLine,
    WebPageSettings,
    load_monitor,
)
from pyflinkstate.runtime.master.observe import (
    CheckpointPart,
    CheckpointStats,
    EpochReport,
    EpochStats,
    JobDescription,
    JobEdge,
    JobExecutionResult,
    JobListener,
    JobObserver,
    JobVertex,
)

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
