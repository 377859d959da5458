"""Runs PyFlink programs on this package and compares what they print with what they print on PyFlink.

::

    python scripts/compare_with_pyflink.py <folder of programs> <folder of expected outputs>

A program ``<name>.py``, in any folder below the first, is compared with ``<name>.txt`` in the second;
programs without an expected output are not run. Nothing is changed in a program but ``pyflink`` in its
imports, in a copy. Output is compared as it is where the program sets parallelism 1; else as a multiset of
lines without the numbers of subtasks, which PyFlink does not promise either. There is no order between the
streams of a union, so the output of a program with one is compared as a multiset too. Which names of PyFlink
a program shows is said in its ``COVERS``; ``tests/api/pyflink_coverage.py`` reads that.

Programs that have no expected output yet get it from PyFlink, whose interpreter is named::

    python scripts/compare_with_pyflink.py tests/spark/features tests/spark/features --record <python>
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

TIMEOUT_S = 900
_IMPORT = re.compile(r"^(\s*(?:from|import)\s+)pyflink\b", re.MULTILINE)
_SUBTASK = re.compile(r"^\d+> ", re.MULTILINE)


class Outcome(NamedTuple):
    """How a program fared."""

    name: str
    how: str
    lines: int
    seconds: float
    problem: str


def rewritten(program: str) -> str:
    """Return a program with its imports changed.

    >>> rewritten("from pyflink.common import Types\\nprint('pyflink')")
    "from pyflinkstate.common import Types\\nprint('pyflink')"
    """
    return _IMPORT.sub(r"\1pyflinkstate", program)


def is_of_tables(program: Path) -> bool:
    """Whether a program uses the Table API, which is not here."""
    return re.search(r"^\s*(?:from|import)\s+pyflink\.table\b", program.read_text(), re.MULTILINE) is not None


def run(program: Path, folder: Path) -> tuple[str, str]:
    """Run the program's copy; return what it printed, and what went wrong."""
    copy = folder / program.name
    copy.write_text(rewritten(program.read_text()))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return _printed(sys.executable, copy, environment, folder)


def record(python: Path, program: Path, expected: Path, folder: Path) -> str:
    """Keep what a program prints on PyFlink as what is expected of it; return what went wrong."""
    # PyFlink's own scripts call whichever "python" they find.
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    found, problem = _printed(str(python), program.absolute(), {**os.environ, "PATH": path}, folder)
    if not problem:
        expected.write_text(found)
    return problem


def _printed(python: str, program: Path, environment: dict[str, str], folder: Path) -> tuple[str, str]:
    try:
        done = subprocess.run(
            [python, str(program)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment,
            cwd=folder,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"it did not end within {TIMEOUT_S} s"
    problem = "" if done.returncode == 0 else f"exit code {done.returncode}\n{done.stderr[-2000:]}"
    return done.stdout, problem


def difference(expected: str, found: str, exact: bool) -> str:
    """Return how two outputs differ; empty where they do not."""
    wanted, lines = expected.splitlines(), found.splitlines()
    if exact:
        return "\n".join(difflib.unified_diff(wanted, lines, "expected", "found", lineterm="", n=0))
    less, more = (Counter(_SUBTASK.sub("", "\n".join(side)).splitlines()) for side in (wanted, lines))
    if less == more:
        return ""
    return f"missing: {dict(less - more)}\nnot expected: {dict(more - less)}"


def compare(program: Path, expected: Path, folder: Path) -> Outcome:
    """Run one program and compare."""
    text = program.read_text()
    exact = "set_parallelism(1)" in text and ".union(" not in text
    began = time.perf_counter()
    found, problem = run(program, folder)
    seconds = time.perf_counter() - began
    problem = problem or difference(expected.read_text(), found, exact)
    how = "exact" if exact else "as a multiset"
    return Outcome(program.stem, how, len(found.splitlines()), seconds, problem)


def main() -> int:
    """Compare all programs and print a table; return 1 where one differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("programs", type=Path, help="a folder of PyFlink programs")
    parser.add_argument("expected", type=Path, help="a folder of what each prints, <name>.txt")
    parser.add_argument("--only", help="the name of one program")
    parser.add_argument("--record", type=Path, help="PyFlink's Python, which gives outputs not there yet")
    arguments = parser.parse_args()
    programs = {
        path.stem: path for path in sorted(arguments.programs.rglob("*.py")) if not is_of_tables(path)
    }
    if arguments.record is not None:
        return record_missing(arguments.record, programs, arguments.expected, arguments.only)
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        for expected in sorted(arguments.expected.glob("*.txt")):
            if expected.stem in programs and arguments.only in (None, expected.stem):
                outcomes.append(compare(programs[expected.stem], expected, Path(folder)))
                print(row(outcomes[-1]), flush=True)
    equal = sum(not outcome.problem for outcome in outcomes)
    print(f"{equal} of {len(outcomes)} print what they print on PyFlink")
    return 0 if outcomes and equal == len(outcomes) else 1


def record_missing(python: Path, programs: dict[str, Path], expected: Path, only: str | None) -> int:
    """Record what is expected of the programs of which nothing is; return 1 where one fails."""
    problems = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, program in programs.items():
            kept = expected / f"{name}.txt"
            if not kept.exists() and only in (None, name):
                problems[name] = record(python, program, kept, Path(folder))
                print(name, problems[name] or "recorded", flush=True)
    return 1 if any(problems.values()) else 0


def row(outcome: Outcome) -> str:
    """Return a line of the table, and below it what is wrong."""
    verdict = "differs" if outcome.problem else "equal"
    line = f"{outcome.name:35} {verdict:8} {outcome.how:14} {outcome.lines:4} lines {outcome.seconds:6.1f} s"
    return "\n".join([line, *(f"    {text}" for text in outcome.problem.splitlines())])


if __name__ == "__main__":
    sys.exit(main())
