"""The settings of checkpoints and restarts, as plain values under Flink's names."""

from pyflinkstate.runtime.settings.checkpoint_config import (
    CheckpointConfig,
    CheckpointingMode,
    ExternalizedCheckpointRetention,
    deletes_checkpoints,
)
from pyflinkstate.runtime.settings.checkpoint_settings import CheckpointSettings
from pyflinkstate.runtime.settings.idle_settings import IdleSettings
from pyflinkstate.runtime.settings.job_status import JobStatus
from pyflinkstate.runtime.settings.option_names import why_without_effect
from pyflinkstate.runtime.settings.restart import (
    DefaultRestart,
    FallbackRestart,
    RestartStrategies,
    RestartStrategy,
    RestartTracker,
)

__all__ = [
    "CheckpointConfig",
    "CheckpointSettings",
    "CheckpointingMode",
    "DefaultRestart",
    "ExternalizedCheckpointRetention",
    "FallbackRestart",
    "IdleSettings",
    "JobStatus",
    "RestartStrategies",
    "RestartStrategy",
    "RestartTracker",
    "deletes_checkpoints",
    "why_without_effect",
]
