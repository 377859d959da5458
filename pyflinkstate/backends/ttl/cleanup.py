"""Removes expired values that nobody reads (Flink: ``TtlIncrementalCleanup`` and snapshot filters).

A *filter* takes the stored value of one key and returns the part of it that has not expired: the same object
if nothing has expired, None if everything has.
"""

from __future__ import annotations

from collections.abc import Callable

from pyflinkstate.api.descriptors import StateKind
from pyflinkstate.api.values import Stored
from pyflinkstate.backends.internal_state import InternalState, StateEntry, StateVisitor
from pyflinkstate.backends.ttl.access import TtlRules
from pyflinkstate.backends.types import TtlValue

Filter = Callable[[Stored], Stored]


def ttl_filter(kind: StateKind, ttl_ms: int, now: Callable[[], int]) -> Filter:
    """Return the filter of states of ``kind``."""

    def filter_single(stored: TtlValue) -> TtlValue | None:
        return None if stored[0] + ttl_ms <= now() else stored

    def filter_list(stored: list[TtlValue]) -> list[TtlValue] | None:
        oldest = now() - ttl_ms
        kept = [element for element in stored if element[0] > oldest]
        return stored if len(kept) == len(stored) else kept or None

    def filter_map(stored: dict[Stored, TtlValue]) -> dict[Stored, TtlValue] | None:
        oldest = now() - ttl_ms
        kept = {key: entry for key, entry in stored.items() if entry[0] > oldest}
        return stored if len(kept) == len(stored) else kept or None

    filters: dict[StateKind, Filter] = {StateKind.LIST: filter_list, StateKind.MAP: filter_map}
    return filters.get(kind, filter_single)


def snapshot_filter(kind: StateKind, rules: TtlRules) -> Filter:
    """Return the filter of one snapshot, which uses the time of its synchronous part."""
    taken_at = rules.now()
    return ttl_filter(kind, rules.ttl_ms, lambda: taken_at)


class TtlIncrementalCleanup:
    """Checks a few entries at a time, going round the map again and again."""

    def __init__(self, state: InternalState, filter_stored: Filter, cleanup_size: int) -> None:
        self._visitor: StateVisitor = state.visitor(cleanup_size)
        self._filter = filter_stored
        self._cleanup_size = cleanup_size
        self._waiting: list[StateEntry] = []

    def run(self) -> None:
        """Check up to ``cleanup_size`` entries, each at up to as many places; remove the expired ones."""
        for _ in range(self._cleanup_size):
            if not self._waiting:
                self._waiting = self._visitor.next_entries()
            if self._waiting:
                self._clean(self._waiting.pop())

    def _clean(self, entry: StateEntry) -> None:
        stored = entry.stored()
        if stored is None:
            return
        kept = self._filter(stored)
        if kept is None:
            entry.update(None)
        elif kept is not stored:
            # The remaining list or map becomes the owner's, so no snapshot may share it.
            entry.update(self._filter(entry.writable()))
