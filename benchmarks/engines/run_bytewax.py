"""Bytewax, two worker processes (a worker's Python code holds the interpreter lock, so not threads)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import bytewax.operators as op
import owned
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import windowing as win
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from workload import GAP_MS, MINUTE_MS, PARALLELISM, key_of, main

BATCH = 1_000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Numbers(StatefulSourcePartition[int, int]):
    """A part of the numbers, every ``PARALLELISM``-th, so that the parts have about the same times."""

    def __init__(self, first: int, stop: int) -> None:
        self.next = first
        self.stop = stop

    def next_batch(self) -> Iterable[int]:
        if self.next >= self.stop:
            raise StopIteration
        batch = range(self.next, min(self.next + BATCH * PARALLELISM, self.stop), PARALLELISM)
        self.next += BATCH * PARALLELISM
        return batch

    def snapshot(self) -> int:
        return self.next


class NumberSource(FixedPartitionedSource[int, int]):
    def __init__(self, records: int) -> None:
        self.records = records

    def list_parts(self) -> list[str]:
        return [str(part) for part in range(PARALLELISM)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Numbers:
        return Numbers(int(for_part), self.records)


class Lines(StatelessSinkPartition[tuple[str, int]]):
    """Appends results to a file of its own, or throws them away."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def write_batch(self, items: list[tuple[str, int]]) -> None:
        if self.path is not None:
            with self.path.open("a") as file:
                file.writelines(f"{key},{count}\n" for key, count in items)


class LinesSink(DynamicSink[tuple[str, int]]):
    def __init__(self, folder: str | None) -> None:
        self.folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Lines:
        return Lines(None if self.folder is None else Path(self.folder, f"part-{worker_index}"))


def count(total: int | None, _: int) -> tuple[int, int]:
    total = (total or 0) + 1
    return total, total


def time_of(number: int) -> datetime:
    return EPOCH + timedelta(milliseconds=number)


def windowed(keyed: Any, workload: str) -> Any:
    # Each key has a clock of its own, and all its records come from one part in the order of their times. The
    # clock goes on while nothing comes, so without a wait, what is held up would be late.
    clock = win.EventClock(ts_getter=time_of, wait_for_system_duration=timedelta(milliseconds=MINUTE_MS))
    windower: Any = win.SessionWindower(gap=timedelta(milliseconds=GAP_MS))
    if workload == "tumbling":
        windower = win.TumblingWindower(length=timedelta(milliseconds=MINUTE_MS), align_to=EPOCH)
    folded = win.fold_window(
        "fold",
        keyed,
        clock,
        windower,
        builder=lambda: 0,
        folder=lambda n, _: n + 1,
        merger=lambda a, b: a + b,
    )
    return op.map("strip", folded.down, lambda item: (item[0], item[1][1]))


def dataflow() -> Dataflow:
    workload, records = os.environ["PEERS_WORKLOAD"], int(os.environ["PEERS_RECORDS"])
    flow = Dataflow("peers")
    numbers = op.input("numbers", flow, NumberSource(records))
    keyed = op.key_on("key", numbers, lambda number: str(key_of(number)))
    if workload == "keyed_count":
        results = op.stateful_map("count", keyed, count)
    else:
        results = windowed(keyed, workload)
    op.output("out", results, LinesSink(os.environ.get("PEERS_FOLDER")))
    return flow


def run(workload: str, records: int, check: bool) -> tuple[float, list[tuple[int, int]] | None]:
    if workload == "timers":
        raise SystemExit("bytewax has no event-time timers")
    with TemporaryDirectory() as folder:
        settings = {"PEERS_WORKLOAD": workload, "PEERS_RECORDS": str(records)}
        if check:
            settings["PEERS_FOLDER"] = folder
        command = [sys.executable, "-m", "bytewax.testing", f"{Path(__file__).stem}:dataflow", "-p", "2"]
        started = time.perf_counter()
        owned.run(command, env=os.environ | settings, cwd=Path(__file__).parent, check=True)
        seconds = time.perf_counter() - started
        if not check:
            return seconds, None
        lines = [line for part in Path(folder).iterdir() for line in part.read_text().splitlines()]
    pairs = (line.split(",") for line in lines)
    return seconds, [(int(key), int(counted)) for key, counted in pairs]


if __name__ == "__main__":
    main(f"bytewax {version('bytewax')}", run)
