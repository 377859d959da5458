"""The table of settings, and those of checkpoints and restarts as plain values under Flink's names."""

from pyflinkstate.runtime.settings.checkpoint_settings import (
    CheckpointConfig as CheckpointConfig,
    CheckpointingMode as CheckpointingMode,
    CheckpointSettings as CheckpointSettings,
    ExternalizedCheckpointRetention as ExternalizedCheckpointRetention,
    IdleCheckpointSettings as IdleCheckpointSettings,
    IdleExecutionSettings as IdleExecutionSettings,
    IdleStreamSettings as IdleStreamSettings,
    deletes_checkpoints as deletes_checkpoints,
)
from pyflinkstate.runtime.settings.option_names import why_without_effect as why_without_effect
from pyflinkstate.runtime.settings.restart import (
    RESTART_PARTS as RESTART_PARTS,
    DefaultRestart as DefaultRestart,
    FallbackRestart as FallbackRestart,
    JobStatus as JobStatus,
    OnSigterm as OnSigterm,
    RestartStrategies as RestartStrategies,
    RestartStrategy as RestartStrategy,
    RestartTracker as RestartTracker,
    StopSettings as StopSettings,
    read_restart_strategy as read_restart_strategy,
)
from pyflinkstate.runtime.settings.setting import (
    Milliseconds as Milliseconds,
    Reader as Reader,
    Setting as Setting,
    SettingsGroup as SettingsGroup,
    a_switch as a_switch,
    a_value_of as a_value_of,
    check_set as check_set,
    choice_of as choice_of,
    rows_of as rows_of,
)
