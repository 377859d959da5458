"""What all engines compute: the input, the answers, and how an engine's program is called.

A record is a whole number ``n``. Its event time is ``n`` milliseconds, and its key is :func:`key_of`. There
are 10,000 keys of which half are active in each minute, 12 times.

* ``keyed_count``: for each record its key, and how many records of that key there have been.
* ``timers``: for each key and minute the number of records, emitted by an event-time timer at its end.
* ``tumbling``: the same by a tumbling window of a minute.
* ``session``: for each key and session (gap 20 seconds) the number of records.
* ``large_state``: a running count too, in a string of 200 characters, over 20 million keys that are strings
  (:func:`large_key_of`) and come at random. It is state for a backend on disk.

Only the standard library is imported, because this module is read by each engine's own Python.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

KEYS = 10_000
MINUTE_MS = 60_000
GAP_MS = 20_000
PARALLELISM = 2
LARGE_KEYS = 20_000_000
LARGE_VALUE = 200
WORKLOADS = ("keyed_count", "timers", "tumbling", "session", "large_state")


def key_of(number: int) -> int:
    """Return the key of a record; the even keys are active in even minutes, the odd keys in odd ones."""
    return number * 7919 % (KEYS // 2) * 2 + number // MINUTE_MS % 2


def large_key_of(number: int) -> str:
    """Return the key of a record with large state; Spark's SQL has the same function."""
    return f"user-{zlib.crc32(b'%d' % number) % LARGE_KEYS:011d}"


def number_in(key: str) -> int:
    """Return the number in such a key."""
    return int(key.removeprefix("user-"))


def large_value(count: int) -> str:
    """Return the state of a key with so many records."""
    return str(count).ljust(LARGE_VALUE, "~")


def count_in(value: str | None) -> int:
    """Return the count in the state of a key; without state it is 0."""
    return 0 if value is None else int(value.partition("~")[0])


def minute_end(timestamp_ms: int) -> int:
    """Return the last millisecond of the minute of ``timestamp_ms``."""
    return timestamp_ms - timestamp_ms % MINUTE_MS + MINUTE_MS - 1


@dataclass(frozen=True)
class Outcome:
    """What a run gave.

    Attributes:
        engine: its name and version.
        seconds: how long the job ran, without the start of the interpreter.
        digest: of all results in any order, or None if results were only counted.
        results: how many came out, or -1 if the engine threw them away uncounted.
    """

    engine: str
    seconds: float
    digest: int | None
    results: int


def digest_of(results: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return a digest of pairs (key, count) that does not depend on their order, and their number."""
    total = number = 0
    for key, count in results:
        total = (total + zlib.crc32(b"%d,%d" % (key, count))) % 2**64
        number += 1
    return total, number


def expected(workload: str, records: int) -> tuple[int, int]:
    """Return what :func:`digest_of` must give, computed by plain loops."""
    return digest_of(_COMPUTE[workload](records))


def _running_counts(keys: Iterable[int]) -> Iterable[tuple[int, int]]:
    counts: dict[int, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
        yield key, counts[key]


def _counts_by_minute(records: int) -> Iterable[tuple[int, int]]:
    counts: dict[tuple[int, int], int] = {}
    for number in range(records):
        window = key_of(number), minute_end(number)
        counts[window] = counts.get(window, 0) + 1
    return ((key, count) for (key, _), count in counts.items())


def _counts_by_session(records: int) -> Iterable[tuple[int, int]]:
    open_sessions: dict[int, tuple[int, int]] = {}
    for number in range(records):
        key = key_of(number)
        last, count = open_sessions.get(key, (number, 0))
        if number - last > GAP_MS:
            yield key, count
            count = 0
        open_sessions[key] = number, count + 1
    for key, (_, count) in open_sessions.items():
        yield key, count


_COMPUTE: dict[str, Callable[[int], Iterable[tuple[int, int]]]] = {
    "keyed_count": lambda records: _running_counts(map(key_of, range(records))),
    "timers": _counts_by_minute,
    "tumbling": _counts_by_minute,
    "session": _counts_by_session,
    "large_state": lambda records: _running_counts(map(number_in, map(large_key_of, range(records)))),
}

#: Runs a workload over so many records; returns the pairs (key, count), or None if it threw them away.
Run = Callable[[str, int, bool], "tuple[float, list[tuple[int, int]] | None]"]


def timed(job: Callable[[], object]) -> float:
    """Return the seconds that ``job`` takes."""
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def main(engine: str, run: Run) -> None:
    """Do what the command line says, and print the outcome."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("records", type=int)
    parser.add_argument("--check", action="store_true", help="collect all results, instead of dropping them")
    args = parser.parse_args()
    seconds, results = run(args.workload, args.records, args.check)
    digest, number = (None, -1) if results is None else digest_of(results)
    print(json.dumps(asdict(Outcome(engine, seconds, digest, number))))
