"""Operators with state: their subtasks, contexts, timers and windows.

The module ``async_operator`` is imported only for async functions, because asyncio takes time to import.
"""

from pyflinkstate.runtime.operators.function_operators import (
    KINDS as KINDS,
    BatchReduce as BatchReduce,
    BroadcastOperator as BroadcastOperator,
    ColumnOrder as ColumnOrder,
    FieldReduce as FieldReduce,
    KeyedMap as KeyedMap,
    KeyState as KeyState,
    MapKey as MapKey,
    OneInputOperator as OneInputOperator,
    Projection as Projection,
    RecordChoice as RecordChoice,
    RollingReduce as RollingReduce,
    RowOrder as RowOrder,
    TwoInputOperator as TwoInputOperator,
    called as called,
    lives_in_slot as lives_in_slot,
)
from pyflinkstate.runtime.operators.operators import (
    KeylessTimerService as KeylessTimerService,
    OperatorContext as OperatorContext,
    Output as Output,
    StatefulOperator as StatefulOperator,
    StreamOperatorState as StreamOperatorState,
    awaits as awaits,
    close_after_error as close_after_error,
    close_all as close_all,
    close_functions as close_functions,
    closed_at_end as closed_at_end,
    open_function as open_function,
)
from pyflinkstate.runtime.operators.subtask import (
    KeyedSubtask as KeyedSubtask,
    SubtaskSnapshot as SubtaskSnapshot,
)
from pyflinkstate.runtime.operators.windows.windowing import (
    LATE_RECORDS_DROPPED as LATE_RECORDS_DROPPED,
    window_operator as window_operator,
)
