"""Fixtures that all tests may use. One Spark session serves all tests that need one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data" / "online_retail"


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    from pyflinkstate.runtime.spark import local_session

    session = local_session()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def retail_dir() -> Path:
    """The real event stream, which lies beside the project on machines that have it."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real event stream is not here")
    return SHARED_DATA


def slot_pids() -> set[int]:
    """The state slots that this process's Spark application has running."""
    listing = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], check=True, capture_output=True, text=True)
    rows = [line.split(None, 2) for line in listing.stdout.splitlines()]
    family = {os.getpid()}
    while more := {int(pid) for pid, parent, *_ in rows if int(parent) in family} - family:
        family |= more
    return {
        int(row[0])
        for row in rows
        if int(row[0]) in family and len(row) == 3 and "pyflinkstate.runtime.slot" in row[2]
    }


@pytest.fixture
def no_slot_left() -> Iterator[None]:
    """Assert that a test left no state slot behind; a slot that is just ending may finish."""
    yield
    import time

    deadline = time.monotonic() + 30
    while slot_pids() and time.monotonic() < deadline:
        os.sched_yield()
    assert not slot_pids()
