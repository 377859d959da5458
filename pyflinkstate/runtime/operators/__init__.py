"""Operators with state: their subtasks, contexts, timers and windows."""

from pyflinkstate.runtime.operators.batch_reduce import BatchReduce
from pyflinkstate.runtime.operators.context import OperatorContext, close_function, open_function
from pyflinkstate.runtime.operators.function_operators import BroadcastOperator
from pyflinkstate.runtime.operators.keyed_functions import (
    FieldReduce,
    Projection,
    RecordChoice,
    RollingReduce,
    check_position,
)
from pyflinkstate.runtime.operators.keyless import KINDS, KeylessOperator, lives_in_slot
from pyflinkstate.runtime.operators.operator_state import StreamOperatorState
from pyflinkstate.runtime.operators.operators import Output, StatefulOperator
from pyflinkstate.runtime.operators.subtask import KeyedSubtask, SubtaskSnapshot
from pyflinkstate.runtime.operators.windows.windowing import window_operator

__all__ = [
    "KINDS",
    "BatchReduce",
    "BroadcastOperator",
    "FieldReduce",
    "KeyedSubtask",
    "KeylessOperator",
    "OperatorContext",
    "Output",
    "Projection",
    "RecordChoice",
    "RollingReduce",
    "StatefulOperator",
    "StreamOperatorState",
    "SubtaskSnapshot",
    "check_position",
    "close_function",
    "lives_in_slot",
    "open_function",
    "window_operator",
]
