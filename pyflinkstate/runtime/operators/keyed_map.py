"""A function that is called once for each key and epoch, with all rows that the epoch has for the key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pyflinkstate.api.state import ValueState, ValueStateDescriptor
from pyflinkstate.api.values import Key, Record, StateValue
from pyflinkstate.backends.heap import Timer
from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.operators.operators import OperatorSetup, Output, StatefulOperator

#: Number of results that are sent at once.
_RESULTS_PER_OUTPUT = 4096


class KeyState:
    """The state of the key that a function of ``keyed_map`` is called with: one value, or none."""

    def __init__(self, state: ValueState) -> None:
        self._state = state

    def exists(self) -> bool:
        """Return whether there is a value: it was set, and has not been cleared and has not expired."""
        return self._state.value() is not None

    def get(self, default: StateValue = None) -> StateValue:
        """Return the value, or ``default`` if there is none."""
        value = self._state.value()
        return default if value is None else value

    def update(self, value: StateValue) -> None:
        """Set the value; None clears it."""
        self._state.update(value)

    def clear(self) -> None:
        """Remove the value."""
        self._state.clear()


#: Called with a key, its rows of the epoch, and its state.
MapKey = Callable[[Key, Iterator[Record], KeyState], Iterable[Record] | None]


class KeyedMap(StatefulOperator):
    """Keeps the rows of an epoch by their keys, and calls the function at its end, before the barrier.

    Args:
        function: called with a key, its rows in the order in which they came, and its state.
        descriptor: describes the state.
        initial_column: the column with the state, in the rows of the initial state.
    """

    def __init__(
        self, function: MapKey, descriptor: ValueStateDescriptor, initial_column: str | None = None
    ) -> None:
        self.function = function
        self._descriptor = descriptor
        self._initial_column = initial_column
        self._rows: dict[Key, list[Record]] = {}

    def open(self, setup: OperatorSetup) -> None:
        self._backend = setup.backend
        self._state = KeyState(setup.context.get_state(self._descriptor))

    def process_element(self, value: Record, timestamp: int | None, output: Output) -> None:
        self._rows.setdefault(self._backend.key_context.key, []).append(value)

    def process_element2(self, value: Record, timestamp: int | None, output: Output) -> None:
        """Take a row of the initial state.

        Raises:
            BadRecordError: the key has a state already, so there are several rows for it.
        """
        if self._state.exists():
            raise BadRecordError(
                "initial_state has several rows for this key, and the state is one value: group the "
                "DataFrame by its key first"
            )
        self._state.update(value[self._initial_column])

    def finish_epoch(self) -> Iterator[Output]:
        output = Output()
        for key in list(self._rows):
            rows = self._rows.pop(key)
            self._backend.set_current_key(key)
            output.collect(self.function(key, iter(rows), self._state), None, self.function)
            if len(output) >= _RESULTS_PER_OUTPUT:
                yield output
                output = Output()
        yield output

    def take_event_time(self, watermark: int) -> Timer | None:
        return None

    def on_event_time(self, timer: Timer, output: Output) -> None:
        raise AssertionError("KeyedMap has no timers")

    def take_processing_time(self, now_ms: int) -> Timer | None:
        return None

    def on_processing_time(self, timer: Timer, output: Output) -> None:
        raise AssertionError("KeyedMap has no timers")

    def next_processing_time_ms(self) -> int | None:
        return None
