"""The master of a job, in the driver: its life, its epochs and checkpoints, and what it tells others."""

from pyflinkstate.runtime.master.actions import JobParts as JobParts
from pyflinkstate.runtime.master.deployment import (
    Deployments as Deployments,
    FlowSettings as FlowSettings,
    JobSettings as JobSettings,
    RestorePoint as RestorePoint,
    fit as fit,
)
from pyflinkstate.runtime.master.epochs import SavepointRequest as SavepointRequest
from pyflinkstate.runtime.master.loop import Job as Job
from pyflinkstate.runtime.master.monitoring import (
    LOOPBACK as LOOPBACK,
    MonitorOfProgram as MonitorOfProgram,
    ProgressLine as ProgressLine,
    WebPageSettings as WebPageSettings,
    load_monitor as load_monitor,
)
from pyflinkstate.runtime.master.observe import (
    CheckpointPart as CheckpointPart,
    CheckpointStats as CheckpointStats,
    EpochReport as EpochReport,
    EpochStats as EpochStats,
    JobDescription as JobDescription,
    JobEdge as JobEdge,
    JobExecutionResult as JobExecutionResult,
    JobListener as JobListener,
    JobObserver as JobObserver,
    JobVertex as JobVertex,
)
