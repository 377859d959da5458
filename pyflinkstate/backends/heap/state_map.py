"""The copy-on-write map: one for each state and key group.

Theory of operation
===================

The map is Flink's ``CopyOnWriteStateMap`` with another bucket: where Flink chains entry objects, a
bucket here is a small dict, so that an entry costs no object of its own and the garbage collector has
a few tens of thousands of things to look at instead of millions.

*Growing.* When the map holds more than ``BUCKET_LOAD`` entries a bucket, a table twice as long is
begun beside the primary one. From then on each operation first moves whole buckets, in order, until
at least four entries have moved. Bucket ``i`` of the old table goes to ``i`` and ``i + old length`` of
the new one. Buckets below ``rehash_index`` live in the new table, the others still in the old, so one
comparison tells where a key is. There is never a long pause, and the map never shrinks.

*Snapshots.* A snapshot is a copy of the bucket *array*, nothing more. Taking one raises
``state_map_version``; that number is the snapshot's version and the highest required one. A bucket
carries the version at which it was made; one older than the highest required version may be seen by
a snapshot, so it is copied before its first change. Values that can change in place sit in a
:class:`StateCell` that carries a version too: an old one is copied deep before it is handed out, since
the caller may change it. When a snapshot is released its version is no longer required; with none
left, nothing is copied any more.

A snapshot may be read and released by another thread, while the owner goes on.
"""

from __future__ import annotations

import datetime
import decimal
import threading
import uuid
from collections.abc import Callable, Hashable, Iterator
from typing import Any

MINIMUM_CAPACITY = 4
BUCKET_LOAD = 16
MIN_TRANSFERRED_PER_INCREMENTAL_REHASH = 4

IMMUTABLE_TYPES = frozenset(
    {
        int,
        float,
        bool,
        str,
        bytes,
        complex,
        type(None),
        decimal.Decimal,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        uuid.UUID,
    }
)

Bucket = dict[Hashable, Any]

#: Stands where a bucket has moved on to the new table.
_MOVED: Bucket = {}


class StateCell:
    """A value that can change in place, and the map's version when this copy of it was made."""

    __slots__ = ("value", "version")

    def __init__(self, value: Any, version: int) -> None:
        self.value = value
        self.version = version


def is_immutable(value: Any) -> bool:
    """Return whether ``value`` can be shared between a snapshot and the owner."""
    if type(value) is tuple:
        return all(map(is_immutable, value))
    return type(value) in IMMUTABLE_TYPES


