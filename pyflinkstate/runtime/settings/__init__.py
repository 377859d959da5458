"""The table of settings, and those of checkpoints and restarts as plain values under Flink's names."""

from pyflinkstate.runtime.settings.checkpoint_settings import (
    CheckpointConfig,
    CheckpointingMode,
    CheckpointSettings,
    ExternalizedCheckpointRetention,
    IdleCheckpointSettings,
    IdleExecutionSettings,
    IdleStreamSettings,
    deletes_checkpoints,
)
from pyflinkstate.runtime.settings.option_names import why_without_effect
from pyflinkstate.runtime.settings.restart import (
    RESTART_PARTS,
    DefaultRestart,
    FallbackRestart,
    JobStatus,
    RestartStrategies,
    RestartStrategy,
    RestartTracker,
    read_restart_strategy,
)
from pyflinkstate.runtime.settings.setting import (
    Reader,
    Setting,
    SettingsGroup,
    a_switch,
    a_value_of,
    check_set,
    choice_of,
    rows_of,
)

__all__ = [
    "RESTART_PARTS",
    "CheckpointConfig",
    "CheckpointSettings",
    "CheckpointingMode",
    "DefaultRestart",
    "ExternalizedCheckpointRetention",
    "FallbackRestart",
    "IdleCheckpointSettings",
    "IdleExecutionSettings",
    "IdleStreamSettings",
    "JobStatus",
    "Reader",
    "RestartStrategies",
    "RestartStrategy",
    "RestartTracker",
    "Setting",
    "SettingsGroup",
    "a_switch",
    "a_value_of",
    "check_set",
    "choice_of",
    "deletes_checkpoints",
    "read_restart_strategy",
    "rows_of",
    "why_without_effect",
]
