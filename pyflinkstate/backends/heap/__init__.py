"""The heap backend: copy-on-write maps, snapshots that do not stop processing, and restores."""

from pyflinkstate.backends.heap.backend import (
    DiskStatus as DiskStatus,
    HeapKeyedStateBackend as HeapKeyedStateBackend,
    HeapRestoreOperation as HeapRestoreOperation,
    HeapSnapshotResources as HeapSnapshotResources,
    HeapSnapshotStrategy as HeapSnapshotStrategy,
    snapshot_runner as snapshot_runner,
    to_batch as to_batch,
)
from pyflinkstate.backends.heap.copy_on_write_state_map import (
    ABSENT as ABSENT,
    CopyOnWriteStateMap as CopyOnWriteStateMap,
    StateMapSnapshot as StateMapSnapshot,
)
from pyflinkstate.backends.heap.record_loop import RecordLoop as RecordLoop
from pyflinkstate.backends.heap.state_table import StateTable as StateTable
from pyflinkstate.backends.heap.timer_queue import (
    TIMER_STATE_PREFIX as TIMER_STATE_PREFIX,
    Timer as Timer,
    TimerQueue as TimerQueue,
)
from pyflinkstate.backends.heap.timer_service import (
    InternalTimerService as InternalTimerService,
    KindOfTimers as KindOfTimers,
    SubtaskTime as SubtaskTime,
    UserTimerService as UserTimerService,
)
