"""The heap backend: copy-on-write maps, snapshots that do not stop processing, and restores."""

from pyflinkstate.backends.heap.backend import HeapKeyedStateBackend
from pyflinkstate.backends.heap.record_loop import RecordLoop
from pyflinkstate.backends.heap.snapshot import HeapRestoreOperation, snapshot_runner, to_batch
from pyflinkstate.backends.heap.state_map import ABSENT, StateMapSnapshot
from pyflinkstate.backends.heap.state_table import StateTable
from pyflinkstate.backends.heap.timer_queue import TIMER_STATE_PREFIX, Timer, TimerQueue
from pyflinkstate.backends.heap.timer_service import (
    InternalTimerService,
    KindOfTimers,
    SubtaskTime,
    UserTimerService,
)

__all__ = [
    "ABSENT",
    "TIMER_STATE_PREFIX",
    "HeapKeyedStateBackend",
    "HeapRestoreOperation",
    "InternalTimerService",
    "KindOfTimers",
    "RecordLoop",
    "StateMapSnapshot",
    "StateTable",
    "SubtaskTime",
    "Timer",
    "TimerQueue",
    "UserTimerService",
    "snapshot_runner",
    "to_batch",
]
