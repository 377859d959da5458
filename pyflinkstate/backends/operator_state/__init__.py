"""Operator state: lists and maps of a subtask, not of a key, and their redistribution on a restore."""

from pyflinkstate.backends.operator_state.backend import (
    DefaultOperatorStateBackend,
    OperatorStateRestoreOperation,
    OperatorStateSnapshotStrategy,
)
from pyflinkstate.backends.operator_state.repartition import assign_state

__all__ = [
    "DefaultOperatorStateBackend",
    "OperatorStateRestoreOperation",
    "OperatorStateSnapshotStrategy",
    "assign_state",
]
