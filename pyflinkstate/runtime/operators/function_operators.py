"""Operators that run user functions: with one input, with two inputs, or with a broadcast input.

A function with one input that needs neither keys nor state runs in the Spark tasks of an epoch. On a keyed
stream it has keyed state. A function that keeps operator state, or that listens to checkpoints, must outlive
an epoch's tasks. Both are operators of their own, with subtasks in state slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, cast

import attrs

from pyflinkstate.api import (
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
    StateDescriptor,
    StateValue,
    TimeDomain,
    TimerService,
    UserFunction,
)
from pyflinkstate.backends.heap import InternalTimerService, Timer, UserTimerService
from pyflinkstate.backends.types import VOID_NAMESPACE, VOID_NAMESPACE_TYPE
from pyflinkstate.backends.values import told_function
from pyflinkstate.errors import FunctionResultError, NoCurrentKeyError, StateAccessError
from pyflinkstate.runtime.operators.context import KeylessTimerService, close_functions, open_function
from pyflinkstate.runtime.operators.operators import OperatorSetup, Output, StatefulOperator

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
