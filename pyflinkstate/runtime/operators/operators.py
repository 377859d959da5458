"""The operators that stateful subtasks run, their runtime context, and all their state, managed and raw."""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import attrs

from pyflinkstate.api import (
    AggregatingState,
    AggregatingStateDescriptor,
    Function,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    Key,
    KeyedStateStore,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    MetricGroup,
    OperatorStateStore,
    OutputTag,
    RawKeyedStateOutput,
    RawOperatorStateOutput,
    Record,
    ReducingState,
    ReducingStateDescriptor,
    RuntimeContext,
    StateDescriptor,
    TimerService,
    UserFunction,
    ValueState,
    ValueStateDescriptor,
    is_side_output,
)
from pyflinkstate.backends.format import (
    CheckpointStreamFactory,
    KeyGroupsStateHandle,
    StateAssignment,
    StateReader,
)
from pyflinkstate.backends.heap import (
    HeapKeyedStateBackend,
    InternalTimerService,
    SubtaskTime,
    Timer,
    snapshot_runner,
)
from pyflinkstate.backends.operator_state import (
    DefaultOperatorStateBackend,
    OperatorStateRestoreOperation,
    OperatorStateSnapshotStrategy,
)
from pyflinkstate.backends.rocksdb import KeyedRestoreOperation
from pyflinkstate.backends.snapshots import (
    ChangeHistory,
    Changes,
    OperatorSnapshotFutures,
    RawKeyedStateBuffer,
    RawOperatorStateBuffer,
    SnapshotStrategyRunner,
    SnapshotTask,
    read_raw_keyed_state,
    read_raw_operator_state,
)
from pyflinkstate.backends.values import take_isolated
from pyflinkstate.errors import NotKeyedStreamError, StateRegistrationError
from pyflinkstate.runtime.operators.windows.fast_windows import FastWindows
from pyflinkstate.runtime.wire import CheckpointTrigger, OperatorMetrics, SystemClock, TaskTime

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

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


@attrs.frozen
class RawOutputs:
    """The outputs for the raw state of one snapshot."""

    keyed: RawKeyedStateBuffer
    operator: RawOperatorStateBuffer


def _nothing() -> None:
    """Do nothing: raw state is a copy."""


@attrs.define
class StreamOperatorState:
    """The backends of one subtask, and its restored raw state."""

    keyed: HeapKeyedStateBackend
    operator: DefaultOperatorStateBackend
    compression: str | None
    restored_checkpoint_id: int | None = None
    #: The changes between barriers; None if every checkpoint is full.
    history: ChangeHistory | None = None
    raw_keyed: tuple[tuple[int, bytes], ...] = ()
    raw_operator: tuple[bytes, ...] = ()

    def restore(self, assignment: StateAssignment, reader: StateReader) -> None:
        """Load the state that was assigned to the subtask; see the restore operations for errors."""
        KeyedRestoreOperation(self.keyed, reader).restore(assignment.managed_keyed)
        OperatorStateRestoreOperation(self.operator, reader).restore(assignment.managed_operator)
        self.raw_keyed = tuple(read_raw_keyed_state(assignment.raw_keyed, self.keyed.key_group_range, reader))
        self.raw_operator = tuple(read_raw_operator_state(assignment.raw_operator, reader))

    def raw_outputs(self) -> RawOutputs:
        """Return new, empty outputs for one snapshot."""
        return RawOutputs(RawKeyedStateBuffer(self.keyed.key_group_range), RawOperatorStateBuffer())

    def track_changes(self) -> None:
        """Track changes, so that snapshots can be increments from now on."""
        self.history = ChangeHistory(self.keyed)

    def snapshot(
        self,
        outputs: RawOutputs,
        streams: CheckpointStreamFactory,
        keyed_streams: CheckpointStreamFactory | None = None,
        changes: Changes | None = None,
    ) -> OperatorSnapshotFutures:
        """Run the synchronous part of a snapshot.

        Args:
            outputs: the raw state.
            streams: makes the streams for all state.
            keyed_streams: makes the streams for managed keyed state, if they differ.
            changes: the changes of managed keyed state to write; None writes all of it, as a base for
                increments if there are ``keyed_streams``.
        """
        raw_keyed, raw_operator = outputs.keyed.snapshot(), outputs.operator.snapshot()
        operator = SnapshotStrategyRunner(
            OperatorStateSnapshotStrategy(self.operator, self.compression),
            self.operator.snapshots,
            is_async=True,
        )
        # Keyed state comes last: copying operator state may fail, and then nothing must stay frozen.
        managed_operator = operator.snapshot(streams)
        if keyed_streams is not None and changes is None:
            managed_keyed = self.keyed.base_snapshot(keyed_streams, self.compression, is_later=False)
        else:
            runner = snapshot_runner(self.keyed, self.compression, changes)
            managed_keyed = runner.snapshot(keyed_streams or streams)
        return OperatorSnapshotFutures(
            streams,
            managed_keyed,
            SnapshotTask(lambda cancelled: raw_keyed.write(streams, cancelled), _nothing),
            managed_operator,
            SnapshotTask(lambda cancelled: raw_operator.write(streams, cancelled), _nothing),
            keyed_streams,
        )

    def full_snapshot(self, streams: CheckpointStreamFactory) -> SnapshotTask[KeyGroupsStateHandle]:
        """Run the synchronous part of a new base of managed keyed state, beside an increment."""
        return self.keyed.base_snapshot(streams, self.compression, is_later=True)

    def dispose(self) -> None:
        """Cancel the snapshots that are being written."""
        self.keyed.dispose()
        self.operator.dispose()


