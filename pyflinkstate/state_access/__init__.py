"""Checkpoints as tables: reads, compares, changes and seeds state, without its job, Spark or Java.

The names that make savepoints are loaded on first use, because those who only read need half as many modules.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

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
    "diff",
    "dry_run",
    "edit",
    "history",
    "new_savepoint",
    "open_checkpoint",
    "verify",
]

_WRITING = "pyflinkstate.state_access.writing"


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_WRITING), name)
    globals()[name] = value
    return value
