"""The operators that stateful subtasks run, most of which call a user function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import attrs

from pyflinkstate.api import Key, OutputTag, Record, UserFunction, is_side_output
from pyflinkstate.backends.heap import HeapKeyedStateBackend, InternalTimerService, SubtaskTime, Timer
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend
from pyflinkstate.backends.values import take_isolated
from pyflinkstate.runtime.operators.context import OperatorContext
from pyflinkstate.runtime.operators.windows.fast_windows import FastWindows

if TYPE_CHECKING:
    # Most functions are not async, and importing asyncio takes tens of milliseconds.
    from asyncio import AbstractEventLoop

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
    #: Takes whole frames whose records have timestamps, if there is a faster way than a call for each record.
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
        return None if self.timers is None else self.timers.take_event_time(watermark)

    def take_processing_time(self, now_ms: int) -> Timer | None:
        """Remove and return the first processing-time timer that is due at ``now_ms``."""
        return None if self.timers is None else self.timers.take_processing_time(now_ms)

    def next_processing_time_ms(self) -> int | None:
        """Return when the next processing-time timer is due, or None if there is none."""
        return None if self.timers is None else self.timers.next_processing_time_ms()
