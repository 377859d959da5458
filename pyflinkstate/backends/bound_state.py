"""The current key, and what time to live sees of a state that is bound to it.

``KeyContext`` and ``BoundState`` are compiled classes and no protocols, so that each access calls them
natively.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from pyflinkstate.api.values import Key, Stored

#: A function that is called with each key that is selected (Flink: ``KeySelectionListener``).
KeySelectionListener = Callable[[Key], None]


class KeyContext:
    """The key that states are bound to, and where its entries are (Flink: ``InternalKeyContext``).

    ``map_index`` is the key group of the key minus the start of the backend's range, or -1 if no key is set.
    """

    __slots__ = ("_listeners", "key", "map_index")

    def __init__(self) -> None:
        self.key: Hashable = None
        self.map_index = -1
        self._listeners: tuple[KeySelectionListener, ...] = ()

    def select(self, key: Hashable, map_index: int) -> None:
        """Bind states to ``key`` and tell the listeners."""
        self.key = key
        self.map_index = map_index
        if self._listeners:
            for listener in self._listeners:
                listener(key)

    def clear(self) -> None:
        """Bind states to no key."""
        self.key = None
        self.map_index = -1

    def add_listener(self, listener: KeySelectionListener) -> None:
        """Call ``listener`` for every key that is selected from now on."""
        self._listeners = (*self._listeners, listener)


class BoundState:
    """What is stored under the current key and namespace."""

    __slots__ = ()

    def get_internal(self) -> Any:
        """Return the stored value, or None."""
        raise NotImplementedError

    def update_internal(self, stored: Stored) -> None:
        """Store ``stored`` as it is; None clears the entry."""
        raise NotImplementedError


class StateEntries(Protocol):
    """Some entries of a state, by their entry keys: the key, or the pair of key and namespace."""

    def peek(self, key: Hashable) -> Stored:
        """Return the value that is stored now, which must not be changed; None if the entry is gone."""

    def get(self, key: Hashable) -> Stored:
        """Return the value that is stored now, which no snapshot shares; None if the entry is gone."""

    def put(self, key: Hashable, value: Stored) -> None:
        """Store another value."""

    def remove(self, key: Hashable) -> None:
        """Remove the entry if it is there."""


class StateVisitor(Protocol):
    """Walks all entries of a state, over all keys and namespaces, again and again."""

    @property
    def state_map(self) -> StateEntries:
        """Where the entries are that were returned last."""

    def has_next(self) -> bool:
        """Return whether there are places left before the walk starts again."""

    def restart(self) -> None:
        """Start again."""

    def next_columns(self) -> tuple[list[Hashable], list[Stored]]:
        """Return entry keys and values of the next place, as they are now; there may be none."""
