"""Notes which tests reach which mutations; lies in a copy of the checkout, whose package calls it.

A plugin of pytest as well, which notes for how long each test ran. It tells all processes which test runs
now. Their environments do not: those of Spark were started by an earlier test.
"""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

NOTES = Path(__file__).with_suffix(".jsonl")
#: The number of the test that runs now, 0 between tests.
NOW = Path(__file__).with_suffix(".now")
_SIZE = 8
_noted: set[tuple[int, bytes]] = set()
_number = 0


def _shared() -> mmap.mmap:
    """Return the number that all processes share; it lasts as long as the file."""
    with NOW.open("a+b") as file:
        file.truncate(_SIZE)
        return mmap.mmap(file.fileno(), _SIZE)


_now = _shared()


def note(mutation: int) -> None:
    """The statement of a mutation runs, in a test or in any process that a test uses."""
    test = _now[:]
    if (mutation, test) not in _noted:
        _noted.add((mutation, test))
        _write({"mutation": mutation, "test": int.from_bytes(test, "little")})


def pytest_runtest_logstart() -> None:
    """A test begins."""
    global _number
    _number += 1
    _now[:] = _number.to_bytes(_SIZE, "little")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A part of a test is over."""
    if report.when == "call":
        _write({"test": _number, "name": report.nodeid, "seconds": report.duration})


def pytest_runtest_logfinish() -> None:
    """A test is over."""
    _now[:] = bytes(_SIZE)


def _write(line: dict[str, object]) -> None:
    descriptor = os.open(NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{json.dumps(line)}\n".encode())
    os.close(descriptor)
