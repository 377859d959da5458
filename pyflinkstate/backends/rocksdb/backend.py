"""The keyed state backend whose state may exceed memory: the heap's, with maps of which a part is on disk.

States, time to live, snapshots and restores are those of the heap backend. They see the maps only
through the interface of ``CopyOnWriteStateMap``, and timers through that of ``TimerQueue``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial

from pyflinkstate.api import Stored, TypeInformation
from pyflinkstate.backends.format import (
    CheckpointStreamFactory,
    KeyGroupsStateHandle,
    NativeBase,
    NativeState,
)
from pyflinkstate.backends.heap import (
    CopyOnWriteStateMap,
    DiskStatus,
    HeapKeyedStateBackend,
    StateTable,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.rocksdb.cold_entries import ColdEntries, EntrySizes
from pyflinkstate.backends.rocksdb.cold_store import ColdStore, Fill
from pyflinkstate.backends.rocksdb.entry_forms import EntryForms
from pyflinkstate.backends.rocksdb.native_snapshot import (
    NativeSnapshotStrategy,
    WrittenFiles,
    overlay_strategy,
)
from pyflinkstate.backends.rocksdb.tiered_state_map import (
    TieredStateMap,
    entries_in_memory,
    fetch_all,
    sample_one,
)
from pyflinkstate.backends.rocksdb.tiered_timer_queue import QUEUES, TieredTimerQueue
from pyflinkstate.backends.snapshots import SnapshotStrategyRunner, SnapshotTask
from pyflinkstate.backends.types import RegisteredStateMeta, unchanged, unsealed, value_copier
from pyflinkstate.backends.wall_clock import wall_clock_ms

#: The memory of an entry besides its value: its key, and its place in the map.
_ENTRY_BYTES = 200
#: The memory of a timer, as bytes; timers of one queue may take this share of the memory for objects.
_TIMER_BYTES, _TIMERS_SHARE = 300, 8
_LEAST_TIMERS = 4_000
#: A frame's keys are read at once if more than one in so many was not in memory.
_FEW = 16
#: Each so many calls the size of one entry of a state is looked at.
_CALLS_A_SAMPLE = 8
#: While a checkpoint has the store frozen, memory may be exceeded by this share before the owner thaws it.
_MOST_EXCESS = 0.25


class TieredStateTable(StateTable):
    """A table whose maps lie partly on disk.

    Args:
        meta: as for :class:`StateTable`, with the next one.
        key_group_range: see there.
        store: the store of the subtask.
        key_type: the declared type of keys.
    """

    def __init__(
        self,
        meta: RegisteredStateMeta,
        key_group_range: KeyGroupRange,
        store: ColdStore,
        key_type: TypeInformation,
    ) -> None:
        self._store = store
        self._key_type = key_type
        #: Whether the store came with entries, whose pickles nobody has seen.
        self._was_there = False
        #: The number of keys of the last frame that were read before it.
        self._fetched = 0
        #: How many keys the frames since the last report had, and how many of them were not in memory.
        self._keys = self._missed = 0
        super().__init__(meta, key_group_range)

    def new_maps(self, meta: RegisteredStateMeta) -> list[CopyOnWriteStateMap]:
        copy_value = value_copier(meta.stored_type)
        self._state_id, self._sizes = self._store.new_state_id(), EntrySizes(meta.name)
        return [TieredStateMap(copy_value, cold) for cold in self._cold_entries(meta)]

    def _cold_entries(self, meta: RegisteredStateMeta) -> list[ColdEntries]:
        self._forms = EntryForms.of(self._key_type, meta)
        return [
            ColdEntries(self._store, self._state_id, key_group, self._sizes, self._forms)
            for key_group in self.key_group_range
        ]

    def begin_with(self, state_id: int) -> None:
        """Take the entries in the store that have this number; there must be no others."""
        self._state_id, self._was_there = state_id, True
        self._read_as(self.meta)
        # Delete the entries of key groups that belong to other subtasks.
        owned, state = self.key_group_range, state_id.to_bytes(4, "big")
        self._store.delete_range(state, state + owned.start.to_bytes(2, "big"))
        end = (state_id + 1).to_bytes(4, "big")
        self._store.delete_range(state + (owned.end + 1).to_bytes(2, "big"), end)

    def _read_as(self, meta: RegisteredStateMeta) -> None:
        """Go on with the same records as values of another type."""
        copy_value = value_copier(meta.stored_type)
        for state_map, cold in zip(self.tiered_maps(), self._cold_entries(meta), strict=True):
            state_map.rewrite_as(cold, copy_value)

    def native_state(self) -> NativeState | None:
        """Return where the entries are in the store; None if no checkpoint can keep them."""
        if not self._forms.is_portable:
            return None
        counts = zip(self.key_group_range, map(len, self.maps), strict=True)
        return NativeState(self._state_id, {key_group: count for key_group, count in counts if count})

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
        was = self.meta.stored_type
        if self._was_there and was != meta.stored_type == unsealed(was):
            self._read_as(meta)
            self.meta = meta
            return
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
        sample_one(self.tiered_maps(), number)

    def bytes_in_memory(self) -> int:
        """Return the approximate size of what is in memory."""
        return entries_in_memory(self.tiered_maps()) * self.entry_bytes

    def take_hit_rate(self) -> float | None:
        """Return the share of the keys since the last call that were in memory; None if there were none."""
        keys, missed = self._keys, self._missed
        self._keys = self._missed = 0
        return max(0.0, 1 - missed / keys) if keys else None

    @property
    def entry_bytes(self) -> int:
        """The approximate memory of an entry."""
        return _ENTRY_BYTES + self._sizes.average() * 2


class RocksDBKeyedStateBackend(HeapKeyedStateBackend):
    """Keeps hot state as objects, and the other state in RocksDB (Flink: ``RocksDBKeyedStateBackend``).

    Args:
        key_type: as for :class:`HeapKeyedStateBackend`, with the next three.
        key_group_range: see there.
        max_parallelism: see there.
        clock: see there.
        store: the store for what is not in memory; it is closed with the backend.
        objects_bytes: the approximate memory for the objects of state.
        has_timers_on_disk: whether timers that are not the next ones are on disk too.
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
        has_timers_on_disk: bool = True,
    ) -> None:
        super().__init__(key_type, key_group_range, max_parallelism, clock=clock)
        self._store = store
        self._objects_bytes = objects_bytes
        self._written = WrittenFiles()
        self._calls = 0
        self._next_to_age = 0
        if has_timers_on_disk:
            most_timers = max(objects_bytes // _TIMERS_SHARE // _TIMER_BYTES, _LEAST_TIMERS)
            self.new_queue = partial(TieredTimerQueue, store=store, most_timers=most_timers)

    def new_table(self, meta: RegisteredStateMeta) -> StateTable:
        return TieredStateTable(meta, self.key_group_range, self._store, self.key_type)

    def begin_with(self, native: NativeBase, metas: Iterable[RegisteredStateMeta], fill: Fill) -> None:
        """Begin with a native checkpoint; there must be no states yet.

        Args:
            native: the checkpoint.
            metas: the states in it.
            fill: puts its files into a folder.

        Raises:
            CorruptCheckpointError: a file is missing or damaged.
        """
        self._store.begin_with(fill, [state.state_id for state in native.states.values()])
        self._store.delete_range(QUEUES.to_bytes(4, "big"), b"\xff" * 4)  # all timers are beside the files
        self._written.note_restored(native.files, self._store.origins)
        for meta in metas:
            self.create_table(meta)
            self._tables()[-1].begin_with(native.states[meta.name].state_id)

    def set_totals(self, states: Mapping[str, NativeState]) -> None:
        """Set the numbers of entries after what a native checkpoint has beside its files was loaded."""
        for table in self._tables():
            for key_group, state_map in zip(self.key_group_range, table.tiered_maps(), strict=True):
                state_map.set_total(states[table.meta.name].entries.get(key_group, 0))

    def base_snapshot(
        self, streams: CheckpointStreamFactory, compression: str | None, is_later: bool
    ) -> SnapshotTask[KeyGroupsStateHandle]:
        found = {table.meta.name: table.native_state() for table in self._tables()}
        states = {name: state for name, state in found.items() if state is not None}
        if len(states) < len(found) or not states or not self._store.is_portable:
            return super().base_snapshot(streams, compression, is_later)
        overlay = overlay_strategy(self, compression)
        strategy = NativeSnapshotStrategy(overlay, self._store, states, self._written, is_later)
        return SnapshotStrategyRunner(strategy, self.snapshots, self.async_snapshots).snapshot(streams)

    def before_frame(self, indexes: list[int], keys: Sequence[Hashable]) -> None:
        for table in self._tables():
            table.fetch(indexes, keys)

    def make_room(self) -> None:
        tables = self._tables()
        self._calls += 1
        for table in tables:
            if self._calls % _CALLS_A_SAMPLE == 0 or not table.knows_sizes:
                table.sample(self._calls // _CALLS_A_SAMPLE)
        excess = sum(table.bytes_in_memory() for table in tables) - self._objects_bytes
        if excess <= self._objects_bytes * (_MOST_EXCESS if self._store.is_frozen else 0):
            return
        maps = [(table, state_map) for table in tables for state_map in table.tiered_maps()]
        # After two rounds nothing is left in memory.
        for _ in range(2 * len(maps)):
            if excess <= 0:
                return
            self._next_to_age = (self._next_to_age + 1) % len(maps)
            table, aged = maps[self._next_to_age]
            before = aged.entries_in_memory
            aged.age()
            excess -= (before - aged.entries_in_memory) * table.entry_bytes

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
