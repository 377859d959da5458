"""A week of epochs, one a second: files and bytes of sink, journal and checkpoints, and memory, stay bounded.

    python tests/soak/soak_week.py [--epochs 600000]

Without Spark and without tasks: each epoch writes a few records, completes a checkpoint, commits, and is
noted in the journal. Now and then the driver is restarted, from the newest checkpoint or an older one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from support_runtime import metadata

from pyflinkstate import FileCompactStrategy, FileSink, RunHistory
from pyflinkstate.monitor.journal import MOST_SEGMENTS, SEGMENT_BYTES, Journal, encode
from pyflinkstate.runtime.storage import CheckpointFolders, run_id_after

JOB = "a" * 32
DAY = 86_400
WEEK = 600_000
#: Commits that are joined, and epochs between two restarts; each tenth goes back further.
JOINED = 100
RUN_EPOCHS = 5_000
RETURN_EPOCHS = 30
MOST_FILES_A_DAY = 2_000
MOST_RISE_BYTES = 20 << 20


class Driver:
    """What a driver does to its files, epoch after epoch."""

    def __init__(self, directory: Path, joined: int = JOINED) -> None:
        self.out, self._directory = directory / "out", directory
        self._strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(joined).build()
        self._storage = CheckpointFolders(str(directory / "checkpoints"))
        self._line = RunHistory()
        self._history: list[Any] = []
        self.epoch, self.runs = 0, 0

    def restart(self, epoch: int) -> None:
        """Begin a run that goes on from an epoch."""
        known = [run for run, _ in self._line.runs]
        self._run = run_id_after(known, f"{self.runs:08x}")
        self._line, self.runs = self._line.continued(epoch, self._run), self.runs + 1
        self._storage.write_run(JOB, self._run)
        for checkpoint_id in self._storage.completed(JOB):
            if checkpoint_id > epoch:
                self._storage.set_aside(JOB, checkpoint_id, self._run)
        for uri in self._storage.outdated(JOB, time.time_ns() // 1_000_000):
            self._storage.discard(uri)
        self._storage.forget_runs(JOB, before=self._run)
        self._sink = FileSink(str(self.out), "text", compact=self._strategy)
        self._sink.open_run(JOB, self._line, epoch or None)
        self._journal = Journal(str(self._directory / "checkpoints" / JOB), self.runs)
        self.epoch = epoch

    def run_epoch(self) -> None:
        """Run an epoch, complete its checkpoint, and commit."""
        self.epoch = epoch = self.epoch + 1
        names = list(self._sink.writer(epoch).write(0, iter([f"{epoch} {self.runs}"])))
        self._sink.prepare(epoch, names)
        self._storage.begin(JOB, epoch)
        self._storage.complete(metadata(epoch, JOB, runs=self._line.runs))
        self._sink.commit(epoch)
        self._history = [{"checkpoint_id": epoch}, *self._history[:99]]
        self._storage.write_history(JOB, self._history)
        self._journal.write([encode({"event": "checkpoint", "id": epoch, "rest": "x" * 100})])
        if epoch > 1:
            self._storage.discard(self._storage.uri_of(JOB, epoch - 1))

    def release(self) -> None:
        """End the job."""
        self._sink.release()

    def shown(self) -> list[int]:
        """Return the epochs that readers find, in order."""
        lines = (path.read_text().splitlines() for path in self.out.glob("epoch=*/part-*"))
        return sorted(int(line.split()[0]) for found in lines for line in found)


def files_below(folder: Path) -> tuple[int, int]:
    """Return the number of files below a folder, and their bytes."""
    sizes = [
        os.stat(os.path.join(above, name)).st_size for above, _, names in os.walk(folder) for name in names
    ]
    return len(sizes), sum(sizes)


def check(driver: Driver, directory: Path, joined: int = JOINED) -> None:
    """Check that there are no more files and bytes than the epochs need."""
    files, _ = files_below(driver.out)
    most = 2 * (driver.epoch // joined) + 3 * driver.runs + joined + 20
    assert files <= most, f"{files} files of the sink after {driver.epoch} epochs in {driver.runs} runs"
    files, size_bytes = files_below(directory / "checkpoints")
    assert files <= 60 + MOST_SEGMENTS, f"{files} files beside the checkpoints"
    assert size_bytes < (MOST_SEGMENTS + 2) * SEGMENT_BYTES, f"{size_bytes} bytes beside the checkpoints"


def main() -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=WEEK)
    epochs = parser.parse_args().epochs
    with tempfile.TemporaryDirectory() as folder:
        directory, began_s = Path(folder), time.monotonic()
        driver = Driver(directory)
        warm_bytes = 0
        for number in range(epochs):
            if number % RUN_EPOCHS == 0:
                back = RETURN_EPOCHS if driver.runs % 10 == 9 else 0
                driver.restart(max(0, driver.epoch - back))
            driver.run_epoch()
            if number % (10 * RUN_EPOCHS) == RUN_EPOCHS - 1:
                check(driver, directory)
                rss_bytes = psutil.Process().memory_info().rss
                warm_bytes = warm_bytes or rss_bytes
                files, size_bytes = files_below(directory)
                print(
                    f"epoch {driver.epoch}, {time.monotonic() - began_s:.0f} s: {files} files, "
                    f"{size_bytes >> 20} MiB, {rss_bytes >> 20} MiB of memory",
                    flush=True,
                )
                assert rss_bytes - warm_bytes < MOST_RISE_BYTES, "memory rises"
        driver.release()
        assert driver.shown() == list(range(1, driver.epoch + 1)), "an epoch is missing, or there twice"
        a_day = files_below(driver.out)[0] * DAY / driver.epoch
        print(f"{a_day:.0f} files of output a day")
        assert driver.epoch < DAY or a_day <= MOST_FILES_A_DAY
    return 0


if __name__ == "__main__":
    sys.exit(main())
