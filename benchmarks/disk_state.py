"""A state slot whose state is larger than its memory, beside the heap backend; without Spark.

    python benchmarks/disk_state.py [--json] [--entries N] [--memory-mb N] [--seconds S]

Keys are strings of 16 characters, values strings of 200. A record reads the value of its key and stores
another one, in frames of 4,096 records, on one thread. Each run is a process of its own. Ten million entries
are what one of two slots has of 20 million keys, or about 5 GB.

* ``heap_records_per_s``: the heap backend, with as many keys as the memory holds, zipf(1.0).
* ``hot_records_per_s``: the backend on disk, with the same keys; ``ratio_hot`` is their quotient.
* ``zipf_records_per_s``, ``uniform_records_per_s``: over all keys; ``ratio_zipf`` is beside the heap.
* ``peak_mb``: the most memory of the process over all keys, in MiB; ``state_mb``: the keys and values.
* ``sync_p99_ms``: the synchronous part of an incremental snapshot every second, over all keys.
* ``incremental_share``: the bytes of an increment after 1 % of the keys changed, of those of all of it.
* ``load_entries_per_s``: how fast a restore puts entries on disk.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import resource
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from heap_state import KEY_GROUPS, need_compiled, report

FRAME = 4096
#: About as many entries a MiB of memory holds.
ENTRIES_A_MIB = 1_250
#: The most used keys are drawn exactly, the others by the continuous distribution.
EXACT_RANKS = 10_000
VALUE_BYTES = 200


class Numbers:
    """Collects the pieces of a file and counts their bytes."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: bytes) -> None:
        self.size += len(data)

    def close_and_get_handle(self) -> Any:
        from pyflinkstate.backends.format import ByteStreamStateHandle

        return ByteStreamStateHandle(b"")

    def abort(self) -> None:
        """Nothing is left of it."""

    def create(self) -> Numbers:
        return self


