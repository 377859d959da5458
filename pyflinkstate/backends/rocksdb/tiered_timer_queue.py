"""Timer queues that keep the next timers in memory, and the others in the cold store.

Theory of operation
===================

Every timer before the *horizon*, a timestamp and the index of a key group, is in memory: in the inherited
queue, which costs what it costs on the heap. Every other timer is in the cold store, or among the *pending*
changes to it. The timers of one timestamp and key group, a *unit*, are always on the same side.

The horizon is at the end of time, until more timers are in memory than may be. Then the later half of them is
written down, and the horizon moves to where it begins. When no timer is left in memory, the next units are
read, and the horizon moves behind them. So timers fire in the order of the heap's queue, and there are never
more in memory than the bound and one unit.

*Entries.* The key of a timer in the store begins with its *place*: the index of its key group, and its
timestamp as an unsigned number. So the timers of a key group lie in the order of time. Its value is a number
that grows with each timer, because the timers of a unit fire in the order of adding.

*Snapshots* have what is in memory, and an iterator of RocksDB; the thread that writes them reads one key
group after the other. Native checkpoints write timers as the heap's do. Their files have timers too, which a
restore deletes: :data:`QUEUES` tells them from states.

mypyc compiles this file.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyflinkstate.api import Stored, Types
from pyflinkstate.backends.format import KeyGroupEntries
from pyflinkstate.backends.heap.copy_on_write_state_map import ABSENT
from pyflinkstate.backends.heap.timer_queue import Timer, TimerQueue, TimerQueueSnapshot, Timestamp
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.rocksdb.cold_entries import ColdEntries, EntrySizes, FrozenColdEntries
from pyflinkstate.backends.rocksdb.entry_forms import EntryForms, TypeForm
from pyflinkstate.backends.types import VOID_NAMESPACE, RegisteredQueueMeta

if TYPE_CHECKING:
    from pyflinkstate.backends.rocksdb.cold_store import ColdStore

#: The numbers of queues in the store are above this one, those of states below it.
QUEUES: Final = 1 << 31
_PLACE: Final = struct.Struct(">HQ")
_FIRST: Final = -(1 << 63)
_END: Final = 1 << 63
#: As many timers of a key group are read at a time.
_PART: Final = 32

#: Timestamp, index of the key group, number, and entry: place, key and, in some queues, namespace.
_Row = tuple[Any, int, Any, Any]


class TieredTimerQueue(TimerQueue):
    """A timer queue of which only the next timers are in memory.

    Args:
        meta: as for :class:`TimerQueue`, with the next one.
        key_group_range: see there.
        store: the store of the subtask.
        most_timers: how many timers may be in memory, at least 2.
    """

    def __init__(
        self,
        meta: RegisteredQueueMeta,
        key_group_range: KeyGroupRange,
        store: ColdStore,
        most_timers: int,
    ) -> None:
        super().__init__(meta, key_group_range)
        state_id, form = QUEUES + store.new_state_id(), TypeForm(Types.PICKLED_BYTE_ARRAY())
        self._cold = ColdEntries(store, state_id, 0, EntrySizes(meta.name), EntryForms(form, form))
        self._store = store
        self._bound = most_timers
        #: How many timers and pending changes may be in memory: more than the bound after a large unit.
        self._most = most_timers
        self._horizon_ms: Timestamp = _END
        self._horizon_index = 0
        #: By entry, the number of a timer that was added, and :data:`ABSENT` for one that was deleted.
        self._pending: dict[Hashable, Stored] = {}
        #: The number of timers at the horizon or after it.
        self._cold_size = 0
        self._last_number = 0
        # An iteration ends at the entry before the next key group, not after all that was deleted from that.
        self._cold.write({(_PLACE.pack(index, 0),): 0 for index in range(len(key_group_range) + 1)})

    def __len__(self) -> int:
        return self._size + self._cold_size

    @property
    def timers_in_memory(self) -> int:
        """The number of timers and of pending changes in memory."""
        return self._size + len(self._pending)

    # --- adding and deleting -------------------------------------------------------------------------

    def register(self, timestamp_ms: Timestamp, key: Hashable, namespace: Hashable, map_index: int) -> bool:
        """Do as on the heap; a timer at the horizon or after it is looked for in the store.

        Raises:
            StateStorageError: RocksDB failed.
        """
        if self._is_near(timestamp_ms, map_index):
            is_new = super().register(timestamp_ms, key, namespace, map_index)
        else:
            entry = self._entry(timestamp_ms, key, namespace, map_index)
            is_new = not self._is_cold(entry)
            if is_new:
                self._write_down(entry)
                self._note(timestamp_ms, key, namespace, map_index, True)
        self._make_room()
        return is_new

    def delete(self, timestamp_ms: Timestamp, key: Hashable, namespace: Hashable, map_index: int) -> bool:
        """Do as on the heap; errors are as for ``register``."""
        if self._is_near(timestamp_ms, map_index):
            return super().delete(timestamp_ms, key, namespace, map_index)
        entry = self._entry(timestamp_ms, key, namespace, map_index)
        if not self._is_cold(entry):
            return False
        self._pending[entry] = ABSENT
        self._cold_size -= 1
        self._note(timestamp_ms, key, namespace, map_index, False)
        self._make_room()
        return True

    def _is_near(self, timestamp_ms: Timestamp, map_index: int) -> bool:
        """Return whether a timer would be before the horizon."""
        if timestamp_ms < self._horizon_ms:
            return True
        return bool(timestamp_ms == self._horizon_ms) and map_index < self._horizon_index

    def _entry(
        self, timestamp_ms: Timestamp, key: Hashable, namespace: Hashable, map_index: int
    ) -> tuple[Hashable, ...]:
        place = _PLACE.pack(map_index, timestamp_ms - _FIRST)
        return (place, key, namespace) if self._is_namespaced else (place, key)

    def _is_cold(self, entry: Hashable) -> bool:
        """Return whether there is a timer with this entry, at the horizon or after it."""
        pending = self._pending.get(entry)
        return self._cold.contains(entry) if pending is None else pending is not ABSENT

    def _write_down(self, entry: Hashable) -> None:
        self._last_number += 1
        self._pending[entry] = self._last_number
        self._cold_size += 1

    # --- between memory and the store ----------------------------------------------------------------

    def _make_room(self) -> None:
        """If too much is in memory, write down what is pending, and the later timers if they are most of it.

        While a checkpoint has the store frozen, memory may be exceeded by a quarter.
        """
        in_memory = self.timers_in_memory
        if in_memory <= self._most or (self._store.is_frozen and in_memory < self._most * 5 // 4):
            return
        if self._size > self._most // 2:
            self._lower_horizon()
        self._flush()
        self._most = max(self._bound, self._size + self._bound // 2)

    def _lower_horizon(self) -> None:
        timers = sorted(super().timers(), key=lambda timer: (timer.timestamp_ms, timer.map_index))
        first = timers[len(timers) // 2]
        self._horizon_ms, self._horizon_index = first.timestamp_ms, first.map_index
        changes, self._changes = self._changes, None
        self._give_up_plan()
        for timer in timers:
            at_ms, key, namespace, index = timer.timestamp_ms, timer.key, timer.namespace, timer.map_index
            if not self._is_near(at_ms, index):
                super().delete(at_ms, key, namespace, index)
                self._write_down(self._entry(at_ms, key, namespace, index))
        self._changes = changes

    def _flush(self) -> None:
        """Write down what is pending."""
        self._cold.write(self._pending)
        self._pending = {}

    def first_timestamp(self) -> Timestamp:
        """Do as on the heap; if no timer is in memory, the next ones are read."""
        if not self._size and self._cold_size:
            self._raise_horizon()
        return super().first_timestamp()

    def _raise_horizon(self) -> None:
        """Read the next timers, about half as many as may be in memory."""
        self._flush()
        frozen, at_ms = self._cold.freeze(), self._horizon_ms
        groups = [
            _rows(self._cold, frozen, index, at_ms, index < self._horizon_index)
            for index in range(len(self.key_group_range))
        ]
        rows: list[_Row] = []
        horizon_ms, horizon_index = _END, 0
        for row in heapq.merge(*groups):
            if len(rows) >= self._bound // 2 and row[:2] != rows[-1][:2]:
                horizon_ms, horizon_index = row[:2]
                break
            rows.append(row)
        rows.sort()
        self._horizon_ms, self._horizon_index = horizon_ms, horizon_index
        changes, self._changes = self._changes, None
        for timestamp_ms, index, _, entry in rows:
            super().register(timestamp_ms, entry[1], _namespace_of(entry), index)
        self._changes = changes
        self._cold_size -= len(rows)
        self._cold.write({row[3]: ABSENT for row in rows})
        self._most = max(self._bound, self._size + self._bound // 2)

    # --- snapshots -----------------------------------------------------------------------------------

    def timers(self) -> Iterator[Timer]:
        yield from super().timers()
        self._flush()
        frozen = self._cold.freeze()
        for index in range(len(self.key_group_range)):
            for timestamp_ms, _, _, entry in _rows(self._cold, frozen, index, _FIRST):
                yield Timer(timestamp_ms, entry[1], _namespace_of(entry), index)

    def snapshot(self) -> TieredTimerQueueSnapshot:
        """Return a snapshot of the queue. O(timers in memory)."""
        self._flush()
        return TieredTimerQueueSnapshot(self)

    def _check(self) -> None:
        super()._check()
        # Before the horizon are the timers in memory, and no others.
        near = [timer for timer in self.timers() if self._is_near(timer.timestamp_ms, timer.map_index)]
        assert set(near) == set(super().timers())
        assert len(near) == self._size


class TieredTimerQueueSnapshot(TimerQueueSnapshot):
    """The contents of a tiered queue at one moment."""

    def __init__(self, queue: TieredTimerQueue) -> None:
        super().__init__(queue)
        self._cold = queue._cold
        self._frozen: FrozenColdEntries | None = queue._cold.freeze()

    def key_groups(self) -> Iterator[KeyGroupEntries]:
        frozen = self._frozen
        assert frozen is not None
        for index, group in enumerate(super().key_groups()):
            rows = sorted(_rows(self._cold, frozen, index, _FIRST))
            keys = group.keys + [row[3][1] for row in rows]
            namespaces = group.namespaces
            if namespaces is not None:
                namespaces = namespaces + [row[3][2] for row in rows]
            yield KeyGroupEntries(group.key_group, keys, namespaces, group.values + [row[0] for row in rows])

    def release(self) -> None:
        """Let go of the iterator."""
        self._frozen = None


def _namespace_of(entry: tuple[Any, ...]) -> Hashable:
    return entry[2] if len(entry) == 3 else VOID_NAMESPACE


def _rows(
    cold: ColdEntries,
    frozen: FrozenColdEntries,
    map_index: int,
    begin_ms: Timestamp,
    is_after: bool = False,
) -> Iterator[_Row]:
    """Iterate over the timers of a key group in the store, from or after a timestamp, in the order of time.

    Several such iterations may use ``frozen`` in turns.
    """
    begin = cold.key_bytes((_PLACE.pack(map_index, begin_ms - _FIRST),)) + (b"\xff" if is_after else b"\0")
    while begin:
        rows, begin = _part(frozen, map_index, begin)
        yield from rows


def _part(frozen: FrozenColdEntries, map_index: int, begin: bytes) -> tuple[list[_Row], bytes]:
    """Return some timers of a key group from a key of the store on, and where to go on; empty at the end."""
    rows: list[_Row] = []
    for at, pairs in frozen.records(begin):
        for entry, number in pairs:
            index, unsigned = _PLACE.unpack(entry[0])  # type: ignore[index]
            if index != map_index:
                return rows, b""
            rows.append((unsigned + _FIRST, index, number, entry))
        if len(rows) >= _PART:
            return rows, at + b"\0"
    return rows, b""
