"""Timer queues: the timers of all keys in order of time.

Flink keeps a heap of timers for each key group (``HeapPriorityQueueSet``) and a heap of those
(``KeyGroupPartitionedPriorityQueue``). Here a key group has a dict, timestamp -> set of ``(key, namespace)``,
so that adding twice and deleting cost one lookup; one heap for all key groups orders the timestamps. A
timestamp whose timers were all deleted stays in the heap until its turn comes, or until more than half of the
timestamps are such: then the heap is rebuilt.

Timers with the same timestamp fire key group by key group, and within a key group in the order of adding.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import attrs

from pyflinkstate.backends.format import KeyGroupEntries
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import VOID_NAMESPACE, RegisteredQueueMeta, StateMeta

#: The heap is never rebuilt for fewer timestamps without timers than this.
MIN_EMPTY_TIMESTAMPS = 64


@attrs.frozen
class Timer:
    """One timer; a queue never holds two equal ones (Flink: ``TimerHeapInternalTimer``)."""

    timestamp_ms: int
    key: Hashable
    namespace: Hashable = VOID_NAMESPACE


#: Maps each timestamp to its timers, an ordered set of key and namespace.
_Timers = dict[int, dict[tuple[Hashable, Hashable], None]]
#: Timestamp, key and namespace of each timer that was added or deleted, as an ordered set.
TimerChanges = dict[tuple[int, Hashable, Hashable], None]


class TimerQueue:
    """The timers of one kind in one subtask.

    >>> queue = TimerQueue(RegisteredQueueMeta("timers"), KeyGroupRange(0, 127))
    >>> queue.add(Timer(20, "a"), 5), queue.add(Timer(10, "b"), 7), queue.add(Timer(10, "b"), 7)
    (True, True, False)
    >>> queue.poll(15), queue.poll(15), len(queue)
    (Timer(timestamp_ms=10, key='b', namespace=VOID_NAMESPACE), None, 1)
    """

    def __init__(self, meta: RegisteredQueueMeta, key_group_range: KeyGroupRange) -> None:
        self.meta = meta
        self.key_group_range = key_group_range
        self._groups: list[_Timers] = [{} for _ in key_group_range]
        #: A pair (timestamp, index of the key group) for each timestamp in a key group's dict.
        self._heap: list[tuple[int, int]] = []
        self._size = 0
        #: How many timestamps in the heap have no timers any more.
        self._empty = 0
        #: Timers that were added or deleted since changes were last taken, by key group; None if not tracked.
        self._changes: list[TimerChanges] | None = None

    def __len__(self) -> int:
        return self._size

    def add(self, timer: Timer, key_group: int) -> bool:
        """Add ``timer``, whose key is in ``key_group``; return whether it is new. O(log n)."""
        index = key_group - self.key_group_range.start
        group = self._groups[index]
        timers = group.get(timer.timestamp_ms)
        if timers is None:
            timers = group[timer.timestamp_ms] = {}
            heapq.heappush(self._heap, (timer.timestamp_ms, index))
        elif not timers:
            self._empty -= 1
        entry = (timer.key, timer.namespace)
        if entry in timers:
            return False
        timers[entry] = None
        self._size += 1
        self._note(index, timer.timestamp_ms, entry)
        return True

    def remove(self, timer: Timer, key_group: int) -> bool:
        """Delete ``timer``; return whether it existed. O(1)."""
        index = key_group - self.key_group_range.start
        timers = self._groups[index].get(timer.timestamp_ms, {})
        if (timer.key, timer.namespace) not in timers:
            return False
        self._delete(timers, (timer.key, timer.namespace))
        self._note(index, timer.timestamp_ms, (timer.key, timer.namespace))
        if self._empty > max(len(self._heap) // 2, MIN_EMPTY_TIMESTAMPS):
            self._drop_empty()
        return True

    def peek(self) -> Timer | None:
        """Return the first timer, or None. O(1), and O(log n) for each deleted timestamp before it."""
        while self._heap:
            timestamp_ms, index = self._heap[0]
            timers = self._groups[index][timestamp_ms]
            if timers:
                return Timer(timestamp_ms, *next(iter(timers)))
            heapq.heappop(self._heap)
            del self._groups[index][timestamp_ms]
            self._empty -= 1
        return None

    def poll(self, until_ms: int) -> Timer | None:
        """Remove and return the first timer if its time is ``until_ms`` or before. O(log n)."""
        timer = self.peek()
        if timer is None or timer.timestamp_ms > until_ms:
            return None
        timestamp_ms, index = self._heap[0]
        self._delete(self._groups[index][timestamp_ms], (timer.key, timer.namespace))
        self._note(index, timestamp_ms, (timer.key, timer.namespace))
        return timer

    def _delete(
        self, timers: dict[tuple[Hashable, Hashable], None], entry: tuple[Hashable, Hashable]
    ) -> None:
        del timers[entry]
        self._size -= 1
        self._empty += not timers

    def _note(self, index: int, timestamp_ms: int, entry: tuple[Hashable, Hashable]) -> None:
        if self._changes is not None:
            change = (timestamp_ms, *entry)
            self._changes[index].pop(change, None)
            self._changes[index][change] = None

    def track_changes(self) -> None:
        """From now on, record which timers are added and deleted."""
        if self._changes is None:
            self._changes = [{} for _ in self.key_group_range]

    def take_changes(self) -> list[TimerChanges]:
        """Return, for each key group, what changed since the last call, and start again."""
        taken = self._changes
        if taken is None:
            return [{} for _ in self.key_group_range]
        self._changes = [{} for _ in self.key_group_range]
        return taken

    def _drop_empty(self) -> None:
        """Forget timestamps without timers. O(n), after as many deletions."""
        self._groups = [
            {timestamp: timers for timestamp, timers in group.items() if timers} for group in self._groups
        ]
        self._heap = [(timestamp, index) for index, group in enumerate(self._groups) for timestamp in group]
        heapq.heapify(self._heap)
        self._empty = 0

    def timers(self) -> Iterator[Timer]:
        """Iterate over all timers in no particular order."""
        for group in self._groups:
            for timestamp_ms, timers in group.items():
                for key, namespace in timers:
                    yield Timer(timestamp_ms, key, namespace)

    def load(self, key_group: int, timers: Iterable[Timer]) -> None:
        """Add many timers of one key group, as a restore does."""
        for timer in timers:
            self.add(timer, key_group)

    def increment(self, changes: list[TimerChanges]) -> TimerQueueIncrement:
        """Return which of ``changes``, one set for each key group, are timers now. O(changes)."""
        return TimerQueueIncrement(self, changes)

    def snapshot(self) -> TimerQueueSnapshot:
        """Return a snapshot of the queue. O(n), but only references are copied, as in Flink."""
        return TimerQueueSnapshot(self)

    def _check(self) -> None:
        """Assert every invariant."""
        expected = [(timestamp, index) for index, group in enumerate(self._groups) for timestamp in group]
        # The heap has each timestamp of each key group once,
        assert sorted(self._heap) == sorted(expected)
        # and no timestamp is earlier than its parent.
        assert all(self._heap[(child - 1) // 2] <= self._heap[child] for child in range(1, len(self._heap)))
        # Timestamps without timers are counted.
        assert self._empty == sum(not timers for group in self._groups for timers in group.values())
        # The size is the number of timers.
        assert self._size == sum(len(timers) for group in self._groups for timers in group.values())


class TimerQueueSnapshot:
    """The contents of a queue at one moment."""

    def __init__(self, queue: TimerQueue) -> None:
        self.meta: StateMeta = queue.meta
        self.key_group_range = queue.key_group_range
        self._groups = [
            [(timestamp, list(timers)) for timestamp, timers in group.items()] for group in queue._groups
        ]

    def key_groups(self) -> Iterator[KeyGroupEntries]:
        """Iterate over the timers of each key group."""
        for key_group, group in zip(self.key_group_range, self._groups, strict=True):
            rows = [(key, space, time) for time, timers in group for key, space in timers]
            columns: tuple[Any, ...] = tuple(zip(*rows, strict=True)) or ((), (), ())
            namespaces = list(columns[1]) if self.meta.is_namespaced else None
            yield KeyGroupEntries(key_group, list(columns[0]), namespaces, list(columns[2]))

    def release(self) -> None:
        """Do nothing: the snapshot is a copy."""


class TimerQueueIncrement:
    """The timers that were added or deleted, and which of them existed at one moment."""

    def __init__(self, queue: TimerQueue, changes: list[TimerChanges]) -> None:
        self.meta: StateMeta = queue.meta
        self.key_group_range = queue.key_group_range
        self._groups = [
            [
                (key, namespace, timestamp, (key, namespace) not in group.get(timestamp, ()))
                for timestamp, key, namespace in changed
            ]
            for group, changed in zip(queue._groups, changes, strict=True)
        ]

    def key_groups(self) -> Iterator[KeyGroupEntries]:
        """Iterate over the changed timers of each key group."""
        for key_group, rows in zip(self.key_group_range, self._groups, strict=True):
            columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)] or [
                [],
                [],
                [],
                [],
            ]
            keys, namespaces, timestamps, removed = columns
            spaced = namespaces if self.meta.is_namespaced else None
            yield KeyGroupEntries(key_group, keys, spaced, timestamps, removed)

    def release(self) -> None:
        """Do nothing: the increment is a copy."""
