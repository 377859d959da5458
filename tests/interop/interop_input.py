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
    """Return an input for so many keys and one more, which has the latest record of the first half.

    At the savepoint, a session of each key is open, and a tumbling window of some; one of each is over.
    In the second half, records are added to some of these sessions and windows.

    Only the end of the first half is a watermark: the latest timestamp minus 1. In process mode, PyFlink holds
    a watermark until its bundle ends, so that records behind it are processed before it. And without one, the
    timers set in the bundle that a savepoint ends wait in the task's mailbox, and are not in the savepoint.
    """
    number, later = FIRST_NUMBER + keys, SECOND_NUMBER + keys
    return Input(
        [
            *_part(range(keys), 5_000, FIRST_NUMBER),
            *_part(range(0, keys, 3), 12_000, number),
            f"13000,{keys},{number + keys}",
            "w,12999",
        ],
        [*_part(range(0, keys, 2), 14_000, SECOND_NUMBER), *_part(range(0, keys, 5), 40_000, later)],
    )


def _part(keys: Iterable[int], begin: int, number: int) -> Iterator[str]:
    """Yield a record of each of some keys, within a second."""
    return (f"{begin + key % 1_000},{key},{number + key}" for key in keys)
