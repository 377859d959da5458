"""Savepoints made of checkpoints or of rows: changed, seeded, and tried against a program."""

from pyflinkstate.state_access.writing.edit import CheckpointEdit, dry_run, edit, new_savepoint
from pyflinkstate.state_access.writing.saving import DryRun, Mismatch
from pyflinkstate.state_access.writing.user_functions import (
    KeyedStateBootstrapFunction,
    StateBootstrapFunction,
)

__all__ = [
    "CheckpointEdit",
    "DryRun",
    "KeyedStateBootstrapFunction",
    "Mismatch",
    "StateBootstrapFunction",
    "dry_run",
    "edit",
    "new_savepoint",
]
