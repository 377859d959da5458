"""Flink stops a program with a savepoint and continues it, on either backend.

Both runs are Flink's own. They show that the harness is exact (clock, input, order of each key), and what
they write is the expected output of the tests in which this project restores or writes the savepoint.
"""

from __future__ import annotations

from collections import Counter

import pytest
from flink_runs import Backend, Program
from interop_jobs import Jobs

PROGRAMS: list[Program] = ["java", "process", "thread"]
BACKENDS: list[Backend] = ["hashmap", "rocksdb"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_is_due_before_the_savepoint_that_shall_not_be(jobs: Jobs, program: Program) -> None:
    written = Counter(line.split(",")[0] for line in jobs.stopped(program).lines)
    assert written["kinds"] == jobs.given.records_of(jobs.given.first)
    assert written["clock"] == written["sessions"] == 0
    assert written["event"] == written["tumbling"] == jobs.keys


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_flink_continues_its_own_savepoint(jobs: Jobs, program: Program, backend: Backend) -> None:
    """As Java on the heap: in each program, on each backend."""
    expected = jobs.continued("java", jobs.stopped("java").savepoint, "hashmap").by_key()
    if program == "thread":  # it has no session windows
        expected = {key: lines for key, lines in expected.items() if not key.startswith("sessions,")}
    found = jobs.continued(program, jobs.stopped(program).savepoint, backend)
    assert found.by_key() == expected
    assert sum(line.startswith("clock,") for line in found.lines) == jobs.given.due_timers
