"""The runtime context of functions, on keyed and other streams."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial

import attrs

from pyflinkstate.api.context import KeyedStateStore, RuntimeContext
from pyflinkstate.api.functions import Function
from pyflinkstate.api.metrics import MetricGroup
from pyflinkstate.api.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from pyflinkstate.api.values import AnyState
from pyflinkstate.backends.heap import HeapKeyedStateBackend
from pyflinkstate.errors import NotKeyedStreamError, StateRegistrationError
from pyflinkstate.runtime.operators.closing import close_all
from pyflinkstate.runtime.wire import OperatorMetrics, SystemClock


class CheckedStateStore(KeyedStateStore, ABC):
    """Checks that a descriptor has the right kind for the method that it is passed to."""

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState:
        state: ValueState = self._state(state_descriptor, ValueStateDescriptor)
        return state

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        state: ListState = self._state(state_descriptor, ListStateDescriptor)
        return state

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState:
        state: MapState = self._state(state_descriptor, MapStateDescriptor)
        return state

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState:
        state: ReducingState = self._state(state_descriptor, ReducingStateDescriptor)
        return state

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState:
        state: AggregatingState = self._state(state_descriptor, AggregatingStateDescriptor)
        return state

    def _state(self, descriptor: StateDescriptor, expected: type[StateDescriptor]) -> AnyState:
        if not isinstance(descriptor, expected):
            raise StateRegistrationError(
                f"{self._place()}: a {expected.__name__} is needed here, not {descriptor!r}"
            )
        return self._state_of(descriptor)

    @abstractmethod
    def _place(self) -> str:
        """Return the beginning of an error message, which says where it happened."""

    @abstractmethod
    def _state_of(self, descriptor: StateDescriptor) -> AnyState:
        """Return the state of a descriptor of the right kind."""


@attrs.frozen
class OperatorContext(CheckedStateStore, RuntimeContext):
    """See :class:`~pyflinkstate.api.context.RuntimeContext`.

    ``backend`` is None if the stream is not keyed.
    """

    task_name: str
    subtask: int
    parallelism: int
    max_parallelism: int
    attempt: int
    backend: HeapKeyedStateBackend | None = None
    metrics: OperatorMetrics = attrs.field(eq=False, factory=lambda: OperatorMetrics(SystemClock().now_ms))
    job_parameters: Mapping[str, str] = attrs.field(eq=False, factory=dict)

    def get_job_parameter(self, key: str, default_value: str | None = None) -> str | None:
        return self.job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        return self.metrics

    def get_task_name(self) -> str:
        return self.task_name

    def get_task_name_with_subtasks(self) -> str:
        return f"{self.task_name} ({self.subtask + 1}/{self.parallelism})"

    def get_number_of_parallel_subtasks(self) -> int:
        return self.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self.subtask

    def get_attempt_number(self) -> int:
        return self.attempt

    def _place(self) -> str:
        return f"operator {self.task_name!r}"

    def keyed_backend(self, descriptor: StateDescriptor) -> HeapKeyedStateBackend:
        """Return the backend for the keyed state of a descriptor.

        Raises:
            NotKeyedStreamError: the stream is not keyed.
        """
        if self.backend is None:
            raise NotKeyedStreamError(
                f"operator {self.task_name!r}: keyed state {descriptor.name!r} "
                f"({descriptor.kind.value}) can only be used on a keyed stream, after key_by()",
                state=descriptor.name,
                operator=self.task_name,
            )
        return self.backend

    def _state_of(self, descriptor: StateDescriptor) -> AnyState:
        return self.keyed_backend(descriptor).get_partitioned_state(descriptor)


def awaits(method: object) -> bool:
    """Return whether a method or function is declared ``async def``, with or without ``yield``."""
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


def open_function(function: object, context: RuntimeContext) -> None:
    """Give ``function`` its runtime context and open it if it is a rich function."""
    if isinstance(function, Function):
        function.set_runtime_context(context)
        function.open(context)


def close_function(function: object) -> None:
    """Close ``function`` if it is a rich function."""
    if isinstance(function, Function):
        function.close()


def close_functions(*functions: object) -> None:
    """Close several functions, in order, each whatever the others raise; raise the first error."""
    close_all(*(partial(close_function, function) for function in functions))
