"""The last lines of a job's slots, within a bound in bytes."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable

from pyflinkstate.api.values import JsonObject

MOST_BYTES = 1 << 19
#: Longer lines are cut.
MOST_CHARS = 2_000
#: Maximum number of lines in an answer, the newest ones.
MOST_SHOWN = 500
#: Bytes of a line in addition to its text.
_BYTES_OF_LINE = 100


class LogTail:
    """Keeps the last lines.

    Args:
        most_bytes: the maximum size of all lines.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lines: deque[tuple[int, str, int, str]] = deque()
        self._bytes = 0
        #: Number of lines that have been dropped, the oldest first.
        self.forgotten = 0

    def add(self, at: int, slot: str, lines: Iterable[tuple[int, str]]) -> None:
        """Add lines of a slot with their levels; drop the oldest if there are too many."""
        for level, line in lines:
            kept = str(line)[:MOST_CHARS]
            self._lines.append((at, slot, int(level), kept))
            self._bytes += _size(slot, kept)
        while self._bytes > self._most_bytes:
            _, of_slot, _, dropped = self._lines.popleft()
            self._bytes -= _size(of_slot, dropped)
            self.forgotten += 1

    def found(self, contains: str = "", slot: str = "", level: int = 0) -> JsonObject:
        """Return the newest lines that match a filter, the oldest of them first.

        Args:
            contains: a string that the line contains, ignoring case.
            slot: a string that the name of its slot contains.
            level: the lowest level, as ``logging`` counts them.
        """
        wanted, name = contains.casefold(), slot.casefold()
        matching = [
            line
            for line in self._lines
            if line[2] >= level and name in line[1].casefold() and wanted in line[3].casefold()
        ]
        return {
            "kept": len(self._lines),
            "forgotten": self.forgotten,
            "matching": len(matching),
            "lines": [
                [at, of_slot, logging.getLevelName(own), text]
                for at, of_slot, own, text in matching[-MOST_SHOWN:]
            ],
        }


def _size(slot: str, line: str) -> int:
    return _BYTES_OF_LINE + len(slot) + 4 * len(line)
