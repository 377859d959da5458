"""The input of the program of these tests, in two halves: before the savepoint and after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

#: Flink's clock when the first half is read. Its timers of processing time are due 30 minutes later.
BEGIN_MS = 1_700_000_000_000
#: When the second half is read: the timers are due, a time to live of an hour is over, one of a day is not.
CONTINUED_MS = BEGIN_MS + 7_200_000
#: What the numbers of the first half begin with: so long after the beginning their timers are due.
FIRST_NUMBER = 1_800_000
#: The timers of these numbers are never due.
SECOND_NUMBER = 10**12


@dataclass(frozen=True)
class Input:
    """Lines for ``flink/Lines.java``: records as ``time,key,number``, and watermarks as ``w,time``."""

    first: list[str]
    second: list[str]

    @property
    def due_timers(self) -> int:
        """How many timers of processing time are due when the second half begins."""
        return self.records_of(self.first)

    @staticmethod
    def records_of(lines: Iterable[str]) -> int:
        """Return how many lines are records."""
        return sum(not line.startswith("w,") for line in lines)


def generated(keys: int) -> Input:
    """Return an input in which windows of all keys are open at the savepoint, and some have been closed."""
    return Input([*_first(keys)], [*_second(keys)])


def _first(keys: int) -> Iterator[str]:
    for key in range(keys):
        yield f"{5_000 + key % 1_000},{key},{FIRST_NUMBER + key}"
    yield "w,9999"
    for key in range(0, keys, 3):
        yield f"{12_000 + key % 1_000},{key},{FIRST_NUMBER + keys + key}"
    # PyFlink loses in process mode the timers of a bundle that the savepoint ends. This ends it before.
    yield "w,10000"


def _second(keys: int) -> Iterator[str]:
    for key in range(0, keys, 2):
        yield f"{14_000 + key % 1_000},{key},{SECOND_NUMBER + key}"
    yield "w,30000"
    for key in range(0, keys, 5):
        yield f"{40_000 + key % 1_000},{key},{SECOND_NUMBER + keys + key}"
