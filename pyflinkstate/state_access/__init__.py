"""Checkpoints as tables: reads, compares, changes and seeds state, without its job, Spark or Java.

The names that make savepoints are loaded on first use, because those who only read need half as many modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyflinkstate.doors import on_first_use
from pyflinkstate.state_access.checkpoint import (
    Checkpoint,
    KeyHistory,
    Moment,
    Verification,
    history,
    open_checkpoint,
    verify,
)
from pyflinkstate.state_access.differences import StateDiff, diff
from pyflinkstate.state_access.tables import CheckpointOffsets, OperatorInfo, StateInfo, StateTable

if TYPE_CHECKING:
    from pyflinkstate.state_access.flink import convert_savepoint, edit_flink_savepoint, write_flink_savepoint
    from pyflinkstate.state_access.writing import (
        CheckpointEdit,
        DryRun,
        KeyedStateBootstrapFunction,
        Mismatch,
        StateBootstrapFunction,
        dry_run,
        edit,
        new_savepoint,
    )

__all__ = [
    "Checkpoint",
    "CheckpointEdit",
    "CheckpointOffsets",
    "DryRun",
    "KeyHistory",
    "KeyedStateBootstrapFunction",
    "Mismatch",
    "Moment",
    "OperatorInfo",
    "StateBootstrapFunction",
    "StateDiff",
    "StateInfo",
    "StateTable",
    "Verification",
    "convert_savepoint",
    "diff",
    "dry_run",
    "edit",
    "edit_flink_savepoint",
    "history",
    "new_savepoint",
    "open_checkpoint",
    "verify",
    "write_flink_savepoint",
]

_OF_FLINK = ("convert_savepoint", "edit_flink_savepoint", "write_flink_savepoint")

__getattr__ = on_first_use(
    __name__, {**dict.fromkeys(__all__, "writing"), **dict.fromkeys(_OF_FLINK, "flink")}
)
