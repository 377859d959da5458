"""The copy-on-write map: one for each state and key group.

It does not deal with namespaces: an *entry key* is the key alone if a state has the void namespace,
otherwise it is the pair ``(key, namespace)``.

Theory of operation
===================

The map is Flink's ``CopyOnWriteStateMap`` with other buckets: where Flink chains entry objects, a
bucket here is a small dict, so that an entry needs no object of its own and the garbage collector has to
look at tens of thousands of objects instead of millions.

*Growing.* When the map holds more than ``bucket_load`` entries per bucket, a table twice as long is
started next to the primary one. From then on each operation first moves whole buckets, in order, until
at least ``min_transferred`` entries have moved. Bucket ``i`` of the old table goes to ``i`` and
``i + old length`` of the new one. Buckets below ``rehash_index`` are in the new table, the others still
in the old, so one comparison tells where a key is. There is never a long pause, and the map never
shrinks.

*Spreading.* Python's hash of an int is the int itself, so keys that are multiples of a power of two have
the same low bits: snowflake ids, ``id << 32``, whole floats. A finalizer mixes all 64 bits into the low ones,
as Flink's ``MathUtils.bitMix`` does with 32: the halves of the hash are multiplied apart, then both together.
The factors are so small that every product fits in 63 bits, so a machine word and a Python int give the
same result. Keys with equal Python hashes (such as the multiples of ``2**61 - 1``) always share a bucket.

*Snapshots.* A snapshot is a copy of the bucket *array*, nothing more. Taking one raises
``state_map_version``; that number is the snapshot's version and the highest required one. A bucket
carries the version at which it was made. A snapshot may share a bucket that is older than the highest
required version, so the bucket is copied before its first change. That change may be a new key: Flink puts a
new entry in front of its chain and copies nothing, whereas here a dict of some tens of entries is copied.
Values that can change in place are in a :class:`StateCell`, which carries a version too: an old value is
copied deep before it is handed out, as the caller may change it. When a snapshot is released its version is
no longer required; once none is required, nothing is copied any more.

*Changes.* For incremental checkpoints a map records the keys whose entries were set, removed, or handed
out in a form that the caller may change. An increment looks up only those keys in a snapshot.

Another thread may read and release a snapshot while the owner goes on.

mypyc compiles this file if a C compiler is available: ``i64`` is a plain int to Python and a machine
word to mypyc.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyflinkstate.api import Key, Stored
from pyflinkstate.backends.values.isolation import is_immutable
from pyflinkstate.errors import ConcurrentModificationError

if TYPE_CHECKING:
    from mypy_extensions import i64

#: Combines the stored value (None if there is none) with a new one.
StateTransformationFunction = Callable[[Stored, Stored], Stored]

#: Returns what a snapshot writes for a stored value; None drops the entry.
StateSnapshotTransformer = Callable[[Stored], Stored]

Columns = tuple[list[Hashable], list[Stored]]

MINIMUM_CAPACITY: Final = 4
BUCKET_LOAD: Final = 32
#: About 2,000 entries: a step after which whoever reads a snapshot for live questions may rest or stop.
BUCKETS_IN_A_PART: Final = 64

#: The constants of the finalizer that spreads the keys over the buckets.
LOW_BITS: Final = 0xFFFFFFFF
MIX_LOW: Final = 0x5BD1E995
MIX_HIGH: Final = 0x31848BAB
MIX_BOTH: Final = 0x7FEB352D
MIN_TRANSFERRED_PER_INCREMENTAL_REHASH: Final = 4

Bucket = dict[Hashable, Stored]

#: Marks a bucket that has moved to the new table.
_MOVED: Final[Bucket] = {}


class _Absent:
    """Tells a missing entry from an entry that is None."""


ABSENT: Final = _Absent()


class StateCell:
    """A value that can change in place, and the map's version when this copy of it was made."""

    __slots__ = ("value", "version")

    def __init__(self, value: Stored, version: int) -> None:
        self.value = value
        self.version = version


