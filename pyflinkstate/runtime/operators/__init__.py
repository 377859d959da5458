"""Operators with state: their subtasks, contexts, timers and windows.

The module ``async_operator`` is imported only for async functions, because asyncio takes time to import.
"""

from pyflinkstate.runtime.operators.function_operators import (
    KINDS,
    BatchReduce,
    BroadcastOperator,
    FieldReduce,
    KeyedMap,
    KeyState,
    MapKey,
    OneInputOperator,
    Projection,
    RecordChoice,
    RollingReduce,
    TwoInputOperator,
    called,
    lives_in_slot,
)
from pyflinkstate.runtime.operators.operators import (
    KeylessTimerService,
    OperatorContext,
    Output,
    StatefulOperator,
    StreamOperatorState,
    awaits,
    close_after_error,
    close_all,
    close_functions,
    closed_at_end,
    open_function,
)
from pyflinkstate.runtime.operators.subtask import KeyedSubtask, SubtaskSnapshot
from pyflinkstate.runtime.operators.windows.windowing import LATE_RECORDS_DROPPED, window_operator

__all__ = [
    "KINDS",
    "LATE_RECORDS_DROPPED",
    "BatchReduce",
    "BroadcastOperator",
    "FieldReduce",
    "KeyState",
    "KeyedMap",
    "KeyedSubtask",
    "KeylessTimerService",
    "MapKey",
    "OneInputOperator",
    "OperatorContext",
    "Output",
    "Projection",
    "RecordChoice",
    "RollingReduce",
    "StatefulOperator",
    "StreamOperatorState",
    "SubtaskSnapshot",
    "TwoInputOperator",
    "awaits",
    "called",
    "close_after_error",
    "close_all",
    "close_functions",
    "closed_at_end",
    "lives_in_slot",
    "open_function",
    "window_operator",
]
