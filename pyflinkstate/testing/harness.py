"""One subtask of a stateful operator, without Spark: the real operator, backend and subtask.

Storage and time are stood in for: what is written lies in memory, and the clock is moved by hand.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from types import TracebackType
from typing import Any, TypeVar

import attrs

from pyflinkstate.api import (
    OutputTag,
    OutputType,
    PickledBytesTypeInfo,
    Record,
    Setting,
    T,
    TypeInformation,
    UserFunction,
    declared_type,
)
from pyflinkstate.backends.format import MemoryCheckpoint, OperatorSubtaskState, StateAssignment
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.heap import TIMER_STATE_PREFIX
from pyflinkstate.backends.keys import check_parallelism, key_group_range
from pyflinkstate.backends.operator_state import assign_state
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, KeyGroupRangeError
from pyflinkstate.runtime.operators import (
    KeyedSubtask,
    OperatorContext,
    Output,
    StatefulOperator,
    StreamOperatorState,
    close_after_error,
    close_all,
)
from pyflinkstate.runtime.plan import Input, OutputCheck
from pyflinkstate.runtime.program import EnvironmentSettings
from pyflinkstate.runtime.tasks import Router, TaskInfo, opened_selector
from pyflinkstate.runtime.wire import (
    NO_WATERMARK,
    ChannelEvent,
    CheckpointTrigger,
    FrameTime,
    InputFrame,
    MetricValues,
    OperatorMetrics,
    WatermarkMerger,
    user_failure,
)


@attrs.define
class ManualClock:
    """The processing time of a harness; several harnesses may share one clock.

    Call it to get the time. Setting ``now_ms`` fires no timers; ``set_processing_time()`` of a harness does
    both.

    Attributes:
        now_ms: the time, in milliseconds since 1970.
    """

    now_ms: int = 0

    def __call__(self) -> int:
        return self.now_ms


@attrs.frozen
class StreamRecord:
    """A result (Flink: ``StreamRecord``).

    Attributes:
        value: the result itself.
        timestamp: its event time in ms since 1970, or None.
    """

    value: Any
    timestamp: int | None = None


@attrs.frozen
class Watermark:
    """A watermark that the operator has passed on (Flink: ``Watermark``).

    Attributes:
        timestamp: no more records up to this time will come, in ms since 1970.
    """

    timestamp: int


def checked_output(name: str, output_type: OutputType | None) -> Callable[[Record], Record]:
    """Return what checks the results of operator ``name``, and converts them to the form of their type.

    It raises ``BadRecordError`` for a result that does not fit.
    """
    declared = declared_type("output_type", output_type)
    if declared is None or isinstance(declared, PickledBytesTypeInfo):
        return lambda value: value
    check = OutputCheck(name, declared)

    def checked(value: Record) -> Record:
        try:
            return check(value)
        except Exception as error:
            raise user_failure(error, name, value) from error

    return checked


class JumpingEventLoop(asyncio.SelectorEventLoop):
    """If all tasks wait for time only, it jumps to the next delay or timeout; else it passes as usual.

    The time starts at 0 s. It is independent of the clock of the harness, which is the processing time.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the number of seconds that have passed."""
        return self._jumping.passed_s

    def run_in_executor(  # type: ignore[override]  # it takes the same, in other words
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run ``func`` in a thread; the time does not jump until it has ended."""
        self._jumping.in_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._jumping.left_thread)
        return future


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for files and measures time."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0
        self.in_threads = 0

    def left_thread(self, _: object) -> None:
        self.in_threads -= 1

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        # The loop always registers one file of its own, which other threads use to wake it.
        if len(self.get_map()) > 1 or self.in_threads:
            began_s = time.monotonic()
            events = super().select(timeout)
            self.passed_s += time.monotonic() - began_s
            return events
        events = super().select(0)
        if not events:
            self.passed_s += timeout
        return events


H = TypeVar("H", bound="Harness")
#: The values and the timestamps of a side output.
_Columns = tuple[list[Record], list[int | None]]


