"""The runtime context of a function (``pyflink.datastream.functions.RuntimeContext``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from pyflinkstate.api.metrics import MetricGroup
from pyflinkstate.api.state import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from pyflinkstate.api.type_variables import ACC, IN, OUT, K, T, V

if TYPE_CHECKING:
    from pyflinkstate.api.descriptors import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
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
