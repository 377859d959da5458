"""The runtime context of functions, on keyed and other streams, and how functions are opened and closed."""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import attrs

from pyflinkstate.api import (
    AggregatingState,
    AggregatingStateDescriptor,
    Function,
    KeyedStateStore,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    MetricGroup,
    ReducingState,
    ReducingStateDescriptor,
    RuntimeContext,
    StateDescriptor,
    TimerService,
    ValueState,
    ValueStateDescriptor,
)
from pyflinkstate.backends.heap import HeapKeyedStateBackend, SubtaskTime
from pyflinkstate.errors import NotKeyedStreamError, StateRegistrationError
from pyflinkstate.runtime.wire import OperatorMetrics, SystemClock, TaskTime

_log = logging.getLogger("pyflinkstate.tasks")

#: Closes something.
Close = Callable[[], None]


class CheckedStateStore(KeyedStateStore, ABC):
    """Checks that a descriptor has the right kind for the method that it is passed to."""

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState:
        return cast(ValueState, self._state(state_descriptor, ValueStateDescriptor))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        return cast(ListState, self._state(state_descriptor, ListStateDescriptor))

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState:
        return cast(MapState, self._state(state_descriptor, MapStateDescriptor))

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState:
        return cast(ReducingState, self._state(state_descriptor, ReducingStateDescriptor))

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState:
        return cast(AggregatingState, self._state(state_descriptor, AggregatingStateDescriptor))

    def _state(self, descriptor: StateDescriptor, expected: type[StateDescriptor]) -> object:
        if not isinstance(descriptor, expected):
            raise StateRegistrationError(
                f"{self._place()}: a {expected.__name__} is needed here, not {descriptor!r}"
            )
        return self._state_of(descriptor)

    @abstractmethod
    def _place(self) -> str:
        """Return the beginning of an error message, which says where it happened."""

    @abstractmethod
    def _state_of(self, descriptor: StateDescriptor) -> object:
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

    def _state_of(self, descriptor: StateDescriptor) -> object:
        return self.keyed_backend(descriptor).get_partitioned_state(descriptor)


@attrs.frozen(eq=False)
class KeylessTimerService(TimerService):
    """The timer service of a stream without keys: it has the time and no timers, as in Flink.

    Args:
        time: has the watermark.
        now_ms: returns the processing time in ms since 1970.
    """

    _time: TaskTime | SubtaskTime
    _now_ms: Callable[[], int]

    def current_processing_time(self) -> int:
        return self._now_ms()

    def current_watermark(self) -> int:
        return int(self._time.watermark)

    def _refuse(self, timestamp: int) -> None:
        raise NotKeyedStreamError("timers belong to keys: they can only be set and deleted after key_by()")

    register_processing_time_timer = _refuse
    register_event_time_timer = _refuse
    delete_processing_time_timer = _refuse
    delete_event_time_timer = _refuse


def awaits(method: object) -> bool:
    """Return whether a method or function is declared ``async def``, with or without ``yield``."""
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


def open_function(function: object, context: RuntimeContext) -> None:
    """Give ``function`` its runtime context and open it if it is a rich function."""
    if isinstance(function, Function):
        function.set_runtime_context(context)
        function.open(context)


def close_functions(*functions: object) -> None:
    """Close those that are rich functions, in order, whatever others raise; raise the first error."""
    close_all(*(function.close for function in functions if isinstance(function, Function)))


@contextmanager
def closed_at_end(close: Close) -> Iterator[None]:
    """Close at the end of the block; an error of the block is not replaced by one of ``close``."""
    try:
        yield
    except BaseException:
        close_after_error(close)
        raise
    close()


def close_after_error(close: Close) -> None:
    """Close because there was an error, which says more than what ``close`` raises: that is only logged."""
    try:
        close()
    except BaseException as error:  # noqa: BLE001 - also sys.exit() in a user's close()
        _log_later(error)


def close_all(*closes: Close) -> None:
    """Call each, in order, and raise the first error; later ones are logged."""
    errors: list[BaseException] = []
    for close in closes:
        try:
            close()
        except BaseException as error:  # noqa: BLE001 - see above
            errors.append(error)
    for later in errors[1:]:
        _log_later(later)
    if errors:
        raise errors[0]


def _log_later(error: BaseException) -> None:
    _log.warning("close() failed after another error: %s: %s", type(error).__name__, error)