class CopyOnWriteStateMap:
    """A dict that hands out snapshots in O(buckets) while it goes on changing.

    Args:
        copy_value: makes an independent copy of a value that can change in place; with None no value can.
        capacity: the initial number of buckets, a power of two.
        bucket_load: the average number of entries per bucket beyond which the table doubles.
        min_transferred: the least number of entries that each operation moves while the table doubles.

    >>> from copy import deepcopy
    >>> state_map = CopyOnWriteStateMap(deepcopy)
    >>> state_map.put("a", [1])
    >>> with state_map.snapshot() as snapshot:
    ...     state_map.get("a").append(2)
    ...     list(snapshot.items()), state_map.get("a")
    ([('a', [1])], [1, 2])
    """

    __slots__ = (
        "_bucket_load",
        "_changes",
        "_copy_value",
        "_highest_required_snapshot_version",
        "_lock",
        "_min_transferred",
        "_mod_count",
        "_primary",
        "_primary_mask",
        "_primary_versions",
        "_rehash",
        "_rehash_index",
        "_rehash_mask",
        "_rehash_versions",
        "_size",
        "_snapshot_versions",
        "_state_map_version",
        "_threshold",
    )

    def __init__(
        self,
        copy_value: Callable[[Stored], Stored] | None,
        capacity: int = MINIMUM_CAPACITY,
        bucket_load: int = BUCKET_LOAD,
        min_transferred: int = MIN_TRANSFERRED_PER_INCREMENTAL_REHASH,
    ) -> None:
        if capacity < 1 or capacity & (capacity - 1):
            raise ValueError(f"capacity {capacity} is not a power of two")
        self._copy_value = copy_value
        self._bucket_load = bucket_load
        self._min_transferred = min_transferred
        self._primary: list[Bucket] = []
        self._primary_versions: list[int] = []
        self._primary_mask: i64 = 0
        self._rehash: list[Bucket] | None = None
        self._rehash_versions: list[int] = []
        self._rehash_mask: i64 = 0
        self._rehash_index: i64 = 0
        self._size = 0
        self._threshold = 0
        self._mod_count = 0
        self._state_map_version = 0
        self._highest_required_snapshot_version = 0
        self._snapshot_versions: set[int] = set()
        #: Keys that changed since the changes were last taken; None if changes are not tracked.
        self._changes: set[Hashable] | None = None
        self._lock = threading.Lock()
        self._make_table(capacity)

    def __len__(self) -> int:
        """Return the number of entries. O(1)."""
        return self._size

    # --- reading and writing -------------------------------------------------------------------
    # get() looks up its bucket inline, as a call would cost as much as the rest of it; the others call a
    # helper.

    def get(self, key: Hashable) -> Any:
        """Return the value of ``key``, or None; a changeable value is safe to change. O(1)."""
        if self._rehash is not None:
            self._move_some_buckets()
        code: i64 = hash(key)
        code = (code & LOW_BITS) * MIX_LOW + (code >> 32) * MIX_HIGH
        code = ((code ^ code >> 32) & LOW_BITS) * MIX_BOTH
        code ^= code >> 32
        index: i64 = code & self._primary_mask
        if index >= self._rehash_index:
            value = self._primary[index].get(key)
        else:
            value = self._rehash[code & self._rehash_mask].get(key)  # type: ignore[index]
        if type(value) is StateCell:
            if self._changes is not None:
                self._changes.add(key)
            if value.version < self._highest_required_snapshot_version:
                return self._replace_by_copy(key, value)
            return value.value
        return value

    def peek(self, key: Hashable) -> Any:
        """Return the value of ``key``, or None; the caller must not change it. O(1)."""
        if self._rehash is not None:
            self._move_some_buckets()
        value = self._bucket_of(key).get(key)
        return value.value if type(value) is StateCell else value

    def owned(self, key: Hashable) -> Any:
        """Return the value of ``key`` if it can change and no snapshot shares it, else None. O(1)."""
        cell = self._bucket_of(key).get(key)
        if type(cell) is StateCell and cell.version >= self._highest_required_snapshot_version:
            return cell.value
        return None

    def put(self, key: Hashable, value: Stored) -> None:
        """Set the value of ``key``, new or not. O(1), plus the copy of a bucket that a snapshot may share."""
        if self._rehash is not None:
            self._move_some_buckets()
        self._put(key, value)

    def _put(self, key: Hashable, value: Stored) -> None:
        bucket = self._own_bucket(key)
        if self._changes is not None:
            self._changes.add(key)
        before = len(bucket)
        if self._copy_value is None or is_immutable(value):
            bucket[key] = value
        else:
            bucket[key] = StateCell(value, self._state_map_version)
        if len(bucket) != before:
            self._mod_count += 1
            self._size += 1
            if self._size > self._threshold and self._rehash is None:
                self._begin_rehash()

    def contains_key(self, key: Hashable) -> bool:
        """Return whether ``key`` is present, even if its value is None. O(1)."""
        if self._rehash is not None:
            self._move_some_buckets()
        return key in self._bucket_of(key)

    def remove(self, key: Hashable) -> None:
        """Remove ``key`` if it is present. O(1)."""
        if self._rehash is not None:
            self._move_some_buckets()
        self._remove(key)

    def _remove(self, key: Hashable) -> None:
        if key in self._bucket_of(key):
            if self._changes is not None:
                self._changes.add(key)
            del self._own_bucket(key)[key]
            self._mod_count += 1
            self._size -= 1

    def remove_and_get_old(self, key: Hashable) -> Any:
        """Remove ``key`` and return its value, safe to change, or None. O(1)."""
        old = self.get(key)
        self._remove(key)
        return old

    def transform(self, key: Hashable, value: Stored, function: StateTransformationFunction) -> bool:
        """Set the value of ``key`` to ``function(stored value, value)``; return whether there was none. O(1).

        The bucket is looked up once, unless a snapshot may share it, it may move, or the function has added
        or removed keys.
        """
        if self._rehash is not None or self._highest_required_snapshot_version != 0:
            return self._get_and_put(key, value, function)
        mod_count = self._mod_count
        bucket = self._bucket_of(key)
        cell = bucket.get(key)
        if type(cell) is not StateCell:
            new = function(cell, value)
            if self._mod_count != mod_count or cell is None or not is_immutable(new):
                self.put(key, new)
                return cell is None
            if self._changes is not None:
                self._changes.add(key)
            bucket[key] = new
            return False
        if self._changes is not None:
            self._changes.add(key)
        old = cell.value
        new = function(old, value)
        # The same object again, changed in place: no snapshot has been taken since, so the cell is still
        # right.
        if self._mod_count != mod_count or new is not old:
            self.put(key, new)
        return False

    def _get_and_put(self, key: Hashable, value: Stored, function: StateTransformationFunction) -> bool:
        old = self.get(key)
        self._put(key, function(old, value))
        return old is None

    def load(self, keys: list[Key], values: list[Stored]) -> None:
        """Put many entries at once; an empty map gets a table of the right length first. O(n)."""
        if self._size == 0 and self._rehash is None and not self._snapshot_versions:
            self._make_table(self._capacity_for(len(keys)))
            self._fill(keys, values)
            self.note_changes(keys)
        else:
            for key, value in zip(keys, values, strict=True):
                self.put(key, value)

    def items(self) -> Iterator[tuple[Hashable, Stored]]:
        """Iterate over the entries, fail-fast. O(n)."""
        expected = self._mod_count
        for bucket in self._buckets():
            for key in bucket:
                # Moving or copying a bucket leaves the old one as it was, so the current value is looked up.
                yield key, self.get(key)
                if self._mod_count != expected:
                    raise ConcurrentModificationError(
                        "a key was added to or removed from the state during iteration"
                    )

    def all_keys(self) -> list[Hashable]:
        """Return all keys, as they are now. O(n)."""
        return self._columns_of(self._buckets())[0]

    def incremental_visitor(self, max_positions: int) -> CopyOnWriteStateMapVisitor:
        """Return a visitor that looks at up to ``max_positions`` buckets at a time."""
        return CopyOnWriteStateMapVisitor(self, max_positions)

    def _bucket_of(self, key: Hashable) -> Bucket:
        code: i64 = hash(key)
        code = (code & LOW_BITS) * MIX_LOW + (code >> 32) * MIX_HIGH
        code = ((code ^ code >> 32) & LOW_BITS) * MIX_BOTH
        code ^= code >> 32
        index: i64 = code & self._primary_mask
        if index >= self._rehash_index:
            return self._primary[index]
        return self._rehash[code & self._rehash_mask]  # type: ignore[index]

    def _own_bucket(self, key: Hashable) -> Bucket:
        """Return the bucket of ``key`` for writing; no snapshot shares it."""
        code: i64 = hash(key)
        code = (code & LOW_BITS) * MIX_LOW + (code >> 32) * MIX_HIGH
        code = ((code ^ code >> 32) & LOW_BITS) * MIX_BOTH
        code ^= code >> 32
        index: i64 = code & self._primary_mask
        if index >= self._rehash_index:
            if self._highest_required_snapshot_version == 0:
                return self._primary[index]
            table, versions = self._primary, self._primary_versions
        else:
            index = code & self._rehash_mask
            table, versions = self._rehash, self._rehash_versions  # type: ignore[assignment]
        if versions[index] < self._highest_required_snapshot_version:
            table[index] = table[index].copy()
            versions[index] = self._state_map_version
        return table[index]

    def _replace_by_copy(self, key: Hashable, cell: StateCell) -> Stored:
        copy_value = self._copy_value
        assert copy_value is not None
        mine = copy_value(cell.value)
        self._own_bucket(key)[key] = StateCell(mine, self._state_map_version)
        return mine

    # --- tables --------------------------------------------------------------------------------

    def _make_table(self, capacity: int) -> None:
        self._primary = [{} for _ in range(capacity)]
        self._primary_versions = [0] * capacity
        self._primary_mask = capacity - 1
        self._threshold = capacity * self._bucket_load

    def _capacity_for(self, size: int) -> int:
        capacity = len(self._primary)
        while capacity * self._bucket_load < size:
            capacity *= 2
        return capacity

    def _fill(self, keys: list[Key], values: list[Stored]) -> None:
        table, mask = self._primary, self._primary_mask
        plain, version = self._copy_value is None, self._state_map_version
        try:
            for key, value in zip(keys, values, strict=True):
                code: i64 = hash(key)
                code = (code & LOW_BITS) * MIX_LOW + (code >> 32) * MIX_HIGH
                code = ((code ^ code >> 32) & LOW_BITS) * MIX_BOTH
                code ^= code >> 32
                if plain or is_immutable(value):
                    table[code & mask][key] = value
                else:
                    table[code & mask][key] = StateCell(value, version)
        finally:
            self._size = sum([len(bucket) for bucket in table])
            self._mod_count += 1

    def _begin_rehash(self) -> None:
        length = 2 * len(self._primary)
        self._rehash = [_MOVED] * length
        self._rehash_versions = [0] * length
        self._rehash_mask = length - 1
        self._rehash_index = 0

    def _move_some_buckets(self) -> None:
        moved = 0
        while moved < self._min_transferred:
            moved += self._move_bucket(self._rehash_index)
            self._rehash_index += 1
            if self._rehash_index == len(self._primary):
                self._finish_rehash()
                return

    def _move_bucket(self, index: int) -> int:
        """Split a bucket of the old table into two new ones; a snapshot may share the old one."""
        rehash = self._rehash
        assert rehash is not None
        bucket = self._primary[index]
        length = len(self._primary)
        high_bit: i64 = length
        low: Bucket = {}
        high: Bucket = {}
        for key, value in bucket.items():
            code: i64 = hash(key)
            code = (code & LOW_BITS) * MIX_LOW + (code >> 32) * MIX_HIGH
            code = ((code ^ code >> 32) & LOW_BITS) * MIX_BOTH
            code ^= code >> 32
            if code & high_bit:
                high[key] = value
            else:
                low[key] = value
        rehash[index] = low
        rehash[index + length] = high
        self._rehash_versions[index] = self._state_map_version
        self._rehash_versions[index + length] = self._state_map_version
        self._primary[index] = _MOVED
        return len(bucket)

    def _finish_rehash(self) -> None:
        assert self._rehash is not None
        self._primary = self._rehash
        self._primary_versions = self._rehash_versions
        self._primary_mask = self._rehash_mask
        self._threshold = len(self._primary) * self._bucket_load
        self._rehash = None
        self._rehash_versions = []
        self._rehash_index = 0

    def _buckets(self) -> list[Bucket]:
        """Return every bucket once: the rest of the old table, then both halves of those that have moved."""
        buckets = self._primary[self._rehash_index :]
        if self._rehash is not None:
            half, moved = len(self._primary), self._rehash_index
            buckets += self._rehash[:moved]
            buckets += self._rehash[half : half + moved]
        return buckets

    def _columns_of(self, buckets: list[Bucket]) -> Columns:
        """Return all keys and, in the same order, all values of ``buckets``. O(n), at the speed of C."""
        keys: list[Hashable] = []
        values: list[Stored] = []
        for bucket in buckets:
            keys.extend(bucket)
            values.extend(bucket.values())
        if self._copy_value is not None and StateCell in set(map(type, values)):
            values = [value.value if type(value) is StateCell else value for value in values]
        return keys, values

    # --- changes ---------------------------------------------------------------------------------

    def track_changes(self) -> None:
        """From now on, record which keys change."""
        if self._changes is None:
            self._changes = set()

    def note_changes(self, keys: Iterable[Hashable]) -> None:
        """Record that ``keys`` have changed, if changes are tracked."""
        if self._changes is not None:
            self._changes.update(keys)

    def take_changes(self) -> set[Hashable]:
        """Return the keys that changed since the last call, and start again; none if not tracked."""
        taken = self._changes
        if not taken:
            return set()
        self._changes = set()
        return taken

    # --- snapshots -----------------------------------------------------------------------------

    def snapshot(self) -> StateMapSnapshot:
        """Return a read-only snapshot of the map, which must be released. O(buckets)."""
        buckets = self._buckets()
        half, moved = len(self._primary), self._rehash_index
        with self._lock:
            self._state_map_version += 1
            self._snapshot_versions.add(self._state_map_version)
            self._highest_required_snapshot_version = self._state_map_version
        return StateMapSnapshot(self, buckets, self._size, self._state_map_version, half, moved)

    def _check(self) -> None:
        """Assert every invariant."""
        tables = [(self._primary, self._primary_versions, self._primary_mask)]
        if self._rehash is not None:
            tables.append((self._rehash, self._rehash_versions, self._rehash_mask))
            # The new table is twice as long, and the old one is not yet empty.
            assert len(self._rehash) == 2 * len(self._primary)
            assert self._rehash_index < len(self._primary)
            # Moved buckets hold nothing in the old table, unmoved ones nothing in the new.
            assert not any(self._primary[: self._rehash_index])
            for index in range(self._rehash_index, len(self._primary)):
                assert not self._rehash[index]
                assert not self._rehash[index + len(self._primary)]
        else:
            assert self._rehash_index == 0
        for table, versions, mask in tables:
            # Lengths are powers of two, with a version for each bucket.
            assert len(table) == len(versions) == mask + 1
            assert len(table) & mask == 0
            for index, bucket in enumerate(table):
                # No bucket and no cell is newer than the map.
                assert versions[index] <= self._state_map_version
                for key, value in bucket.items():
                    # Every key is in the bucket of its hash.
                    assert self._bucket_of(key) is bucket
                    if type(value) is StateCell:
                        assert value.version <= self._state_map_version
        # The size is the number of entries.
        assert self._size == sum([len(bucket) for table, _, _ in tables for bucket in table])
        # The highest required version is that of the newest open snapshot.
        assert self._highest_required_snapshot_version == max(self._snapshot_versions, default=0)
        assert self._highest_required_snapshot_version <= self._state_map_version
        # The placeholder is shared, so it must stay empty.
        assert not _MOVED


