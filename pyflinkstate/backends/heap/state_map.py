"""The map that holds one key group of a state (Flink: ``StateMap``), and the plain one behind synchronous
snapshots.

A map does not deal with namespaces: an *entry key* is the key alone if a state has the void namespace,
otherwise it is the pair ``(key, namespace)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final

from pyflinkstate.api import Key, Stored
from pyflinkstate.errors import ConcurrentModificationError

#: Combines the stored value (None if there is none) with a new one.
StateTransformationFunction = Callable[[Stored, Stored], Stored]

#: Returns what a snapshot writes for a stored value; None drops the entry.
StateSnapshotTransformer = Callable[[Stored], Stored]

Columns = tuple[list[Hashable], list[Stored]]


class _Absent:
    """Tells a missing entry from an entry that is None."""


ABSENT: Final = _Absent()


class StateMap(ABC):
    """The entries of one state and key group."""

    @abstractmethod
    def size(self) -> int:
        """Return the number of entries."""

    @abstractmethod
    def get(self, key: Hashable) -> Any:
        """Return the value of ``key``, or None; a changeable value is safe to change."""

    @abstractmethod
    def peek(self, key: Hashable) -> Any:
        """Return the value of ``key``, or None; the caller must not change it."""

    @abstractmethod
    def owned(self, key: Hashable) -> Any:
        """Return the value of ``key`` if it can change and no snapshot shares it, else None."""

    @abstractmethod
    def put(self, key: Hashable, value: Stored) -> None:
        """Set the value of ``key``."""

    @abstractmethod
    def contains_key(self, key: Hashable) -> bool:
        """Return whether ``key`` is present, even if its value is None."""

    @abstractmethod
    def remove(self, key: Hashable) -> None:
        """Remove ``key`` if it is present."""

    @abstractmethod
    def remove_and_get_old(self, key: Hashable) -> Any:
        """Remove ``key`` and return its value, or None."""

    @abstractmethod
    def transform(self, key: Hashable, value: Stored, function: StateTransformationFunction) -> bool:
        """Set the value of ``key`` to ``function(stored value, value)``; return whether there was none.

        If the function raises, nothing changes; Flink leaves an entry without a value behind.
        """

    @abstractmethod
    def load(self, keys: list[Key], values: list[Stored]) -> None:
        """Put many entries at once, as a restore does."""

    @abstractmethod
    def items(self) -> Iterator[tuple[Hashable, Stored]]:
        """Iterate over the entries; values are safe to change.

        Raises:
            ConcurrentModificationError: a key was added or removed meanwhile. Setting the value of a
                existing key is allowed.
        """

    @abstractmethod
    def incremental_visitor(self, max_positions: int) -> StateIncrementalVisitor:
        """Return a visitor that looks at up to ``max_positions`` places of the map at a time."""

    @abstractmethod
    def snapshot(self) -> StateMapSnapshot:
        """Return a read-only snapshot of the map, which must be released."""

    def track_changes(self) -> None:
        """From now on, record which keys change; without this, every checkpoint is a full one."""
        raise NotImplementedError

    def note_changes(self, keys: Iterable[Hashable]) -> None:
        """Record that ``keys`` have changed, if changes are tracked."""
        return

    def take_changes(self) -> set[Hashable]:
        """Return the keys that changed since the last call, and start again."""
        return set()

    def all_keys(self) -> list[Hashable]:
        """Return all keys, as they are now."""
        with self.snapshot() as snapshot:
            return snapshot.columns()[0]


class StateIncrementalVisitor(ABC):
    """Walks a map bit by bit while it changes, with relaxed consistency.

    An entry that is present all the time is seen at least once, and twice if it moves meanwhile.
    """

    @abstractmethod
    def has_next(self) -> bool:
        """Return whether there are places left to look at."""

    @abstractmethod
    def next_columns(self) -> Columns:
        """Return keys and values of the next non-empty place; maybe there are none.

        The values must not be changed.
        """


class StateMapSnapshot(ABC):
    """The contents of a map at one moment. Release it, or use it as a context manager."""

    @abstractmethod
    def size(self) -> int:
        """Return the number of entries, or 0 after the release."""

    @abstractmethod
    def columns(self, transformer: StateSnapshotTransformer | None = None) -> Columns:
        """Return all keys and, in the same order, all values, changed by ``transformer`` if there is one."""

    def parts(self, transformer: StateSnapshotTransformer | None = None) -> Iterator[Columns]:
        """Yield the same as :meth:`columns`, some entries at a time."""
        yield self.columns(transformer)

    def look_up(self, keys: Iterable[Hashable]) -> list[Stored]:
        """Return the value that each key had, or :data:`ABSENT` if it had none."""
        raise NotImplementedError

    @abstractmethod
    def release(self) -> None:
        """Make the map forget the snapshot. Idempotent, and allowed on any thread."""

    def __enter__(self) -> StateMapSnapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def items(self) -> Iterator[tuple[Hashable, Stored]]:
        """Iterate over the entries."""
        return zip(*self.columns(), strict=True)


def transformed(keys: list[Hashable], values: list[Stored], transformer: StateSnapshotTransformer) -> Columns:
    """Return the columns without the entries for which ``transformer`` returns None."""
    kept_keys: list[Hashable] = []
    kept_values: list[Stored] = []
    for key, value in zip(keys, values, strict=True):
        kept = transformer(value)
        if kept is not None:
            kept_keys.append(key)
            kept_values.append(kept)
    return kept_keys, kept_values


class NestedStateMap(StateMap):
    """A dict of one key group's entries. Its snapshot is the dict itself, and valid until the next change."""

    __slots__ = ("_entries", "_mod_count")

    def __init__(self) -> None:
        self._entries: dict[Hashable, Stored] = {}
        self._mod_count = 0

    def size(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> Stored:
        return self._entries.get(key)

    def peek(self, key: Hashable) -> Stored:
        return self._entries.get(key)

    def owned(self, key: Hashable) -> Stored:
        return self._entries.get(key)

    def put(self, key: Hashable, value: Stored) -> None:
        before = len(self._entries)
        self._entries[key] = value
        self._mod_count += len(self._entries) - before

    def contains_key(self, key: Hashable) -> bool:
        return key in self._entries

    def remove(self, key: Hashable) -> None:
        self.remove_and_get_old(key)

    def remove_and_get_old(self, key: Hashable) -> Stored:
        if key not in self._entries:
            return None
        self._mod_count += 1
        return self._entries.pop(key)

    def transform(self, key: Hashable, value: Stored, function: StateTransformationFunction) -> bool:
        old = self._entries.get(key)
        self.put(key, function(old, value))
        return old is None

    def load(self, keys: list[Key], values: list[Stored]) -> None:
        self._entries.update(zip(keys, values, strict=True))
        self._mod_count += 1

    def items(self) -> Iterator[tuple[Hashable, Stored]]:
        expected = self._mod_count
        for key in self._entries:
            yield key, self._entries[key]
            if self._mod_count != expected:
                raise ConcurrentModificationError(
                    "a key was added to or removed from the state during iteration"
                )

    def incremental_visitor(self, max_positions: int) -> NestedStateMapVisitor:
        return NestedStateMapVisitor(self, max_positions)

    def snapshot(self) -> NestedStateMapSnapshot:
        return NestedStateMapSnapshot(self._entries)

    def _check(self) -> None:
        """Assert every invariant: there is none beyond the dict's own."""


class NestedStateMapVisitor(StateIncrementalVisitor):
    """Visits the keys that were present at the beginning and still are."""

    def __init__(self, state_map: NestedStateMap, max_positions: int) -> None:
        self._map = state_map
        self._max_positions = max_positions
        self._keys = list(state_map._entries)
        self._position = 0

    def has_next(self) -> bool:
        return self._position < len(self._keys)

    def next_columns(self) -> Columns:
        end = self._position + self._max_positions
        entries = self._map._entries
        keys = [key for key in self._keys[self._position : end] if key in entries]
        self._position = end
        return keys, [entries[key] for key in keys]


class NestedStateMapSnapshot(StateMapSnapshot):
    """The live entries, which must be read before the owner goes on."""

    def __init__(self, entries: dict[Hashable, Stored]) -> None:
        self._entries: dict[Hashable, Stored] | None = entries

    @property
    def is_released(self) -> bool:
        """Whether the snapshot is released, and therefore empty."""
        return self._entries is None

    def size(self) -> int:
        return 0 if self._entries is None else len(self._entries)

    def columns(self, transformer: StateSnapshotTransformer | None = None) -> Columns:
        entries = self._entries or {}
        keys, values = list(entries), list(entries.values())
        return (keys, values) if transformer is None else transformed(keys, values, transformer)

    def release(self) -> None:
        self._entries = None


class StateTableVisitor:
    """Walks the maps of a table one after the other, and starts again after the last.

    Args:
        maps: the maps of the table, which may be replaced by others in this list.
        max_positions: how many places of a map are looked at each time, until one has entries.
    """

    def __init__(self, maps: list[StateMap], max_positions: int) -> None:
        self._maps = maps
        self._max_positions = max_positions
        self._index = 0
        self._visited: StateMap = maps[0]
        self._visitor: StateIncrementalVisitor = maps[0].incremental_visitor(max_positions)

    @property
    def state_map(self) -> StateMap:
        """The map of the entries that were returned last."""
        return self._visited

    def has_next(self) -> bool:
        """Return whether there are places left before the walk starts again."""
        return self._visitor.has_next() or self._index + 1 < len(self._maps)

    def next_columns(self) -> Columns:
        """Return keys and values of the next non-empty place, which must not be changed.

        They are empty if ``max_positions`` places were.
        """
        if self._visited is not self._maps[self._index]:
            self._begin()
        elif not self._visitor.has_next():
            self._index = (self._index + 1) % len(self._maps)
            self._begin()
        return self._visitor.next_columns()

    def restart(self) -> None:
        """Start again."""
        self._index = 0
        self._begin()

    def _begin(self) -> None:
        self._visited = self._maps[self._index]
        self._visitor = self._visited.incremental_visitor(self._max_positions)
