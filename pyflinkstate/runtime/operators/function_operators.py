"""Operators that run user functions: with one input, with two inputs, with a broadcast input, or a reduction.

Those behind ``reduce``, ``sum``, ``min`` and the like, and ``keyed_map``, are functions on a keyed stream.
"""

from __future__ import annotations

import copy
import decimal
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any, TypeAlias, cast

import attrs
import numpy as np

from pyflinkstate.api import (
    MAX_WATERMARK,
    AnyState,
    BroadcastState,
    CheckpointedFunction,
    CheckpointListener,
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    FunctionContext,
    Key,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    MapStateDescriptor,
    ProcessFunction,
    ReadOnlyBroadcastState,
    Record,
    ReduceFunction,
    StateDescriptor,
    StateValue,
    TimeDomain,
    TimerService,
    UserFunction,
    ValueState,
    ValueStateDescriptor,
    safe_repr,
)
from pyflinkstate.backends.heap import InternalTimerService, Timer, UserTimerService
from pyflinkstate.backends.types import PICKLE_PROTOCOL, VOID_NAMESPACE, VOID_NAMESPACE_TYPE
from pyflinkstate.backends.values import told_function
from pyflinkstate.errors import (
    BadRecordError,
    ConfigurationError,
    FunctionResultError,
    NoCurrentKeyError,
    StateAccessError,
)
from pyflinkstate.runtime.operators.operators import (
    KeylessTimerService,
    OperatorSetup,
    Output,
    StatefulOperator,
    close_functions,
    open_function,
)

#: Flink's name for the timer service of user functions.
USER_TIMERS = "user-timers"
#: The method of a function that is called with a record and a context.
Process = Callable[[Any, Any], Iterable[Record] | None]
#: The kinds of functions with one input, by the names of their operators in a plan.
KINDS: dict[str, type] = {
    "map": MapFunction,
    "flat_map": FlatMapFunction,
    "filter": FilterFunction,
    "process": ProcessFunction,
}


class KeyedContext(KeyedProcessFunction.OnTimerContext):
    """The context of a function; one object serves all calls."""

    def __init__(self, setup: OperatorSetup, timers: InternalTimerService) -> None:
        self._key_context = setup.backend.key_context
        self._runtime_context = setup.context
        self._timers: TimerService
        if setup.context.backend is None:
            self._timers = KeylessTimerService(setup.time, setup.time.now_ms)
        else:  # it is registered as a subclass, which type checkers do not see
            self._timers = cast(TimerService, UserTimerService(timers))
        self.current_timestamp: int | None = None
        self.domain = TimeDomain.EVENT_TIME

    def get_current_key(self) -> Key:
        if self._key_context.map_index < 0:
            raise NoCurrentKeyError("no key is set: a record of an input without keys is being processed")
        return self._key_context.key

    def timestamp(self) -> int | None:
        return self.current_timestamp

    def timer_service(self) -> TimerService:
        return self._timers

    def time_domain(self) -> TimeDomain:
        return self.domain

    def current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def current_watermark(self) -> int:
        return self._timers.current_watermark()


class FunctionOperator(StatefulOperator):
    """Runs a function with one input (Flink: ``KeyedProcessOperator``).

    Args:
        function: the user function.
        is_keyed: whether its records have keys; without them it is given neither keyed state nor timers.

    Attributes:
        timers: the timers of the function.
        context: the context that the function is given.
        on_timer: called when a timer is due, with its timestamp and the context.
        fires_one_by_one: whether :meth:`on_event_time` does more than call ``on_timer``.
    """

    timers: InternalTimerService
    fires_one_by_one: bool = False

    def __init__(self, function: Any, is_keyed: bool = True) -> None:
        self.function = function
        self.is_keyed = is_keyed

    def open(self, setup: OperatorSetup) -> None:
        self.timers = InternalTimerService(USER_TIMERS, setup.backend, setup.time)
        self.context = self._make_context(setup)
        open_function(self.function, setup.context)
        self._first: Process = self._process_first()
        self.on_timer: Process = getattr(self.function, "on_timer", _ignore)

    def _make_context(self, setup: OperatorSetup) -> Any:
        return KeyedContext(setup, self.timers)

    def _process_first(self) -> Any:
        """Return the function that processes the records of the first input, a :data:`Process`."""
        return self.function.process_element

    def close(self) -> None:
        close_functions(self.function)

    def process_of(self, number: int) -> Process | None:
        """Return the function that processes the records of input ``number``, from 0, with the context.

        A function with one input has a second one for the rows of its initial state. If it is None, records
        of the second input go to :meth:`process_element2`.
        """
        return self._take_initial_row if number else self._first

    def _take_initial_row(self, value: Record, context: FunctionContext) -> None:
        take = self.function.handle_initial_state
        if take(value, context) is not None:
            raise FunctionResultError(
                f"{told_function(take)} returned a value: it fills the state of the row's key and returns "
                f"nothing",
                function=told_function(take),
            )

    def on_event_time(self, timer: Timer, output: Output) -> None:
        self._fire(timer, TimeDomain.EVENT_TIME, timer.timestamp_ms, output)

    def on_processing_time(self, timer: Timer, output: Output) -> None:
        self._fire(timer, TimeDomain.PROCESSING_TIME, None, output)

    def _fire(self, timer: Timer, domain: TimeDomain, timestamp: int | None, output: Output) -> None:
        self.context.current_timestamp, self.context.domain = timer.timestamp_ms, domain
        output.collect(self.on_timer(timer.timestamp_ms, self.context), timestamp, self.on_timer)


