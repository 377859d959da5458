"""The plain map behind synchronous snapshots (Flink: ``NestedStateMap``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from pyflinkstate.api.values import Key, Stored
from pyflinkstate.backends.heap.state_map import (
    Columns,
    StateIncrementalVisitor,
    StateMap,
    StateMapSnapshot,
    StateSnapshotTransformer,
    StateTransformationFunction,
    transformed,
)
from pyflinkstate.errors import ConcurrentModificationError


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

    def put_and_get_old(self, key: Hashable, value: Stored) -> Stored:
        old = self._entries.get(key)
        self.put(key, value)
        return old

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

    __slots__ = ("_keys", "_map", "_max_positions", "_position")

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

    __slots__ = ("_entries",)

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
