"""The current key, and what time to live calls of a state that is bound to it at each access.

``KeyContext`` and ``BoundState`` are compiled classes and no protocols, so that each access calls them
natively.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from pyflinkstate.api import Key, Stored

#: A function that is called with each key that is selected (Flink: ``KeySelectionListener``).
KeySelectionListener = Callable[[Key], None]


class KeyContext:
    """The key that states are bound to, and where its entries are (Flink: ``InternalKeyContext``).

    ``map_index`` is the key group of the key minus the start of the backend's range, or -1 if no key is set.
    """

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

    def get_internal(self) -> Any:
        """Return the stored value, or None."""
        raise NotImplementedError

    def update_internal(self, stored: Stored) -> None:
        """Store ``stored`` as it is; None clears the entry."""
        raise NotImplementedError
