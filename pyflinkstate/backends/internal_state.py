"""What the runtime and time to live ask of a state beyond what a user may (Flink: ``InternalKvState``)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from pyflinkstate.api.values import Stored
from pyflinkstate.errors import StateValueError


class StateEntry(Protocol):
    """One entry of a state, reached by a visitor."""

    def stored(self) -> Stored:
        """Return what is stored now, not to be changed through; None when the entry is gone."""

    def writable(self) -> Stored:
        """Return what is stored now, shared with no snapshot; None when the entry is gone."""

    def update(self, stored: Stored) -> None:
        """Store something else; None removes the entry."""


class StateVisitor(Protocol):
    """Walks all entries of a state, over all keys and namespaces, again and again."""

    def next_entries(self) -> list[StateEntry]:
        """Return the entries of the next places, maybe none."""


class InternalState(Protocol):
    """A state of any kind, bound to the current key and namespace."""

    def set_current_namespace(self, namespace: Hashable) -> None:
        """Bind the state to ``namespace``; raises ``StateValueError`` where it does not fit."""

    def get_internal(self) -> Stored:
        """Return what is stored, or None."""

    def update_internal(self, stored: Stored) -> None:
        """Store ``stored`` unchecked; None clears."""

    def clear(self) -> None:
        """Remove what is stored."""

    def refusal(self, reason: object) -> StateValueError:
        """Return an error that names state and key."""

    def visitor(self, max_positions: int) -> StateVisitor:
        """Return a visitor that looks at no more than ``max_positions`` places at a time."""

    def set_snapshot_transformer(self, factory: Callable[[], Callable[[Stored], Stored]]) -> None:
        """Have each snapshot pass stored values through a transformer of its own; None drops an entry."""
