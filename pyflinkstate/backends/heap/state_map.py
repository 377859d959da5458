"""What a state table asks of the map that holds one key group (Flink: ``StateMap``, ``StateMapSnapshot``).

A map knows nothing of namespaces: an *entry key* is the key alone where a state has the void namespace,
else the pair ``(key, namespace)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final

from pyflinkstate.api.values import Key, Stored

#: Combines what is stored (None where nothing is) with a new value.
StateTransformationFunction = Callable[[Stored, Stored], Stored]

#: Gives what a snapshot writes for a stored value; None drops the entry.
StateSnapshotTransformer = Callable[[Stored], Stored]

Columns = tuple[list[Hashable], list[Stored]]


class _Absent:
    """Tells no entry from an entry that is None."""


ABSENT: Final = _Absent()


class StateMap(ABC):
    """Entries of one state and key group."""

    @abstractmethod
    def size(self) -> int:
        """Return the number of entries."""

    @abstractmethod
    def get(self, key: Hashable) -> Stored:
        """Return the value of ``key``, or None; a changeable value is safe to change."""

    @abstractmethod
    def peek(self, key: Hashable) -> Stored:
        """Return the value of ``key``, or None, not to be changed through."""

    @abstractmethod
    def owned(self, key: Hashable) -> Stored:
        """Return the value of ``key`` if it can change and no snapshot shares it, else None."""

    @abstractmethod
    def put(self, key: Hashable, value: Stored) -> None:
        """Set the value of ``key``."""

    @abstractmethod
    def contains_key(self, key: Hashable) -> bool:
        """Return whether ``key`` is there, also with the value None."""

    @abstractmethod
    def remove(self, key: Hashable) -> None:
        """Remove ``key``, if it is there."""

    @abstractmethod
    def put_and_get_old(self, key: Hashable, value: Stored) -> Stored:
        """Set the value of ``key`` and return the one before, or None."""

    @abstractmethod
    def remove_and_get_old(self, key: Hashable) -> Stored:
        """Remove ``key`` and return its value, or None."""

    @abstractmethod
    def transform(self, key: Hashable, value: Stored, function: StateTransformationFunction) -> None:
        """Set the value of ``key`` to ``function(what is stored, value)``.

        When the function raises, nothing has changed; Flink leaves an entry without a value behind.
        """

    @abstractmethod
    def load(self, keys: list[Key], values: list[Stored]) -> None:
        """Put many entries at once, as a restore does."""

    @abstractmethod
    def items(self) -> Iterator[tuple[Hashable, Stored]]:
        """Iterate over the entries; values are safe to change.

        Raises:
            ConcurrentModificationError: a key was added or removed meanwhile. Setting the value of a
                key that is there is allowed.
        """

    @abstractmethod
    def incremental_visitor(self, max_positions: int) -> StateIncrementalVisitor:
        """Return a visitor that looks at no more than ``max_positions`` places of the map at a time."""

    @abstractmethod
    def snapshot(self) -> StateMapSnapshot:
        """Return what the map holds now, read-only. It must be released."""

    def track_changes(self) -> None:
        """Note from now on which keys change; a map that cannot makes every checkpoint a full one."""
        raise NotImplementedError

    def note_changes(self, keys: Iterable[Hashable]) -> None:
        """Count ``keys`` among those that changed, if anybody wants to know."""
        return

    def take_changes(self) -> set[Hashable]:
        """Return the keys that changed since the last call, and begin anew."""
        return set()

    def all_keys(self) -> list[Hashable]:
        """Return all keys, as they are now."""
        with self.snapshot() as snapshot:
            return snapshot.columns()[0]


class StateIncrementalVisitor(ABC):
    """Walks a map bit by bit while it changes; consistency is relaxed.

    An entry that is there all the time is seen at least once, and twice when it moves meanwhile.
    """

    @abstractmethod
    def has_next(self) -> bool:
        """Return whether there are places left to look at."""

    @abstractmethod
    def next_entries(self) -> list[tuple[Hashable, Stored]]:
        """Return the entries of the next place that has any, not to be changed through; maybe none."""


class StateMapSnapshot(ABC):
    """What a map held at one moment. Release it, or use it as a context manager."""

    @abstractmethod
    def size(self) -> int:
        """Return the number of entries; 0 once it is released."""

    @abstractmethod
    def columns(self, transformer: StateSnapshotTransformer | None = None) -> Columns:
        """Return all keys and, in the same order, all values, as ``transformer`` makes them."""

    def look_up(self, keys: Iterable[Hashable]) -> list[Stored]:
        """Return the value of each key as it was, :data:`ABSENT` where there was none."""
        raise NotImplementedError

    @abstractmethod
    def release(self) -> None:
        """Let the map forget the snapshot. Idempotent, and allowed on any thread."""

    def __len__(self) -> int:
        return self.size()

    def __enter__(self) -> StateMapSnapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def items(self) -> Iterator[tuple[Hashable, Stored]]:
        """Iterate over the entries."""
        return zip(*self.columns(), strict=True)


def transformed(keys: list[Hashable], values: list[Stored], transformer: StateSnapshotTransformer) -> Columns:
    """Return the columns without the entries for which ``transformer`` gives None."""
    kept_keys: list[Hashable] = []
    kept_values: list[Stored] = []
    for key, value in zip(keys, values, strict=True):
        kept = transformer(value)
        if kept is not None:
            kept_keys.append(key)
            kept_values.append(kept)
    return kept_keys, kept_values
