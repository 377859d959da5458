"""Fixtures of the monitor's tests: jobs on the runner that takes Spark's place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from slot_functions import Count
from support_job import JobRun, numbers
from support_runtime import PICKLED
from support_web import monitor_with, story

from pyflinkstate.monitor.hub import Monitor
from pyflinkstate.runtime.plan.nodes import ChainNode, StatefulNode
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders


@pytest.fixture(autouse=True)
def _slots(forked_slots: None) -> Iterator[None]:
    """For every test of the room."""
    return


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    """A page with a job that has ended."""
    made = monitor_with(story())
    yield made
    made.close()


@pytest.fixture
def run(storage: CheckpointFolders) -> JobRun:
    """A job with checkpoints: counts 0..9 by their last bit, three an epoch, in two subtasks."""
    tens: Any = ChainNode(numbers(), "map", lambda n: n * 10, "tens")
    counts = StatefulNode(tens, lambda n: n // 10 % 2, PICKLED, Count(), "count", uid="counts")
    return JobRun(counts, DriverSink(lambda _, values: None), storage, parallelism=2)
