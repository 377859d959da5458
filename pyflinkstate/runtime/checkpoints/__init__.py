"""Checkpoints: when they are taken and complete, which files they share, and which driver owns the job."""

from pyflinkstate.runtime.checkpoints.checkpoint_stats import CheckpointPart, CheckpointStats
from pyflinkstate.runtime.checkpoints.checkpointing import (
    Checkpointing,
    EpochState,
    JobView,
    RestorePoint,
    SavepointRequest,
)

__all__ = [
    "CheckpointPart",
    "CheckpointStats",
    "Checkpointing",
    "EpochState",
    "JobView",
    "RestorePoint",
    "SavepointRequest",
]