@attrs.frozen
class InitializationContext(FunctionInitializationContext):
    """See :class:`~pyflinkstate.api.context.FunctionInitializationContext`."""

    _state: StreamOperatorState
    _runtime_context: OperatorContext

    def is_restored(self) -> bool:
        return self._state.restored_checkpoint_id is not None

    def get_restored_checkpoint_id(self) -> int | None:
        return self._state.restored_checkpoint_id

    def get_operator_state_store(self) -> OperatorStateStore:
        return self._state.operator

    def get_keyed_state_store(self) -> KeyedStateStore:
        return self._runtime_context

    def get_raw_keyed_state_inputs(self) -> Iterable[tuple[int, bytes]]:
        return self._state.raw_keyed

    def get_raw_operator_state_inputs(self) -> Iterable[bytes]:
        return self._state.raw_operator


@attrs.frozen
class SnapshotContext(FunctionSnapshotContext):
    """See :class:`~pyflinkstate.api.context.FunctionSnapshotContext`."""

    _checkpoint: CheckpointTrigger
    _outputs: RawOutputs

    def get_checkpoint_id(self) -> int:
        return self._checkpoint.checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        return self._checkpoint.timestamp_ms

    def get_raw_keyed_operator_state_output(self) -> RawKeyedStateOutput:
        return self._outputs.keyed

    def get_raw_operator_state_output(self) -> RawOperatorStateOutput:
        return self._outputs.operator


#: Key, index of the key's map, value, timestamp.
KeyedRecord = tuple[Key, int, Record, int | None]


@attrs.frozen
class OperatorSetup:
    """The context with which an operator is opened.

    Attributes:
        context: the runtime context of the user's function; ``context.backend`` is the keyed backend, or
            None if the records have no keys.
        backend: the keyed backend.
        time: the processing time and the watermark.
        operator_state: the store of state that does not belong to keys.
        new_event_loop: creates the event loop of an async function; None for asyncio's own.
    """

    context: OperatorContext
    backend: HeapKeyedStateBackend
    time: SubtaskTime
    operator_state: DefaultOperatorStateBackend | None = None
    new_event_loop: Callable[[], AbstractEventLoop] | None = None


