"""Checkpoints as tables: reads and compares the state in any checkpoint, without its job, Spark or Java."""

from pyflinkstate.state_access.checkpoint import Checkpoint, open_checkpoint
from pyflinkstate.state_access.comparison import StateDiff, diff
from pyflinkstate.state_access.facts import CheckpointOffsets, OperatorInfo, StateInfo
from pyflinkstate.state_access.history import KeyHistory, Moment, history
from pyflinkstate.state_access.tables import StateTable
from pyflinkstate.state_access.verification import Verification, verify

__all__ = [
    "Checkpoint",
    "CheckpointOffsets",
    "KeyHistory",
    "Moment",
    "OperatorInfo",
    "StateDiff",
    "StateInfo",
    "StateTable",
    "Verification",
    "diff",
    "history",
    "open_checkpoint",
    "verify",
]
