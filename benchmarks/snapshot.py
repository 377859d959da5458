"""Snapshot and restore of the heap state: how long the owner stops, how fast bytes are written and read.

    python benchmarks/snapshot.py [--json] [--entries N] [--rounds N]

A million str keys with int values in 64 key groups, four times as many for ``sync_ms_4m``. The collector
is set as in a state slot. Figures are medians of the rounds.

    sync_ms_1m, sync_ms_4m   synchronous part: the longest of five in a row, all held open while the owner
                             goes on changing state between them
    write_entries_per_s      asynchronous part, zstd, to a local file, with an idle owner
    owner_share              the owner's read-modify-write rate while it is written, against its rate alone
    longest_op_ms            the owner's longest single read-modify-write meanwhile
    write_beside_owner_entries_per_s   asynchronous part, beside that owner
    restore_entries_per_s    restore from that file
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

from heap_state import (
    COUNT,
    arguments,
    fill,
    make_keys,
    map_indexes,
    need_compiled,
    new_backend,
    report,
    shuffled_copies,
)
from pyarrow import fs

from pyflinkstate.backends.format.metadata import KeyGroupsStateHandle
from pyflinkstate.backends.heap.backend import (
    HeapKeyedStateBackend,
    HeapRestoreOperation,
    HeapSnapshotStrategy,
    snapshot_runner,
)
from pyflinkstate.runtime.slots.slot import GC_THRESHOLDS
from pyflinkstate.runtime.storage.streams import CheckpointFolder

CHANGES_BETWEEN = 50_000


class Owner:
    """The thread that changes state: an endless read-modify-write over random keys."""

    def __init__(self, backend: HeapKeyedStateBackend, keys: Sequence[str]) -> None:
        self._state = backend.get_partitioned_state(COUNT)
        self._select = backend.key_context.select
        visited = shuffled_copies(keys, 1)
        self._visits: Iterator[tuple[str, int]] = cycle(zip(visited, map_indexes(visited), strict=True))

    def change(self, count: int) -> None:
        """Change ``count`` keys."""
        for _ in range(count):
            self._change_one()

    def run_until(self, done: threading.Event, least_s: float = 0.0) -> tuple[float, float]:
        """Change keys until ``done`` is set; return changes per second, and the longest one in ms."""
        clock = time.perf_counter
        changes, longest = 0, 0.0
        started = before = clock()
        while not done.is_set() or before - started < least_s:
            self._change_one()
            now = clock()
            longest = max(longest, now - before)
            before = now
            changes += 1
        return changes / (before - started), longest * 1000

    def _change_one(self) -> None:
        self._select(*next(self._visits))
        self._state.update((self._state.value() or 0) + 1)


def settle() -> None:
    """Set the collector as a state slot does after a restore."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def filled(entries: int) -> tuple[HeapKeyedStateBackend, list[str]]:
    """Return a backend with ``entries`` entries, and their keys."""
    backend, keys = new_backend(), make_keys(entries)
    fill(backend, keys, map_indexes(keys))
    settle()
    return backend, keys


def sync_ms(backend: HeapKeyedStateBackend, owner: Owner, rounds: int) -> float:
    """Return the longest synchronous part of several snapshots that are all held open."""
    strategy = HeapSnapshotStrategy(backend)
    held: list[Any] = []
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        held.append(strategy.sync_prepare_resources())
        times.append((time.perf_counter() - started) * 1000)
        owner.change(CHANGES_BETWEEN)
    for resources in held:
        resources.release()
    return round(max(times), 2)


def write(backend: HeapKeyedStateBackend, folder: CheckpointFolder) -> tuple[KeyGroupsStateHandle, float]:
    """Write a snapshot with nothing beside; return the handle and the seconds."""
    task = snapshot_runner(backend).snapshot(folder)
    started = time.perf_counter()
    task.run()
    seconds = time.perf_counter() - started
    handle = task.result()
    assert handle is not None
    return handle, seconds


def write_beside(backend: HeapKeyedStateBackend, owner: Owner, folder: CheckpointFolder) -> dict[str, float]:
    """Write a snapshot on a thread while the owner goes on."""
    always = threading.Event()
    always.set()
    alone, _ = owner.run_until(always, least_s=0.5)
    task = snapshot_runner(backend).snapshot(folder)
    done = threading.Event()

    def write_and_tell() -> None:
        task.run()
        done.set()

    writer = threading.Thread(target=write_and_tell)
    started = time.perf_counter()
    writer.start()
    beside, longest_ms = owner.run_until(done)
    seconds = time.perf_counter() - started
    writer.join()
    task.result()
    return {"share": beside / alone, "longest_ms": longest_ms, "seconds": seconds}


def figures_beside(beside: list[dict[str, float]], entries: int) -> dict[str, float]:
    """Return the figures of snapshots that were written beside a busy owner."""

    def median(name: str) -> float:
        return statistics.median(one[name] for one in beside)

    return {
        "owner_share": round(median("share"), 3),
        "longest_op_ms": round(median("longest_ms"), 2),
        "write_beside_owner_entries_per_s": round(entries / median("seconds")),
    }


def restore(handle: KeyGroupsStateHandle, folder: CheckpointFolder) -> float:
    """Restore into a new backend; return the seconds."""
    backend = new_backend()
    started = time.perf_counter()
    HeapRestoreOperation(backend, folder).restore([handle])
    return time.perf_counter() - started


def main() -> None:
    options = arguments(__doc__ or "", 1_000_000)
    need_compiled()
    entries, rounds = options.entries, options.rounds
    figures: dict[str, Any] = {}
    backend, keys = filled(entries)
    owner = Owner(backend, keys)
    settle()
    figures["sync_ms_1m"] = sync_ms(backend, owner, rounds)
    with tempfile.TemporaryDirectory() as directory:
        folder = CheckpointFolder(fs.LocalFileSystem(), directory)
        written = [write(backend, folder) for _ in range(rounds)]
        figures["write_entries_per_s"] = round(entries / statistics.median(s for _, s in written))
        figures |= figures_beside([write_beside(backend, owner, folder) for _ in range(rounds)], entries)
        restored = [restore(written[0][0], folder) for _ in range(rounds)]
        figures["restore_entries_per_s"] = round(entries / statistics.median(restored))
    del backend, owner, keys
    gc.unfreeze()
    backend, keys = filled(4 * entries)
    owner = Owner(backend, keys)
    settle()
    figures["sync_ms_4m"] = sync_ms(backend, owner, rounds)
    report(figures, options.json)


if __name__ == "__main__":
    main()
