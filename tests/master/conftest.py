"""What tests of jobs share. Their slots are forks of one process, or the tests act them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support_job import JobRun, numbers
from support_slots import close_opened

from pyflinkstate.runtime.master import loop
from pyflinkstate.runtime.plan import ChainNode
from pyflinkstate.runtime.storage import CheckpointFolders


@pytest.fixture(autouse=True)
def _slots(forked_slots: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For every test of the room."""
    monkeypatch.setattr(loop, "TICK_S", 0.01)
    yield
    close_opened()


@pytest.fixture
def out() -> list[Any]:
    """What the sink has been given, in order."""
    return []


@pytest.fixture
def run(out: list[Any], storage: CheckpointFolders) -> JobRun:
    """A job with checkpoints: of 0..9, three an epoch, the even ones times ten."""
    even = ChainNode(numbers(), "filter", lambda n: n % 2 == 0, "even")
    tens = ChainNode(even, "map", lambda n: n * 10, "tens")
    return JobRun(tens, out=out, storage=storage)
