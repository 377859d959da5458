"""A state table: all entries of one state in one subtask, as one map for each key group."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from pyflinkstate.backends.heap.state_map import CopyOnWriteStateMap, CopyOnWriteStateMapSnapshot
from pyflinkstate.backends.key_groups import KeyGroupRange
from pyflinkstate.backends.serializers import value_copier
from pyflinkstate.backends.state_meta import RegisteredStateMeta


class CopyOnWriteStateTable:
    """One copy-on-write map for each key group of ``key_group_range``, in order."""

    def __init__(self, meta: RegisteredStateMeta, key_group_range: KeyGroupRange) -> None:
        self.meta = meta
        self.key_group_range = key_group_range
        copy_value = value_copier(meta.stored_type)
        #: Indexed by key group less the range's start.
        self.maps = [CopyOnWriteStateMap(copy_value) for _ in key_group_range]

    def __len__(self) -> int:
        """The number of entries, over all key groups."""
        return sum(map(len, self.maps))

    def map_of(self, key_group: int) -> CopyOnWriteStateMap:
        """Return the map of ``key_group``, which must be in the range."""
        return self.maps[key_group - self.key_group_range.start]

    def keys(self) -> Iterator[Hashable]:
        """Iterate over all keys that have an entry, as they are now."""
        for state_map in self.maps:
            for key, _ in state_map.items():
                yield key

    def items(self) -> Iterator[tuple[Hashable, Any]]:
        """Iterate over all entries, as they are now."""
        for state_map in self.maps:
            yield from state_map.items()

    def snapshot(self) -> CopyOnWriteStateTableSnapshot:
        """Return what the table holds now. Milliseconds at millions of entries."""
        return CopyOnWriteStateTableSnapshot(self)


class CopyOnWriteStateTableSnapshot:
    """What a table held at one moment; key groups are released one by one as they are written."""

    def __init__(self, table: CopyOnWriteStateTable) -> None:
        self.meta = table.meta
        self.key_group_range = table.key_group_range
        self._maps = [state_map.snapshot() for state_map in table.maps]

    def key_groups(self) -> Iterator[tuple[int, CopyOnWriteStateMapSnapshot]]:
        """Iterate over ``(key group, snapshot of its map)``; each is released when the next is asked for."""
        for key_group, snapshot in zip(self.key_group_range, self._maps, strict=True):
            with snapshot:
                yield key_group, snapshot

    def release(self) -> None:
        """Release what is not yet released. Idempotent."""
        for snapshot in self._maps:
            snapshot.release()