class Harness(ABC):
    """The base of all harnesses: has the operator's output, and is closed at the end of a ``with`` block.

    Args:
        name: the name of the operator.
        output_type: the type against which results are checked; None for no check.
        clock: the processing time; None for a clock of its own, at 0 ms.
        job_parameters: what ``get_job_parameter`` returns, by name: the global parameters of the job.
    """

    def __init__(
        self,
        name: str,
        output_type: OutputType | None,
        clock: ManualClock | None,
        job_parameters: Mapping[str, Setting] | None,
    ) -> None:
        self.clock = ManualClock() if clock is None else clock
        self._checked = checked_output(name, output_type)
        self._main: list[StreamRecord | Watermark] = []
        self._side: dict[str, list[StreamRecord]] = {}
        settings = EnvironmentSettings(lambda: 1)
        settings.put(job_parameters=job_parameters or {})
        self._job_parameters = settings.job_parameters

    @abstractmethod
    def close(self) -> None:
        """Close the functions."""

    def __enter__(self: H) -> H:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            close_after_error(self.close)

    def get_processing_time(self) -> int:
        """Return the time of the clock, in ms since 1970."""
        return self.clock.now_ms

    def _collect(
        self, values: Iterable[Record], timestamps: Iterable[int | None], side: Mapping[str, _Columns]
    ) -> list[Record]:
        """Add results and side outputs to the output; return the values of the results."""
        checked = [self._checked(value) for value in values]
        self._main.extend(map(StreamRecord, checked, timestamps))
        for tag_id, columns in side.items():
            self._side.setdefault(tag_id, []).extend(map(StreamRecord, *columns))
        return checked

    def get_output(self) -> list[StreamRecord | Watermark]:
        """Return all results and watermarks of the main output so far, in order."""
        return list(self._main)

    def extract_output_values(self) -> list[Any]:
        """Return the values of all results of the main output so far."""
        return [item.value for item in self._main if isinstance(item, StreamRecord)]

    def get_side_output(self, output_tag: OutputTag) -> list[StreamRecord]:
        """Return all results of a side output so far, or none if the tag was never used.

        Raises:
            BadRecordError: a result does not fit the tag's type.
        """
        checked = checked_output(f"side output {output_tag.tag_id}", output_tag.type_info)
        return [
            attrs.evolve(record, value=checked(record.value))
            for record in self._side.get(output_tag.tag_id, ())
        ]

    def extract_side_output_values(self, output_tag: OutputTag) -> list[Any]:
        """Return the values of all results of a side output so far."""
        return [record.value for record in self.get_side_output(output_tag)]


#: The default number of key groups.
DEFAULT_MAX_PARALLELISM = 128


@attrs.frozen
class OperatorSnapshot:
    """The snapshot of one subtask, kept in memory.

    Attributes:
        state: the handles of its state.
        checkpoint_id: the checkpoint that it was written for.
        watermark: the watermark at the snapshot.
        max_parallelism: the number of key groups.
    """

    state: OperatorSubtaskState
    checkpoint_id: int
    watermark: int
    max_parallelism: int


@attrs.frozen
class SnapshotPart:
    """The part that one subtask restores; :func:`split` makes it."""

    assignment: StateAssignment
    subtask: int
    parallelism: int
    max_parallelism: int
    checkpoint_id: int | None
    watermark: int


def split(snapshots: OperatorSnapshot | Sequence[OperatorSnapshot], parallelism: int) -> list[SnapshotPart]:
    """Distribute the snapshots of subtasks, as a job does that is restored at another parallelism.

    Keyed state is assigned by key group. Lists of operator state are distributed evenly; union lists and
    broadcast state go to all subtasks. Event time continues from the least watermark.

    Args:
        snapshots: the snapshots of all subtasks of the operator, in order.
        parallelism: the new number of subtasks.

    Returns:
        a part for each new subtask, to be passed to a harness as ``restore``.

    Raises:
        ConfigurationError: there is no snapshot.
        ParallelismError: the parallelism is less than 1, or more than the max parallelism.
        IncompatibleCheckpointError: the snapshots differ in max parallelism.
    """
    written = [snapshots] if isinstance(snapshots, OperatorSnapshot) else list(snapshots)
    if not written:
        raise ConfigurationError("there is nothing to restore: pass the snapshots of all subtasks")
    max_parallelism = written[0].max_parallelism
    if {snapshot.max_parallelism for snapshot in written} != {max_parallelism}:
        raise IncompatibleCheckpointError(
            "the snapshots differ in max parallelism, so they do not belong to one operator"
        )
    check_parallelism(parallelism, max_parallelism)
    states = [snapshot.state for snapshot in written]
    checkpoint_id = max(snapshot.checkpoint_id for snapshot in written)
    watermark = min(snapshot.watermark for snapshot in written)
    return [
        SnapshotPart(assignment, subtask, parallelism, max_parallelism, checkpoint_id, watermark)
        for subtask, assignment in enumerate(assign_state(states, parallelism, max_parallelism))
    ]


