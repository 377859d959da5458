"""Fixtures of the tests that run on a real local Spark; one session serves them all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import slot_pids

SHARED_DATA = Path(__file__).parents[3] / "shared" / "data" / "online_retail"


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


@pytest.fixture
def no_slot_left() -> Iterator[None]:
    """Assert that a test left no state slot behind; a slot that is just ending may finish."""
    yield
    deadline = time.monotonic() + 30
    while slot_pids() and time.monotonic() < deadline:
        os.sched_yield()
    assert not slot_pids()
