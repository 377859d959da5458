"""Flink's savepoints are continued here, and those from here in Flink, and both write what Flink writes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from flink_runs import HERE, TIMEOUT_S, Backend, Program, Run
from interop_input import BEGIN_MS, CONTINUED_MS
from interop_jobs import Jobs

PROGRAMS: list[Program] = ["java", "process", "thread"]
BACKENDS: list[Backend] = ["hashmap", "rocksdb"]
FORMATS = {"java": "flink", "process": "flink-process", "thread": "flink-thread"}


def run_here(folder: Path, lines: Iterable[str], clock_ms: int, *arguments: object) -> Run:
    """Run the program here, on a Spark of its own; see ``run_here.py`` for the arguments."""
    given, output = folder / "lines", folder / "output"
    given.write_text("".join(f"{line}\n" for line in lines))
    environment = {
        **os.environ,
        "LD_PRELOAD": str(Path(os.environ["FLINK_ENVIRONMENT"]) / "clock.so"),
        "FLINK_CLOCK_MS": f"{clock_ms - time.time_ns() // 1_000_000:+d}",
        "PYTHONPATH": str(HERE),
    }
    command = [sys.executable, HERE / "run_here.py", given, output, *map(str, arguments)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ran.returncode == 0, ran.stderr[-8000:]
    return Run(output.read_text().splitlines(), None)


def expected(jobs: Jobs, program: Program) -> dict[str, list[str]]:
    """Return what Flink writes when it continues its own savepoint."""
    found = jobs.continued("java", jobs.stopped("java").savepoint, "hashmap").by_key()
    # In thread mode there are no session windows.
    return {key: found[key] for key in found if program != "thread" or not key.startswith("sessions,")}


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_savepoint_of_flink_is_continued_here(
    jobs: Jobs, program: Program, parallelism: int, tmp_path: Path
) -> None:
    has_sessions, savepoint = program != "thread", jobs.stopped(program).savepoint
    found = run_here(
        tmp_path,
        jobs.given.second,
        CONTINUED_MS,
        *("continue", parallelism, has_sessions, savepoint, tmp_path / "checkpoints"),
    )
    assert found.by_key() == expected(jobs, program)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_savepoint_written_here_is_continued_in_flink(jobs: Jobs, program: Program, tmp_path: Path) -> None:
    has_sessions = program != "thread"
    checkpoints, savepoint = tmp_path / "checkpoints", tmp_path / "savepoint"
    run_here(tmp_path, jobs.given.first, BEGIN_MS, FORMATS[program], 2, has_sessions, savepoint, checkpoints)
    for backend in BACKENDS:
        found = jobs.continued(program, savepoint, backend)
        assert found.by_key() == expected(jobs, program), backend