def _ignore(timestamp: int, context: FunctionContext) -> None:
    """Stand for the ``on_timer`` of a function that has none."""


def called(kind: str, function: Any) -> Any:
    """Return the callable that an operator calls: a method of the function, or the plain callable itself."""
    if kind == "process":
        return function.process_element
    return getattr(function, kind) if isinstance(function, KINDS[kind]) else function


def lives_in_slot(function: UserFunction) -> bool:
    """Return whether a function must outlive the tasks of an epoch, with or without keys."""
    return isinstance(function, (CheckpointedFunction, CheckpointListener))


class OneInputOperator(FunctionOperator):
    """Runs a function of one of the :data:`KINDS`.

    Args:
        kind: the kind.
        function: the user function; a plain callable unless it is of the kind's class.
        is_keyed: whether its records have keys; without them keyed state and timers are refused.
    """

    def __init__(self, kind: str, function: Any, is_keyed: bool = False) -> None:
        super().__init__(function, is_keyed)
        self._kind = kind

    def _process_first(self) -> Any:
        call = called(self._kind, self.function)
        return call if self._kind == "process" else wraps(call)(_PROCESSES[self._kind](call))


_PROCESSES: dict[str, Callable[[Any], Process]] = {
    "map": lambda call: lambda value, _: (call(value),),
    "flat_map": lambda call: lambda value, _: call(value),
    "filter": lambda call: lambda value, _: (value,) if call(value) else None,
}


class TwoInputOperator(FunctionOperator):
    """Runs a function with two inputs (Flink: ``KeyedCoProcessOperator``, ``CoProcessOperator``)."""

    def _process_first(self) -> Any:
        self._second: Process = _with_context(self.function, 2)
        return _with_context(self.function, 1)

    def process_of(self, number: int) -> Process:
        return self._second if number else self._first


def _with_context(function: Any, number: int) -> Any:
    """Return the method that processes a record of input ``number``, 1 or 2."""
    if isinstance(function, CoMapFunction):
        return _mapping(getattr(function, f"map{number}"))
    if isinstance(function, CoFlatMapFunction):
        flat_map = getattr(function, f"flat_map{number}")
        return wraps(flat_map)(lambda value, _: flat_map(value))
    return getattr(function, f"process_element{number}")


def _mapping(map_one: Callable[[Record], Record]) -> Process:
    """Return a method that emits what ``map_one`` returns; as in PyFlink, None is no result."""

    @wraps(map_one)
    def process(value: Record, _: FunctionContext) -> Iterable[Record] | None:
        result = map_one(value)
        return None if result is None else (result,)

    return process


class BroadcastOperator(FunctionOperator):
    """Runs a function whose second input is broadcast (Flink: ``CoBroadcastWithKeyedOperator``).

    Args:
        function: the user function.
        descriptors: the descriptors of the broadcast states.
        is_keyed: whether the records that are not broadcast have keys.
    """

    def __init__(
        self, function: UserFunction, descriptors: tuple[MapStateDescriptor, ...], is_keyed: bool = True
    ) -> None:
        super().__init__(function, is_keyed)
        self._descriptors = descriptors

    def _make_context(self, setup: OperatorSetup) -> FunctionContext:
        assert setup.operator_state is not None
        states = {
            descriptor.name: setup.operator_state.get_broadcast_state(descriptor)
            for descriptor in self._descriptors
        }
        self._writable = _WritableContext(setup, self.timers, states)
        return _ReadOnlyContext(setup, self.timers, states)

    def process_of(self, number: int) -> Process | None:
        return None if number else self._first

    def process_element2(self, value: Record, timestamp: int | None, output: Output) -> None:
        self._writable.current_timestamp = timestamp
        process = self.function.process_broadcast_element
        output.collect(process(value, self._writable), timestamp, process)


