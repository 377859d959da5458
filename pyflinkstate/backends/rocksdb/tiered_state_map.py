"""The tiered map: one for each state and key group; its hot entries are objects, the others are on disk.

Theory of operation
===================

Each entry is on the highest of three tiers that has it:

* *Young*: the copy-on-write map itself. Whatever is used gets there, so a hit costs as much as on the heap.
* *Old*: the buckets that were young until the map last aged. Nothing changes them any more. An entry that is
  used again goes back up, and its place in the old bucket no longer counts.
* *Cold*: RocksDB, where values are bytes.

An *absent* key has no entry, whatever the lower tiers have: it was looked for in vain, or was removed. A
*dirty* key has changed since it was last written down, or its value was handed out in a form that the caller
may change. The map records these keys anyway, for incremental checkpoints, so an access costs no more.

*Ageing.* When memory runs short, the backend lets one map after the other age, in rounds. What is dirty among
the old entries and the absent keys is written to the cold store. Both are forgotten, and the young buckets
become the old ones. So an entry that is used at least once a round stays in memory. A map ages only between
two frames, because a function may hold objects of its state while it processes a record.

*Snapshots.* A snapshot has the young buckets, which are copied before they change; the old buckets and the
absent keys, which are replaced and not changed; and an iterator of RocksDB. Taking one costs about as much as
on the heap. Whoever reads it merges the tiers.

mypyc compiles this file.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from pyflinkstate.api import Key, Stored
from pyflinkstate.backends.heap.copy_on_write_state_map import (
    ABSENT,
    BUCKET_LOAD,
    LOW_BITS,
    MIN_TRANSFERRED_PER_INCREMENTAL_REHASH,
    MINIMUM_CAPACITY,
    MIX_BOTH,
    MIX_HIGH,
    MIX_LOW,
    Bucket,
    Columns,
    CopyOnWriteStateMap,
    CopyOnWriteStateMapVisitor,
    StateCell,
    StateMapSnapshot,
    StateSnapshotTransformer,
    StateTransformationFunction,
    transformed,
)
from pyflinkstate.backends.rocksdb.cold_entries import ColdEntries, FrozenColdEntries
from pyflinkstate.backends.values.isolation import is_immutable
from pyflinkstate.errors import ConcurrentModificationError

if TYPE_CHECKING:
    from mypy_extensions import i64

#: As many entries a part of a snapshot has that comes from below.
_PART: Final = 2_000
#: As many cold entries a visitor reads at a time.
_VISITED: Final = 32
#: As many buckets are searched for an entry whose size is looked at.
_PLACES_TO_SAMPLE: Final = 8


class TieredStateMap(CopyOnWriteStateMap):
    """A copy-on-write map of which only a part is in memory.

    Args:
        copy_value: makes an independent copy of a value that can change in place; with None no value can.
        cold: the entries that are on disk; there are none yet.
        capacity: as for :class:`CopyOnWriteStateMap`, with the next two.
        bucket_load: see there.
        min_transferred: see there.
    """

    __slots__ = (
        "_absent",
        "_absent_is_shared",
        "_cold",
        "_dirty",
        "_dirty_is_shared",
        "_key_changes",
        "_old",
        "_old_mask",
        "_old_size",
        "_total",
        "_tracked",
    )

    def __init__(
        self,
        copy_value: Callable[[Stored], Stored] | None,
        cold: ColdEntries,
        capacity: int = MINIMUM_CAPACITY,
        bucket_load: int = BUCKET_LOAD,
        min_transferred: int = MIN_TRANSFERRED_PER_INCREMENTAL_REHASH,
    ) -> None:
        super().__init__(copy_value, capacity, bucket_load, min_transferred)
        self._cold = cold
        self._old: list[Bucket] = [{}]
        self._old_mask: i64 = 0
        #: How many entries are only in the old buckets, not counting the cold store.
        self._old_size = 0
        self._absent: set[Hashable] = set()
        #: Whether a snapshot has this set, so that it is copied before it changes.
        self._absent_is_shared = False
        #: The number of entries on all tiers.
        self._total = 0
        #: How often a key was added or removed, for iterations.
        self._key_changes = 0
        self._changes = set()
        #: The keys that changed since they were last written down, besides ``_changes``.
        self._dirty: set[Hashable] = set()
        #: Whether a checkpoint has this set, so that it is copied before it changes.
        self._dirty_is_shared = False
        #: The keys that changed since the last checkpoint, besides ``_changes``; None if not tracked.
        self._tracked: set[Hashable] | None = None

    def __len__(self) -> int:
        return self._total

    @property
    def entries_in_memory(self) -> int:
        """The number of entries in memory, and of keys that are known to have none."""
        return self._size + self._old_size + len(self._absent)

    # --- reading and writing -------------------------------------------------------------------

    def get(self, key: Hashable) -> Stored:
        value = super().get(key)
        if value is None and self._fetch(key):
            return super().get(key)
        return value

    def peek(self, key: Hashable) -> Stored:
        value = super().peek(key)
        if value is None and self._fetch(key):
            return super().peek(key)
        return value

    def contains_key(self, key: Hashable) -> bool:
        return super().contains_key(key) or self._fetch(key)

    def _put(self, key: Hashable, value: Stored) -> None:
        size = self._size
        super()._put(key, value)
        if self._size == size:
            return
        if key in self._absent:
            self._own_absent().discard(key)
        elif self._is_below(key):
            return
        self._total += 1
        self._key_changes += 1

    def _remove(self, key: Hashable) -> None:
        if key in self._bucket_of(key):
            super()._remove(key)
        elif key in self._absent or not self._is_below(key):
            return
        elif self._changes is not None:
            self._changes.add(key)
        self._total -= 1
        self._key_changes += 1
        self._own_absent().add(key)

    def transform(self, key: Hashable, value: Stored, function: StateTransformationFunction) -> bool:
        if key not in self._bucket_of(key):
            self._fetch(key)
        return super().transform(key, value, function)

    def load(self, keys: list[Key], values: list[Stored]) -> None:
        """Put many entries at once; if the map is empty they go straight to the cold store. O(n)."""
        if self._total or self._size or self._old_size or self._absent or self._snapshot_versions:
            for key, value in zip(keys, values, strict=True):
                self.put(key, value)
            return
        entries: dict[Hashable, Stored] = dict(zip(keys, values, strict=True))
        self._cold.write(entries)
        self._total = len(entries)
        self._key_changes += 1
        self.note_changes(keys)

    def items(self) -> Iterator[tuple[Hashable, Stored]]:
        expected = self._key_changes
        for key in self.all_keys():
            yield key, self.get(key)
            if self._key_changes != expected:
                raise ConcurrentModificationError(
                    "a key was added to or removed from the state during iteration"
                )

    def all_keys(self) -> list[Hashable]:
        snapshot = self.snapshot()
        try:
            return snapshot.all_keys()
        finally:
            snapshot.release()

    def incremental_visitor(self, max_positions: int) -> TieredStateMapVisitor:
        return TieredStateMapVisitor(self, max_positions)

    # --- between the tiers ---------------------------------------------------------------------

    def set_total(self, total: int) -> None:
        """Set the number of entries on all tiers, if the cold store came with some."""
        self._total = total

    def rewrite_as(self, cold: ColdEntries, copy_value: Callable[[Stored], Stored] | None) -> None:
        """Go on with the same records read in another way; what is in memory is written down before."""
        self.age()
        self.age()
        self._cold, self._copy_value = cold, copy_value

    def drop_cold(self) -> None:
        """Delete the entries that are on disk; the map cannot be used any more."""
        self._cold.drop()

    def is_in_memory(self, key: Hashable) -> bool:
        """Return whether the cold store is not needed to tell the value of ``key``."""
        return key in self._bucket_of(key) or key in self._absent or key in self._old_bucket_of(key)

    def fill(self, key: Hashable, value: Stored) -> None:
        """Take what the cold store has of ``key``, which is not in memory; :data:`ABSENT` if nothing."""
        if value is ABSENT:
            self._own_absent().add(key)
            return
        plain = self._copy_value is None or is_immutable(value)
        self._insert(key, value if plain else StateCell(value, self._state_map_version))

    def _fetch(self, key: Hashable) -> bool:
        """Bring ``key``, which may be young, up from a lower tier; return whether it was there."""
        if key in self._absent or key in self._bucket_of(key):
            return False
        cell = self._old_bucket_of(key).get(key, ABSENT)
        if cell is ABSENT:
            value = self._cold.get(key)
            self.fill(key, value)
            return value is not ABSENT
        self._old_size -= 1
        self._insert(key, cell)
        return True

    def _insert(self, key: Hashable, cell: Stored) -> None:
        self._own_bucket(key)[key] = cell
        self._mod_count += 1
        self._size += 1
        if self._size > self._threshold and self._rehash is None:
            self._begin_rehash()

    def _is_below(self, key: Hashable) -> bool:
        """Return whether ``key``, which was neither young nor absent until now, is on a lower tier."""
        if key in self._old_bucket_of(key):
            self._old_size -= 1
            return True
        return self._cold.contains(key)

    def _old_bucket_of(self, key: Hashable) -> Bucket:
        return _bucket_in(self._old, self._old_mask, key)

    def _own_absent(self) -> set[Hashable]:
        """Return the absent keys for changing; no snapshot has this set."""
        if self._absent_is_shared:
            self._absent = self._absent.copy()
            self._absent_is_shared = False
        return self._absent

    def age(self) -> None:
        """Write down what is dirty and was not used since the last call, and forget it; age the rest. O(n).

        Raises:
            StateValueError: a value cannot be pickled.
            StateStorageError: the cold store failed.
        """
        self._collect_changes()
        while self._rehash is not None:
            self._move_some_buckets()
        leaving = self._dirty_and_unused()
        if leaving:
            self._cold.write(leaving)
            self._own_dirty().difference_update(leaving)
        self._absent = set()
        self._absent_is_shared = False
        self._old, self._old_mask, self._old_size = self._primary, self._primary_mask, self._size
        capacity = MINIMUM_CAPACITY
        while capacity * self._bucket_load < self._size:
            capacity *= 2
        self._make_table(capacity)
        self._size = 0
        self._mod_count += 1

    def _dirty_and_unused(self) -> dict[Hashable, Stored]:
        """Return the dirty entries that are only old, and :data:`ABSENT` for dirty absent keys."""
        dirty, absent = self._dirty, self._absent
        found: dict[Hashable, Stored] = {key: ABSENT for key in absent if key in dirty}
        for bucket in self._old:
            for key, cell in bucket.items():
                if key in dirty and key not in absent and key not in self._bucket_of(key):
                    found[key] = cell.value if type(cell) is StateCell else cell
        return found

    # --- changes ---------------------------------------------------------------------------------

    def _collect_changes(self) -> None:
        changes = self._changes
        if changes:
            self._own_dirty().update(changes)
            if self._tracked is not None:
                self._tracked |= changes
            self._changes = set()

    def _own_dirty(self) -> set[Hashable]:
        """Return the dirty keys for changing; no checkpoint has this set."""
        if self._dirty_is_shared:
            self._dirty = self._dirty.copy()
            self._dirty_is_shared = False
        return self._dirty

    def freeze_dirty(self) -> set[Hashable]:
        """Return the keys whose entries differ from those in the cold store; it stays as it is."""
        self._collect_changes()
        self._dirty_is_shared = True
        return self._dirty

    def track_changes(self) -> None:
        self._collect_changes()
        if self._tracked is None:
            self._tracked = set()

    def note_changes(self, keys: Iterable[Hashable]) -> None:
        if self._tracked is not None:
            self._tracked.update(keys)

    def take_changes(self) -> set[Hashable]:
        self._collect_changes()
        taken = self._tracked
        if not taken:
            return set()
        self._tracked = set()
        return taken

    # --- snapshots -----------------------------------------------------------------------------

    def snapshot(self) -> TieredStateMapSnapshot:
        young = super().snapshot()
        self._absent_is_shared = True
        return TieredStateMapSnapshot(self, young, self._cold.freeze())

    def _check(self) -> None:
        super()._check()
        for key in self._absent:
            # An absent key is not young.
            assert key not in self._bucket_of(key)
        only_old = 0
        for bucket in self._old:
            for key in bucket:
                assert self._old_bucket_of(key) is bucket
                only_old += key not in self._bucket_of(key) and key not in self._absent
        assert self._old_size == only_old
        # Every entry is counted once.
        assert self._total == len(self.all_keys()) == len(set(self.all_keys()))


def _bucket_in(buckets: list[Bucket], mask: i64, key: Hashable) -> Bucket:
    """Return the bucket of ``key`` in a table that does not grow."""
    code: i64 = hash(key)
    code = (code & LOW_BITS) * MIX_LOW + (code >> 32) * MIX_HIGH
    code = ((code ^ code >> 32) & LOW_BITS) * MIX_BOTH
    code ^= code >> 32
    return buckets[code & mask]


class TieredStateMapVisitor(CopyOnWriteStateMapVisitor):
    """Walks the cold entries, then the young ones, with relaxed consistency.

    An entry that changes its tier meanwhile may be left out; the next walk finds it. So may old ones.
    """

    def __init__(self, state_map: TieredStateMap, max_positions: int) -> None:
        super().__init__(state_map, max_positions)
        self._tiered = state_map
        #: Where the walk over the cold store goes on; empty at its end.
        self._place = state_map._cold.prefix

    def has_next(self) -> bool:
        return bool(self._place) or super().has_next()

    def next_columns(self) -> Columns:
        if not self._place:
            return super().next_columns()
        state_map = self._tiered
        entries, self._place = state_map._cold.entries_from(self._place, _VISITED)
        keys: list[Hashable] = []
        values: list[Stored] = []
        for key, value in entries:
            if not state_map.is_in_memory(key):
                keys.append(key)
                values.append(value)
        return keys, values


def fetch_all(maps: list[TieredStateMap], indexes: list[int], keys: Sequence[Hashable]) -> int:
    """Bring the entries of many keys up from the cold store, in one read.

    Args:
        maps: the maps of a state.
        indexes: the index of each key's map.
        keys: the entry keys.

    Returns:
        The number of keys that were not in memory.
    """
    places: dict[bytes, tuple[TieredStateMap, Hashable]] = {}
    for row in range(len(indexes)):
        key, state_map = keys[row], maps[indexes[row]]
        if not state_map.is_in_memory(key):
            places[state_map._cold.key_bytes(key)] = (state_map, key)
    if places:
        cold = maps[0]._cold
        records = cold.get_records(list(places))
        for (state_map, key), record in zip(places.values(), records):  # noqa: B905 - mypyc knows no strict
            state_map.fill(key, cold.value_of(key, record))
    return len(places)


def entries_in_memory(maps: list[TieredStateMap]) -> int:
    """Return the number of entries of maps in memory, as each of them counts them."""
    entries = 0
    for state_map in maps:
        entries += state_map.entries_in_memory
    return entries


def sample_one(maps: list[TieredStateMap], number: int) -> None:
    """Take the size of one young entry into account: of another map with the next number."""
    filled = [state_map for state_map in maps if state_map._size]
    if not filled:
        return
    state_map = filled[number % len(filled)]
    for bucket in state_map._primary[:_PLACES_TO_SAMPLE]:
        for key, cell in bucket.items():
            state_map._cold.sample(key, cell.value if type(cell) is StateCell else cell)
            return


class TieredStateMapSnapshot(StateMapSnapshot):
    """The contents of a tiered map at one moment."""

    def __init__(self, owner: TieredStateMap, young: StateMapSnapshot, cold: FrozenColdEntries) -> None:
        super().__init__(
            owner, young._buckets or [], owner._total, young.version, int(young._half), int(young._moved)
        )
        self._old = owner._old
        self._old_mask: i64 = owner._old_mask
        self._absent = owner._absent
        self._cold: FrozenColdEntries | None = cold

    def columns(self, transformer: StateSnapshotTransformer | None = None) -> Columns:
        keys, values = super().columns()
        for key, value in self._below(keys):
            keys.append(key)
            values.append(value)
        return (keys, values) if transformer is None else transformed(keys, values, transformer)

    def parts(self, transformer: StateSnapshotTransformer | None = None) -> Iterator[Columns]:
        yield from super().parts(transformer)
        below = self._below(super().columns()[0])
        while True:
            part = list(islice(below, _PART))
            if not part:
                return
            keys, values = [key for key, _ in part], [value for _, value in part]
            yield (keys, values) if transformer is None else transformed(keys, values, transformer)

    def all_keys(self) -> list[Hashable]:
        """Return all keys."""
        keys = super().columns()[0]
        keys.extend([key for key, _ in self._below(keys, False)])
        return keys

    def _below(self, young: list[Hashable], with_values: bool = True) -> Iterator[tuple[Hashable, Stored]]:
        """Iterate over the entries of the lower tiers that no higher one has."""
        cold = self._cold
        if cold is None:
            return
        above = self._absent.union(young)
        old: set[Hashable] = set()
        for bucket in self._old:
            for key, cell in bucket.items():
                if key not in above:
                    old.add(key)
                    yield key, cell.value if type(cell) is StateCell else cell
        for key, value in cold.entries(with_values):
            if key not in above and key not in old:
                yield key, value

    def look_up(self, keys: Iterable[Hashable]) -> list[Stored]:
        wanted = list(keys)
        values = super().look_up(wanted)
        cold = self._cold
        if cold is None:
            return values
        for row, key in enumerate(wanted):
            if values[row] is ABSENT and key not in self._absent:
                cell = _bucket_in(self._old, self._old_mask, key).get(key, ABSENT)
                if cell is ABSENT:
                    cell = cold.get(key)
                values[row] = cell.value if type(cell) is StateCell else cell
        return values

    def release(self) -> None:
        super().release()
        self._cold = None
        self._old = [{}]
        self._old_mask = 0
        self._absent = set()
