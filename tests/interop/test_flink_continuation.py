"""Flink stops a program with a savepoint and continues it, on either backend.

Both runs are Flink's own. They show that the harness is exact (clock, input, order of each key), and what
they write is the expected output of the tests in which this project restores or writes the savepoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from flink_runs import Backend, Program, Run, run_in_flink
from interop_input import BEGIN_MS, CONTINUED_MS, Input, generated

PROGRAMS: list[Program] = ["java", "process", "thread"]
KEYS = 100_000


@dataclass(frozen=True)
class Stopped:
    """A program that has read half of its input."""

    program: Program
    given: Input
    run: Run


@pytest.fixture(scope="module", params=PROGRAMS)
def stopped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """A savepoint that Flink has written after the first half of the input."""
    given = generated(KEYS)
    folder = tmp_path_factory.mktemp("savepoints")
    run = run_in_flink(request.param, given.first, savepoint_to=folder, clock_ms=BEGIN_MS)
    return Stopped(request.param, given, run)


def continued(stopped: Stopped, savepoint: Path, backend: Backend = "hashmap") -> Run:
    """Return Flink's continuation of a savepoint, with the second half of the input."""
    return run_in_flink(
        stopped.program,
        stopped.given.second,
        restore_from=savepoint,
        backend=backend,
        clock_ms=CONTINUED_MS,
        first_written=stopped.given.due_timers,
    )


def test_nothing_is_lost_or_early_before_the_savepoint(stopped: Stopped) -> None:
    written = [line.split(",")[0] for line in stopped.run.lines]
    assert written.count("kinds") == stopped.given.records_of(stopped.given.first)
    assert "clock" not in written
    assert written.count("event") > 0


def test_flink_continues_its_own_savepoint_on_both_backends(stopped: Stopped) -> None:
    """On RocksDB too, which reads the same canonical savepoint."""
    assert stopped.run.savepoint is not None
    on_heap = continued(stopped, stopped.run.savepoint)
    written = [line.split(",")[0] for line in on_heap.lines]
    assert written.count("kinds") == stopped.given.records_of(stopped.given.second)
    assert written.count("clock") == stopped.given.due_timers
    on_rocksdb = continued(stopped, stopped.run.savepoint, "rocksdb")
    assert on_rocksdb.by_key() == on_heap.by_key()
