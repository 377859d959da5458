"""Walks all entries of a table bit by bit, for the clean-up of expired values; so it is compiled."""

from __future__ import annotations

from pyflinkstate.backends.heap.state_map import Columns, StateIncrementalVisitor, StateMap


class StateTableVisitor:
    """Walks the maps of a table one after the other, and starts again after the last.

    Args:
        maps: the maps of the table, which may be replaced by others in this list.
        max_positions: how many places of a map are looked at each time, until one has entries.
    """

    __slots__ = ("_index", "_maps", "_max_positions", "_visited", "_visitor")

    def __init__(self, maps: list[StateMap], max_positions: int) -> None:
        self._maps = maps
        self._max_positions = max_positions
        self._index = 0
        self._visited: StateMap = maps[0]
        self._visitor: StateIncrementalVisitor = maps[0].incremental_visitor(max_positions)

    @property
    def state_map(self) -> StateMap:
        """The map of the entries that were returned last."""
        return self._visited

    def has_next(self) -> bool:
        """Return whether there are places left before the walk starts again."""
        return self._visitor.has_next() or self._index + 1 < len(self._maps)

    def next_columns(self) -> Columns:
        """Return keys and values of the next non-empty place, which must not be changed.

        They are empty if ``max_positions`` places were.
        """
        if self._visited is not self._maps[self._index]:
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
        self._visited = self._maps[self._index]
        self._visitor = self._visited.incremental_visitor(self._max_positions)
