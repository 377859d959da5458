"""The operator state backend: the operator states of one subtask, by name."""

from __future__ import annotations

import logging

from pyflinkstate.api.context import OperatorStateStore
from pyflinkstate.api.state import (
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
)
from pyflinkstate.api.values import AnyState
from pyflinkstate.backends.operator_state.migration import OperatorStateMigration
from pyflinkstate.backends.operator_state.states import HeapOperatorState, create_operator_state
from pyflinkstate.backends.snapshots import RunningSnapshots
from pyflinkstate.backends.types import OperatorStateMode, RegisteredOperatorStateMeta
from pyflinkstate.errors import StateMigrationError, StateRegistrationError, UnsupportedFeatureError

_log = logging.getLogger("pyflinkstate.state")


class DefaultOperatorStateBackend(OperatorStateStore):
    """Keeps operator state in lists and dicts (Flink: ``DefaultOperatorStateBackend``)."""

    def __init__(self) -> None:
        self.registered_states: dict[str, HeapOperatorState] = {}
        #: The snapshots that are being written; closing the backend cancels them.
        self.snapshots = RunningSnapshots()
        self._requested: set[str] = set()

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        state: AnyState = self._state(
            state_descriptor, ListStateDescriptor, OperatorStateMode.SPLIT_DISTRIBUTE
        )
        found: ListState = state
        return found

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        state: AnyState = self._state(state_descriptor, ListStateDescriptor, OperatorStateMode.UNION)
        found: ListState = state
        return found

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState:
        state: AnyState = self._state(state_descriptor, MapStateDescriptor, OperatorStateMode.BROADCAST)
        found: BroadcastState = state
        return found

    def create_state(self, meta: RegisteredOperatorStateMeta) -> HeapOperatorState:
        """Register a new, empty state."""
        state = create_operator_state(meta)
        self.registered_states[meta.name] = state
        return state

    def dispose(self) -> None:
        """Cancel the snapshots that are being written, and refuse new ones."""
        self.snapshots.close()

    def _state(
        self, descriptor: StateDescriptor, expected: type[StateDescriptor], mode: OperatorStateMode
    ) -> HeapOperatorState:
        if not isinstance(descriptor, expected):
            raise StateRegistrationError(f"a {expected.__name__} is needed here, not {descriptor!r}")
        if descriptor.is_ttl_enabled:
            raise UnsupportedFeatureError(
                f"operator state {descriptor.name!r} cannot have time to live; only keyed state can",
                state=descriptor.name,
            )
        meta = RegisteredOperatorStateMeta(descriptor.name, mode, descriptor.stored_type)
        state = self.registered_states.get(meta.name)
        if state is None:
            state = self.create_state(meta)
        elif state.meta != meta:
            state = self._migrated(state, meta, descriptor.allows_pickled_restore)
        self._requested.add(meta.name)
        return state

    def _migrated(
        self, state: HeapOperatorState, meta: RegisteredOperatorStateMeta, loads_pickles: bool
    ) -> HeapOperatorState:
        """Give restored state its requested type, once all of its values are known to fit."""
        if meta.name in self._requested:
            raise self._refusal(
                state, meta, "it is in use, so neither its redistribution mode nor its type can change"
            )
        try:
            migration = OperatorStateMigration.of(state.meta, meta, loads_pickles)
        except ValueError as error:
            raise self._refusal(state, meta, str(error)) from error
        made = migration.moved(state)
        for field in migration.dropped:
            _log.warning(
                "operator state %r: the field %s is dropped: the program asks for %s", meta.name, field, meta
            )
        self.registered_states[meta.name] = made
        return made

    def _refusal(
        self, state: HeapOperatorState, meta: RegisteredOperatorStateMeta, rule: str
    ) -> StateRegistrationError:
        error = StateRegistrationError if meta.name in self._requested else StateMigrationError
        return error(
            f"operator state {meta.name!r} is {state.meta}, and is requested as {meta}: {rule}",
            state=meta.name,
        )
