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
    """A function that hears what became of checkpoints (Flink: ``CheckpointListener``).

    Called between epochs, on the thread that processes records. A notification may be skipped when the
    next checkpoint follows at once or the job restarts: one for checkpoint ``n`` stands for all before it.
    Raising fails the job.
    """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """A checkpoint is complete: what it covers will not be processed again."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """A checkpoint was given up."""


class OperatorStateStore(ABC):
    """Gives out operator state: one per subtask, not per key.

    Every method returns the same object when asked again, and raises ``StateRegistrationError`` where the
    name is in use with another way of redistribution or another type.
    """

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return a list whose elements are dealt out evenly when the parallelism changes."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return a list of which every subtask gets all elements of all subtasks on a restore."""

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
        """Return a map that is the same on all subtasks, as long as they all put the same into it."""


class RawKeyedStateOutput(Protocol):
    """Takes raw keyed state (Flink: ``KeyedStateCheckpointOutputStream``)."""

    def start_new_key_group(self, key_group: int) -> None:
        """Begin the bytes of a key group of this subtask; each may be begun once.

        Raises:
            CheckpointError: the key group is another subtask's, or was begun before.
        """

    def write(self, data: bytes) -> None:
        """Append to the key group begun last; raises ``CheckpointError`` before the first."""


class RawOperatorStateOutput(Protocol):
    """Takes raw operator state (Flink: ``OperatorStateCheckpointOutputStream``)."""

    def start_new_partition(self) -> None:
        """Begin a partition, the unit that is dealt out on a restore."""

    def write(self, data: bytes) -> None:
        """Append to the partition begun last; the first one begins by itself."""


class FunctionSnapshotContext(ABC):
    """What ``snapshot_state`` knows of the checkpoint.

    The raw outputs are Flink's ``StateSnapshotContext``, which there only operators get.
    """

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """Return the id of the checkpoint."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """Return when the checkpoint was triggered, in ms since 1970."""

    @abstractmethod
    def get_raw_keyed_operator_state_output(self) -> RawKeyedStateOutput:
        """Return where bytes of the function's own go, by key group."""

    @abstractmethod
    def get_raw_operator_state_output(self) -> RawOperatorStateOutput:
        """Return where bytes of the function's own go, by partition."""


class FunctionInitializationContext(ABC):
    """What ``initialize_state`` has at hand."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Return whether state was restored from a checkpoint."""

    @abstractmethod
    def get_restored_checkpoint_id(self) -> int | None:
        """Return the id of the restored checkpoint, or None."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Return what gives out operator state."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """Return what gives out keyed state."""

    @abstractmethod
    def get_raw_keyed_state_inputs(self) -> Iterable[tuple[int, bytes]]:
        """Return key groups of this subtask with the bytes that were written for them."""

    @abstractmethod
    def get_raw_operator_state_inputs(self) -> Iterable[bytes]:
        """Return the partitions of raw operator state that were dealt to this subtask."""


class CheckpointedFunction(ABC):
    """A function that is told of checkpoints, on a stream with keys or without.

    Without keys it makes ``map``, ``flat_map``, ``filter`` and ``process`` operators with state: they run in
    state slots, and have the environment's parallelism where none is set. What a key selector, a partitioner
    or a window function derives from it is refused, or not called: they keep no operator state.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Called once before ``open``, with restored state if there is any."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Called at each barrier, before state is frozen: the last chance to put something into it.

        No key is set.
        """
