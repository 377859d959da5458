"""The differences between the states of two checkpoints, as tables."""

from pyflinkstate.state_access.differences.comparison import StateDiff, diff

__all__ = ["StateDiff", "diff"]
