"""The heap keyed state backend: the state tables of one subtask, by state name."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from pyflinkstate.api.descriptors import StateDescriptor
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.backends.heap.state_table import CopyOnWriteStateTable
from pyflinkstate.backends.heap.states import HEAP_STATES, HeapState, KeyContext
from pyflinkstate.backends.key_groups import KeyGroupRange, key_group_of_hash
from pyflinkstate.backends.key_hashing import KeyHasher
from pyflinkstate.backends.state_meta import RegisteredStateMeta
from pyflinkstate.errors import KeyGroupRangeError, StateRegistrationError

MAX_STATES = 32767  # Short.MAX_VALUE, Flink's bound on states per backend


class HeapKeyedStateBackend:
    """Keeps keyed state on the heap of one process (Flink: ``HeapKeyedStateBackend``).

    Args:
        key_type: the declared type of keys, or ``Types.PICKLED_BYTE_ARRAY()``.
        key_group_range: the key groups that this subtask owns.
        max_parallelism: the number of key groups in all.
    """

    def __init__(
        self, key_type: TypeInformation, key_group_range: KeyGroupRange, max_parallelism: int
    ) -> None:
        self.key_type = key_type
        self.key_group_range = key_group_range
        self.max_parallelism = max_parallelism
        self.key_context = KeyContext()
        self.registered_kv_states: dict[str, CopyOnWriteStateTable] = {}
        self._hasher = KeyHasher(key_type)
        self._views: dict[str, HeapState] = {}

    def set_current_key(self, key: Any) -> None:
        """Bind all states to ``key``.

        Raises:
            InvalidKeyError: the key cannot be one.
            KeyGroupRangeError: the key belongs to another subtask.
        """
        key = self._hasher.check(key)
        key_group = key_group_of_hash(self._hasher.hashes([key])[0], self.max_parallelism)
        if key_group not in self.key_group_range:
            raise KeyGroupRangeError(
                f"key {key!r} is in key group {key_group}, which is not in the range "
                f"{self.key_group_range} of this subtask",
                key=repr(key),
            )
        self.key_context.key = key
        self.key_context.map_index = key_group - self.key_group_range.start

    def get_current_key(self) -> Hashable:
        """Return the key that states are bound to."""
        return self.key_context.key

    def clear_current_key(self) -> None:
        """Bind states to no key: using them raises ``NoCurrentKeyError``."""
        self.key_context.key = None
        self.key_context.map_index = -1

    def get_partitioned_state(self, descriptor: StateDescriptor) -> Any:
        """Return the state of ``descriptor``: the same object whenever it is asked for.

        Raises:
            StateRegistrationError: the name is in use, or was in the restored checkpoint, with
                another kind or type.
        """
        if not isinstance(descriptor, StateDescriptor):
            raise StateRegistrationError(f"a state descriptor is needed, not {descriptor!r}")
        meta = RegisteredStateMeta(descriptor.name, descriptor.kind, descriptor.stored_type)
        table = self.registered_kv_states.get(descriptor.name)
        if table is None:
            table = self.create_table(meta)
        elif table.meta != meta:
            raise self._clash(table.meta, meta)
        view = self._views.get(descriptor.name)
        if view is None:
            view = HEAP_STATES[descriptor.kind](table, self.key_context, descriptor)
            self._views[descriptor.name] = view
        return view

    def create_table(self, meta: RegisteredStateMeta) -> CopyOnWriteStateTable:
        """Register a new, empty table."""
        if len(self.registered_kv_states) >= MAX_STATES:
            raise StateRegistrationError(f"too many states: at most {MAX_STATES} per operator")
        table = CopyOnWriteStateTable(meta, self.key_group_range)
        self.registered_kv_states[meta.name] = table
        return table

    def get_keys(self, name: str) -> Iterator[Hashable]:
        """Iterate over the keys that have an entry in state ``name``; none if there is no such state."""
        table = self.registered_kv_states.get(name)
        return iter(()) if table is None else table.keys()

    def num_key_value_state_entries(self) -> int:
        """Return the number of entries over all states."""
        return sum(map(len, self.registered_kv_states.values()))

    def _clash(self, was: RegisteredStateMeta, requested: RegisteredStateMeta) -> StateRegistrationError:
        return StateRegistrationError(
            f"state {was.name!r} is {was.kind.value} of {was.stored_type} (registered before, or "
            f"restored from a checkpoint), and was requested as {requested.kind.value} of "
            f"{requested.stored_type}: use another name, or the same kind and type",
            state=was.name,
        )
