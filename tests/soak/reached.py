"""Notes which tests reach which mutations; lies in a copy of the checkout, whose package calls it.

A plugin of pytest as well, which notes for how long each test ran.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

NOTES = Path(__file__).with_suffix(".jsonl")
_noted: set[tuple[int, str]] = set()


def note(mutation: int) -> None:
    """The statement of a mutation runs, in a test or in a process that a test has started."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if (mutation, test) not in _noted:
        _noted.add((mutation, test))
        _write([mutation, test])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A part of a test is over."""
    if report.when == "call":
        _write([report.duration, report.nodeid])


def _write(line: list[object]) -> None:
    descriptor = os.open(NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{json.dumps(line)}\n".encode())
    os.close(descriptor)
