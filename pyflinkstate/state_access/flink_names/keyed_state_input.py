"""Runs a reader function over the keys of an operator, a range of key groups after another.

The state of each range is restored as in a job that starts from the checkpoint, with the same migrations and
the same rules of time to live, so memory holds the state of one range.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

import attrs

from pyflinkstate.api.descriptors import StateDescriptor
from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.values import AnyState, Key
from pyflinkstate.backends.heap import TIMER_STATE_PREFIX, HeapKeyedStateBackend, HeapRestoreOperation
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import RegisteredStateMeta
from pyflinkstate.errors import (
    PickledStateError,
    PyFlinkStateError,
    StateRegistrationError,
    UserFunctionError,
)
from pyflinkstate.runtime.operators import OperatorContext, close_function, closed_at_end, open_function
from pyflinkstate.state_access.checkpoint import Checkpoint
from pyflinkstate.state_access.flink_names.keyed_state_reader_function import (
    Collector,
    KeyedStateReaderFunction,
)
from pyflinkstate.state_access.flink_names.read_only_states import ReadOnly, read_only
from pyflinkstate.state_access.pickles import has_pickles

#: When the timers of each key are due.
_Times = dict[Key, set[int]]


@attrs.define
class KeyedStateInput:
    """Reads the keyed state of an operator with a function (Flink: ``KeyedStateInputFormat``).

    Attributes:
        checkpoint: the checkpoint.
        uid: the operator.
        function: reads each key.
        allow_pickle: whether pickled state may be loaded.
    """

    checkpoint: Checkpoint
    uid: str
    function: KeyedStateReaderFunction[Any, Any]
    allow_pickle: bool
    _asked: dict[str, tuple[StateDescriptor, ReadOnly[Any]]] = attrs.field(factory=dict, init=False)
    _is_open: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        """Refuse pickled keys that must not be loaded."""
        key_type = self.checkpoint.keyed_state(self.uid).key_type
        if has_pickles(key_type) and not self.allow_pickle:
            raise _pickled(f"the keys of operator {self.uid!r}")

    def read(self) -> Iterator[Any]:
        """Yield the results of all keys."""
        state = self.checkpoint.keyed_state(self.uid, self.allow_pickle)
        context = ReadContext(self.uid, 0, 1, state.operator.max_parallelism, 0, None, states=self)
        with closed_at_end(partial(close_function, self.function)):
            open_function(self.function, context)
            self._is_open = True
            for own in state.ranges():
                yield from self._read_range(own)

    def state_of(self, descriptor: StateDescriptor) -> AnyState:
        """Return the state that a descriptor asks for, which has a key only in ``read_key``.

        Raises:
            StateRegistrationError: the function has been opened already, or the name is in use.
            UnknownStateError: the checkpoint has no such state.
            PickledStateError: the state is pickled, and must not be loaded.
        """
        if descriptor.name in self._asked:
            return self._known(descriptor)
        if self._is_open:
            raise StateRegistrationError(
                f"state {descriptor.name!r}: ask for all states in open()", state=descriptor.name
            )
        self.checkpoint.schema(self.uid, descriptor.name)
        state = self.checkpoint.keyed_state(self.uid)
        meta = state.metas[descriptor.name]
        assert isinstance(meta, RegisteredStateMeta)
        if has_pickles(state.declared(meta).stored_type) and not self.allow_pickle:
            raise _pickled(f"state {descriptor.name!r} of operator {self.uid!r}")
        made = read_only(descriptor)
        self._asked[descriptor.name] = descriptor, made
        return made

    def _known(self, descriptor: StateDescriptor) -> AnyState:
        known, state = self._asked[descriptor.name]
        if known.kind is not descriptor.kind:
            raise StateRegistrationError(
                f"state {descriptor.name!r} is in use as {known.kind.value}, and is asked for as "
                f"{descriptor.kind.value}",
                state=descriptor.name,
            )
        return state

    def _read_range(self, own: KeyGroupRange) -> Iterator[Any]:
        backend = self._restored(own)
        for descriptor, state in self._asked.values():
            state.bind(backend.get_partitioned_state(descriptor))
        timers = [_times(backend, f"{TIMER_STATE_PREFIX}/{time}_user-timers") for time in _TIMES]
        for key in dict.fromkeys(chain.from_iterable(map(backend.get_keys, self._asked))):
            backend.set_current_key(key)
            yield from self._read_key(key, KeyContext(*(times.get(key, set()) for times in timers)))

    def _read_key(self, key: Key, context: KeyContext) -> list[Any]:
        out: Collector[Any] = Collector()
        try:
            self.function.read_key(key, context, out)
        except PyFlinkStateError:
            raise
        except Exception as error:
            raise UserFunctionError(
                f"operator {self.uid!r}, key {safe_repr(key)}: read_key() raised "
                f"{type(error).__name__}: {error}",
                operator=self.uid,
                key=safe_repr(key),
            ) from error
        return out.collected

    def _restored(self, own: KeyGroupRange) -> HeapKeyedStateBackend:
        state = self.checkpoint.keyed_state(self.uid)
        most = state.operator.max_parallelism
        backend = HeapKeyedStateBackend(state.key_type, own, most, clock=self.checkpoint.clock)
        handles = [subtask.managed_keyed for subtask in state.operator.subtasks]
        HeapRestoreOperation(backend, state.reader).restore(handles)
        return backend


_TIMES = ("event", "processing")


@attrs.frozen
class ReadContext(OperatorContext):
    """The runtime context of a reader function."""

    states: KeyedStateInput = attrs.field(kw_only=True)

    def _state_of(self, descriptor: StateDescriptor) -> AnyState:
        return self.states.state_of(descriptor)


@attrs.frozen
class KeyContext(KeyedStateReaderFunction.Context):
    """The timers of a key."""

    event_times: set[int]
    processing_times: set[int]

    def registered_event_time_timers(self) -> set[int]:
        return set(self.event_times)

    def registered_processing_time_timers(self) -> set[int]:
        return set(self.processing_times)


def _times(backend: HeapKeyedStateBackend, queue: str) -> _Times:
    found: _Times = defaultdict(set)
    if queue in backend.registered_queues:
        for timer in backend.registered_queues[queue].timers():
            found[timer.key].add(timer.timestamp_ms)
    return found


def _pickled(what: str) -> PickledStateError:
    return PickledStateError(
        f"{what} are or hold pickles, and loading them runs code: pass allow_pickle=True if you trust "
        f"whoever wrote the checkpoint"
    )
