"""Operator state: lists and maps of a subtask, not of a key, and their redistribution on a restore."""

from pyflinkstate.backends.operator_state.backend import (
    DefaultOperatorStateBackend as DefaultOperatorStateBackend,
    OperatorStateRestoreOperation as OperatorStateRestoreOperation,
    OperatorStateSnapshotStrategy as OperatorStateSnapshotStrategy,
    assign_state as assign_state,
)