class _BroadcastContext(KeyedContext):
    def __init__(
        self, setup: OperatorSetup, timers: InternalTimerService, states: dict[str, BroadcastState]
    ) -> None:
        super().__init__(setup, timers)
        self._states = states

    def _state_of(self, descriptor: MapStateDescriptor) -> BroadcastState:
        name = getattr(descriptor, "name", descriptor)
        if name not in self._states:
            raise StateAccessError(
                f"broadcast state {name!r}: the stream was broadcast with "
                f"{', '.join(map(repr, self._states))}; pass its descriptor to broadcast() as well",
                state=str(name),
            )
        return self._states[name]


class _WritableContext(_BroadcastContext, KeyedBroadcastProcessFunction.Context):
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState:
        return self._state_of(state_descriptor)

    def apply_to_keyed_state(
        self, state_descriptor: StateDescriptor, function: Callable[[Key, AnyState], None]
    ) -> None:
        self._runtime_context.keyed_backend(state_descriptor).apply_to_all_keys(
            VOID_NAMESPACE, VOID_NAMESPACE_TYPE, state_descriptor, function
        )


class _ReadOnlyContext(_BroadcastContext, KeyedBroadcastProcessFunction.OnTimerContext):
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState:
        return _ReadOnlyView(state_descriptor.name, self._state_of(state_descriptor))


@attrs.frozen(eq=False)
class _ReadOnlyView(ReadOnlyBroadcastState):
    """A read-only broadcast state, for records of the other input."""

    _name: str
    _state: BroadcastState

    def get(self, key: StateValue) -> StateValue:
        return self._state.get(key)

    def contains(self, key: StateValue) -> bool:
        return self._state.contains(key)

    def items(self) -> Iterable[tuple[StateValue, StateValue]]:
        return self._state.items()

    def keys(self) -> Iterable[StateValue]:
        return self._state.keys()

    def values(self) -> Iterable[StateValue]:
        return self._state.values()

    def is_empty(self) -> bool:
        return self._state.is_empty()

    def put(self, *_: object) -> None:
        """Refuse: only records of the broadcast stream may change the state."""
        raise StateAccessError(
            f"broadcast state {self._name!r} may only be changed in process_broadcast_element(), because "
            f"otherwise subtasks would differ",
            state=self._name,
        )

    put_all = remove = __setitem__ = __delitem__ = put

    def clear(self) -> None:
        self.put()


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


@attrs.frozen
class Projection:
    """Returns some fields of a tuple or row, in the given order."""

    indexes: tuple[int, ...]

    def __call__(self, record: Any) -> tuple[object, ...]:
        return tuple(record[index] for index in self.indexes)


@attrs.frozen(eq=False)
class KeyState:
    """The state of the key that a function of ``keyed_map`` is called with: one value, or none."""

    _state: ValueState

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
MapKey = Callable[[Any, list[Any], KeyState], Iterable[Record] | None]


#: Returns what rows are sorted by.
RowOrder: TypeAlias = Callable[[Any], Any]


@attrs.frozen
class ColumnOrder:
    """Sorts rows by columns; nulls come first, as in Spark."""

    columns: tuple[str, ...]

    def __call__(self, row: Mapping[str, object]) -> list[tuple[bool, object]]:
        return [(row[column] is not None, row[column]) for column in self.columns]


class KeyedMap(StatefulOperator):
    """Keeps the rows of an epoch by their keys, and calls the function at its end, before the barrier.

    Args:
        function: called with a key, its rows, and its state.
        descriptor: describes the state.
        initial_column: the column with the state, in the rows of the initial state.
        order: sorts the rows of a key, as the ``key`` of ``list.sort``; None leaves them as they came.
    """

    def __init__(
        self,
        function: MapKey,
        descriptor: ValueStateDescriptor,
        initial_column: str | None = None,
        order: RowOrder | None = None,
    ) -> None:
        self.function = function
        self._descriptor = descriptor
        self._initial_column = initial_column
        self._order = order
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
            if self._order is not None:
                rows.sort(key=self._order)
            output.collect(self.function(key, rows, self._state), None, self.function)
            if len(output) >= _RESULTS_PER_OUTPUT:
                yield output
                output = Output()
        yield output
