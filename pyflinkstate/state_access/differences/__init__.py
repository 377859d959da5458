"""What differs between the states of two checkpoints, as tables."""

from pyflinkstate.state_access.differences.keyed_states import KeyedPair
from pyflinkstate.state_access.differences.operator_states import OperatorStatePair
from pyflinkstate.state_access.differences.sides import Sides
from pyflinkstate.state_access.differences.timers import TimerPair

__all__ = ["KeyedPair", "OperatorStatePair", "Sides", "TimerPair"]