class CopyOnWriteStateMap:
    """A dict that hands out snapshots in O(buckets) while it goes on changing.

    Args:
        copy_value: makes an independent copy of a value that can change in place.

    >>> from copy import deepcopy
    >>> state_map = CopyOnWriteStateMap(deepcopy)
    >>> state_map.put("a", [1])
    >>> with state_map.snapshot() as snapshot:
    ...     state_map.get("a").append(2)
    ...     list(snapshot.items()), state_map.get("a")
    ([('a', [1])], [1, 2])
    """

    __slots__ = (
        "_copy_value",
        "_highest_required_snapshot_version",
        "_lock",
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

    def __init__(self, copy_value: Callable[[Any], Any]) -> None:
        self._copy_value = copy_value
        self._primary: list[Bucket] = [{} for _ in range(MINIMUM_CAPACITY)]
        self._primary_versions = [0] * MINIMUM_CAPACITY
        self._primary_mask = MINIMUM_CAPACITY - 1
        self._rehash: list[Bucket] | None = None
        self._rehash_versions: list[int] = []
        self._rehash_mask = 0
        self._rehash_index = 0
        self._size = 0
        self._threshold = MINIMUM_CAPACITY * BUCKET_LOAD
        self._state_map_version = 0
        self._highest_required_snapshot_version = 0
        self._snapshot_versions: set[int] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._size

    # --- reading and writing -------------------------------------------------------------------
    # Finding the bucket stands in each of these, not in a helper: a call would cost as much as the rest.

    def get(self, key: Hashable) -> Any:
        """Return the value of ``key``, or None; a changeable value is safe to change. O(1)."""
        if self._rehash is not None:
            self._move_some_buckets()
        code = hash(key)
        code ^= code >> 16
        index = code & self._primary_mask
        if index >= self._rehash_index:
            value = self._primary[index].get(key)
        else:
            value = self._rehash[code & self._rehash_mask].get(key)  # type: ignore[index]
        if type(value) is StateCell:
            if value.version < self._highest_required_snapshot_version:
                return self._replace_by_copy(key, value)
            return value.value
        return value

    def put(self, key: Hashable, value: Any) -> None:
        """Set the value of ``key``. O(1), and a bucket copy when a snapshot may see the bucket."""
        bucket = self._writable_bucket(key)
        before = len(bucket)
        if type(value) in IMMUTABLE_TYPES or is_immutable(value):
            bucket[key] = value
        else:
            bucket[key] = StateCell(value, self._state_map_version)
        if len(bucket) != before:
            self._size += 1
            if self._size > self._threshold and self._rehash is None:
                self._begin_rehash()

    def remove(self, key: Hashable) -> None:
        """Remove ``key``, if it is there. O(1)."""
        if key in self._bucket_of(key):
            del self._writable_bucket(key)[key]
            self._size -= 1

    def contains_key(self, key: Hashable) -> bool:
        """Return whether ``key`` is there, also with the value None. O(1)."""
        return key in self._bucket_of(key)

    def items(self) -> Iterator[tuple[Hashable, Any]]:
        """Iterate over the entries as they are now, not to be changed through. O(n)."""
        with self.snapshot() as snapshot:
            yield from snapshot.items()

    def _bucket_of(self, key: Hashable) -> Bucket:
        if self._rehash is not None:
            self._move_some_buckets()
        code = hash(key)
        code ^= code >> 16
        index = code & self._primary_mask
        if index >= self._rehash_index:
            return self._primary[index]
        return self._rehash[code & self._rehash_mask]  # type: ignore[index]

    def _writable_bucket(self, key: Hashable) -> Bucket:
        if self._rehash is not None:
            self._move_some_buckets()
        code = hash(key)
        code ^= code >> 16
        index = code & self._primary_mask
        if index >= self._rehash_index:
            table, versions = self._primary, self._primary_versions
        else:
            index = code & self._rehash_mask
            table, versions = self._rehash, self._rehash_versions  # type: ignore[assignment]
        if versions[index] < self._highest_required_snapshot_version:
            table[index] = table[index].copy()
            versions[index] = self._state_map_version
        return table[index]

    def _replace_by_copy(self, key: Hashable, cell: StateCell) -> Any:
        mine = StateCell(self._copy_value(cell.value), self._state_map_version)
        self._writable_bucket(key)[key] = mine
        return mine.value

    # --- incremental rehash --------------------------------------------------------------------

    def _begin_rehash(self) -> None:
        length = 2 * len(self._primary)
        self._rehash = [_MOVED] * length
        self._rehash_versions = [0] * length
        self._rehash_mask = length - 1
        self._rehash_index = 0

    def _move_some_buckets(self) -> None:
        moved = 0
        while moved < MIN_TRANSFERRED_PER_INCREMENTAL_REHASH:
            moved += self._move_bucket(self._rehash_index)
            self._rehash_index += 1
            if self._rehash_index == len(self._primary):
                self._finish_rehash()
                return

    def _move_bucket(self, index: int) -> int:
        """Split a bucket of the old table in two new ones; the old one may be a snapshot's."""
        assert self._rehash is not None
        bucket = self._primary[index]
        high_bit = len(self._primary)
        low: Bucket = {}
        high: Bucket = {}
        for key, value in bucket.items():
            code = hash(key)
            code ^= code >> 16
            if code & high_bit:
                high[key] = value
            else:
                low[key] = value
        for target, half in ((index, low), (index + high_bit, high)):
            self._rehash[target] = half
            self._rehash_versions[target] = self._state_map_version
        self._primary[index] = _MOVED
        return len(bucket)

    def _finish_rehash(self) -> None:
        assert self._rehash is not None
        self._primary = self._rehash
        self._primary_versions = self._rehash_versions
        self._primary_mask = self._rehash_mask
        self._threshold = len(self._primary) * BUCKET_LOAD
        self._rehash = None
        self._rehash_versions = []
        self._rehash_index = 0

    # --- snapshots -----------------------------------------------------------------------------

    def snapshot(self) -> CopyOnWriteStateMapSnapshot:
        """Return what the map holds now, read-only. It must be released. O(buckets)."""
        buckets = self._primary[self._rehash_index :]
        if self._rehash is not None:
            half, moved = len(self._primary), self._rehash_index
            buckets += self._rehash[:moved]
            buckets += self._rehash[half : half + moved]
        with self._lock:
            self._state_map_version += 1
            self._snapshot_versions.add(self._state_map_version)
            self._highest_required_snapshot_version = self._state_map_version
        return CopyOnWriteStateMapSnapshot(self, buckets, self._size, self._state_map_version)

    def release_snapshot(self, version: int) -> None:
        """Called by a snapshot, from any thread, when nobody reads it any more."""
        with self._lock:
            self._snapshot_versions.remove(version)
            self._highest_required_snapshot_version = max(self._snapshot_versions, default=0)

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
                    code = hash(key)
                    # Every key is in the bucket of its hash.
                    assert (code ^ (code >> 16)) & mask == index
                    if type(value) is StateCell:
                        assert value.version <= self._state_map_version
        # The size counts what is there.
        assert self._size == sum(len(bucket) for table, _, _ in tables for bucket in table)
        # The highest required version is that of the newest snapshot that is open.
        assert self._highest_required_snapshot_version == max(self._snapshot_versions, default=0)
        assert self._highest_required_snapshot_version <= self._state_map_version
        # The placeholder is shared, so nothing may ever be put into it.
        assert not _MOVED


class CopyOnWriteStateMapSnapshot:
    """What a map held at one moment. Release it, or use it as a context manager."""

    __slots__ = ("_buckets", "_owner", "_size", "version")

    def __init__(self, owner: CopyOnWriteStateMap, buckets: list[Bucket], size: int, version: int) -> None:
        self._owner = owner
        self._buckets: list[Bucket] | None = buckets
        self._size = size
        self.version = version

    def __len__(self) -> int:
        return 0 if self._buckets is None else self._size

    def __enter__(self) -> CopyOnWriteStateMapSnapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def is_released(self) -> bool:
        """Whether the snapshot is released, and therefore empty."""
        return self._buckets is None

    def columns(self) -> tuple[list[Hashable], list[Any]]:
        """Return all keys and, in the same order, all values. O(n), at the speed of C."""
        keys: list[Hashable] = []
        values: list[Any] = []
        for bucket in self._buckets or ():
            keys.extend(bucket)
            values.extend(bucket.values())
        if StateCell in set(map(type, values)):
            values = [value.value if type(value) is StateCell else value for value in values]
        return keys, values

    def items(self) -> Iterator[tuple[Hashable, Any]]:
        """Iterate over the entries."""
        return zip(*self.columns(), strict=True)

    def release(self) -> None:
        """Give the version back to the map and let go of the buckets. Idempotent."""
        if self._buckets is not None:
            self._buckets = None
            self._owner.release_snapshot(self.version)
