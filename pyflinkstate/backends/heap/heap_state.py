"""What the five heap states have in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from pyflinkstate.api import Stored, safe_repr
from pyflinkstate.backends.bound_state import BoundState, KeyContext
from pyflinkstate.backends.heap.copy_on_write_state_map import CopyOnWriteStateMap
from pyflinkstate.backends.types import VOID_NAMESPACE, may_hold_nan
from pyflinkstate.backends.values.nan import refuse_nan
from pyflinkstate.errors import NoCurrentKeyError, StateValueError

if TYPE_CHECKING:
    from pyflinkstate.backends.heap.state_table import StateTable


class HeapState(BoundState):
    """What the five views have in common: where the entry is, and errors that name state and key."""

    def __init__(self, table: StateTable, context: KeyContext) -> None:
        self._table = table
        self._maps: list[CopyOnWriteStateMap] = table.maps
        self._context = context
        #: The state's name.
        self.name: str = table.meta.name
        self.namespace_type = table.meta.namespace_type
        self._is_namespaced: bool = table.meta.is_namespaced
        self.namespace_may_hold_nan: bool = self._is_namespaced and may_hold_nan(self.namespace_type)
        #: None for the void namespace, and until a namespace is set.
        self.namespace: Hashable = None

    def set_current_namespace(self, namespace: Hashable) -> None:
        """Bind the state to ``namespace``."""
        checked = self._checked_namespace(namespace)
        self.namespace = None if checked is VOID_NAMESPACE else checked

    def clear(self) -> None:
        self._map().remove(self._entry_key())

    def get_internal(self) -> Any:
        """Return what is stored under the current key and namespace, or None."""
        return self._map().get(self._entry_key())

    def update_internal(self, stored: Stored) -> None:
        """Store ``stored`` as it is; None clears the entry."""
        if stored is None:
            self.clear()
        else:
            self._map().put(self._entry_key(), stored)

    def add_in(self, namespace: Hashable, value: Stored) -> bool:
        """Add ``value``, which is not None, to what is stored under the current key and ``namespace``.

        The caller has set a key, and has checked the namespace by setting it once.

        Returns:
            Whether nothing was stored there.
        """
        raise NotImplementedError

    def result_in(self, namespace: Hashable) -> Stored:
        """Return what a user would read under the current key and ``namespace``, or None if there is nothing.

        A list is the stored one.
        """
        context = self._context
        return self._maps[context.map_index].get((context.key, namespace))

    def clear_in(self, namespace: Hashable) -> None:
        """Remove what is stored under the current key and ``namespace``."""
        context = self._context
        self._maps[context.map_index].remove((context.key, namespace))

    def refusal(self, reason: object) -> StateValueError:
        """Return the error for a value that this state cannot take under the current key."""
        key = safe_repr(self._context.key)
        return StateValueError(f"state {self.name!r}, key {key}: {reason}", state=self.name, key=key)

    def visitor(self, max_positions: int) -> Stored:
        """Return a visitor over all entries of the state."""
        return self._table.visitor(max_positions)

    def set_snapshot_transformer(self, factory: Callable[[], Callable[[Stored], Stored]]) -> None:
        """Let each snapshot pass stored values through a transformer of its own."""
        self._table.snapshot_transformer_factory = factory

    def _map(self) -> CopyOnWriteStateMap:
        index = self._context.map_index
        if index < 0:
            raise self._no_key()
        return self._maps[index]

    def _entry_key(self) -> Hashable:
        namespace = self.namespace
        return self._context.key if namespace is None else (self._context.key, namespace)

    def _entry_key_in(self, namespace: Hashable) -> Hashable:
        checked = self._checked_namespace(namespace)
        return self._context.key if checked is VOID_NAMESPACE else (self._context.key, checked)

    def _checked_namespace(self, namespace: Hashable) -> Hashable:
        try:
            if namespace is None:
                raise ValueError("a namespace must not be None")
            if namespace is VOID_NAMESPACE and self._is_namespaced:
                raise ValueError("the void namespace cannot be used with a state that is split by namespace")
            checked: Hashable = self.namespace_type.check_key(namespace)
            hash(checked)
            if self.namespace_may_hold_nan:
                refuse_nan(checked)
            return checked
        except (ValueError, TypeError) as error:
            raise self.refusal(f"namespace: {error}") from None

    def _no_key(self) -> NoCurrentKeyError:
        return NoCurrentKeyError(
            f"state {self.name!r} was used with no key set: use keyed state while a record is "
            f"processed, not in open() or close()",
            state=self.name,
        )
