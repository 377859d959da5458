"""What the runtime gives a function: its context, timers, operator state, and a part in checkpoints.

Names are PyFlink's. For checkpoints, which PyFlink's functions take no part in, they are those of Java
(Flink: ``CheckpointedFunction``).
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from pyflinkstate.api.metrics import MetricGroup
from pyflinkstate.api.values import ACC, IN, OUT, K, T, V

if TYPE_CHECKING:
    from pyflinkstate.api.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        BroadcastState,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        ReducingState,
        ReducingStateDescriptor,
        ValueState,
        ValueStateDescriptor,
    )


class KeyedStateStore(ABC):
    """Provides keyed state.

    Every method returns the same object when asked again with the same descriptor, and raises

    * ``NotKeyedStreamError`` if the function does not run on a keyed stream;
    * ``StateRegistrationError`` if the name is in use with another kind or type. Flink's heap backend
      overlooks a type that changed within one run; this package does not repeat that defect.
    """

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        """Return the value state of the descriptor."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return the list state of the descriptor."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """Return the map state of the descriptor."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]:
        """Return the reducing state of the descriptor."""

    @abstractmethod
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor[IN, ACC, OUT]
    ) -> AggregatingState[IN, OUT]:
        """Return the aggregating state of the descriptor."""


class RuntimeContext(KeyedStateStore):
    """Says where a function runs, and provides its state and metrics."""

    @abstractmethod
    def get_task_name(self) -> str:
        """Return the operator's name."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Return the name with subtask and parallelism, counted from 1: ``"spend (2/4)"``."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """Return the operator's parallelism."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the operator's max parallelism, the number of key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """Return the subtask's index, counted from 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """Return the number of restarts before this attempt."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str | None = None) -> str | None:
        """Return a global parameter of the job, or ``default_value`` if it is not set.

        ``ExecutionConfig.set_global_job_parameters`` sets them, before the job is run.
        """

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """Return the function's metrics; their names begin with the operator's name."""


class TimeDomain(enum.Enum):
    """The kind of time that a timer is for."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class TimerService(ABC):
    """Provides the time and the timers of the current key. Times are milliseconds since 1970.

    A key has at most one timer for a timestamp, however often it is registered. Timers are state: they are
    part of checkpoints, and move with their keys when the parallelism changes.

    A timestamp that is not a 64-bit int is refused with a :class:`~pyflinkstate.errors.StateValueError`.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the processing time: the machine's clock."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the watermark, or the least possible one as long as no watermark has arrived."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call ``on_timer`` when the processing time is ``timestamp`` or later.

        Timers that are not yet due when bounded input ends do not fire, as in Flink.
        """

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call ``on_timer`` when the watermark next advances and is then ``timestamp`` or later.

        At the end of bounded input the watermark passes all timestamps, and every remaining timer fires.
        """

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete the timer if there is one."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete the timer if there is one."""


class CheckpointListener:
    """A function that is notified of completed and aborted checkpoints (Flink: ``CheckpointListener``).

    The methods are called between epochs, on the thread that processes records. A notification may be
    skipped when the next checkpoint follows at once or the job restarts, so a notification for checkpoint
    ``n`` also stands for all earlier ones. An error raised here fails the job.
    """

    def notify_checkpoint_complete(self, checkpoint_id: int, /) -> None:
        """A checkpoint is complete: the records that it covers will not be processed again."""

    def notify_checkpoint_aborted(self, checkpoint_id: int, /) -> None:
        """A checkpoint was aborted."""


class OperatorStateStore(ABC):
    """Provides operator state, which belongs to a subtask, not to a key.

    Every method returns the same object when asked again, and raises ``StateRegistrationError`` if the
    name is in use with another redistribution mode or another type.
    """

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return a list whose elements are distributed evenly when the parallelism changes."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return a list that is restored on every subtask with the elements of all subtasks."""

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
        """Return a map that is the same on all subtasks, provided that they all make the same changes."""


class RawKeyedStateOutput(Protocol):
    """Receives raw keyed state (Flink: ``KeyedStateCheckpointOutputStream``)."""

    def start_new_key_group(self, key_group: int) -> None:
        """Start to write a key group of this subtask; each key group can be started once.

        Raises:
            CheckpointError: the key group belongs to another subtask, or was started before.
        """

    def write(self, data: bytes) -> None:
        """Append to the key group that was started last; raise ``CheckpointError`` if there is none yet."""


class RawOperatorStateOutput(Protocol):
    """Receives raw operator state (Flink: ``OperatorStateCheckpointOutputStream``)."""

    def start_new_partition(self) -> None:
        """Start a partition, the unit that a restore distributes over subtasks."""

    def write(self, data: bytes) -> None:
        """Append to the partition that was started last; the first one starts by itself."""


class FunctionSnapshotContext(ABC):
    """The context of ``snapshot_state``.

    The raw outputs are those of Flink's ``StateSnapshotContext``, which only operators get in Flink.
    """

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """Return the id of the checkpoint."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """Return when the checkpoint was triggered, in ms since 1970."""

    @abstractmethod
    def get_raw_keyed_operator_state_output(self) -> RawKeyedStateOutput:
        """Return the output for bytes of the function's own, by key group."""

    @abstractmethod
    def get_raw_operator_state_output(self) -> RawOperatorStateOutput:
        """Return the output for bytes of the function's own, by partition."""


class FunctionInitializationContext(ABC):
    """The context of ``initialize_state``."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Return whether state was restored from a checkpoint."""

    @abstractmethod
    def get_restored_checkpoint_id(self) -> int | None:
        """Return the id of the restored checkpoint, or None."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the store of operator state."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """Return the store of keyed state."""

    @abstractmethod
    def get_raw_keyed_state_inputs(self) -> Iterable[tuple[int, bytes]]:
        """Return the key groups of this subtask, each with the bytes that were written for it."""

    @abstractmethod
    def get_raw_operator_state_inputs(self) -> Iterable[bytes]:
        """Return the partitions of raw operator state that were assigned to this subtask."""


class CheckpointedFunction(ABC):
    """A function that takes part in checkpoints, on a stream with or without keys.

    On a stream without keys, ``map``, ``flat_map``, ``filter`` and ``process`` with such a function are
    operators with state. They run in state slots, with the environment's parallelism by default. A key
    selector or partitioner has no operator state, and is refused if it is a ``CheckpointedFunction``.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext, /) -> None:
        """Called once before ``open``, with restored state if there is any."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext, /) -> None:
        """Called at each barrier, before state is frozen: the last chance to change it for this checkpoint.

        No key is set.
        """
