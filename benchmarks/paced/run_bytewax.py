"""Bytewax, two worker processes, without recovery."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import bytewax.operators as op
import owned
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from pace import NUMBERS, PARALLELISM, SECOND_NS, Arrivals, Pace, all_have_arrived, main, wait_for

Due = tuple[int, int]
Counted = tuple[int, int, int]


class Part(StatefulSourcePartition[Due, int]):
    """Every ``PARALLELISM``-th record, when it is due; bytewax sleeps until ``next_awake``."""

    def __init__(self, pace: Pace, first: int) -> None:
        self.pace = pace
        self.start_ns = pace.start_ns()
        self.number = first

    def next_batch(self) -> Iterable[Due]:
        due = self.pace.due_before(self.start_ns, time.time_ns())
        numbers = range(self.number, due, PARALLELISM)
        self.number += len(numbers) * PARALLELISM
        return [(number, self.pace.due_ns(self.start_ns, number)) for number in numbers]

    def next_awake(self) -> datetime:
        due_ns = self.pace.due_ns(self.start_ns, self.number)
        return datetime.fromtimestamp(due_ns / SECOND_NS, timezone.utc)

    def snapshot(self) -> int:
        return self.number


class PacedSource(FixedPartitionedSource[Due, int]):
    def __init__(self, pace: Pace) -> None:
        self.pace = pace

    def list_parts(self) -> list[str]:
        return [str(part) for part in range(PARALLELISM)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Part:
        return Part(self.pace, int(for_part))


class Logging(StatelessSinkPartition[tuple[str, Counted]]):
    def __init__(self, folder: Path) -> None:
        self.arrivals = Arrivals(folder)

    def write_batch(self, items: list[tuple[str, Counted]]) -> None:
        for _, counted in items:
            self.arrivals.note(*counted)

    def close(self) -> None:
        self.arrivals.close()


class LoggingSink(DynamicSink[tuple[str, Counted]]):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Logging:
        return Logging(self.folder)


def count(total: int | None, record: Due) -> tuple[int, Counted]:
    total = (total or 0) + 1
    return total, (*record, total)


def dataflow() -> Dataflow:
    """Return the program; called in each worker process."""
    owned.end_with(os.getppid())
    folder, *numbers = os.environ["PACED"].split(os.pathsep)
    pace = Pace(Path(folder), *map(int, numbers))
    flow = Dataflow("paced")
    records = op.input("records", flow, PacedSource(pace))
    keyed = op.key_on("key", records, lambda record: str(pace.key_of(record[0])))
    op.output("out", op.stateful_map("count", keyed, count), LoggingSink(pace.folder))
    return flow


def run(pace: Pace) -> None:
    numbers = (getattr(pace, name) for name in NUMBERS)
    settings = {"PACED": os.pathsep.join(map(str, (pace.folder, *numbers)))}
    flow = f"{Path(__file__).stem}:dataflow"
    command = [sys.executable, "-m", "bytewax.testing", flow, "-p", str(PARALLELISM)]
    with owned.start(command, env=os.environ | settings, cwd=Path(__file__).parent) as workers:
        wait_for(pace, all_have_arrived, lambda: workers.poll() is None)
        workers.kill()


if __name__ == "__main__":
    main(f"bytewax {version('bytewax')}", run)
