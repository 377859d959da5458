"""Functions that take part in checkpoints, and operator state (Flink: ``CheckpointedFunction``).

PyFlink has no such interface; names and semantics are the Java ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from pyflinkstate.api.state import BroadcastState, ListState
from pyflinkstate.api.type_variables import K, T, V

if TYPE_CHECKING:
    from pyflinkstate.api.context import KeyedStateStore
    from pyflinkstate.api.descriptors import ListStateDescriptor, MapStateDescriptor


class CheckpointListener:
    """A function that is notified of completed and aborted checkpoints (Flink: ``CheckpointListener``).

    The methods are called between epochs, on the thread that processes records. A notification may be
    skipped when the next checkpoint follows at once or the job restarts, so a notification for checkpoint
    ``n`` also stands for all earlier ones. An error raised here fails the job.
    """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """A checkpoint is complete: the records that it covers will not be processed again."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
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
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Called once before ``open``, with restored state if there is any."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Called at each barrier, before state is frozen: the last chance to change it for this checkpoint.

        No key is set.
        """
