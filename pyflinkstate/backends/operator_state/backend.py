"""The operator state backend: the operator states of one subtask, by name."""

from __future__ import annotations

from pyflinkstate.api.checkpointed import OperatorStateStore
from pyflinkstate.api.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from pyflinkstate.api.state import BroadcastState, ListState
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import AnyState, StateValue
from pyflinkstate.backends.operator_state.states import HeapOperatorState, create_operator_state
from pyflinkstate.backends.snapshots import RunningSnapshots
from pyflinkstate.backends.types import OperatorStateMode, RegisteredOperatorStateMeta, unsealing
from pyflinkstate.errors import StateMigrationError, StateRegistrationError, UnsupportedFeatureError


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
            state = self._unsealed(state, meta)
        self._requested.add(meta.name)
        return state

    def _unsealed(self, state: HeapOperatorState, meta: RegisteredOperatorStateMeta) -> HeapOperatorState:
        """Give restored state its requested type, once all of its pickles are loaded."""
        if state.meta.mode is not meta.mode or unsealing(state.meta.stored_type, meta.stored_type) is None:
            error = StateRegistrationError if meta.name in self._requested else StateMigrationError
            raise error(
                f"operator state {meta.name!r} is {state.meta}, and is requested as {meta}: neither its "
                f"redistribution mode nor its type can change",
                state=meta.name,
            )
        made = create_operator_state(meta)
        columns = zip(state.columns(), state.meta.columns, meta.columns, strict=True)
        try:
            made.load(tuple(_converted(values, was, now) for values, (_, was), (_, now) in columns))
        except StateMigrationError as error:
            raise StateMigrationError(f"operator state {meta.name!r}: {error}", state=meta.name) from error
        self.registered_states[meta.name] = made
        return made


def _converted(values: list[StateValue], was: TypeInformation, now: TypeInformation) -> list[StateValue]:
    unseal = unsealing(was, now)
    assert unseal is not None
    return list(map(unseal, values))
