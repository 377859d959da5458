"""The schedule of the records, the log of their arrivals, and the command line of each engine's program.

The schedule is an open loop: record ``n`` is due ``n / rate`` seconds after record 0, whether or not the
engine has taken the records before it. Latency is the time since a record was due. If the engine stalls, all
records that were due meanwhile show it. If latency began when the engine took a record, only the first of
them would (*coordinated omission*).

Only the standard library is imported, because this module is read by each engine's own Python.
"""

from __future__ import annotations

import argparse
import os
import time
import uuid
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

PARALLELISM = 2
#: The fields of :class:`Pace` that are numbers, in the order of the command line.
NUMBERS = ("rate", "keys", "warm_up_s", "seconds")
SECOND_NS = 10**9
#: The columns of the log, each a signed 64-bit integer in the machine's byte order.
COLUMNS = ("number", "count", "due_ns", "arrived_ns")
ROW_BYTES = 8 * len(COLUMNS)
#: The names of the logs, and of the file with the name and version of the engine, in the run's folder.
LOGS = "arrivals-*"
ENGINE = "engine"
#: Interval at which the log is flushed, unless no record arrives.
FLUSH_NS = SECOND_NS // 5
#: How long the start of an engine and the arrival of the last records may take together, in seconds.
PATIENCE_S = 300
POLL_S = 0.5


@dataclass(frozen=True)
class Pace:
    """A run.

    Attributes:
        folder: belongs to this run; all of its processes can reach it.
        rate: records per second.
        keys: the number of keys.
        warm_up_s: the time from the first arrival to the first record that is measured.
        seconds: duration of the measurement.
    """

    folder: Path
    rate: int
    keys: int
    warm_up_s: int
    seconds: int

    def key_of(self, number: int) -> int:
        """Return the key of a record: each key once in every ``keys`` records, in a scattered order."""
        return number * 7919 % self.keys

    def start_ns(self) -> int:
        """Return when record 0 is due: when a process of the run asked first, in ns since 1970."""
        start, own = self.folder / "start", self.folder / f"start-{uuid.uuid4().hex}"
        own.write_text(str(time.time_ns()))
        with suppress(FileExistsError):
            os.link(own, start)
        return int(start.read_text())

    def due_ns(self, start_ns: int, number: int) -> int:
        """Return when a record is due, in ns since 1970."""
        return start_ns + number * SECOND_NS // self.rate

    def due_before(self, start_ns: int, now_ns: int) -> int:
        """Return the number of records that are due."""
        return max(0, (now_ns - start_ns) * self.rate // SECOND_NS + 1)

    def measured(self, row: Sequence[int]) -> range:
        """Return the numbers of the records that are measured, given the row of the first arrival."""
        number, _, due_ns, arrived_ns = row
        start_ns = due_ns - number * SECOND_NS // self.rate
        first = self.due_before(start_ns, arrived_ns + self.warm_up_s * SECOND_NS)
        return range(first, first + self.rate * self.seconds)


class Arrivals:
    """The log of one subtask: a row of ``COLUMNS`` for each record that arrives.

    Args:
        folder: that of the run. Each object creates a file of its own.
    """

    def __init__(self, folder: Path) -> None:
        self._file = (folder / f"arrivals-{uuid.uuid4().hex}").open("wb", buffering=0)
        self._rows = array("q")
        self._flush_at_ns = 0

    def note(self, number: int, due_ns: int, count: int, at_ns: int | None = None) -> None:
        """Log a record that has just arrived, or did so at ``at_ns``."""
        now_ns = time.time_ns() if at_ns is None else at_ns
        self._rows.extend((number, count, due_ns, now_ns))
        if now_ns >= self._flush_at_ns:
            self._flush_at_ns = now_ns + FLUSH_NS
            self.flush()

    def flush(self) -> None:
        """Write what was noted."""
        self._file.write(self._rows)
        del self._rows[:]

    def close(self) -> None:
        """Flush and close the file."""
        self.flush()
        self._file.close()


@lru_cache
def arrivals_of(folder: Path, partition: int) -> Arrivals:
    """Return the log of a partition in this process, for engines that make a writer more than once."""
    return Arrivals(folder)


def all_have_arrived(pace: Pace) -> bool:
    """Return whether the logs have all measured records. They are read only if they are long enough."""
    logs = [log for log in pace.folder.glob(LOGS) if log.stat().st_size >= ROW_BYTES]
    if not logs:
        return False
    end = pace.measured(min((_rows(log, 1) for log in logs), key=lambda row: row[-1])).stop
    if sum(log.stat().st_size for log in logs) < end * ROW_BYTES:
        return False
    return sum(number < end for log in logs for number in _rows(log)[:: len(COLUMNS)]) >= end


def _rows(log: Path, most: int | None = None) -> array[int]:
    """Return the first rows of a log, or all of them, one after the other."""
    rows = array("q")
    with log.open("rb") as file:
        data = file.read(None if most is None else most * ROW_BYTES)
    rows.frombytes(data[: len(data) // ROW_BYTES * ROW_BYTES])  # the last row may be incomplete
    return rows


def wait_for(pace: Pace, is_complete: Callable[[Pace], bool], is_running: Callable[[], bool]) -> None:
    """Wait until a run is complete; ``is_running`` may raise the error with which the job has ended.

    Raises:
        SystemExit: the job ends before, or it takes too long.
    """
    until_s = time.monotonic() + pace.warm_up_s + pace.seconds + PATIENCE_S
    while not is_complete(pace):
        if not is_running():
            raise SystemExit("the job has ended too early")
        if time.monotonic() > until_s:
            raise SystemExit("not all records arrived in time")
        time.sleep(POLL_S)


def main(engine: str, run: Callable[[Pace], None]) -> None:
    """Run what the command line describes, and note the name and version of the engine in the folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name in NUMBERS:
        parser.add_argument(name, type=int)
    pace = Pace(**vars(parser.parse_args()))
    (pace.folder / ENGINE).write_text(engine)
    run(pace)
