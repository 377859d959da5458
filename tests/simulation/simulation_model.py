"""What the failure simulation runs: two keyed functions, a source, and the plain loop that they must equal.

Each record makes one row, and the row tells all that its keys have seen, so that a record that is lost,
comes twice or comes out of its key's order is seen in the output.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from pyflinkstate.api import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    RuntimeContext,
    TimestampAssigner,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.heap.backend import HeapKeyedStateBackend
from pyflinkstate.runtime.sources.formats import Reject
from pyflinkstate.runtime.sources.sources import Available, Epoch, ReadTime, Source, SplitEpoch

#: (number, key, amount, whether the key's state is cleared after it)
Record = tuple[int, int, int, bool]
Row = list[Any]

TOTAL = ValueStateDescriptor("total", Types.LONG())
HISTORY = ListStateDescriptor("history", Types.LONG())
WAITING = MapStateDescriptor("waiting", Types.LONG(), Types.PICKLED_BYTE_ARRAY())
SEEN = MapStateDescriptor("seen", Types.LONG(), Types.PICKLED_BYTE_ARRAY())
#: Keys of the first operator that meet under one key of the second.
KEYS_PER_GROUP = 3
#: The names of the sources.
SOURCES = ("numbers", "others")
#: There are fewer keys.
KEYS = 9
MODULUS = 1_000_003


class Poison:
    """Records at which the function raises, once each."""

    numbers: set[int] = set()  # noqa: RUF012 - one for all slots: functions are pickled by name

    @classmethod
    def bite(cls, number: int) -> None:
        if number in cls.numbers:
            cls.numbers.discard(number)
            raise ValueError(f"record {number} was poisoned")


def key_of(record: Record) -> int:
    return record[1]


def group_of(row: Row) -> int:
    return row[0] // KEYS_PER_GROUP


class Ledger(KeyedProcessFunction):
    """The sum of a key's amounts, and its last records."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(TOTAL)
        self.history = runtime_context.get_list_state(HISTORY)

    def process_element(self, value: Record, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        number, key, amount, clears = value
        Poison.bite(number)
        total = (self.total.value() or 0) + amount
        self.total.update(total)
        self.history.add(number)
        history = list(self.history.get())
        if len(history) > 3:
            history = history[-2:]
            self.history.update(history)
        if clears:
            self.total.clear()
            self.history.clear()
        yield [key, number, total, history]


class TimedLedger(Ledger):
    """The same, for records in the order of event time: each waits until the watermark has come to it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self.waiting = runtime_context.get_map_state(WAITING)

    def process_element(self, value: Record, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        number, timers = value[0], ctx.timer_service()
        if number <= timers.current_watermark():
            raise ValueError(f"record {number} is late: {timers.current_watermark()}")
        self.waiting.put(number, value)
        timers.register_event_time_timer(number)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Row]:
        value = self.waiting.get(timestamp)
        self.waiting.remove(timestamp)
        return super().process_element(value, ctx)


class RecordNumber(TimestampAssigner):
    """The number of a record is its time."""

    def extract_timestamp(self, value: Record, record_timestamp: int) -> int:
        return value[0]


def row_of(record: Record) -> Row:
    """Return what a job without state makes of a record."""
    number, key, amount, _ = record
    return [key, number, amount]


class Misfit(Ledger):
    """A version of the program that cannot open its state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        raise ValueError("this version does not understand the state of the one before")


class Tally(KeyedProcessFunction):
    """For each key of the ledger how many rows came, and a checksum of their order."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_map_state(SEEN)

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        key, number, total, _ = value
        entry = self.seen.get(key) or [0, 0]
        entry[0] += 1  # in place: a snapshot that is being written must not see it
        entry[1] = (entry[1] * 31 + number) % MODULUS
        self.seen.put(key, entry)
        if total % 7 == 0:
            self.seen.remove(key)
        yield [*value, *entry]


# --- the model -----------------------------------------------------------------------------------


class Model:
    """What the rows must be, and the state after any number of records.

    Args:
        records: all of them.
        tallies_rows: there is a second operator.
        has_state: there is a first one.
        sources: how many sources share the keys.
        has_time: records wait for the watermark.
    """

    def __init__(
        self,
        records: Sequence[Record],
        tallies_rows: bool,
        has_state: bool = True,
        sources: int = 1,
        has_time: bool = False,
    ) -> None:
        self.records = records
        self.sources = sources
        self.has_time = has_time and has_state
        self.has_state = has_state
        self.tallies_rows = tallies_rows and has_state
        self.rows: list[Row] = []
        #: After so many records: key -> (total, history).
        self.ledgers: list[dict[int, tuple[int, list[int]]]] = [{}]
        #: After so many records: group -> key -> [count, checksum].
        self.tallies: list[dict[int, dict[int, list[int]]]] = [{}]
        for record in records:
            self._ledger(record)
            if self.tallies_rows:
                self._tally()
            else:
                self.tallies.append({})
        if not has_state:
            self.rows = [[key, number, amount] for number, key, amount, _ in records]

    def read_until(self, position: Any) -> list[int]:
        """Return, for each key, the number of the first record that is not read at a position."""
        places = [position] if "index" in position else [position[name] for name in sorted(position)]
        return [places[key % self.sources]["index"] for key in range(KEYS)]

    def count(self, until: list[int]) -> int:
        """Return how many records there are before these of their keys."""
        return sum(number < until[key] for number, key, *_ in self.records)

    def ledger_at(self, until: list[int]) -> dict[int, tuple[int, list[int]]]:
        """Return the ledger after the records before these of their keys."""
        return {key: self.ledgers[n][key] for key, n in enumerate(until) if key in self.ledgers[n]}

    def tally_at(self, until: list[int]) -> dict[int, dict[int, list[int]]]:
        """Return the tally after the records before these of their keys."""
        found: dict[int, dict[int, list[int]]] = {}
        for key, n in enumerate(until):
            entry = self.tallies[n].get(key // KEYS_PER_GROUP, {}).get(key)
            if entry is not None:
                found.setdefault(key // KEYS_PER_GROUP, {})[key] = entry
        return found

    def processed_until(self, until: list[int], waiting: Iterable[int]) -> list[int]:
        """Return the same for what has not waited for the watermark; what waits are all records after it."""
        waiting = sorted(waiting)
        processed = list(until)
        for number in reversed(waiting):
            processed[self.records[number][1]] = number
        assert waiting == [
            number for number, key, *_ in self.records if processed[key] <= number < until[key]
        ]
        return processed

    def _ledger(self, record: Record) -> None:
        number, key, amount, clears = record
        ledger = dict(self.ledgers[-1])
        total, history = ledger.get(key, (0, []))
        total, history = total + amount, [*history, number]
        if len(history) > 3:
            history = history[-2:]
        ledger[key] = (total, history)
        if clears:
            del ledger[key]
        self.ledgers.append(ledger)
        self.rows.append([key, number, total, history])

    def _tally(self) -> None:
        row = self.rows[-1]
        key, number, total, _ = row
        tally = {group: dict(keys) for group, keys in self.tallies[-1].items()}
        keys = tally.setdefault(group_of(row), {})
        count, checksum = keys.get(key, [0, 0])
        keys[key] = entry = [count + 1, (checksum * 31 + number) % MODULUS]
        if total % 7 == 0:
            del keys[key]
        self.tallies.append({group: keys for group, keys in tally.items() if keys})
        row.extend(entry)


def make_records(rng: random.Random) -> list[Record]:
    """Return some records of a few keys."""
    keys = rng.randint(3, 8)
    return [
        (number, rng.randrange(keys), rng.randint(1, 9), rng.random() < 0.05)
        for number in range(rng.randint(12, 36))
    ]


def ledger_of(backend: HeapKeyedStateBackend) -> dict[int, tuple[int, list[int]]]:
    """Return what the state of a :class:`Ledger` holds."""
    totals, histories = backend.get_partitioned_state(TOTAL), backend.get_partitioned_state(HISTORY)
    found = {}
    for key in {*backend.get_keys("total"), *backend.get_keys("history")}:
        backend.set_current_key(key)
        found[key] = (totals.value(), list(histories.get()))
    return found


def waiting_in(backend: HeapKeyedStateBackend) -> Iterator[int]:
    """Yield the numbers of the records that wait for the watermark."""
    waiting = backend.get_partitioned_state(WAITING)
    for key in set(backend.get_keys("waiting")):
        backend.set_current_key(key)
        yield from waiting.keys()


def tally_of(backend: HeapKeyedStateBackend) -> dict[int, dict[int, list[int]]]:
    """Return what the state of a :class:`Tally` holds."""
    seen = backend.get_partitioned_state(SEEN)
    found = {}
    for group in set(backend.get_keys("seen")):
        backend.set_current_key(group)
        found[group] = dict(seen.items())
    return found


# --- the source ----------------------------------------------------------------------------------


class SimulatedSource(Source):
    """The records, in epochs of whatever size ``available`` says, each in up to three splits.

    Args:
        records: all of them.
        available: how many there are at the moment behind the first so many; 0 where the epoch has to wait.
        tells_end: the last epoch is known to be the last.
        commits_every_epoch: as Structured Streaming does.
        is_full: the next epoch can be planned while one runs.
        splits: how an epoch is cut: ``split_evenly``, or another function of its records.
        share: how many sources share the keys, and which one this is.
        read_live: how many records are read live behind the first so many; None has the epoch planned.
    """

    def __init__(
        self,
        records: Sequence[Record],
        available: Callable[[int], int],
        tells_end: bool,
        commits_every_epoch: bool,
        is_full: bool,
        splits: Callable[[Sequence[Record]], list[Sequence[Record]]] | None = None,
        read_live: Callable[[int], int | None] = lambda index: None,
        share: tuple[int, int] = (1, 0),
    ) -> None:
        self.share = share
        self._splits = splits or split_evenly
        self._read_live = read_live
        self.records = records
        self.available = available
        self.tells_end = tells_end
        self.commits_every_epoch = commits_every_epoch  # type: ignore[misc]
        self.is_full = is_full
        self.committed: list[int] = []

    def initial_offset(self) -> Any:
        return {"index": 0}

    def latest_offset(self, start: Any, whole: bool) -> Available:
        begin, length = start["index"], len(self.records)
        end = min(begin + self.available(begin), length)
        is_last = end == length and (self.tells_end or begin == length)
        return Available({"index": end}, is_last, self.is_full)

    def plan(self, start: Any, end: Any) -> Epoch:
        begin, stop = start["index"], end["index"]
        assert begin < stop, f"an epoch from {begin} to {stop}"
        return SplitEpoch(self._cut(begin, stop), _read)

    def live(self, start: Any) -> SplitEpoch | None:
        begin = start["index"]
        number = self._read_live(begin)
        if number is None or begin + number >= len(self.records):
            return None
        end = begin + number
        splits = [(end, part) for part in self._cut(begin, end)]
        return SplitEpoch(splits, _read_live, is_live=True)

    def _cut(self, begin: int, end: int) -> list[Sequence[Record]]:
        sources, own = self.share
        return self._splits([r for r in self.records[begin:end] if key_of(r) % sources == own])

    def reached(self, start: Any, positions: list[Any]) -> Any:
        (index,) = set(positions)
        assert index >= start["index"]
        return {"index": index}

    def commit(self, end: Any) -> None:
        self.committed.append(end["index"])


def split_evenly(records: Sequence[Record]) -> list[Sequence[Record]]:
    """Return up to three parts, each of records that follow each other."""
    cuts = sorted({0, len(records) // 3, len(records) // 2, len(records)})
    return [records[first:last] for first, last in pairwise(cuts)]


def split_by_key(records: Sequence[Record]) -> list[Sequence[Record]]:
    """Return three parts; all records of a key are in one."""
    return [[record for record in records if key_of(record) % 3 == part] for part in range(3)]


def _read(split: Sequence[Record], _: Reject) -> Iterable[Record]:
    return split


def _read_live(
    split: tuple[int, Sequence[Record]], _: Reject, time: ReadTime
) -> Generator[list[Record], None, int]:
    end, records = split
    for record in records:
        yield [record]
        yield []
    return end
