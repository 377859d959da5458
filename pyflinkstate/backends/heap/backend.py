"""The heap keyed state backend: the state tables and timer queues of one subtask, by name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from pyflinkstate.api import AnyState, Key, StateDescriptor, TypeInformation, safe_repr
from pyflinkstate.backends.bound_state import KeyContext, KeySelectionListener
from pyflinkstate.backends.heap.state_table import CopyOnWriteStateTable, NestedMapsStateTable, StateTable
from pyflinkstate.backends.heap.states import HEAP_STATES
from pyflinkstate.backends.heap.timer_queue import TIMER_STATE_PREFIX, TimerQueue
from pyflinkstate.backends.keys import (
    KeyGroupRange,
    KeyHasher,
    key_group_of_hash,
)
from pyflinkstate.backends.snapshots import RunningSnapshots
from pyflinkstate.backends.ttl import create_ttl_state, rules_of, with_timestamps
from pyflinkstate.backends.types import (
    VOID_NAMESPACE,
    VOID_NAMESPACE_TYPE,
    RegisteredQueueMeta,
    RegisteredStateMeta,
    state_migration,
)
from pyflinkstate.backends.wall_clock import wall_clock_ms
from pyflinkstate.errors import (
    KeyGroupRangeError,
    NoCurrentKeyError,
    StateMigrationError,
    StateRegistrationError,
)

_log = logging.getLogger("pyflinkstate.state")

MAX_STATES = 32767  # Short.MAX_VALUE, Flink's bound on states per backend


class HeapKeyedStateBackend:
    """Keeps keyed state on the heap of one process (Flink: ``HeapKeyedStateBackend``).

    Args:
        key_type: the declared type of keys, or ``Types.PICKLED_BYTE_ARRAY()``.
        key_group_range: the key groups that this subtask owns.
        max_parallelism: the number of key groups in all.
        async_snapshots: whether snapshots are written while state goes on changing.
        clock: returns the time in ms by which state expires.
    """

    def __init__(
        self,
        key_type: TypeInformation,
        key_group_range: KeyGroupRange,
        max_parallelism: int,
        *,
        async_snapshots: bool = True,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.key_type = key_type
        self.key_group_range = key_group_range
        self.max_parallelism = max_parallelism
        self.async_snapshots = async_snapshots
        self.clock = clock
        self.key_context = KeyContext()
        self.registered_kv_states: dict[str, StateTable] = {}
        self.registered_queues: dict[str, TimerQueue] = {}
        #: The snapshots that are being written; closing the backend cancels them.
        self.snapshots = RunningSnapshots()
        self._tracks_changes = False
        self._hasher = KeyHasher(key_type)
        self._states: dict[str, object] = {}
        #: The wrappers around the states that expire.
        self._ttl_states: dict[str, object] = {}

    # --- the current key -------------------------------------------------------------------------

    def set_current_key(self, key: Key) -> None:
        """Bind all states to ``key``.

        Raises:
            InvalidKeyError: the value cannot be a key.
            KeyGroupRangeError: the key belongs to another subtask.
        """
        key = self._hasher.check(key)
        self.key_context.select(key, self.key_group_of(key) - self.key_group_range.start)

    def key_group_of(self, key: Hashable) -> int:
        """Return the key group of ``key``; raise ``KeyGroupRangeError`` if it belongs to another subtask."""
        key_group = key_group_of_hash(self._hasher.hashes([key])[0], self.max_parallelism)
        if key_group not in self.key_group_range:
            raise KeyGroupRangeError(
                f"key {safe_repr(key)} is in key group {key_group}, which is not in the range "
                f"{self.key_group_range} of this subtask",
                key=safe_repr(key),
            )
        return key_group

    def get_current_key(self) -> Hashable:
        """Return the key that states are bound to; raise ``NoCurrentKeyError`` if there is none."""
        if self.key_context.map_index < 0:
            raise NoCurrentKeyError("no key is set")
        return self.key_context.key

    def clear_current_key(self) -> None:
        """Bind states to no key: using them raises ``NoCurrentKeyError``."""
        self.key_context.clear()

    def register_key_selection_listener(self, listener: KeySelectionListener) -> None:
        """Call ``listener`` with each key that is selected."""
        self.key_context.add_listener(listener)

    # --- states ------------------------------------------------------------------------------------

    def get_partitioned_state(
        self,
        descriptor: StateDescriptor,
        namespace: Hashable = VOID_NAMESPACE,
        namespace_type: TypeInformation = VOID_NAMESPACE_TYPE,
    ) -> AnyState:
        """Return the state of ``descriptor``, bound to ``namespace``; every call returns the same object.

        Raises:
            StateRegistrationError: the name is in use with another kind or type.
            StateMigrationError: the restored checkpoint has it with another kind or type.
            StateValueError: ``namespace`` does not fit ``namespace_type``.
        """
        state = self.get_or_create_keyed_state(descriptor, namespace_type)
        state.set_current_namespace(namespace)
        return state

    def get_or_create_keyed_state(
        self, descriptor: StateDescriptor, namespace_type: TypeInformation = VOID_NAMESPACE_TYPE
    ) -> AnyState:
        """Return the state of ``descriptor``; its namespace stays as it was."""
        if not isinstance(descriptor, StateDescriptor):
            raise StateRegistrationError(f"a state descriptor is needed, not {descriptor!r}")
        if descriptor.name.startswith(TIMER_STATE_PREFIX):
            raise StateRegistrationError(
                f"state {descriptor.name!r}: names with prefix {TIMER_STATE_PREFIX!r} belong to timers",
                state=descriptor.name,
            )

        if not descriptor.is_ttl_enabled:
            return self._state_of(descriptor, namespace_type, descriptor.allows_pickled_restore, None)
        assert descriptor.ttl_config is not None
        rules = rules_of(descriptor.ttl_config, self.clock)
        inner = self._state_of(
            with_timestamps(descriptor, rules),
            namespace_type,
            descriptor.allows_pickled_restore,
            rules.ttl_ms,
        )
        if descriptor.name not in self._ttl_states:
            self._ttl_states[descriptor.name] = create_ttl_state(
                descriptor, rules, inner, self.register_key_selection_listener
            )
        return self._ttl_states[descriptor.name]

    def _state_of(
        self,
        descriptor: StateDescriptor,
        namespace_type: TypeInformation,
        loads_pickles: bool,
        ttl_ms: int | None,
    ) -> object:
        meta = RegisteredStateMeta(
            descriptor.name, descriptor.kind, descriptor.stored_type, namespace_type, ttl_ms
        )
        table = self.registered_kv_states.get(meta.name)
        if meta.name not in self._states:
            if table is None:
                table = self.create_table(meta)
            else:
                self._migrate(table, meta, loads_pickles)
            self._states[meta.name] = HEAP_STATES[meta.kind](table, self.key_context, descriptor)
        elif table is not None and table.meta != meta:
            raise StateRegistrationError(
                f"state {meta.name!r} is in use as {table.meta}, and is requested as {meta}: choose another "
                f"name, or the same kind and type",
                state=meta.name,
            )
        return self._states[meta.name]

    def _migrate(self, table: StateTable, meta: RegisteredStateMeta, loads_pickles: bool = False) -> None:
        """Give a restored table the type that the program asks for."""
        if table.meta == meta:
            table.meta = meta  # its time to live may be another
            return
        migration = state_migration(table.meta, meta, self.clock, loads_pickles)
        for field in migration.dropped:
            _log.warning("state %r: the field %s is dropped: the program asks for %s", meta.name, field, meta)
        table.set_meta(meta, migration.convert, migration.changes_values)

    def create_table(self, meta: RegisteredStateMeta) -> StateTable:
        """Register a new, empty table."""
        self._check_room()
        kind = CopyOnWriteStateTable if self.async_snapshots else NestedMapsStateTable
        table = kind(meta, self.key_group_range)
        if self._tracks_changes:
            table.track_changes()
        self.registered_kv_states[meta.name] = table
        return table

    def _check_room(self) -> None:
        if len(self.registered_kv_states) + len(self.registered_queues) >= MAX_STATES:
            raise StateRegistrationError(f"too many states: at most {MAX_STATES} per operator")

    # --- timers ------------------------------------------------------------------------------------

    def create_timer_queue(
        self, name: str, namespace_type: TypeInformation = VOID_NAMESPACE_TYPE
    ) -> TimerQueue:
        """Return the queue of timers called ``name``, restored or new (Flink: ``create``).

        Flink's names are ``event_<service>`` and ``processing_<service>``.

        Raises:
            StateMigrationError: the restored queue has another type of namespaces.
        """
        meta = RegisteredQueueMeta(f"{TIMER_STATE_PREFIX}/{name}", namespace_type)
        queue = self.registered_queues.get(meta.name)
        if queue is None:
            return self.create_queue(meta)
        if queue.meta != meta:
            raise StateMigrationError(
                f"the timers {name!r} have namespaces of {queue.meta.namespace_type}, and are requested "
                f"with {namespace_type}",
                state=meta.name,
            )
        return queue

    def create_queue(self, meta: RegisteredQueueMeta) -> TimerQueue:
        """Register a new, empty queue."""
        self._check_room()
        queue = TimerQueue(meta, self.key_group_range)
        if self._tracks_changes:
            queue.track_changes()
        self.registered_queues[meta.name] = queue
        return queue

    # --- changes -----------------------------------------------------------------------------------

    def track_changes(self) -> None:
        """From now on, record what changes, for incremental checkpoints."""
        assert self.async_snapshots
        self._tracks_changes = True
        for state in self._registered().values():
            state.track_changes()

    def take_changes(self) -> dict[str, list[Any]]:
        """Return, for each state and key group, what changed since the last call, and start again."""
        return {name: state.take_changes() for name, state in self._registered().items()}

    def _registered(self) -> dict[str, StateTable | TimerQueue]:
        return {**self.registered_kv_states, **self.registered_queues}

    # --- over all keys -------------------------------------------------------------------------------

    def get_keys(self, name: str, namespace: Hashable = VOID_NAMESPACE) -> Iterator[Hashable]:
        """Iterate over the keys that have an entry of state ``name`` in ``namespace``, each once.

        There are no keys if there is no such state. State may be changed meanwhile; it is undefined whether
        keys that are added or removed then are seen.
        """
        table = self.registered_kv_states.get(name)
        return iter(()) if table is None else table.keys(namespace)

    def get_keys_and_namespaces(self, name: str) -> Iterator[tuple[Hashable, Hashable]]:
        """Iterate over the keys and namespaces that have an entry of state ``name``, each pair once."""
        table = self.registered_kv_states.get(name)
        return iter(()) if table is None else table.keys_and_namespaces()

    def apply_to_all_keys(
        self,
        namespace: Hashable,
        namespace_type: TypeInformation,
        descriptor: StateDescriptor,
        function: Callable[[Hashable, object], None],
    ) -> None:
        """Call ``function(key, state)`` for every key that has an entry of the state in ``namespace``.

        The function may change and clear the state. The current key is restored at the end, even if the
        function raises.
        """
        context = self.key_context
        key, map_index = context.key, context.map_index
        state = self.get_partitioned_state(descriptor, namespace, namespace_type)
        try:
            for visited in list(self.get_keys(descriptor.name, namespace)):
                self.set_current_key(visited)
                function(visited, state)
        finally:
            context.key, context.map_index = key, map_index

    def num_key_value_state_entries(self) -> int:
        """Return the number of entries over all states, one for each key and namespace."""
        return sum(map(len, self.registered_kv_states.values()))

    def dispose(self) -> None:
        """Cancel the snapshots that are being written, and refuse new ones (Flink: ``dispose``)."""
        self.snapshots.close()
