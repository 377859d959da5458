"""What a subtask of a stateful operator runs: the function of the user, or something around it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import attrs

from pyflinkstate.api.output_tag import OutputTag, is_side_output
from pyflinkstate.api.values import Record, UserFunction
from pyflinkstate.backends.heap import HeapKeyedStateBackend, Timer
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend
from pyflinkstate.backends.values import take_isolated
from pyflinkstate.runtime.operators.context import OperatorContext
from pyflinkstate.runtime.operators.timers import SubtaskTime


@attrs.frozen
class OperatorSetup:
    """What an operator is given when it is opened.

    Attributes:
        context: the runtime context of the user's function; ``context.backend`` is the keyed backend.
        backend: the same backend.
        time: what time it is.
        operator_state: the state that belongs to no key.
    """

    context: OperatorContext
    backend: HeapKeyedStateBackend
    time: SubtaskTime
    operator_state: DefaultOperatorStateBackend | None = None


class Output:
    """Where an operator's results go: columns of values and their timestamps, side outputs apart.

    A result is isolated when it is emitted, as it waits here while the function goes on.
    """

    __slots__ = ("side", "timestamps", "values")

    def __init__(self) -> None:
        self.values: list[Record] = []
        self.timestamps: list[int | None] = []
        #: Values and timestamps, by the ids of tags.
        self.side: dict[str, tuple[list[Record], list[int | None]]] = {}

    def __len__(self) -> int:
        return len(self.values)

    def collect(self, results: Iterable[Record] | None, timestamp: int | None) -> None:
        """Take all ``results`` of one call; those that are ``(OutputTag, value)`` go to the side output."""
        if results is None:
            return
        begin = len(self.values)
        take_isolated(self.values, results)
        self.settle(begin, timestamp)

    def settle(self, begin: int, timestamp: int | None = None) -> None:
        """Give the values from ``begin`` on their timestamp; what is for side outputs goes there."""
        if OutputTag.exists:
            self._take_out_side(begin, timestamp)
        self.timestamps.extend([timestamp] * (len(self.values) - begin))

    def _take_out_side(self, begin: int, timestamp: int | None) -> None:
        tagged = [result for result in self.values[begin:] if is_side_output(result)]
        if tagged:
            self.values[begin:] = [result for result in self.values[begin:] if not is_side_output(result)]
            for tag, value in tagged:
                self.collect_side(tag, value, timestamp)

    def collect_side(self, tag: OutputTag, value: Record, timestamp: int | None) -> None:
        """Take one result of a side output, which is isolated already."""
        values, timestamps = self.side.setdefault(tag.tag_id, ([], []))
        values.append(value)
        timestamps.append(timestamp)


class StatefulOperator(ABC):
    """An operator that runs in a subtask with keyed state; the current key is set before each call.

    All calls but ``close`` may raise whatever the user's function raises.
    """

    #: What a ``CheckpointedFunction`` or ``CheckpointListener`` is looked for in.
    function: UserFunction = None
    #: Its records have keys; where they have none, the function is given no keyed state.
    is_keyed: ClassVar[bool] = True

    @abstractmethod
    def open(self, setup: OperatorSetup) -> None:
        """Get ready: state may have been restored."""

    def close(self) -> None:  # noqa: B027 - optional to override
        """The job is over."""

    @abstractmethod
    def process_element(self, value: Record, timestamp: int | None, output: Output) -> None:
        """Process one record; ``timestamp`` is its event time in ms since 1970, None without one."""

    def process_element2(self, value: Record, timestamp: int | None, output: Output) -> None:
        """Process one record of the second input."""
        raise NotImplementedError

    @abstractmethod
    def on_event_time(self, timer: Timer, output: Output) -> None:
        """A timer by event time is due; the watermark is its time or later."""

    @abstractmethod
    def on_processing_time(self, timer: Timer, output: Output) -> None:
        """A timer by processing time is due."""

    @abstractmethod
    def take_event_time(self, watermark: int) -> Timer | None:
        """Take out the first timer by event time that is due at ``watermark``."""

    @abstractmethod
    def take_processing_time(self, now_ms: int) -> Timer | None:
        """Take out the first timer by processing time that is due at ``now_ms``."""

    @abstractmethod
    def next_processing_time_ms(self) -> int | None:
        """Return when the next timer by processing time is due; None without one."""