class Output:
    """Collects an operator's results: columns of values and their timestamps, with side outputs kept apart.

    A result is isolated when it is emitted, because it waits here while the function goes on.
    """

    __slots__ = ("side", "timestamps", "values")

    def __init__(self) -> None:
        self.values: list[Record] = []
        self.timestamps: list[int | None] = []
        #: Values and timestamps, by the ids of tags.
        self.side: dict[str, tuple[list[Record], list[int | None]]] = {}

    def __len__(self) -> int:
        return len(self.values)

    def collect(
        self, results: Iterable[Record] | None, timestamp: int | None, given_by: UserFunction = None
    ) -> None:
        """Add all ``results`` of one call; a pair ``(OutputTag, value)`` goes to its side output.

        Args:
            results: what the call returned.
            timestamp: the timestamp of each result.
            given_by: the function that was called, for messages.

        Raises:
            FunctionResultError: ``results`` is a single record, or cannot be iterated over.
        """
        if results is None:
            return
        begin = len(self.values)
        take_isolated(self.values, results, given_by)
        self.settle(begin, timestamp)

    def settle(self, begin: int, timestamp: int | None = None) -> None:
        """Set the timestamp of the values that have none; move those for side outputs, from ``begin`` on."""
        self.timestamps.extend([timestamp] * (len(self.values) - len(self.timestamps)))
        self.take_out_side(begin)

    def take_out_side(self, begin: int) -> None:
        """Move the values for side outputs there, of those from ``begin`` on; all have their timestamps."""
        if not OutputTag.exists or not any(map(is_side_output, self.values[begin:])):
            return
        values, timestamps = self.values[begin:], self.timestamps[begin:]
        del self.values[begin:], self.timestamps[begin:]
        for value, timestamp in zip(values, timestamps, strict=True):
            if is_side_output(value):
                self.collect_side(value[0], value[1], timestamp)
            else:
                self.values.append(value)
                self.timestamps.append(timestamp)

    def collect_side(self, tag: OutputTag, value: Record, timestamp: int | None) -> None:
        """Add one result to a side output; it is already isolated."""
        values, timestamps = self.side.setdefault(tag.tag_id, ([], []))
        values.append(value)
        timestamps.append(timestamp)


class StatefulOperator(ABC):
    """An operator that runs in a subtask with keyed state; the current key is set before each call.

    Every method except ``close`` may raise whatever the user function raises.
    """

    #: The object that may be a ``CheckpointedFunction`` or a ``CheckpointListener``.
    function: Any = None
    #: Whether records of several keys can be in flight: frames then go to :meth:`process_overlapping`.
    overlaps: bool = False
    #: Takes whole frames whose records have timestamps, and all event-time timers that are due, if there is a
    #: faster way than a call for each.
    fast_way: FastWindows | None = None
    #: The timers, once the operator is open; None if it has none.
    timers: InternalTimerService | None = None
    #: Its records have keys; where they have none, the function is given no keyed state.
    is_keyed: bool = True

    @abstractmethod
    def open(self, setup: OperatorSetup) -> None:
        """Prepare to run; state may have been restored."""

    def close(self) -> None:  # noqa: B027 - optional to override
        """Release resources at the end of the job."""

    def process_element(self, value: Record, timestamp: int | None, output: Output) -> None:
        """Process one record; ``timestamp`` is its event time in ms since 1970, or None if it has none."""
        raise NotImplementedError

    def finish_epoch(self) -> Iterable[Output]:
        """Yield the results that wait for the end of an epoch; no record of it follows. It sets the keys."""
        return ()

    def process_element2(self, value: Record, timestamp: int | None, output: Output) -> None:
        """Process one record of the second input."""
        raise NotImplementedError

    def process_overlapping(self, records: Iterable[KeyedRecord], output: Output) -> None:
        """Process the records of a frame, those of each key in order; the operator sets their keys.

        An error that it raises is ready to be reported.
        """
        raise NotImplementedError

    def on_event_time(self, timer: Timer, output: Output) -> None:
        """Handle an event-time timer that is due; the watermark is at its timestamp or later."""
        raise NotImplementedError

    def on_processing_time(self, timer: Timer, output: Output) -> None:
        """Handle a processing-time timer that is due."""
        raise NotImplementedError

    def take_event_time(self, watermark: int) -> Timer | None:
        """Remove and return the first event-time timer that is due at ``watermark``."""
        return None if self.timers is None else self.timers.event.poll(watermark)

    def take_processing_time(self, now_ms: int) -> Timer | None:
        """Remove and return the first processing-time timer that is due at ``now_ms``."""
        return None if self.timers is None else self.timers.processing.poll(now_ms)

    def next_processing_time_ms(self) -> int | None:
        """Return when the next processing-time timer is due, or None if there is none."""
        return None if self.timers is None else self.timers.next_processing_time_ms()