class CopyOnWriteStateMapVisitor:
    """Walks a map bit by bit while it changes, with relaxed consistency.

    An entry that is present all the time is seen at least once, and twice if it moves meanwhile. The walk is
    over the buckets of the primary table, and the two halves in the new table of a bucket that has moved.

    All entries whose hash falls below the position were seen. That stays true when the table doubles: an
    entry that was not seen is at the position or beyond it, so none is left out.
    """

    def __init__(self, state_map: CopyOnWriteStateMap, max_positions: int) -> None:
        self._map = state_map
        self._max_positions = max_positions
        self._position = 0

    def has_next(self) -> bool:
        """Return whether there are places left to look at."""
        return self._position < len(self._map._primary)

    def next_columns(self) -> Columns:
        """Return keys and values of the next non-empty bucket; maybe there are none.

        The values must not be changed.
        """
        for _ in range(self._max_positions):
            if not self.has_next():
                break
            buckets = self._buckets_here()
            self._position += 1
            if any(buckets):
                return self._map._columns_of(buckets)
        return [], []

    def _buckets_here(self) -> list[Bucket]:
        state_map, position = self._map, self._position
        if position >= state_map._rehash_index:
            return [state_map._primary[position]]
        rehash = state_map._rehash
        assert rehash is not None
        return [rehash[position], rehash[position + len(state_map._primary)]]


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


