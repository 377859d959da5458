"""The operators behind ``reduce``, ``sum``, ``min`` and the like, and ``keyed_map``, on a keyed stream."""

from __future__ import annotations

import copy
import decimal
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from pyflinkstate.api import (
    MAX_WATERMARK,
    FunctionContext,
    Key,
    Record,
    ReduceFunction,
    StateValue,
    ValueState,
    ValueStateDescriptor,
    safe_repr,
)
from pyflinkstate.backends.heap import Timer
from pyflinkstate.backends.types import PICKLE_PROTOCOL, VOID_NAMESPACE
from pyflinkstate.backends.values import told_function
from pyflinkstate.errors import BadRecordError, ConfigurationError, FunctionResultError
from pyflinkstate.runtime.operators.function_operators import FunctionOperator
from pyflinkstate.runtime.operators.operators import OperatorSetup, Output, StatefulOperator

#: Flink's name for the state of ``reduce``.
STATE_NAME = "_reduce_state"
#: Plain values whose classes have ``__getitem__`` all the same; of numpy's, only a ``void`` may have fields.
_PLAIN = (str, bytes, bytearray, np.generic)
#: Number of results that are sent at once.
_RESULTS_PER_OUTPUT = 4096


class RollingReduce(FunctionOperator):
    """Combines all records of a key so far; every record gives a result.

    Its function is a ``ReduceFunction``, or a callable that combines two values.
    """

    def open(self, setup: OperatorSetup) -> None:
        super().open(setup)
        self._state = setup.context.get_state(ValueStateDescriptor(STATE_NAME))

    def _process_first(self) -> Any:
        self._reduce = self.function.reduce if isinstance(self.function, ReduceFunction) else self.function
        return self._combine

    def _combine(self, value: Record, _: FunctionContext) -> Iterable[Record] | None:
        before = self._state.value()
        combined = value
        if before is not None:
            combined = self._reduce(before, value)
            if combined is None:  # its key would begin anew
                name = told_function(self._reduce)
                raise FunctionResultError(
                    f"{name} returned None: return what its two arguments make", function=name
                )
        self._state.update(combined)
        return (combined,)


def key_order(key: Key) -> tuple[object, ...]:
    """Return the sort key of a key: numbers by value, then texts by length in bytes and by bytes.

    Flink sorts the input of batch jobs by the serialized keys, which begin with a length.

    >>> sorted(["b", "aa", "a", 10, 9], key=key_order)
    [9, 10, 'a', 'b', 'aa']
    """
    if isinstance(key, (int, float, decimal.Decimal)):
        return 0, key
    written = key.encode() if isinstance(key, str) else pickle.dumps(key, protocol=PICKLE_PROTOCOL)
    return 1 if isinstance(key, str) else 2, len(written), written


class BatchReduce(RollingReduce):
    """Combines all records of a key, and emits the results in the order of keys at the end of the input.

    It needs no timers, as every key is due at the end of the input. An emitted result is forgotten, so a job
    that is restored from its last checkpoint does not emit it again.
    """

    fires_one_by_one = True

    def open(self, setup: OperatorSetup) -> None:
        super().open(setup)
        self._backend = setup.backend
        self._due: Iterator[Key] | None = None

    def _combine(self, value: Record, context: FunctionContext) -> Iterable[Record] | None:
        super()._combine(value, context)
        return None

    def take_event_time(self, watermark: int) -> Timer | None:
        if watermark < MAX_WATERMARK:
            return None
        if self._due is None:
            self._due = iter(sorted(self._backend.get_keys(STATE_NAME, VOID_NAMESPACE), key=key_order))
        for key in self._due:
            return Timer(MAX_WATERMARK, key, VOID_NAMESPACE)
        self._due = None
        return None

    def on_event_time(self, timer: Timer, output: Output) -> None:
        output.collect((self._state.value(),), None)
        self._state.clear()


class _FieldFunction(ReduceFunction):
    """Combines two records by one of their fields.

    Args:
        position: the index or name of the field; 0 is the record itself if it has no fields.
        combine: called with both values of the field.

    Raises:
        ConfigurationError: ``position`` is neither.
    """

    def __init__(self, position: int | str, combine: Callable[[Any, Any], object]) -> None:
        if isinstance(position, bool) or not isinstance(position, (int, str)):
            raise ConfigurationError(
                f"min, max, min_by, max_by and sum take the index (an int) or the name (a str) of a field, "
                f"not {position!r}"
            )
        self._position = position
        self._combine = combine

    def _field(self, record: Any) -> Record:
        if has_fields(record):
            return record[self._position]
        if self._position != 0:
            raise BadRecordError(
                f"the plain value {safe_repr(record)} has no field {self._position!r}; it is itself field 0"
            )
        return record


class FieldReduce(_FieldFunction):
    """Replaces the field by what ``combine`` returns; the other fields are those of the first record."""

    def reduce(self, value1: Any, value2: Any) -> Record:
        if not has_fields(value1):
            return self._combine(self._field(value1), value2)
        return _replaced(
            value1, self._position, self._combine(value1[self._position], value2[self._position])
        )


class RecordChoice(_FieldFunction):
    """Chooses the second record if ``combine`` returns True, otherwise the first one."""

    def reduce(self, value1: Record, value2: Record) -> Record:
        prefers_second = self._combine(self._field(value1), self._field(value2))
        return value2 if prefers_second else value1


def has_fields(record: Record) -> bool:
    """Return whether a record is a tuple, list, dict or row, and not a plain value."""
    if isinstance(record, _PLAIN):
        return isinstance(record, np.void)
    return hasattr(record, "__getitem__")


def _replaced(record: Any, position: int | str, value: object) -> Record:
    if isinstance(record, tuple) and isinstance(position, int):
        fields = list(record)
        fields[position] = value
        make = getattr(type(record), "_make", type(record))
        return make(fields)
    replaced = copy.copy(record)
    replaced[position] = value
    return replaced


class Projection:
    """Returns some fields of a tuple or row, in the given order."""

    def __init__(self, indexes: tuple[int, ...]) -> None:
        self.indexes = indexes

    def __call__(self, record: Any) -> tuple[object, ...]:
        return tuple(record[index] for index in self.indexes)


class KeyState:
    """The state of the key that a function of ``keyed_map`` is called with: one value, or none."""

    def __init__(self, state: ValueState) -> None:
        self._state = state

    def exists(self) -> bool:
        """Return whether there is a value: it was set, and has not been cleared and has not expired."""
        return self._state.value() is not None

    def get(self, default: StateValue = None) -> Any:
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
MapKey = Callable[[Any, Iterator[Any], KeyState], Iterable[Record] | None]


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

    def process_element2(self, value: Any, timestamp: int | None, output: Output) -> None:
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
