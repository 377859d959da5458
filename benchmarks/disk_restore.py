"""Native checkpoints of a state slot whose state is on disk, beside full ones; without Spark.

    python benchmarks/disk_restore.py [--json] [--entries N] [--memory-mb N] [--seconds S] [--folder PATH]

The state is that of ``disk_state.py``. Checkpoints and scratch folders are in one folder, so that files are
linked.

* ``full_s``, ``full_mb``: how long it takes to write all state in the heap's format, and its bytes, in MiB.
* ``native_s``, ``native_mb``: the same for a native base.
* ``restore_full_s``, ``restore_native_s``: until the first record is processed after a restore of each.
* ``base_share``: the bytes that a further base writes after 1 % of the keys changed, of those of the first.
* ``sync_p99_ms``: the synchronous part of a native base every second, while any key is changed.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from disk_state import Slot, keys_of, value_of
from heap_state import need_compiled, report

JOB_ID = "0" * 32


def storage_in(folder: Path) -> Iterator[Any]:
    """Yield the streams of one checkpoint after the other."""
    from pyflinkstate.runtime.storage import CheckpointFolders

    storage, checkpoint_id = CheckpointFolders(str(folder / "checkpoints")), 0
    while True:
        checkpoint_id += 1
        uri = storage.begin(JOB_ID, checkpoint_id, shared=True)
        yield storage.streams(uri, checkpoint_id)


def settle(slot: Slot) -> None:
    """Wait until RocksDB compacts nothing."""
    store = slot.backend._store
    store.db.flush()
    quiet = 0
    while quiet < 5:
        names = ("rocksdb.compaction-pending", "rocksdb.num-running-compactions")
        quiet = quiet + 1 if not any(store.db.property_int_value(name) for name in names) else 0
        time.sleep(0.1)


def change_one_percent(slot: Slot) -> None:
    changed = np.random.default_rng(1).choice(slot.entries, slot.entries // 100, False)
    for numbers in np.array_split(changed, 64):
        slot.values = [value_of(number) for number in range(len(numbers))]
        slot.run(numbers)


def timed(run: Any) -> tuple[float, Any]:
    began = time.perf_counter()
    found = run()
    return time.perf_counter() - began, found


def restore_s(handle: Any, streams: Any, made: Any) -> float:
    """Restore a handle in a new backend and process one record; return the seconds."""
    from pyflinkstate.backends.rocksdb import KeyedRestoreOperation

    began, slot = time.perf_counter(), made(lambda b: KeyedRestoreOperation(b, streams).restore([handle]))
    slot.values = ["changed"]
    slot.run(np.array([12_345]))
    seconds = time.perf_counter() - began
    assert slot.backend.num_key_value_state_entries() == slot.entries
    slot.backend.dispose()
    return seconds


def syncs_of(slot: Slot, streams: Iterator[Any], seconds: float) -> list[float]:
    """Take a base every second under load; return the milliseconds of the synchronous parts."""
    syncs: list[float] = []
    writing: list[threading.Thread] = []
    slot.values = [value_of(number) for number in range(4096)]

    def each_second(measured: bool) -> None:
        if not measured or (writing and writing[-1].is_alive()):
            return
        target = next(streams)
        sync_s, task = timed(lambda: slot.backend.base_snapshot(target, "zstd", is_later=True))
        syncs.append(sync_s * 1000)
        writing.append(threading.Thread(target=task.run))
        writing[-1].start()

    slot.run_for("uniform", seconds, each_second)
    for thread in writing:
        thread.join()
    return syncs


def measure(entries: int, memory_mb: int, seconds: float, folder: Path) -> dict[str, float]:
    from pyflinkstate.backends.heap import snapshot_runner

    def made(restore: Any) -> Slot:
        return Slot("disk", entries, memory_mb, str(folder / "scratch"), restore)

    slot, streams = made(lambda _: None), storage_in(folder)
    slot.load()
    settle(slot)
    full_s, full = timed(lambda: snapshot_runner(slot.backend).snapshot(next(streams)).finish())
    native_s, native = timed(lambda: slot.backend.base_snapshot(next(streams), "zstd", False).finish())
    change_one_percent(slot)
    settle(slot)
    later = slot.backend.base_snapshot(next(streams), "zstd", is_later=True).finish()
    new = {file.path: file.size_bytes for file in later.files()}.items()
    new -= {file.path: file.size_bytes for file in native.files()}.items()
    reader = next(streams)
    figures = {
        "state_mb": round(entries * len(keys_of([1])[0] + value_of(1)) / 2**20),
        "full_s": round(full_s, 2),
        "full_mb": round(full.size_bytes / 2**20, 1),
        "native_s": round(native_s, 2),
        "native_mb": round(native.size_bytes / 2**20, 1),
        "base_share": round(sum(size for _, size in new) / native.size_bytes, 4),
        "restore_full_s": round(restore_s(full, reader, made), 2),
        "restore_native_s": round(restore_s(later, reader, made), 2),
    }
    syncs = syncs_of(slot, streams, seconds)
    slot.backend.dispose()
    return {**figures, "syncs": len(syncs), "sync_p99_ms": round(float(np.percentile(syncs, 99)), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--entries", type=int, default=2_000_000)
    parser.add_argument("--memory-mb", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--folder", help="where to put all files; default: the temporary directory")
    args = parser.parse_args()
    need_compiled()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        report(measure(args.entries, args.memory_mb, args.seconds, Path(folder)), args.json)


if __name__ == "__main__":
    main()
