"""The entries of a state as columns, the form in which backends and the checkpoint format exchange them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import attrs

from pyflinkstate.api.values import Key, Namespace, Stored, T
from pyflinkstate.backends.types import StateMeta


@attrs.frozen
class KeyGroupEntries:
    """The entries of one state and key group; ``namespaces`` is None for the void namespace.

    In an increment ``removed`` says which entries were removed; their values mean nothing.
    """

    key_group: int
    keys: list[Key]
    namespaces: list[Namespace] | None
    values: list[Stored]
    removed: list[bool] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def entry_keys(self) -> list[Key]:
        """Return the entry keys, under which a state map finds each entry."""
        return self.keys if self.namespaces is None else list(zip(self.keys, self.namespaces, strict=True))

    def picked(self, key_group: int, rows: list[int]) -> KeyGroupEntries:
        """Return the entries of ``rows``, which belong to ``key_group``."""

        def of(column: list[T]) -> list[T]:
            return [column[row] for row in rows]

        return KeyGroupEntries(
            key_group,
            of(self.keys),
            None if self.namespaces is None else of(self.namespaces),
            of(self.values),
            None if self.removed is None else of(self.removed),
        )


class KeyedStateSnapshot(Protocol):
    """The contents of one state at one moment."""

    @property
    def meta(self) -> StateMeta:
        """The name, kind and types of the state."""

    def key_groups(self) -> Iterator[KeyGroupEntries]:
        """Iterate over the key groups; each may be released when the next is asked for."""

    def release(self) -> None:
        """Release what is not yet released. Idempotent."""
