"""The keyed state backend whose state may exceed memory: the heap's, with maps of which a part is on disk.

States, time to live, snapshots and restores are those of the heap backend. They see the maps only
through the interface of ``CopyOnWriteStateMap``. Timers stay in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from pyflinkstate.api import Stored, TypeInformation
from pyflinkstate.backends.heap import CopyOnWriteStateMap, DiskStatus, HeapKeyedStateBackend, StateTable
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.rocksdb.cold_entries import ColdEntries, EntrySizes
from pyflinkstate.backends.rocksdb.cold_store import ColdStore
from pyflinkstate.backends.rocksdb.tiered_state_map import TieredStateMap, fetch_all
from pyflinkstate.backends.types import RegisteredStateMeta, unchanged, value_copier
from pyflinkstate.backends.wall_clock import wall_clock_ms

#: The memory of an entry besides its value: its key, and its place in the map.
_ENTRY_BYTES = 200
#: A frame's keys are read at once if more than one in so many was not in memory.
_FEW = 16
#: Each so many calls the size of one entry of a state is looked at.
_CALLS_A_SAMPLE = 8


class TieredStateTable(StateTable):
    """A table whose maps lie partly on disk."""

    def __init__(self, meta: RegisteredStateMeta, key_group_range: KeyGroupRange, store: ColdStore) -> None:
        self._store = store
        #: The number of keys of the last frame that were read before it.
        self._fetched = 0
        #: How many keys the frames since the last report had, and how many of them were not in memory.
        self._keys = self._missed = 0
        super().__init__(meta, key_group_range)

    def new_maps(self, meta: RegisteredStateMeta) -> list[CopyOnWriteStateMap]:
        copy_value = value_copier(meta.stored_type)
        state_id, self._sizes = self._store.new_state_id(), EntrySizes(meta.name)
        return [
            TieredStateMap(copy_value, ColdEntries(self._store, state_id, key_group, self._sizes))
            for key_group in self.key_group_range
        ]

    def tiered_maps(self) -> list[TieredStateMap]:
        """Return the maps as what they are."""
        return self.maps  # type: ignore[return-value]

    def entries_to_convert(self, state_map: CopyOnWriteStateMap) -> dict[Hashable, Stored]:
        with state_map.snapshot() as snapshot:  # what is on disk stays there, and loading a map copies
            return dict(snapshot.items())

    def set_meta(
        self,
        meta: RegisteredStateMeta,
        convert: Callable[[Stored], Stored] = unchanged,
        changes_values: bool = True,
    ) -> None:
        before = self.tiered_maps()[:]
        super().set_meta(meta, convert, changes_values)
        for old, new in zip(before, self.maps, strict=True):
            if old is not new:
                old.drop_cold()

    def fetch(self, indexes: list[int], keys: Sequence[Hashable]) -> None:
        """Read the keys of a frame at once, if many of those of the frames before it were not in memory."""
        few, misses = len(keys) // _FEW, self._sizes.misses
        self._keys += len(keys)
        self._missed += misses
        self._sizes.misses = 0
        if (self._fetched > few or misses > few) and not self.meta.is_namespaced:
            self._fetched = fetch_all(self.tiered_maps(), indexes, keys)
            self._missed += self._fetched

    @property
    def knows_sizes(self) -> bool:
        """Whether the size of any value is known."""
        return self._sizes.average() > 0

    def sample(self, number: int) -> None:
        """Look at the size of an entry of one map, another one with the next number."""
        filled = [state_map for state_map in self.tiered_maps() if state_map.entries_in_memory]
        if filled:
            filled[number % len(filled)].sample()

    def bytes_in_memory(self) -> int:
        """Return the approximate size of what is in memory."""
        return sum(state_map.entries_in_memory for state_map in self.tiered_maps()) * self._entry_bytes()

    def take_hit_rate(self) -> float | None:
        """Return the share of the keys since the last call that were in memory; None if there were none."""
        keys, missed = self._keys, self._missed
        self._keys = self._missed = 0
        return max(0.0, 1 - missed / keys) if keys else None

    def _entry_bytes(self) -> int:
        return _entry_bytes(self.tiered_maps()[0]) if self.maps else 0


def _entry_bytes(state_map: TieredStateMap) -> int:
    """Return the approximate memory of an entry of a state."""
    return _ENTRY_BYTES + state_map.average_value_bytes * 2


class RocksDBKeyedStateBackend(HeapKeyedStateBackend):
    """Keeps hot state as objects, and the other state in RocksDB (Flink: ``RocksDBKeyedStateBackend``).

    Args:
        key_type: as for :class:`HeapKeyedStateBackend`, with the next three.
        key_group_range: see there.
        max_parallelism: see there.
        clock: see there.
        store: the store for what is not in memory; it is closed with the backend.
        objects_bytes: the approximate memory for the objects of state.
    """

    def __init__(
        self,
        key_type: TypeInformation,
        key_group_range: KeyGroupRange,
        max_parallelism: int,
        *,
        clock: Callable[[], int] = wall_clock_ms,
        store: ColdStore,
        objects_bytes: int,
    ) -> None:
        super().__init__(key_type, key_group_range, max_parallelism, clock=clock)
        self._store = store
        self._objects_bytes = objects_bytes
        self._calls = 0
        self._next_to_age = 0

    def new_table(self, meta: RegisteredStateMeta) -> StateTable:
        return TieredStateTable(meta, self.key_group_range, self._store)

    def before_frame(self, indexes: list[int], keys: Sequence[Hashable]) -> None:
        for table in self._tables():
            table.fetch(indexes, keys)

    def make_room(self) -> None:
        maps = [state_map for table in self._tables() for state_map in table.tiered_maps()]
        if not maps:
            return
        self._calls += 1
        for table in self._tables():
            if self._calls % _CALLS_A_SAMPLE == 0 or not table.knows_sizes:
                table.sample(self._calls // _CALLS_A_SAMPLE)
        excess = sum(table.bytes_in_memory() for table in self._tables()) - self._objects_bytes
        # After two rounds nothing is left in memory.
        for _ in range(2 * len(maps)):
            if excess <= 0:
                return
            self._next_to_age = (self._next_to_age + 1) % len(maps)
            aged = maps[self._next_to_age]
            before = aged.entries_in_memory
            aged.age()
            excess -= (before - aged.entries_in_memory) * _entry_bytes(aged)

    def disk_status(self) -> DiskStatus:
        tables = self.registered_kv_states.keys(), self._tables()
        return DiskStatus(
            self._store.properties(),
            {name: table.bytes_in_memory() for name, table in zip(*tables, strict=True)},
            {name: table.take_hit_rate() for name, table in zip(*tables, strict=True)},
        )

    def _tables(self) -> list[TieredStateTable]:
        return list(self.registered_kv_states.values())  # type: ignore[arg-type]

    def discard(self) -> None:
        self._store.close(is_in_use=True)

    def dispose(self) -> None:
        super().dispose()
        self._store.close()
