"""Methods of a state for the runtime and time to live, not for users (Flink: ``InternalKvState``)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from pyflinkstate.api.values import Stored
from pyflinkstate.errors import StateValueError


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
