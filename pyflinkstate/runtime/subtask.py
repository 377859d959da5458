"""One subtask of a keyed operator: a function, its state backend, and the way of a frame through them.

It knows nothing of processes and sockets; a state slot drives it, and a test can as well.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from pyflinkstate.api.checkpointed import CheckpointedFunction, CheckpointListener
from pyflinkstate.api.functions import KeyedProcessFunction
from pyflinkstate.api.timers import TimeDomain, TimerService
from pyflinkstate.backends.heap.backend import HeapKeyedStateBackend
from pyflinkstate.backends.operator_snapshot import OperatorSnapshotFutures
from pyflinkstate.backends.snapshot_strategy import SnapshotTask
from pyflinkstate.backends.state_handles import KeyGroupsStateHandle
from pyflinkstate.backends.streams import CheckpointStreamFactory
from pyflinkstate.errors import KeyGroupRangeError
from pyflinkstate.runtime.context import OperatorContext, close_function, open_function
from pyflinkstate.runtime.failures import user_failure
from pyflinkstate.runtime.frames import KeyedFrame
from pyflinkstate.runtime.messages import CheckpointTrigger
from pyflinkstate.runtime.metrics import MetricValues
from pyflinkstate.runtime.operator_state import InitializationContext, SnapshotContext, StreamOperatorState
from pyflinkstate.runtime.timers import ProcessingTimeService


class _Context(KeyedProcessFunction.OnTimerContext):
    """What ``process_element`` and ``on_timer`` are given; one object for all calls."""

    def __init__(self, backend: HeapKeyedStateBackend, timers: ProcessingTimeService) -> None:
        self._key_context = backend.key_context
        self._timers = timers

    def get_current_key(self) -> Any:
        return self._key_context.key

    def timestamp(self) -> int | None:
        return None

    def timer_service(self) -> TimerService:
        return self._timers

    def time_domain(self) -> TimeDomain:
        return TimeDomain.PROCESSING_TIME


@attrs.frozen
class SubtaskSnapshot:
    """What is still to be written at one barrier.

    Attributes:
        futures: of the checkpoint.
        base_id: the checkpoint that managed keyed state is written on top of, if it is just what changed.
        full: all of the managed keyed state, to be written in the background, if it is time for that.
    """

    futures: OperatorSnapshotFutures
    base_id: int | None = None
    full: SnapshotTask[KeyGroupsStateHandle] | None = None

    def cancel(self) -> None:
        """Write nothing more."""
        self.futures.cancel()
        if self.full is not None:
            self.full.cancel()


class KeyedSubtask:
    """Runs ``function`` over keyed frames.

    Args:
        function: the user's, already a private copy.
        context: its runtime context, with the keyed backend in it.
        state: its backends, restored if there was something to restore.
    """

    def __init__(
        self, function: KeyedProcessFunction, context: OperatorContext, state: StreamOperatorState
    ) -> None:
        self.state = state
        self.backend = state.keyed
        self._name = context.task_name
        self._function = function
        self._runtime_context = context
        self._timers = ProcessingTimeService(state.keyed, state.keyed.clock)
        self._context = _Context(state.keyed, self._timers)

    def open(self) -> None:
        """Initialize the function's state and open it. Raises what is right to report."""
        if isinstance(self._function, CheckpointedFunction):
            try:
                self._function.initialize_state(InitializationContext(self.state, self._runtime_context))
            except BaseException as error:
                raise user_failure(error, self._name, "none: in initialize_state()") from error
        self.state.forget_raw_state()
        try:
            open_function(self._function, self._runtime_context)
        except BaseException as error:
            raise user_failure(error, self._name, "none: in open()") from error

    def close(self) -> None:
        """Close the function. Raises what is right to report."""
        self.backend.clear_current_key()
        try:
            close_function(self._function)
        except BaseException as error:
            raise user_failure(error, self._name, "none: in close()") from error
        finally:
            self.state.dispose()

    def metrics(self) -> MetricValues:
        """Return what the function's metrics stand at. Raises what is right to report."""
        try:
            return self._runtime_context.metrics.values()
        except BaseException as error:  # a gauge's function is the user's
            raise user_failure(error, self._name, "none: in a gauge") from error

    def process_frame(self, frame: KeyedFrame) -> list[Any]:
        """Process the records in order and return all results.

        Raises:
            UserFunctionError: the function raised; the subtask is of no use any more.
        """
        indexes = self._map_indexes(frame)
        results: list[Any] = []
        extend = results.extend
        select, context = self.backend.key_context.select, self._context
        process_element = self._function.process_element
        key = value = None
        try:
            for index, key, value in zip(indexes, frame.keys, frame.values, strict=True):
                select(key, index)
                produced = process_element(value, context)
                if produced is not None:
                    extend(produced)
        except BaseException as error:  # also sys.exit(), which must not end the slot without a word
            raise user_failure(error, self._name, value, key) from error
        self.backend.clear_current_key()
        return results

    def fire_timers(self) -> list[Any]:
        """Call ``on_timer`` for each timer that is due, and return the results.

        Raises:
            UserFunctionError: the function raised; the subtask is of no use any more.
        """
        now_ms = self.backend.clock()
        results: list[Any] = []
        timer = None
        try:
            while (timer := self._timers.take_due(now_ms)) is not None:
                self.backend.set_current_key(timer.key)
                produced = self._function.on_timer(timer.timestamp_ms, self._context)
                if produced is not None:
                    results.extend(produced)
        except BaseException as error:
            key = None if timer is None else timer.key
            at = "" if timer is None else f" at {timer.timestamp_ms}"
            raise user_failure(error, self._name, f"none: in on_timer(){at}", key) from error
        self.backend.clear_current_key()
        return results

    def next_timer_ms(self) -> int | None:
        """Return when the next timer is due; None without timers."""
        return self._timers.next_ms()

    def snapshot(
        self,
        checkpoint: CheckpointTrigger,
        streams: CheckpointStreamFactory,
        shared: CheckpointStreamFactory | None = None,
    ) -> SubtaskSnapshot:
        """The synchronous part of a snapshot, to be taken between frames.

        With ``shared``, what changed of managed keyed state goes there, or all of it, as ``checkpoint`` says.
        """
        outputs = self.state.raw_outputs()
        if isinstance(self._function, CheckpointedFunction):
            try:
                self._function.snapshot_state(SnapshotContext(checkpoint, outputs))
            except BaseException as error:
                raise user_failure(error, self._name, "none: in snapshot_state()") from error
        history = self.state.history
        if shared is None or history is None:
            return SubtaskSnapshot(self.state.snapshot(outputs, streams))
        changes = history.cut(checkpoint.checkpoint_id, checkpoint.base_id)
        futures = self.state.snapshot(outputs, streams, shared, changes)
        if changes is None:
            return SubtaskSnapshot(futures)
        full = self.state.full_snapshot(shared) if checkpoint.materialize else None
        return SubtaskSnapshot(futures, checkpoint.base_id, full)

    def checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tell the function, if it wants to hear of it."""
        self._notify("notify_checkpoint_complete", checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Tell the function, if it wants to hear of it."""
        self._notify("notify_checkpoint_aborted", checkpoint_id)

    def _notify(self, method: str, checkpoint_id: int) -> None:
        if not isinstance(self._function, CheckpointListener):
            return
        try:
            getattr(self._function, method)(checkpoint_id)
        except BaseException as error:
            raise user_failure(error, self._name, f"none: in {method}({checkpoint_id})") from error

    def _map_indexes(self, frame: KeyedFrame) -> list[int]:
        owned = self.backend.key_group_range
        groups = np.frombuffer(frame.key_groups, dtype="<u2").astype(np.int64)
        if len(groups) and not (int(groups.min()) in owned and int(groups.max()) in owned):
            raise KeyGroupRangeError(
                f"operator {self._name!r}: a frame holds key groups {groups.min()} to {groups.max()}, "
                f"and this subtask owns {owned}"
            )
        indexes: list[int] = (groups - owned.start).tolist()
        return indexes
