"""When a value has expired, and the removal of expired values that nobody reads.

Flink: ``TtlUtils``, ``TtlIncrementalCleanup`` and snapshot filters. Every access to a state that expires goes
this way, so it is compiled.

A *filter* takes the stored value of one key and the latest timestamp that has expired. It returns the part
of the value that has not expired: the same object if nothing has expired, None if everything has.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from pyflinkstate.api import (
    AnyState,
    StateKind,
    StateTtlConfig,
    StateValue,
    StateVisibility,
    Stored,
    UpdateType,
)
from pyflinkstate.backends.types import TtlValue
from pyflinkstate.backends.wall_clock import wall_clock_ms

#: Earlier than any timestamp.
UNKNOWN: Final = -(1 << 70)


class TtlRules:
    """A configuration in the form that the states use.

    Args:
        clock: returns the time in ms.
        ttl_ms: how long a value lives: with 100 ms, a timestamp of 0 has expired at 100.
        refreshes_on_read: whether reading prolongs its life.
        returns_expired: whether an expired value is returned once.

    Attributes:
        earliest: the earliest time that was read since the clean-up last set it, so that no timestamp given
            since then is earlier; :data:`UNKNOWN` if older values may have come from elsewhere.
    """

    def __init__(
        self, clock: Callable[[], int], ttl_ms: int, refreshes_on_read: bool, returns_expired: bool
    ) -> None:
        self._clock = clock
        #: Then the clock is called natively.
        self._reads_wall_clock: bool = clock is wall_clock_ms
        self.ttl_ms = ttl_ms
        self.refreshes_on_read = refreshes_on_read
        self.returns_expired = returns_expired
        self.earliest = UNKNOWN

    def now(self) -> int:
        """Return the time in ms; every timestamp of a value comes from here."""
        now = wall_clock_ms() if self._reads_wall_clock else self._clock()
        if now < self.earliest:
            self.earliest = now
        return now

    def combined(
        self, left: TtlValue, right: TtlValue, combine: Callable[[object, object], StateValue]
    ) -> StateValue:
        """Return the unexpired values of the two, combined and stamped, or ``left`` if both have expired.

        None stays None, which the state refuses.
        """
        now = self.now()
        expired_until = now - self.ttl_ms
        first = None if left[0] <= expired_until else left[1]
        second = None if right[0] <= expired_until else right[1]
        if first is None and second is None:
            return left
        if first is None or second is None:
            return now, second if first is None else first
        result = combine(first, second)
        return None if result is None else (now, result)


def rules_of(config: StateTtlConfig, clock: Callable[[], int]) -> TtlRules:
    """Return the rules of a configuration, with a clock that returns the time in ms."""
    return TtlRules(
        clock,
        config.get_ttl().to_milliseconds(),
        config.get_update_type() is UpdateType.OnReadAndWrite,
        config.get_state_visibility() is StateVisibility.ReturnExpiredIfNotCleanedUp,
    )


Filter = Callable[[Any, int], Any]

#: A timestamp and the user's value. The length is left open: mypyc would take pairs apart and rebuild them.
_Stamped = tuple[Any, ...]

#: Later than any timestamp.
NEVER: Final = 1 << 70


def filter_single(stored: _Stamped, expired_until: int) -> _Stamped | None:
    """The filter of values that expire as a whole."""
    return None if stored[0] <= expired_until else stored


def filter_list(stored: list[_Stamped], expired_until: int) -> list[_Stamped] | None:
    """The filter of lists, whose elements expire one by one."""
    kept = [element for element in stored if element[0] > expired_until]
    return stored if len(kept) == len(stored) else kept or None


def filter_map(stored: dict[object, _Stamped], expired_until: int) -> dict[object, _Stamped] | None:
    """The filter of maps, whose entries expire one by one."""
    kept = {key: entry for key, entry in stored.items() if entry[0] > expired_until}
    return stored if len(kept) == len(stored) else kept or None


def oldest_in_list(stored: list[_Stamped]) -> int:
    """Return the oldest timestamp of a list."""
    oldest: int = NEVER
    for element in stored:
        oldest = min(oldest, element[0])
    return oldest


def oldest_in_map(stored: dict[object, _Stamped]) -> int:
    """Return the oldest timestamp of a map."""
    oldest: int = NEVER
    for entry in stored.values():
        oldest = min(oldest, entry[0])
    return oldest


_FILTERS: dict[StateKind, Filter] = {StateKind.LIST: filter_list, StateKind.MAP: filter_map}
_OLDEST: dict[StateKind, Callable[[Any], int]] = {
    StateKind.LIST: oldest_in_list,
    StateKind.MAP: oldest_in_map,
}


def snapshot_filter(kind: StateKind, rules: TtlRules) -> Callable[[Stored], Stored]:
    """Return the filter of one snapshot, which uses the time of its synchronous part."""
    unexpired = _FILTERS.get(kind, filter_single)
    expired_until = rules.now() - rules.ttl_ms
    return lambda stored: unexpired(stored, expired_until)


class TtlIncrementalCleanup:
    """Checks a few entries at a time, going round the map again and again.

    A round also finds the oldest timestamp that is left. Every later one is a time that was read from the
    clock since the round began, so until one of these can have expired, there is nothing to check.

    Args:
        state: the backend's state, whose visitor walks the entries of all keys and namespaces.
        kind: its kind.
        rules: when a value has expired.
        cleanup_size: how many entries are checked each time, each at up to as many places.
    """

    def __init__(self, state: AnyState, kind: StateKind, rules: TtlRules, cleanup_size: int) -> None:
        self._visitor: AnyState = state.visitor(cleanup_size)
        self._rules = rules
        self._cleanup_size = cleanup_size
        self._filter: Filter = _FILTERS.get(kind, filter_single)
        #: Finds the oldest timestamp of a list or map; None for what expires as a whole.
        self._oldest_in: Callable[[object], int] | None = _OLDEST.get(kind)
        #: What was fetched from the last place, and the index of the next entry to check.
        self._keys: list[Hashable] = []
        self._values: list[Any] = []
        self._next = 0
        #: No timestamp is older than this, unless it is a time that was read since the last round began.
        self._oldest = UNKNOWN
        self._oldest_seen = NEVER
        self._is_amid_round = False

    def run(self, now: int) -> None:
        """Check up to ``cleanup_size`` entries; remove what has expired at ``now``."""
        rules = self._rules
        expired_until = now - rules.ttl_ms
        if self._oldest > expired_until and rules.earliest > expired_until:
            return
        for _ in range(self._cleanup_size):
            if self._next == len(self._keys):
                self._fetch(now)
            if self._next < len(self._keys):
                self._check_next(expired_until)
            elif not self._is_amid_round:
                return

    def _fetch(self, now: int) -> None:
        """Fetch the entries of the next place; at the end of a round there are none."""
        self._next = 0
        if self._is_amid_round and not self._visitor.has_next():
            self._keys = []
            self._values = []
            self._end_round()
            return
        if not self._is_amid_round:
            self._begin_round(now)
        columns = self._visitor.next_columns()
        self._keys = columns[0]
        self._values = columns[1]

    def _begin_round(self, now: int) -> None:
        self._is_amid_round = True
        self._visitor.restart()
        self._oldest = min(self._oldest, self._rules.earliest)
        self._oldest_seen = NEVER
        self._rules.earliest = now

    def _end_round(self) -> None:
        self._is_amid_round = False
        self._oldest = min(self._oldest_seen, self._rules.earliest)

    def _check_next(self, expired_until: int) -> None:
        fetched, oldest_in = self._values[self._next], self._oldest_in
        oldest: int = fetched[0] if oldest_in is None else oldest_in(fetched)
        if oldest <= expired_until:
            self._clean(self._keys[self._next], expired_until)
        elif oldest < self._oldest_seen:
            self._oldest_seen = oldest
        self._next += 1

    def _clean(self, key: Hashable, expired_until: int) -> None:
        """Remove what has expired of the value that is stored now: the one that was fetched may be gone."""
        entries, unexpired, oldest_in = self._visitor.state_map, self._filter, self._oldest_in
        stored = entries.peek(key)
        if stored is None:
            return
        kept = unexpired(stored, expired_until)
        if kept is None:
            entries.remove(key)
            return
        if kept is not stored:
            # The remaining list or map becomes the owner's, so no snapshot may share it.
            entries.put(key, unexpired(entries.get(key), expired_until))
        oldest: int = kept[0] if oldest_in is None else oldest_in(kept)
        self._oldest_seen = min(self._oldest_seen, oldest)
