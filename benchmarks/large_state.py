"""A job of 10 million records over 5 million keys, with incremental checkpoints, and its peak memory.

    python benchmarks/large_state.py [--json] [--records N] [--keys N]

* ``records_per_s``: from the first record to the last commit, starting slots included.
* ``peak_gib``: the most that all processes of the job had at once, JVM and Python workers included.
* ``slots_peak_gib``: the same of the state slots alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import epoch_cost
from epoch_cost import PARTITIONS
from local_session import local_session, tell

from pyflinkstate import StreamExecutionEnvironment, Types

RECORDS_PER_EPOCH = 1_000_000
SAMPLE_S = 0.2
PAGE = os.sysconf("SC_PAGE_SIZE")


class PeakMemory(threading.Thread):
    """Adds up the resident memory of this process and its descendants, several times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = self.slots_peak = 0
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(SAMPLE_S):
            sizes = resident()
            self.peak = max(self.peak, sum(size for size, _ in sizes))
            self.slots_peak = max(self.slots_peak, sum(size for size, is_slot in sizes if is_slot))

    def stop(self) -> None:
        self._done.set()
        self.join()


def resident() -> list[tuple[int, bool]]:
    """Return resident bytes of this process and its descendants, and whether each is a state slot."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    found = []
    for pid in mine:
        try:
            size = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        found.append((size, b"pyflinkstate.runtime.slots.slot" in command))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=5_000_000)
    args = parser.parse_args()
    keys = args.keys
    slices = PARTITIONS * max(1, args.records // RECORDS_PER_EPOCH)
    numbers = SESSION.sparkContext.range(args.records, numSlices=slices)
    memory = PeakMemory()
    memory.start()
    with tempfile.TemporaryDirectory() as directory:
        env = StreamExecutionEnvironment(SESSION).set_parallelism(PARTITIONS)
        env.enable_checkpointing(1_000, directory, incremental=True)
        records = env.from_rdd(
            numbers.map(lambda i: f"customer-{i * 7919 % keys}"), partitions_per_epoch=PARTITIONS
        )
        counted = records.key_by(lambda key: key, key_type=Types.STRING()).process(epoch_cost.Count())
        counted.sink_to(epoch_cost.Discard())
        started = time.perf_counter()
        result = env.execute("large state")
        seconds = time.perf_counter() - started
    memory.stop()
    processed = result.get_accumulator_result("Count.records_in")
    if processed != args.records:
        raise AssertionError(f"processed {processed} of {args.records} records")
    figures = {
        "records_per_s": round(args.records / seconds),
        "peak_gib": round(memory.peak / 1024**3, 2),
        "slots_peak_gib": round(memory.slots_peak / 1024**3, 2),
        "checkpoints": len(result.checkpoints),
        "state_mib": round(result.checkpoints[-1].size_bytes / 1024**2, 1),
    }
    tell(figures, args.json)


if __name__ == "__main__":
    # Workers import the function from beside this file.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH")]))
    SESSION = local_session(PARTITIONS)
    main()
