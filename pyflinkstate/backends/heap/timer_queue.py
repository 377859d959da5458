"""Timer queues: the timers of all keys in order of time.

Flink keeps a heap of timers for each key group (``HeapPriorityQueueSet``) and a heap of those
(``KeyGroupPartitionedPriorityQueue``). Here all timers of one timestamp form a *moment*, a dict from the key,
or the pair of key and namespace, to the index of its key group. So adding a timer that exists, which most
records of a window do, costs three lookups and no object. A timer that is the *only* one of its timestamp, as
most of sessions are, is a tuple in place of the dict, which is made for a second one. A moment is forgotten
with its last timer.

Moments lie in *spans* of about four seconds, each of which is a dict from the timestamp. A heap orders the
spans; the timestamps of the first one are sorted when its turn comes. So a timer that is moved with each
record, as that of a session is, changes small dicts alone, and one that was deleted leaves nothing to sort. A
span is forgotten with its last moment. Its number stays in the heap, as one that is *stale*, until its turn
comes or until more than half of the heap is stale: then the heap is rebuilt.

Timers with the same timestamp fire key group by key group, and within a key group in the order of adding. A
moment keeps only the order of adding. It is sorted once, when its first timer fires, into a *plan*, and what
is added to the moment or deleted from it meanwhile changes the plan too. If a timer for an earlier time is
added, the queue gives the plan up and makes it again later. An only timer fires without a plan.

mypyc compiles this file if a C compiler is available. Timestamps have no native type here: they are looked up
and handed on as the objects that they are.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

from pyflinkstate.backends.format import KeyGroupEntries
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import VOID_NAMESPACE, RegisteredQueueMeta, StateMeta

#: Names with this prefix belong to timers (Flink: ``InternalTimeServiceManagerImpl.TIMER_STATE_PREFIX``).
TIMER_STATE_PREFIX = "_timer_state"
#: A timestamp without its last bits, of which there are so many, is the number of its span.
SPAN_BITS: Final = 12
#: The heap is never rebuilt, and the first span never sorted again, for fewer stale entries than this.
MIN_STALE: Final = 64

#: A timestamp in ms since 1970, an int.
Timestamp: TypeAlias = Any
#: The index of the key group of each timer, by key or by key and namespace, in the order of adding.
_Moment = dict[Hashable, int]
#: The only timer of a timestamp: its key, its namespace, and the index of the key group. The length is left
#: open: mypyc would take each tuple apart and put it together again.
_Only = tuple[Any, ...]
#: The moments of about four seconds, by timestamp.
_Span = dict[Timestamp, _Moment | _Only]
#: Timestamp, key and namespace of a timer that was added or deleted.
TimerChange = tuple[Timestamp, Hashable, Hashable]
#: Each of those, in the order of the last change, and whether the timer exists after it.
TimerChanges = dict[TimerChange, bool]


class Timer:
    """One timer; a queue never holds two equal ones (Flink: ``TimerHeapInternalTimer``).

    Attributes:
        timestamp_ms: when it is due.
        key: the key that it belongs to.
        namespace: its namespace.
        map_index: the key group of the key minus the start of the queue's range; -1 if no queue gave the
            timer. It plays no part in comparisons.
    """

    __slots__ = ("key", "map_index", "namespace", "timestamp_ms")

    def __init__(
        self,
        timestamp_ms: Timestamp,
        key: Hashable,
        namespace: Hashable = VOID_NAMESPACE,
        map_index: int = -1,
    ) -> None:
        self.timestamp_ms: Timestamp = timestamp_ms
        self.key = key
        self.namespace = namespace
        self.map_index = map_index

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Timer)
            and self.timestamp_ms == other.timestamp_ms
            and self.key == other.key
            and self.namespace == other.namespace
        )

    def __hash__(self) -> int:
        return hash((self.timestamp_ms, self.key, self.namespace))

    def __reduce__(self) -> tuple[type[Timer], tuple[object, ...]]:
        return Timer, (self.timestamp_ms, self.key, self.namespace, self.map_index)

    def __repr__(self) -> str:
        return f"Timer(timestamp_ms={self.timestamp_ms!r}, key={self.key!r}, namespace={self.namespace!r})"


class TimerQueue:
    """The timers of one kind in one subtask.

    After :meth:`take`, the attributes ``timestamp_ms``, ``key``, ``namespace`` and ``map_index`` tell the
    timer that was taken.

    >>> queue = TimerQueue(RegisteredQueueMeta("timers"), KeyGroupRange(0, 127))
    >>> queue.add(Timer(20, "a"), 5), queue.add(Timer(10, "b"), 7), queue.add(Timer(10, "b"), 7)
    (True, True, False)
    >>> queue.poll(15), queue.poll(15), len(queue)
    (Timer(timestamp_ms=10, key='b', namespace=VOID_NAMESPACE), None, 1)
    """

    def __init__(self, meta: RegisteredQueueMeta, key_group_range: KeyGroupRange) -> None:
        self.meta = meta
        self.key_group_range = key_group_range
        self._is_namespaced: bool = meta.is_namespaced
        #: By number; each has at least one moment, and that at least one timer.
        self._spans: dict[Timestamp, _Span] = {}
        #: The number of each span, once or more often, and of stale ones.
        self._heap: list[Timestamp] = []
        #: The number of the first span, if it is known, its timestamps in order, some of which may have no
        #: moment any more, and the place of the next one.
        self._first: Timestamp = None
        self._due: list[Timestamp] = []
        self._place = 0
        self._size = 0
        #: Timers that were added or deleted since changes were last taken, by key group; None if not tracked.
        self._changes: list[TimerChanges] | None = None
        #: The first timestamp while its timers fire, its moment, the moment's timers in the order of firing,
        #: and the place of the next one. There is no plan without a next one.
        self._planned: Timestamp = None
        self._planned_moment: _Moment = {}
        self._plan: list[Hashable] = []
        self._next = 0
        self.timestamp_ms: Timestamp = None
        self.key: Hashable = None
        self.namespace: Hashable = VOID_NAMESPACE
        self.map_index = -1

    def __len__(self) -> int:
        return self._size

    # --- adding and deleting -------------------------------------------------------------------------

    def add(self, timer: Timer, key_group: int) -> bool:
        """Add ``timer``, whose key is in ``key_group``; return whether it is new. O(log n)."""
        index: int = key_group - self.key_group_range.start
        return self.register(timer.timestamp_ms, timer.key, timer.namespace, index)

    def remove(self, timer: Timer, key_group: int) -> bool:
        """Delete ``timer``; return whether it existed. O(1)."""
        index: int = key_group - self.key_group_range.start
        return self.delete(timer.timestamp_ms, timer.key, timer.namespace, index)

    def register(self, timestamp_ms: Timestamp, key: Hashable, namespace: Hashable, map_index: int) -> bool:
        """Add a timer; return whether it is new.

        O(1), O(log n) for the first of a span, and O(m) for a new one among the m moments of the first span.

        Args:
            timestamp_ms: when it is due.
            key: its key.
            namespace: its namespace.
            map_index: the key group of ``key`` minus the start of the range.
        """
        number = timestamp_ms >> SPAN_BITS
        span = self._spans.get(number) or self._new_span(number)
        moment = span.get(timestamp_ms)
        if moment is None:
            span[timestamp_ms] = (key, namespace, map_index)
            if number == self._first:
                self._put_among_due(timestamp_ms, span)
        else:
            if isinstance(moment, tuple):
                if self._is_only(moment, key, namespace):
                    return False
                moment = span[timestamp_ms] = self._as_dict(moment)
            entry: Hashable = (key, namespace) if self._is_namespaced else key
            if entry in moment:
                return False
            moment[entry] = map_index
        self._size += 1
        if self._planned is not None:
            self._plan_added(timestamp_ms, key, namespace, map_index)
        if self._changes is not None:
            self._note(timestamp_ms, key, namespace, map_index, True)
        return True

    def delete(self, timestamp_ms: Timestamp, key: Hashable, namespace: Hashable, map_index: int) -> bool:
        """Delete a timer; return whether it existed. O(1), if its moment is not firing; see ``register``."""
        span = self._spans.get(timestamp_ms >> SPAN_BITS)
        moment = None if span is None else span.get(timestamp_ms)
        if span is None or moment is None:
            return False
        if isinstance(moment, tuple):
            if not self._is_only(moment, key, namespace):
                return False
            self._forget(timestamp_ms, span)
        else:
            entry: Hashable = (key, namespace) if self._is_namespaced else key
            if entry not in moment:
                return False
            if self._planned == timestamp_ms:
                self._plan_deleted(entry, map_index)
            del moment[entry]
            if not moment:
                self._forget(timestamp_ms, span)
        self._size -= 1
        if self._changes is not None:
            self._note(timestamp_ms, key, namespace, map_index, False)
        return True

    def _is_only(self, only: _Only, key: object, namespace: object) -> bool:
        """Return whether an only timer has this key and namespace."""
        if only[0] is not key and only[0] != key:
            return False
        return not self._is_namespaced or only[1] is namespace or bool(only[1] == namespace)

    def _as_dict(self, only: _Only) -> _Moment:
        """Return the moment of an only timer as a dict."""
        key, namespace, map_index = only
        return {(key, namespace) if self._is_namespaced else key: map_index}

    def _new_span(self, number: Timestamp) -> _Span:
        span: _Span = {}
        self._spans[number] = span
        heapq.heappush(self._heap, number)
        if self._first is not None and number <= self._first:
            self._first = None
        return span

    def _put_among_due(self, timestamp_ms: Timestamp, span: _Span) -> None:
        """Put a timestamp among those of the first span, unless most of these have no moment any more."""
        if len(self._due) - self._place > 2 * max(len(span), MIN_STALE):
            self._first = None
        else:
            insort(self._due, timestamp_ms, lo=self._place)

    def _forget(self, timestamp_ms: Timestamp, span: _Span) -> None:
        """Forget a moment without timers, and its span with the last one; a heap that is stale is rebuilt."""
        del span[timestamp_ms]
        if not span:
            del self._spans[timestamp_ms >> SPAN_BITS]
            if len(self._heap) > 2 * max(len(self._spans), MIN_STALE):
                self._heap = list(self._spans)
                heapq.heapify(self._heap)

    # --- firing --------------------------------------------------------------------------------------

    def take(self, until_ms: Timestamp) -> bool:
        """Remove the first timer if its time is ``until_ms`` or before; return whether it was.

        O(1), and O(m log m) for the first of the m timers of one timestamp.
        """
        timestamp_ms = self._planned
        if timestamp_ms is None:
            timestamp_ms = self.first_timestamp()
            if timestamp_ms is None or timestamp_ms > until_ms:
                return False
            moment = self._spans[self._first][timestamp_ms]
            if isinstance(moment, tuple):
                self.key, namespace, self.map_index = moment
                self._took(timestamp_ms, namespace, is_last=True)
                return True
            self._make_plan(timestamp_ms, moment)
        elif timestamp_ms > until_ms:
            return False
        planned = self._planned_moment
        entry: Any = self._plan[self._next]
        self._next += 1
        if self._next == len(self._plan):
            self._give_up_plan()
        self.map_index = planned.pop(entry)
        if self._is_namespaced:
            self.key, namespace = entry
        else:
            self.key, namespace = entry, VOID_NAMESPACE
        self._took(timestamp_ms, namespace, is_last=not planned)
        return True

    def _took(self, timestamp_ms: Timestamp, namespace: Hashable, is_last: bool) -> None:
        """Tell of the timer that was taken, and count it."""
        self.timestamp_ms = timestamp_ms
        self.namespace = namespace
        self._size -= 1
        if is_last:
            self._forget(timestamp_ms, self._spans[timestamp_ms >> SPAN_BITS])
        if self._changes is not None:
            self._note(timestamp_ms, self.key, namespace, self.map_index, False)

    def poll(self, until_ms: Timestamp) -> Timer | None:
        """Do as :meth:`take`, and return the timer, or None if none was taken."""
        if not self.take(until_ms):
            return None
        return Timer(self.timestamp_ms, self.key, self.namespace, self.map_index)

    def first_timestamp(self) -> Timestamp:
        """Return when the first timer is due, or None. O(1), and O(m log m) if a span of m moments begins."""
        while self._first is not None or self._find_first():
            span = self._spans.get(self._first)
            while span is not None and self._place < len(self._due):
                timestamp_ms = self._due[self._place]
                if timestamp_ms in span:
                    return timestamp_ms
                self._place += 1
            self._first = None
        return None

    def _find_first(self) -> bool:
        """Find the first span; return whether there is one."""
        heap = self._heap
        while heap and heap[0] not in self._spans:
            heapq.heappop(heap)
        if not heap:
            return False
        self._first, self._place = heap[0], 0
        self._due = sorted(self._spans[self._first])
        return True

    def _make_plan(self, timestamp_ms: Timestamp, moment: _Moment) -> None:
        """Plan the first moment."""
        self._planned = timestamp_ms
        self._planned_moment = moment
        self._plan = list(moment) if len(moment) == 1 else sorted(moment, key=moment.__getitem__)
        self._next = 0

    def _give_up_plan(self) -> None:
        self._planned = None
        self._plan = []
        self._next = 0

    def _plan_added(
        self, timestamp_ms: Timestamp, key: Hashable, namespace: Hashable, map_index: int
    ) -> None:
        if timestamp_ms == self._planned:
            entry: Hashable = (key, namespace) if self._is_namespaced else key
            index_of = self._planned_moment.__getitem__
            place = bisect_right(self._plan, map_index, lo=self._next, key=index_of)
            self._plan.insert(place, entry)
        elif timestamp_ms < self._planned:
            self._give_up_plan()

    def _plan_deleted(self, entry: Hashable, map_index: int) -> None:
        index_of = self._planned_moment.__getitem__
        first = bisect_left(self._plan, map_index, lo=self._next, key=index_of)
        del self._plan[self._plan.index(entry, first)]
        if self._next == len(self._plan):
            self._give_up_plan()

    # --- changes and snapshots -----------------------------------------------------------------------

    def _note(
        self, timestamp_ms: Timestamp, key: Hashable, namespace: Hashable, map_index: int, exists: bool
    ) -> None:
        if self._changes is not None:
            changes = self._changes[map_index]
            change = (timestamp_ms, key, namespace)
            changes.pop(change, None)
            changes[change] = exists

    def track_changes(self) -> None:
        """From now on, record which timers are added and deleted."""
        if self._changes is None:
            self._changes = self._no_changes()

    def take_changes(self) -> list[TimerChanges]:
        """Return, for each key group, what changed since the last call, and start again."""
        taken = self._changes
        if taken is None:
            return self._no_changes()
        self._changes = self._no_changes()
        return taken

    def _no_changes(self) -> list[TimerChanges]:
        return [{} for _ in self.key_group_range]

    def timers(self) -> Iterator[Timer]:
        """Iterate over all timers in no particular order."""
        for timestamp_ms, moment in self._moments():
            if isinstance(moment, tuple):
                yield Timer(timestamp_ms, *moment)
            else:
                for entry in moment:
                    yield self._timer(timestamp_ms, entry, moment)

    def _moments(self) -> Iterator[tuple[Timestamp, _Moment | _Only]]:
        """Iterate over timestamps and moments in no particular order."""
        return chain.from_iterable(span.items() for span in self._spans.values())

    def _timer(self, timestamp_ms: Timestamp, entry: Any, moment: _Moment) -> Timer:
        if self._is_namespaced:
            return Timer(timestamp_ms, entry[0], entry[1], moment[entry])
        return Timer(timestamp_ms, entry, VOID_NAMESPACE, moment[entry])

    def load(self, key_group: int, timers: Iterable[Timer]) -> None:
        """Add many timers of one key group, as a restore does."""
        for timer in timers:
            self.add(timer, key_group)

    def increment(self, changes: Sequence[TimerChanges]) -> TimerQueueIncrement:
        """Return ``changes``, those of each key group up to now, as they are written. O(1)."""
        return TimerQueueIncrement(self, changes)

    def snapshot(self) -> TimerQueueSnapshot:
        """Return a snapshot of the queue. O(n), but only references are copied, as in Flink."""
        return TimerQueueSnapshot(self)

    def _check(self) -> None:
        """Assert every invariant."""
        # The heap has the number of each span,
        assert set(self._heap) >= set(self._spans)
        # at most about half of it is stale,
        assert len(self._heap) - len(self._spans) <= len(self._spans) + 2 * MIN_STALE
        # and no number is smaller than its parent.
        assert all(self._heap[(child - 1) // 2] <= self._heap[child] for child in range(1, len(self._heap)))
        # No span is without moments, no moment without timers, and each lies where it belongs.
        assert all(self._spans.values())
        assert all(moment for _, moment in self._moments())
        assert all({time >> SPAN_BITS for time in span} == {number} for number, span in self._spans.items())
        # What is due next is the first span, in order.
        if self._first is not None:
            assert self._first <= min(self._spans, default=self._first)
            due = self._due[self._place :]
            assert due == sorted(due)
            assert set(due) >= set(self._spans.get(self._first, ()))
        # The size is the number of timers.
        assert len(self) == sum(1 for _ in self.timers())
        self._check_plan()

    def _check_plan(self) -> None:
        if self._planned is None:
            assert not self._plan
            return
        # The plan is for the first moment,
        assert self._planned == min(timestamp for timestamp, _ in self._moments())
        moment = self._planned_moment
        assert self._spans[self._planned >> SPAN_BITS][self._planned] is moment
        # and has its timers in the order of firing; there is a next one.
        assert self._plan[self._next :] == sorted(moment, key=moment.__getitem__) != []


class TimerQueueSnapshot:
    """The contents of a queue at one moment."""

    def __init__(self, queue: TimerQueue) -> None:
        self.meta: StateMeta = queue.meta
        self.key_group_range = queue.key_group_range
        self._moments = [
            (timestamp, moment if isinstance(moment, tuple) else moment.copy())
            for timestamp, moment in queue._moments()
        ]

    def key_groups(self) -> Iterator[KeyGroupEntries]:
        """Iterate over the timers of each key group."""
        groups: list[list[Any]] = [[] for _ in self.key_group_range]
        times: list[list[Timestamp]] = [[] for _ in self.key_group_range]
        for timestamp, moment in self._moments:
            for entry, index in self._entries(moment):
                groups[index].append(entry)
                times[index].append(timestamp)
        for index, key_group in enumerate(self.key_group_range):
            keys, namespaces = groups[index], None
            if self.meta.is_namespaced:
                keys, namespaces = (
                    [entry[0] for entry in groups[index]],
                    [entry[1] for entry in groups[index]],
                )
            yield KeyGroupEntries(key_group, keys, namespaces, times[index])

    def _entries(self, moment: _Moment | _Only) -> Iterable[tuple[Hashable, int]]:
        """Return the entries of a moment, and the index of the key group of each."""
        if isinstance(moment, tuple):
            entry: Hashable = moment[:2] if self.meta.is_namespaced else moment[0]
            return [(entry, moment[2])]
        return moment.items()

    def release(self) -> None:
        """Do nothing: the snapshot is a copy."""


class TimerQueueIncrement:
    """The timers that were added or deleted, and which of them existed at one moment."""

    def __init__(self, queue: TimerQueue, changes: Sequence[TimerChanges]) -> None:
        self.meta: StateMeta = queue.meta
        self.key_group_range = queue.key_group_range
        self._changes = changes

    def key_groups(self) -> Iterator[KeyGroupEntries]:
        """Iterate over the changed timers of each key group."""
        for index, key_group in enumerate(self.key_group_range):
            changes = self._changes[index]
            namespaces = [change[2] for change in changes] if self.meta.is_namespaced else None
            timestamps, keys = [change[0] for change in changes], [change[1] for change in changes]
            removed = [not exists for exists in changes.values()]
            yield KeyGroupEntries(key_group, keys, namespaces, timestamps, removed)

    def release(self) -> None:
        """Do nothing: nobody changes the changes any more."""
