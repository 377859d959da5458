"""Keyed state as a canonical savepoint of Flink: entries written and read in a second of one core.

    python benchmarks/flink_savepoint.py [--json] [--entries N] [--rounds N]

A million entries in 128 key groups: half of them have a long as key and as value, half a string as key and a
row of a long, a string and a double as value. They are written to memory and read from it, as Python values.
The collector is set as in a state slot. Figures are medians of the rounds, of the processor's time.

    write_entries_per_s, read_entries_per_s          all entries
    write_longs_per_s, read_longs_per_s              those with longs
    write_rows_per_s, read_rows_per_s                those with rows
    bytes_per_row                                    in the savepoint
    read_peak_mb                                     allocated while the rows are read, by key group
"""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from collections.abc import Sequence

from heap_state import arguments, need_compiled, report

from pyflinkstate import Types
from pyflinkstate.api import Key, StateKind, Stored, TypeInformation, row_of
from pyflinkstate.backends.flink_format import (
    FlinkState,
    KeyedStateFile,
    KeyedStateHandle,
    KeyedStateHead,
    Stream,
    serializer_of,
    write_canonical,
)
from pyflinkstate.backends.format import KeyGroupEntries
from pyflinkstate.backends.keys import KeyGroupRange, KeyHasher
from pyflinkstate.backends.types import RegisteredStateMeta
from pyflinkstate.runtime.slots.slot import GC_THRESHOLDS

MAX_PARALLELISM = 128
EVERY = KeyGroupRange(0, MAX_PARALLELISM - 1)
LONG, STRING = Types.LONG(), Types.STRING()
ROW = Types.ROW([LONG, STRING, Types.DOUBLE()])


class Savepoint:
    """The state of one subtask, and its file in memory."""

    def __init__(self, key_type: TypeInformation, value_type: TypeInformation) -> None:
        key = serializer_of(key_type)
        state = FlinkState.of(RegisteredStateMeta("state", StateKind.VALUE, value_type), key)
        self._head = KeyedStateHead(key, (state,))
        self._hasher = KeyHasher(key_type)
        self._data = b""
        self._offsets: tuple[int, ...] = ()

    def write(self, keys: Sequence[Key], values: Sequence[Stored]) -> float:
        """Write the entries, and return the time that it took."""
        entries = [KeyGroupEntries(key_group, [], None, []) for key_group in EVERY]
        key_groups = self._hasher.key_groups(keys, MAX_PARALLELISM)
        for key, value, key_group in zip(keys, values, key_groups, strict=True):
            group = entries[key_group]
            group.keys.append(key)
            group.values.append(value)
        chunks: list[bytes] = []
        started = time.process_time()
        self._offsets = write_canonical(self._head, [iter(entries)], EVERY, MAX_PARALLELISM, chunks.append)
        taken = time.process_time() - started
        self._data = b"".join(chunks)
        return taken

    def read(self) -> tuple[int, float]:
        """Read all entries, and return their number and the time that it took."""
        handle = KeyedStateHandle(EVERY, self._offsets, Stream("state", len(self._data)))
        started = time.process_time()
        file = KeyedStateFile.open(handle, self._read, "a file", MAX_PARALLELISM)
        count = sum(len(entries) for _, entries in file.key_groups(EVERY))
        return count, time.process_time() - started

    def _read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        return len(self._data)


def written(savepoint: Savepoint, count: int, with_rows: bool) -> float:
    """Write new entries, which are gone when this returns."""
    if with_rows:
        names = ("f0", "f1", "f2")
        rows = [row_of([number, f"name {number}", number / 2], names) for number in range(count)]
        return savepoint.write([f"user-{number:09d}" for number in range(count)], rows)
    return savepoint.write(range(count), range(0, 7 * count, 7))


def peak_mb(savepoint: Savepoint) -> float:
    """Return how much is allocated at most while all entries are read."""
    tracemalloc.start()
    savepoint.read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return round(peak / 2**20, 1)


def main() -> None:
    """Measure, and print the figures."""
    options = arguments(__doc__ or "", entries=1_000_000)
    need_compiled()
    gc.set_threshold(*GC_THRESHOLDS)
    count = options.entries // 2
    longs, rows = Savepoint(LONG, LONG), Savepoint(STRING, ROW)
    times: dict[str, list[float]] = {
        name: [] for name in ("write_longs", "read_longs", "write_rows", "read_rows")
    }
    for _ in range(options.rounds):
        for name, savepoint in (("longs", longs), ("rows", rows)):
            times[f"write_{name}"].append(written(savepoint, count, name == "rows"))
            gc.collect()
            found, taken = savepoint.read()
            assert found == count
            times[f"read_{name}"].append(taken)
    took = {name: statistics.median(found) for name, found in times.items()}
    figures: dict[str, object] = {
        f"{what}_entries_per_s": round(2 * count / (took[f"{what}_longs"] + took[f"{what}_rows"]))
        for what in ("write", "read")
    }
    figures |= {f"{name}_per_s": round(count / taken) for name, taken in took.items()}
    figures["bytes_per_row"] = round(rows.size_bytes / count)
    figures["read_peak_mb"] = peak_mb(rows)
    report(figures, options.json)


if __name__ == "__main__":
    main()
