"""What users' type checkers make of programs: nothing of the right ones, each fault of the wrong ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiers import cases

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
#: A file's name and the number of a line.
Place = tuple[str, int]


def places_with_a_fault() -> set[Place]:
    return {
        (path.name, number)
        for path in PROGRAMS.glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if line.endswith("# wrong")
    }


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def found_by_mypy() -> set[Place]:
    told = run("mypy", "--strict", "--no-error-summary", *map(str, sorted(PROGRAMS.glob("*.py"))))
    return {(name, int(number)) for name, number in re.findall(r"(\w+\.py):(\d+): error", told)}


def found_by_pyright() -> set[Place]:
    told = json.loads(run("pyright", "--pythonpath", sys.executable, "--outputjson", str(PROGRAMS)))
    return {
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1)
        for one in told["generalDiagnostics"]
        if one["severity"] == "error"
    }


@pytest.mark.parametrize("found", cases([found_by_mypy, found_by_pyright], quick=[found_by_mypy]))
def test_a_wrong_use_is_found_at_its_line_and_nothing_else(found: Callable[[], set[Place]]) -> None:
    assert len(places_with_a_fault()) > 20
    assert found() == places_with_a_fault()