def part_to_restore(
    restore: SnapshotPart | Sequence[OperatorSnapshot],
    parallelism: int,
    subtask: int,
    max_parallelism: int | None,
) -> SnapshotPart:
    """Return the part that a harness restores, which may be empty; errors are those of :func:`split`."""
    if isinstance(restore, SnapshotPart):
        part = restore
    elif restore:
        part = split(restore, parallelism)[_checked(subtask, parallelism)]
    else:
        max_parallelism = DEFAULT_MAX_PARALLELISM if max_parallelism is None else max_parallelism
        check_parallelism(parallelism, max_parallelism)
        subtask = _checked(subtask, parallelism)
        part = SnapshotPart(StateAssignment(), subtask, parallelism, max_parallelism, None, NO_WATERMARK)
    if max_parallelism not in (None, part.max_parallelism):
        raise IncompatibleCheckpointError(
            f"the snapshot has max parallelism {part.max_parallelism}, which cannot become {max_parallelism}"
        )
    return part


def _checked(subtask: int, parallelism: int) -> int:
    if not 0 <= subtask < parallelism:
        raise ConfigurationError(
            f"there is no subtask {subtask} among {parallelism} subtasks, which count from 0"
        )
    return subtask


class OperatorHarness(Harness):
    """One subtask, open and ready for records; its subclasses are for the different kinds of operators.

    Args:
        function: a user function, or an operator such as a window operator. It is used as it is, not copied.
        inputs: the inputs, with the key selectors of their records.
        name: the name of the operator in messages. Default: that of the function's class.
        output_type: the type against which results are checked. Default: no check.
        state_backend: keeps the state.
        clock: the processing time, also for time to live. Default: its own clock, at 0 ms.
        parallelism: the number of subtasks that the operator would have.
        subtask: the index of this one, from 0.
        max_parallelism: the number of key groups. Default: that of the restored snapshot, or 128.
        restore: the snapshots of an earlier operator's subtasks, in order; or a part from :func:`split`,
            which also determines parallelism and subtask.
        job_parameters: what ``get_job_parameter`` returns, by name: the global parameters of the job.

    Raises:
        ParallelismError: the parallelism is greater than the max parallelism, or one is out of bounds.
        UserFunctionError: the function raised while it was opened.
    """

    def __init__(
        self,
        function: UserFunction,
        inputs: tuple[Input, ...],
        *,
        name: str | None = None,
        output_type: OutputType | None = None,
        state_backend: HashMapStateBackend | None = None,
        clock: ManualClock | None = None,
        parallelism: int = 1,
        subtask: int = 0,
        max_parallelism: int | None = None,
        restore: SnapshotPart | Sequence[OperatorSnapshot] = (),
        job_parameters: Mapping[str, Setting] | None = None,
    ) -> None:
        self._name = name or _name_of(function)
        super().__init__(self._name, output_type, clock, job_parameters)
        self._part = part_to_restore(restore, parallelism, subtask, max_parallelism)
        self._selectors = ExitStack()
        self._split = [
            self._router(one, number).splitter(self._part.subtask) for number, one in enumerate(inputs)
        ]
        self._checkpoints = self._part.checkpoint_id or 0
        self._merger = WatermarkMerger(self._part.watermark)
        for number in range(len(inputs)):
            self._merger.advance(FrameTime(number, 0, self._part.watermark, ChannelEvent.OPEN))
        state = self._restored_state(state_backend or HashMapStateBackend(), inputs[0].key_type)
        self.backend = state.keyed
        self.subtask = KeyedSubtask(function, self._context(), state, self._part.watermark, JumpingEventLoop)
        self.subtask.open()

    # --- records and time ------------------------------------------------------------------------------

    def process_watermark(self, timestamp: int) -> list[Any]:
        """Advance the watermark of every input; return the values of the results.

        A watermark that is not later than the last one changes nothing, as watermarks never go back.
        """
        results = [self._advance(number, timestamp) for number in range(len(self._split))]
        return [value for values in results for value in values]

    def set_processing_time(self, now_ms: int) -> list[Any]:
        """Set the clock, in ms since 1970, and fire the timers that are due; return their results."""
        self.clock.now_ms = now_ms
        return self._fire_timers()

    def get_watermark(self) -> int:
        """Return the watermark of the operator."""
        return self.subtask.watermark

    def _process(self, number: int, value: Record, timestamp: int | None) -> list[Record]:
        frame = self._frame(number, value, timestamp)
        fired = self._fire_timers()
        output = Output()
        self.subtask.process_frame(frame, output)
        return fired + self._results(output)

    def _frame(self, number: int, value: Record, timestamp: int | None) -> InputFrame:
        record = [isolated(value)]  # a job pickles it
        frames = dict(self._split[number](record, None if timestamp is None else [timestamp]))
        if self._part.subtask not in frames:
            (owner,) = frames
            raise KeyGroupRangeError(
                f"operator {self._name!r}: key {frames[owner].keys[0]!r} belongs to subtask {owner} of "
                f"{self._part.parallelism}, and this is subtask {self._part.subtask}"
            )
        return frames[self._part.subtask]

    def _advance(self, number: int, timestamp: int) -> list[Record]:
        if not self._merger.advance(FrameTime(number, 0, timestamp)):
            return []
        output = Output()
        self.subtask.advance_watermark(self._merger.watermark, output)
        values = self._results(output)
        self._main.append(Watermark(self._merger.watermark))
        return values

    def _fire_timers(self) -> list[Record]:
        output = Output()
        self.subtask.fire_timers(output)
        return self._results(output)

    def _results(self, output: Output) -> list[Record]:
        return self._collect(output.values, output.timestamps, output.side)

    # --- state -----------------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int | None = None, timestamp: int | None = None) -> OperatorSnapshot:
        """Take a snapshot, which is written to memory.

        Args:
            checkpoint_id: the id of the checkpoint. Default: one more than the last.
            timestamp: when the checkpoint was triggered, in ms since 1970. Default: the clock's time.
        """
        self._checkpoints = self._checkpoints + 1 if checkpoint_id is None else checkpoint_id
        at_ms = self.clock.now_ms if timestamp is None else timestamp
        trigger = CheckpointTrigger(self._checkpoints, at_ms, "memory")
        state = self.subtask.snapshot(trigger, MemoryCheckpoint()).futures.finish()
        return OperatorSnapshot(state, self._checkpoints, self.get_watermark(), self._part.max_parallelism)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the function that a checkpoint is complete, if it is a ``CheckpointListener``."""
        self.subtask.checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Notify the function that a checkpoint was aborted, if it is a ``CheckpointListener``."""
        self.subtask.checkpoint_aborted(checkpoint_id)

    def num_keyed_state_entries(self) -> int:
        """Return the number of entries in all keyed states, including expired ones that still exist."""
        return self.backend.num_key_value_state_entries()

    def num_event_time_timers(self) -> int:
        """Return the number of event-time timers that have not fired."""
        return self._num_timers("event_")

    def num_processing_time_timers(self) -> int:
        """Return the number of processing-time timers that have not fired."""
        return self._num_timers("processing_")

    def _num_timers(self, kind: str) -> int:
        queues = self.backend.registered_queues.items()
        return sum(len(queue) for name, queue in queues if name.startswith(f"{TIMER_STATE_PREFIX}/{kind}"))

    def metrics(self) -> MetricValues:
        """Return the present values of the function's metrics, by name."""
        return self.subtask.metrics()

    # --- beginning and end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Close the function and the key selectors."""
        close_all(self.subtask.close, self._selectors.close)

    def _router(self, one: Input, number: int) -> Router:
        part = self._part
        opened = opened_selector(
            one.select_key,
            self._name,
            lambda: TaskInfo(
                part.subtask,
                part.parallelism,
                0,
                OperatorMetrics(self.clock),
                job_parameters=self._job_parameters,
            ),
        )
        return Router(
            self._name,
            self._selectors.enter_context(opened),
            one.key_type,
            part.parallelism,
            part.max_parallelism,
            one.partitioning,
            number,
        )

    def _restored_state(self, backend: HashMapStateBackend, key_type: TypeInformation) -> StreamOperatorState:
        part = self._part
        owned = key_group_range(part.max_parallelism, part.parallelism, part.subtask)
        state = StreamOperatorState(
            backend.create_keyed_state_backend(key_type, owned, part.max_parallelism, self.clock),
            backend.create_operator_state_backend(),
            backend.snapshot_compression,
            part.checkpoint_id,
        )
        if part.checkpoint_id is not None:
            state.restore(part.assignment, MemoryCheckpoint())
        return state

    def _context(self) -> OperatorContext:
        part, metrics = self._part, OperatorMetrics(self.clock)
        return OperatorContext(
            self._name,
            part.subtask,
            part.parallelism,
            part.max_parallelism,
            0,
            self.backend,
            metrics,
            job_parameters=self._job_parameters,
        )


def _name_of(function: UserFunction) -> str:
    inner = function.function if isinstance(function, StatefulOperator) else None
    return type(function if inner is None else inner).__name__
