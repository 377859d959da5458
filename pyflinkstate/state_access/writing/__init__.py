"""Savepoints made of checkpoints or of rows: changed, seeded, and tried against a program."""

from pyflinkstate.state_access.writing.edit import (
    CheckpointEdit as CheckpointEdit,
    dry_run as dry_run,
    edit as edit,
    new_savepoint as new_savepoint,
)
from pyflinkstate.state_access.writing.saving import DryRun as DryRun, Mismatch as Mismatch
from pyflinkstate.state_access.writing.user_functions import (
    KeyedStateBootstrapFunction as KeyedStateBootstrapFunction,
    StateBootstrapFunction as StateBootstrapFunction,
)
