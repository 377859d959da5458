"""Methods of a state for the runtime and time to live, not for users (Flink: ``InternalKvState``)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from pyflinkstate.api.values import Stored
from pyflinkstate.errors import StateValueError


class StateEntry(Protocol):
    """One entry of a state, reached by a visitor."""

    def stored(self) -> Stored:
        """Return the value that is stored now, which must not be changed; None if the entry is gone."""

    def writable(self) -> Stored:
        """Return the value that is stored now, which no snapshot shares; None if the entry is gone."""

    def update(self, stored: Stored) -> None:
        """Store another value; None removes the entry."""


class StateVisitor(Protocol):
    """Walks all entries of a state, over all keys and namespaces, again and again."""

    def next_entries(self) -> list[StateEntry]:
        """Return the entries of the next places; there may be none."""


class InternalState(Protocol):
    """A state of any kind, bound to the current key and namespace."""

    def set_current_namespace(self, namespace: Hashable) -> None:
        """Bind the state to ``namespace``; raise ``StateValueError`` if it does not fit."""

    def get_internal(self) -> Stored:
        """Return the stored value, or None."""

    def update_internal(self, stored: Stored) -> None:
        """Store ``stored`` without a check; None clears the entry."""

    def clear(self) -> None:
        """Remove the stored value."""

    def refusal(self, reason: object) -> StateValueError:
        """Return an error that names state and key."""

    def visitor(self, max_positions: int) -> StateVisitor:
        """Return a visitor that looks at up to ``max_positions`` places at a time."""

    def set_snapshot_transformer(self, factory: Callable[[], Callable[[Stored], Stored]]) -> None:
        """Let each snapshot pass stored values through a transformer of its own; None drops an entry."""
