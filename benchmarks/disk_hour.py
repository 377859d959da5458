"""An hour of a state slot with ten times as much state as memory: as fast at its end; without Spark.

    python benchmarks/disk_hour.py [--json] [--entries N] [--memory-mb N] [--minutes N] [--share X]

The state and the records are those of ``disk_state.py``, over all keys, zipf(1.0). Each second an increment
is taken, and each ten seconds RocksDB's files are linked, as for a native base. Rates are by processor time,
of all threads, so the program may run beside others: it takes ``--share`` of a core.

* ``first_records_per_s``, ``last_records_per_s``: in the first and the last sixth of the time.
* ``steady_ratio``: the last of the first.
* ``disk_ratio``: the most bytes on disk, of those of the keys and values.
* ``peak_mb``: the most memory of the process, in MiB.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import threading
import time
from pathlib import Path

from disk_state import FRAME, VALUE_BYTES, Slot, key_numbers
from heap_state import need_compiled, report

LINKED_EACH_S = 10


def bytes_in(folder: str) -> int:
    """Return the size of all files; those of several names count once."""
    sizes = {}
    for path in Path(folder).rglob("*"):
        try:
            status = path.stat()
        except FileNotFoundError:  # compacted away
            continue
        sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


class Hour:
    """A slot that works for a long time."""

    def __init__(self, slot: Slot, folder: str, share: float) -> None:
        self._slot = slot
        self._folder = folder
        self._share = share
        self._never = threading.Event()
        self.most_on_disk = 0

    def run(self, seconds: float) -> list[tuple[float, int]]:
        """Process frames; return the processor time and the records of each second."""
        frames, began, seen, linked = key_numbers(self._slot.entries, "zipf"), time.monotonic(), [], 0.0
        while (elapsed := time.monotonic() - began) < seconds:
            started, records = time.process_time(), 0
            while time.monotonic() - began < elapsed + 1:
                cpu, numbers = time.process_time(), next(frames)
                self._slot.run(numbers)
                records += FRAME
                time.sleep((time.process_time() - cpu) * (1 / self._share - 1))
            self._slot.snapshot(self._slot.backend.take_changes(), self._never)
            if elapsed - linked > LINKED_EACH_S:
                linked = elapsed
                self._link()
            seen.append((time.process_time() - started, records))
        return seen

    def _link(self) -> None:
        frozen = self._slot.backend._store.freeze()
        frozen.link_files()
        self.most_on_disk = max(self.most_on_disk, bytes_in(self._folder))
        frozen.release()


def rate(seen: list[tuple[float, int]]) -> float:
    """Return records for each second of processor time."""
    return sum(records for _, records in seen) / sum(cpu for cpu, _ in seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--memory-mb", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--share", type=float, default=1.0)
    args = parser.parse_args()
    need_compiled()
    with tempfile.TemporaryDirectory() as folder:
        slot = Slot("disk", args.entries, args.memory_mb, folder)
        slot.load()
        slot.backend.track_changes()
        hour = Hour(slot, folder, args.share)
        seen = hour.run(args.minutes * 60)
        slot.backend.dispose()
    sixth = max(len(seen) // 6, 1)
    first, last = rate(seen[:sixth]), rate(seen[-sixth:])
    figures = {
        "first_records_per_s": round(first),
        "last_records_per_s": round(last),
        "steady_ratio": round(last / first, 3),
        "disk_ratio": round(hour.most_on_disk / (args.entries * (VALUE_BYTES + 16)), 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    report(figures, args.json)


if __name__ == "__main__":
    main()
