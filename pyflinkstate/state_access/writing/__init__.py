"""Savepoints made of checkpoints or of rows: changed, seeded, and tried against a program."""

from pyflinkstate.state_access.writing.bootstrapping import (
    KeyedStateBootstrapFunction as KeyedStateBootstrapFunction,
    StateBootstrapFunction as StateBootstrapFunction,
)
from pyflinkstate.state_access.writing.drafts import (
    DraftState as DraftState,
    OperatorDraft as OperatorDraft,
    in_columns_of as in_columns_of,
)
from pyflinkstate.state_access.writing.savepoints import (
    CheckpointEdit as CheckpointEdit,
    DryRun as DryRun,
    Mismatch as Mismatch,
    dry_run as dry_run,
    edit as edit,
    new_folder as new_folder,
    new_savepoint as new_savepoint,
    open_operator as open_operator,
    planned as planned,
)
