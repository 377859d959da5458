"""One subtask of a keyed operator: it passes frames to a function and its state backend.

It does not deal with processes and sockets: a state slot drives it, and so can a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import attrs
import numpy as np

from pyflinkstate.api import (
    CheckpointedFunction,
    CheckpointListener,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    Function,
    Key,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    TimeDomain,
    UserFunction,
)
from pyflinkstate.backends.format import CheckpointStreamFactory, KeyGroupsStateHandle
from pyflinkstate.backends.heap import RecordLoop, SubtaskTime, Timer
from pyflinkstate.backends.snapshots import OperatorSnapshotFutures, SnapshotTask
from pyflinkstate.errors import KeyGroupRangeError, PyFlinkStateError
from pyflinkstate.runtime.operators.function_operators import FunctionOperator, Process, TwoInputOperator
from pyflinkstate.runtime.operators.operators import (
    InitializationContext,
    KeyedRecord,
    OperatorContext,
    OperatorSetup,
    Output,
    SnapshotContext,
    StatefulOperator,
    StreamOperatorState,
    awaits,
)
from pyflinkstate.runtime.operators.windows.fast_windows import FastWindows
from pyflinkstate.runtime.wire import (
    NO_WATERMARK,
    CheckpointTrigger,
    InputFrame,
    MetricValues,
    NoRecord,
    failures_of,
    user_failure,
)

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


@attrs.frozen
class SubtaskSnapshot:
    """The snapshots that are still to be written for one barrier.

    Attributes:
        futures: the parts of the checkpoint.
        base_id: the checkpoint that managed keyed state extends, if it is an increment.
        full: a full snapshot of managed keyed state to write in the background, if one is due.
    """

    futures: OperatorSnapshotFutures
    base_id: int | None = None
    full: SnapshotTask[KeyGroupsStateHandle] | None = None

    def cancel(self) -> None:
        """Cancel all writing."""
        self.futures.cancel()
        if self.full is not None:
            self.full.cancel()


class KeyedSubtask:
    """Runs an operator over keyed frames.

    Args:
        function: the user function or an operator; it is already a private copy.
        context: its runtime context, which has the keyed backend.
        state: its backends, already restored if there was state to restore.
        watermark: the watermark at the time of the restored checkpoint.
        new_event_loop: creates the event loop of an async function; None for asyncio's own.
    """

    def __init__(
        self,
        function: UserFunction,
        context: OperatorContext,
        state: StreamOperatorState,
        watermark: int = NO_WATERMARK,
        new_event_loop: Callable[[], AbstractEventLoop] | None = None,
    ) -> None:
        self.state = state
        self.backend = state.keyed
        self._loop = RecordLoop(state.keyed.key_context)
        self._name = context.task_name
        self._operator = operator_of(function)
        self._function = self._operator.function
        self._runtime_context = context if self._operator.is_keyed else attrs.evolve(context, backend=None)
        self._time = SubtaskTime(state.keyed.clock, watermark)
        self._new_event_loop = new_event_loop

    @property
    def watermark(self) -> int:
        """The watermark."""
        return int(self._time.watermark)

    def open(self) -> None:
        """Initialize the function's state and open it. An error that it raises is ready to be reported."""
        if isinstance(self._function, Function):
            self._function.set_runtime_context(self._runtime_context)
        if isinstance(self._function, CheckpointedFunction):
            with failures_of(self._name, "in initialize_state()"):
                self._function.initialize_state(InitializationContext(self.state, self._runtime_context))
        self.state.raw_keyed = self.state.raw_operator = ()  # the function can no longer read it
        setup = OperatorSetup(
            self._runtime_context, self.backend, self._time, self.state.operator, self._new_event_loop
        )
        with failures_of(self._name, "in open()"):
            self._operator.open(setup)

    def close(self) -> None:
        """Close the function. An error that it raises is ready to be reported."""
        self.backend.clear_current_key()
        try:
            with failures_of(self._name, "in close()"):
                self._operator.close()
        finally:
            self.state.dispose()

    def metrics(self) -> MetricValues:
        """Return the present values of the function's metrics.

        An error that it raises is ready to be reported.
        """
        with failures_of(self._name, "in a gauge"):  # it calls a user function
            return self._runtime_context.metrics.values()

    def process_frame(self, frame: InputFrame, output: Output) -> None:
        """Process the records in order; results go to ``output``.

        Raises:
            UserFunctionError: the function raised; the subtask cannot be used any more.
        """
        operator = self._operator
        if frame.keys and operator.overlaps and not frame.input:  # initial state is never awaited
            operator.process_overlapping(self._records(frame), output)
        elif (
            isinstance(operator, FunctionOperator)
            and (process := operator.process_of(frame.input)) is not None
        ):
            self._process_in_loop(process, operator.context, frame, output)
        elif frame.keys and operator.fast_way is not None and frame.timestamps is not None:
            self._process_in_windows(operator.fast_way, frame, frame.timestamps, output)
        else:
            self._process_one_by_one(frame, output)
        self._end_frame()

    def _process_in_loop(self, process: Process, context: Any, frame: InputFrame, output: Output) -> None:
        """Process records of the most frequent kinds in as few steps as possible."""
        keys, indexes = self._keys_of(frame)
        columns = indexes, keys, frame.values
        results, timestamps, begin = output.values, output.timestamps, len(output.values)
        try:
            if frame.timestamps is None:
                context.current_timestamp = None
                self._loop.run(columns, process, context, results)
            else:
                self._loop.run_timed((*columns, frame.timestamps), process, context, results, timestamps)
        except BaseException as error:  # including sys.exit(), which must not end the slot silently
            value, key = self._loop.under_way(frame.values, keys)
            raise user_failure(error, self._name, value, key) from error
        output.settle(begin)

    def _process_in_windows(
        self, windows: FastWindows, frame: InputFrame, timestamps: Sequence[int | None], output: Output
    ) -> None:
        try:
            windows.run((self._map_indexes(frame), frame.keys, frame.values, timestamps), output)
        except BaseException as error:
            value, key = windows.under_way(frame.values, frame.keys)
            raise user_failure(error, self._name, value, key) from error

    def _process_one_by_one(self, frame: InputFrame, output: Output) -> None:
        process = self._operator.process_element2 if frame.input else self._operator.process_element
        select = self.backend.key_context.select if frame.keys else _no_key
        records, key, value = self._records(frame), None, None
        try:
            for key, index, value, timestamp in records:
                select(key, index)
                process(value, timestamp, output)
        except BaseException as error:
            raise user_failure(error, self._name, value, key) from error

    def _records(self, frame: InputFrame) -> Iterator[KeyedRecord]:
        timestamps = [None] * len(frame.values) if frame.timestamps is None else frame.timestamps
        return zip(*self._keys_of(frame), frame.values, timestamps, strict=True)

    def _keys_of(self, frame: InputFrame) -> tuple[Sequence[Key], list[int]]:
        """Return the keys of records and the indexes of their maps: None and -1 for an input without keys."""
        if not frame.keys:
            return [None] * len(frame.values), [-1] * len(frame.values)
        return frame.keys, self._map_indexes(frame)

    def finish_epoch(self) -> Iterator[Output]:
        """Yield the results that wait for the end of an epoch; errors are as for frames."""
        try:
            yield from self._operator.finish_epoch()
        except GeneratorExit:
            raise
        except BaseException as error:
            raise user_failure(
                error, self._name, NoRecord("at the end of an epoch"), self.backend.key_context.key
            ) from error
        self._end_frame()

    def _end_frame(self) -> None:
        """Let the backend drop state from memory: no function holds any of it now."""
        self.backend.clear_current_key()
        with failures_of(self._name, "while writing state to disk"):
            self.backend.make_room()

    def fire_timers(self, output: Output) -> None:
        """Fire the processing-time timers that are due.

        Raises:
            UserFunctionError: the function raised; the subtask cannot be used any more.
        """
        self._fire(TimeDomain.PROCESSING_TIME, self.backend.clock(), output)

    def advance_watermark(self, watermark: int, output: Output) -> None:
        """Advance the watermark and fire the event-time timers that are due; errors are as for frames."""
        self._time.watermark = watermark
        self._fire(TimeDomain.EVENT_TIME, watermark, output)

    def _fire(self, domain: TimeDomain, until_ms: int, output: Output) -> None:
        operator = self._operator
        if isinstance(operator, FunctionOperator) and not operator.fires_one_by_one:
            self._fire_in_loop(operator, domain, until_ms, output)
        elif operator.fast_way is not None and domain is TimeDomain.EVENT_TIME:
            self._fire_windows(operator.fast_way, until_ms, output)
        elif domain is TimeDomain.EVENT_TIME:
            self._fire_one_by_one(operator.take_event_time, until_ms, operator.on_event_time, output)
        else:
            self._fire_one_by_one(
                operator.take_processing_time, until_ms, operator.on_processing_time, output
            )
        self._end_frame()

    def _fire_in_loop(
        self, operator: FunctionOperator, domain: TimeDomain, until_ms: int, output: Output
    ) -> None:
        by_event_time = domain is TimeDomain.EVENT_TIME
        queue = (operator.timers.event if by_event_time else operator.timers.processing).queue
        if queue is None:
            return
        on_timer, context, begin = operator.on_timer, operator.context, len(output.values)
        context.domain = domain
        results, timestamps = output.values, output.timestamps
        try:
            self._loop.fire(queue, until_ms, on_timer, context, results, timestamps, by_event_time)
        except BaseException as error:
            raise self._timer_failure(error, queue.timestamp_ms, queue.key) from error
        output.take_out_side(begin)

    def _fire_windows(self, windows: FastWindows, until_ms: int, output: Output) -> None:
        queue = windows.event_timers.queue
        if queue is None:
            return
        try:
            windows.fire_until(queue, until_ms, output)
        except BaseException as error:
            raise self._timer_failure(error, queue.timestamp_ms, queue.key) from error

    def _fire_one_by_one(
        self,
        take: Callable[[int], Timer | None],
        until_ms: int,
        fire: Callable[[Timer, Output], None],
        output: Output,
    ) -> None:
        timer = None
        try:
            while (timer := take(until_ms)) is not None:
                self._select(timer)
                fire(timer, output)
        except BaseException as error:
            at_ms, key = (None, None) if timer is None else (timer.timestamp_ms, timer.key)
            raise self._timer_failure(error, at_ms, key) from error

    def _select(self, timer: Timer) -> None:
        if timer.map_index < 0:  # it is not from a queue
            self.backend.set_current_key(timer.key)
        else:
            self.backend.key_context.select(timer.key, timer.map_index)

    def _timer_failure(self, error: BaseException, at_ms: int | None, key: Key) -> PyFlinkStateError:
        at = "" if at_ms is None else f" at {at_ms}"
        return user_failure(error, self._name, NoRecord(f"in on_timer(){at}"), key)

    def next_timer_ms(self) -> int | None:
        """Return when the next processing-time timer is due, or None if there is none."""
        return self._operator.next_processing_time_ms()

    def pending_timers(self) -> int:
        """Return how many timers are pending."""
        return sum(map(len, self.backend.registered_queues.values()))

    def snapshot(
        self,
        checkpoint: CheckpointTrigger,
        streams: CheckpointStreamFactory,
        shared: CheckpointStreamFactory | None = None,
    ) -> SubtaskSnapshot:
        """Run the synchronous part of a snapshot, between two frames.

        With ``shared``, managed keyed state goes there: its changes or all of it, as ``checkpoint`` says.
        """
        outputs = self.state.raw_outputs()
        if isinstance(self._function, CheckpointedFunction):
            with failures_of(self._name, "in snapshot_state()"):
                self._function.snapshot_state(SnapshotContext(checkpoint, outputs))
        history = self.state.history
        if shared is None or history is None:
            return SubtaskSnapshot(self.state.snapshot(outputs, streams))
        changes = history.cut(checkpoint.checkpoint_id, checkpoint.base_id)
        futures = self.state.snapshot(outputs, streams, shared, changes)
        if changes is None:
            return SubtaskSnapshot(futures)
        return SubtaskSnapshot(
            futures, checkpoint.base_id, self.state.full_snapshot(shared) if checkpoint.materialize else None
        )

    def checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the function if it is a ``CheckpointListener``."""
        self._notify("notify_checkpoint_complete", checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Notify the function if it is a ``CheckpointListener``."""
        self._notify("notify_checkpoint_aborted", checkpoint_id)

    def _notify(self, method: str, checkpoint_id: int) -> None:
        if isinstance(self._function, CheckpointListener):
            with failures_of(self._name, f"in {method}({checkpoint_id})"):
                getattr(self._function, method)(checkpoint_id)

    def _map_indexes(self, frame: InputFrame) -> list[int]:
        owned = self.backend.key_group_range
        groups = np.frombuffer(frame.key_groups, dtype="<u2").astype(np.int64)
        if len(groups) and not (int(groups.min()) in owned and int(groups.max()) in owned):
            raise KeyGroupRangeError(
                f"operator {self._name!r}: a frame contains key groups {groups.min()} to {groups.max()}, "
                f"and this subtask owns {owned}"
            )
        indexes = cast(list[int], (groups - owned.start).tolist())
        self.backend.before_frame(indexes, frame.keys)
        return indexes


def _no_key(key: Key, map_index: int) -> None:
    """Leave the key unset, and do not call its listeners."""


def operator_of(function: UserFunction) -> StatefulOperator:
    """Return the operator that runs ``function``, or ``function`` itself if it is an operator.

    It is chosen once, when a subtask is made.
    """
    if isinstance(function, StatefulOperator):
        return function
    if isinstance(function, (KeyedCoProcessFunction, CoProcessFunction, CoMapFunction, CoFlatMapFunction)):
        return TwoInputOperator(function)
    methods = (getattr(function, name, None) for name in ("process_element", "on_timer"))
    if isinstance(function, KeyedProcessFunction) and any(map(awaits, methods)):
        # Only async functions pay for the import of asyncio.
        from pyflinkstate.runtime.operators.async_operator import AsyncFunctionOperator

        return AsyncFunctionOperator(function)
    return FunctionOperator(function)