def key_numbers(entries: int, distribution: str, seed: int = 5) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the keys of frames as numbers, from little memory."""
    draw = np.random.default_rng(seed)
    sums = np.cumsum(1.0 / np.arange(1, EXACT_RANKS + 1))
    most = sums[-1] + np.log(entries / EXACT_RANKS)
    step = next(step for step in itertools.count(7_919 * 7_907, 2) if math.gcd(step, entries) == 1)
    while True:
        if distribution == "uniform":
            yield draw.integers(0, entries, FRAME)
            continue
        drawn = draw.random(FRAME) * most
        ranks = np.searchsorted(sums, drawn)
        rare = EXACT_RANKS * np.exp(drawn - sums[-1])
        ranks = np.where(ranks < EXACT_RANKS, ranks, np.minimum(rare, entries - 1).astype(np.int64))
        yield ranks * step % entries  # what is used most is anywhere


def backend_of(kind: str, memory_mb: int, *directories: str) -> Any:
    """Return an empty backend of all key groups."""
    from heap_state import new_backend

    if kind == "heap":
        return new_backend()
    from pyflinkstate import Types
    from pyflinkstate.backends.keys import KeyGroupRange
    from pyflinkstate.backends.rocksdb import RocksDBStateBackend

    made = RocksDBStateBackend(directories=directories, memory_bytes=memory_mb << 20)
    own = KeyGroupRange(0, KEY_GROUPS - 1)
    return made.create_keyed_state_backend(Types.STRING(), own, KEY_GROUPS, lambda: 0)


def keys_of(numbers: Any) -> list[str]:
    return [f"user-{number:011d}" for number in numbers]


def value_of(number: int) -> str:
    return f"{number:x}".ljust(VALUE_BYTES, "~")


class Slot:
    """A backend with a state, and the loop over the records of a frame."""

    def __init__(
        self, kind: str, entries: int, memory_mb: int, directory: str = "", restore: Any = None
    ) -> None:
        from pyflinkstate import Types, ValueStateDescriptor
        from pyflinkstate.backends.heap import RecordLoop

        self.backend = backend_of(kind, memory_mb, *([directory] if directory else []))
        if restore is not None:
            restore(self.backend)
        self.entries = entries
        self.state = self.backend.get_partitioned_state(ValueStateDescriptor("value", Types.STRING()))
        self.loop = RecordLoop(self.backend.key_context)
        self.values = [value_of(number) for number in range(FRAME)]
        self.results: list[Any] = []

    def load(self) -> float:
        """Fill the state as a restore does; return the seconds."""
        table, began = self.backend.registered_kv_states["value"], time.perf_counter()
        for group in range(KEY_GROUPS):
            numbers = range(group, self.entries, KEY_GROUPS)
            table.map_of(group).load(keys_of(numbers), [value_of(number) for number in numbers])
        return time.perf_counter() - began

    def process(self, value: str, _: Any) -> None:
        if self.state.value() is None:
            raise AssertionError("an entry is lost")
        self.state.update(value.lower())  # a string of its own

    def run(self, numbers: Any) -> None:
        """Process a frame."""
        keys, indexes = keys_of(numbers), (numbers % KEY_GROUPS).tolist()
        self.backend.before_frame(indexes, keys)
        self.loop.run((indexes, keys, self.values), self.process, None, self.results)
        self.backend.make_room()

    def run_for(self, distribution: str, seconds: float, each_second: Any) -> float:
        """Process frames for a while, after as long a time to warm up; return records per second."""
        frames = key_numbers(self.entries, distribution)
        for measured in (False, True):
            began = due = time.perf_counter()
            done, spent = 0, 0.0
            while time.perf_counter() - began < seconds:
                numbers = next(frames)
                start = time.perf_counter()
                self.run(numbers)
                spent += time.perf_counter() - start
                done += FRAME
                if time.perf_counter() > due:
                    each_second(measured)
                    due = time.perf_counter() + 1
        return done / spent

    def snapshot(self, changes: Any, cancelled: Any) -> tuple[float, int]:
        """Take and write a snapshot; return the milliseconds of the synchronous part, and the bytes."""
        from pyflinkstate.backends.heap.backend import HeapSnapshotStrategy

        strategy, stream, began = (
            HeapSnapshotStrategy(self.backend, "zstd", changes),
            Numbers(),
            time.perf_counter(),
        )
        resources = strategy.sync_prepare_resources()
        sync_ms = 1000 * (time.perf_counter() - began)
        strategy.async_snapshot(resources, stream, cancelled)
        return sync_ms, stream.size


def rate(kind: str, entries: int, memory_mb: int, distribution: str, seconds: float) -> dict[str, float]:
    """Run a slot in this process; return its figures."""
    import threading

    slot, cancelled = Slot(kind, entries, memory_mb), threading.Event()
    loaded_s, syncs = slot.load(), []
    slot.backend.track_changes()
    found = {"load_entries_per_s": round(entries / loaded_s)}

    def each_second(measured: bool) -> None:
        changes = slot.backend.take_changes()  # as a checkpoint does
        if measured and distribution == "uniform":
            syncs.append(slot.snapshot(changes, cancelled)[0])

    found["rate"] = round(slot.run_for(distribution, seconds, each_second))
    found["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    if syncs:
        found["sync_p99_ms"] = round(float(np.percentile(syncs, 99)), 2)
        slot.backend.take_changes()
        for numbers in np.array_split(np.random.default_rng(1).choice(entries, entries // 100, False), 64):
            slot.values = [value_of(number) for number in range(len(numbers))]
            slot.run(numbers)
        _, increment = slot.snapshot(slot.backend.take_changes(), cancelled)
        _, full = slot.snapshot(None, cancelled)
        found["incremental_share"] = round(increment / full, 4)
    slot.backend.dispose()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--memory-mb", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    need_compiled()
    spawn = multiprocessing.get_context("spawn")

    def run(kind: str, entries: int, distribution: str) -> dict[str, float]:
        with spawn.Pool(1) as pool:
            return pool.apply(partial(rate, kind, entries, args.memory_mb, distribution, args.seconds))

    fits = args.memory_mb * ENTRIES_A_MIB
    heap, hot = run("heap", fits, "zipf"), run("disk", fits, "zipf")
    zipf, uniform = run("disk", args.entries, "zipf"), run("disk", args.entries, "uniform")
    figures = {
        "heap_records_per_s": heap["rate"],
        "hot_records_per_s": hot["rate"],
        "ratio_hot": round(hot["rate"] / heap["rate"], 3),
        "zipf_records_per_s": zipf["rate"],
        "ratio_zipf": round(zipf["rate"] / heap["rate"], 3),
        "uniform_records_per_s": uniform["rate"],
        "state_mb": round(args.entries * (VALUE_BYTES + 16) / 2**20),
        "peak_mb": max(zipf["peak_mb"], uniform["peak_mb"]),
        "sync_p99_ms": uniform["sync_p99_ms"],
        "incremental_share": uniform["incremental_share"],
        "load_entries_per_s": uniform["load_entries_per_s"],
    }
    report(figures, args.json)


if __name__ == "__main__":
    main()
