"""Operators with state: their subtasks, contexts, timers and windows.

The names that need asyncio are loaded on first use, because most programs do not use it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from pyflinkstate.runtime.operators.batch_reduce import BatchReduce
from pyflinkstate.runtime.operators.closing import close_after_error, close_all, closed_at_end
from pyflinkstate.runtime.operators.context import (
    OperatorContext,
    awaits,
    close_function,
    close_functions,
    open_function,
)
from pyflinkstate.runtime.operators.function_operators import BroadcastOperator, TwoInputOperator
from pyflinkstate.runtime.operators.keyed_functions import (
    FieldReduce,
    Projection,
    RecordChoice,
    RollingReduce,
)
from pyflinkstate.runtime.operators.keyed_map import KeyedMap, KeyState, MapKey
from pyflinkstate.runtime.operators.one_input import KINDS, OneInputOperator, called, lives_in_slot
from pyflinkstate.runtime.operators.operator_state import StreamOperatorState
from pyflinkstate.runtime.operators.operators import Output, StatefulOperator
from pyflinkstate.runtime.operators.subtask import KeyedSubtask, SubtaskSnapshot
from pyflinkstate.runtime.operators.timers import KeylessTimerService
from pyflinkstate.runtime.operators.windows.windowing import LATE_RECORDS_DROPPED, window_operator

if TYPE_CHECKING:
    from pyflinkstate.runtime.operators.event_loops import GRACE_S, NewEventLoop, end_tasks

__all__ = [
    "GRACE_S",
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
    "NewEventLoop",
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
    "close_function",
    "close_functions",
    "closed_at_end",
    "end_tasks",
    "lives_in_slot",
    "open_function",
    "window_operator",
]

_OF_EVENT_LOOPS = ("GRACE_S", "NewEventLoop", "end_tasks")


def __getattr__(name: str) -> object:
    if name not in _OF_EVENT_LOOPS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.event_loops"), name)
    globals()[name] = value
    return value