class StateMapSnapshot:
    """The contents of a map at one moment: its buckets, which the owner copies before changing them.

    Release it, or use it as a context manager.
    """

    def __init__(
        self,
        owner: CopyOnWriteStateMap,
        buckets: list[Bucket],
        size: int,
        version: int,
        half: int,
        moved: int,
    ) -> None:
        self.owner = owner
        self._buckets: list[Bucket] | None = buckets
        self._size = size
        self.version = version
        #: The length of the old table, and how many of its buckets had moved; see ``_buckets``.
        self._half: i64 = half
        self._moved: i64 = moved

    def __len__(self) -> int:
        """Return the number of entries, or 0 after the release."""
        return 0 if self._buckets is None else self._size

    def columns(self, transformer: StateSnapshotTransformer | None = None) -> Columns:
        """Return all keys and, in the same order, all values, changed by ``transformer`` if there is one.

        O(n), at the speed of C.
        """
        keys, values = self.owner._columns_of(self._buckets or [])
        return (keys, values) if transformer is None else transformed(keys, values, transformer)

    def parts(self, transformer: StateSnapshotTransformer | None = None) -> Iterator[Columns]:
        """Yield the same as :meth:`columns`, the entries of some buckets at a time."""
        buckets = self._buckets or []
        for begin in range(0, len(buckets), BUCKETS_IN_A_PART):
            keys, values = self.owner._columns_of(buckets[begin : begin + BUCKETS_IN_A_PART])
            yield (keys, values) if transformer is None else transformed(keys, values, transformer)

    def look_up(self, keys: Iterable[Hashable]) -> list[Stored]:
        """Return the value that each key had, or :data:`ABSENT` if it had none. O(keys)."""
        buckets = self._buckets
        if buckets is None:
            return [ABSENT for _ in keys]
        values: list[Stored] = []
        half, moved = self._half, self._moved
        mask: i64 = half - 1
        both: i64 = 2 * half - 1
        for key in keys:
            code: i64 = hash(key)
            code = (code & LOW_BITS) * MIX_LOW + (code >> 32) * MIX_HIGH
            code = ((code ^ code >> 32) & LOW_BITS) * MIX_BOTH
            code ^= code >> 32
            index: i64 = code & mask
            if index >= moved:
                value = buckets[index - moved].get(key, ABSENT)
            else:
                index = code & both
                value = buckets[index + half - moved if index < half else index].get(key, ABSENT)
            values.append(value.value if type(value) is StateCell else value)
        return values

    def release(self) -> None:
        """Give the version back to the map and drop the buckets. Idempotent, and allowed on any thread."""
        owner = self.owner
        with owner._lock:
            buckets, self._buckets = self._buckets, None  # freed after the lock, as that takes long
            if buckets is not None:
                owner._snapshot_versions.remove(self.version)
                owner._highest_required_snapshot_version = max(owner._snapshot_versions, default=0)

    def __enter__(self) -> StateMapSnapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def items(self) -> Iterator[tuple[Hashable, Stored]]:
        """Iterate over the entries."""
        return zip(*self.columns(), strict=True)


class StateTableVisitor:
    """Walks the maps of a table one after the other, and starts again after the last.

    Args:
        maps: the maps of the table, which may be replaced by others in this list.
        max_positions: how many places of a map are looked at each time, until one has entries.
    """

    def __init__(self, maps: list[CopyOnWriteStateMap], max_positions: int) -> None:
        self._maps = maps
        self._max_positions = max_positions
        self._index = 0
        self._begin()

    def has_next(self) -> bool:
        """Return whether there are places left before the walk starts again."""
        return self._visitor.has_next() or self._index + 1 < len(self._maps)

    def next_columns(self) -> Columns:
        """Return keys and values of the next non-empty place, which must not be changed.

        They are empty if ``max_positions`` places were.
        """
        if self.state_map is not self._maps[self._index]:
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
        #: The map of the entries that were returned last.
        self.state_map = self._maps[self._index]
        self._visitor = self.state_map.incremental_visitor(self._max_positions)
