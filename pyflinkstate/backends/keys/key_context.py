"""The key that states are bound to (Flink: ``InternalKeyContext``)."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from pyflinkstate.api.values import Key

#: A function that is called with each key that is selected (Flink: ``KeySelectionListener``).
KeySelectionListener = Callable[[Key], None]


class KeyContext:
    """The current key, and where its entries are.

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
