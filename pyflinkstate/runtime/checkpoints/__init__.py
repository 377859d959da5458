"""When checkpoints are taken, what completes them, which files they share, and whose job it is."""

from pyflinkstate.runtime.checkpoints.checkpoint_stats import CheckpointStats
from pyflinkstate.runtime.checkpoints.checkpointing import (
    Checkpointing,
    EpochState,
    JobView,
    RestorePoint,
    SavepointRequest,
)

__all__ = ["CheckpointStats", "Checkpointing", "EpochState", "JobView", "RestorePoint", "SavepointRequest"]
