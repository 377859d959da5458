"""Snapshots of any backend: how they are run, cancelled and combined, and what an increment contains."""

from pyflinkstate.backends.snapshots.increments import ChangeHistory, Changes
from pyflinkstate.backends.snapshots.operator_snapshot import OperatorSnapshotFutures
from pyflinkstate.backends.snapshots.raw_state import (
    RawKeyedStateBuffer,
    RawOperatorStateBuffer,
    read_raw_keyed_state,
    read_raw_operator_state,
)
from pyflinkstate.backends.snapshots.snapshot_strategy import (
    RunningSnapshots,
    SnapshotExecutionType,
    SnapshotStrategyRunner,
    SnapshotTask,
)

__all__ = [
    "ChangeHistory",
    "Changes",
    "OperatorSnapshotFutures",
    "RawKeyedStateBuffer",
    "RawOperatorStateBuffer",
    "RunningSnapshots",
    "SnapshotExecutionType",
    "SnapshotStrategyRunner",
    "SnapshotTask",
    "read_raw_keyed_state",
    "read_raw_operator_state",
]
